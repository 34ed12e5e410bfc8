//! The memory that unwinding reads: a copy of a stack, a second source behind it, code bytes.

use std::ops::Range;

use wcprof_types::{Avma, RED_ZONE, StackEnd};

use crate::call::{CALL_LOOKBEHIND, is_preceded_by_call};

/// Why eight bytes of a stack could not be read.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ReadError {
    /// They lie above the copied range, but in memory that could have been copied.
    BeyondCopy,
    /// They lie right below the copied range, where a function without calls may keep something that was not copied. What
    /// is there later says nothing about it.
    RedZone,
    /// They lie anywhere else.
    Unreadable,
}

impl From<ReadError> for StackEnd {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::BeyondCopy | ReadError::RedZone => Self::CopyTooShort,
            ReadError::Unreadable => Self::UnreadableStack,
        }
    }
}

/// Stack memory of one thread at one time.
pub trait StackMemory {
    /// Eight bytes at `address` (little-endian).
    fn read(&mut self, address: u64) -> Result<u64, ReadError>;

    /// The range that can be searched for saved frame pointers: bytes at hand, from the stack
    /// pointer upward.
    fn searchable(&self) -> Range<u64>;

    /// Whether a read since the last call of this method came from a source that may have changed
    /// since the sample was taken. Return addresses read from it are checked.
    fn took_unsure(&mut self) -> bool {
        false
    }
}

/// A copy of a stack from its stack pointer upward.
#[derive(Copy, Clone, Debug)]
pub struct StackCopy<'a> {
    base: u64,
    bytes: &'a [u8],
    limit: u64,
}

impl<'a> StackCopy<'a> {
    /// `bytes` were copied from `base`; `limit` is the first address after the memory that could
    /// have been copied, the end of the stack's mapping (`u64::MAX` when that is not known).
    pub fn new(base: Avma, bytes: &'a [u8], limit: Avma) -> Self {
        Self {
            base: base.0,
            bytes,
            limit: limit.0,
        }
    }
}

impl StackMemory for StackCopy<'_> {
    #[inline]
    fn read(&mut self, address: u64) -> Result<u64, ReadError> {
        let offset = address.wrapping_sub(self.base);
        if let Some(bytes) = usize::try_from(offset)
            .ok()
            .and_then(|o| self.bytes.get(o..))
            .and_then(|b| b.first_chunk())
        {
            return Ok(u64::from_le_bytes(*bytes));
        }
        if address >= self.base && address.checked_add(8).is_some_and(|end| end <= self.limit) {
            Err(ReadError::BeyondCopy)
        } else if (self.base.saturating_sub(RED_ZONE as u64)..self.base).contains(&address) {
            Err(ReadError::RedZone)
        } else {
            Err(ReadError::Unreadable)
        }
    }

    fn searchable(&self) -> Range<u64> {
        self.base..self.base.saturating_add(self.bytes.len() as u64)
    }
}

/// A copy that is shorter than the stack, continued by another source (the target's live memory).
/// The stack below the copy's end may have changed since, so that each return address from the
/// second source is checked: it must lie behind a call instruction.
#[derive(Debug)]
pub struct SplicedStack<'a, M: ?Sized> {
    copy: StackCopy<'a>,
    rest: &'a mut M,
    unsure: bool,
}

impl<'a, M: StackMemory + ?Sized> SplicedStack<'a, M> {
    /// `rest` is read where `copy` has no bytes, but not for the red zone.
    pub fn new(copy: StackCopy<'a>, rest: &'a mut M) -> Self {
        Self {
            copy,
            rest,
            unsure: false,
        }
    }
}

impl<M: StackMemory + ?Sized> StackMemory for SplicedStack<'_, M> {
    fn read(&mut self, address: u64) -> Result<u64, ReadError> {
        self.copy.read(address).or_else(|error| {
            if error == ReadError::RedZone {
                return Err(error);
            }
            let value = self.rest.read(address).map_err(|_| error)?;
            self.unsure = true;
            Ok(value)
        })
    }

    fn searchable(&self) -> Range<u64> {
        self.copy.searchable()
    }

    fn took_unsure(&mut self) -> bool {
        std::mem::take(&mut self.unsure)
    }
}

/// Code of the target, read only to check guesses; may come from the modules' files.
pub trait TextMemory {
    /// Fills `bytes` from `address`; false when not all of them could be read.
    fn read_text(&mut self, address: Avma, bytes: &mut [u8]) -> bool;
}

impl<F: FnMut(Avma, &mut [u8]) -> bool> TextMemory for F {
    fn read_text(&mut self, address: Avma, bytes: &mut [u8]) -> bool {
        self(address, bytes)
    }
}

/// Whether a call precedes an address.
pub(crate) fn is_called(text: &mut dyn TextMemory, address: u64) -> bool {
    is_preceded_by_call(bytes_before(text, address, &mut [0; CALL_LOOKBEHIND]))
}

/// The bytes before a return address, as many as can be read (0 to [`CALL_LOOKBEHIND`]).
pub(crate) fn bytes_before<'b>(
    text: &mut dyn TextMemory,
    address: u64,
    buffer: &'b mut [u8; CALL_LOOKBEHIND],
) -> &'b [u8] {
    // Fewer bytes are there when the call is the first instruction of its mapping.
    for len in (2..=CALL_LOOKBEHIND).rev() {
        let Some(from) = address.checked_sub(len as u64) else {
            continue;
        };
        if text.read_text(Avma(from), &mut buffer[..len]) {
            return &buffer[..len];
        }
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check where a copy ends, what lies above it, and what lies outside the mapping.
    #[test]
    fn copy_bounds() {
        let bytes: Vec<u8> = (0..20).collect();
        let mut copy = StackCopy::new(Avma(0x1000), &bytes, Avma(0x2000));
        assert_eq!(copy.read(0x1000), Ok(0x0706_0504_0302_0100));
        assert_eq!(copy.read(0x100c), Ok(0x1312_1110_0f0e_0d0c));
        assert_eq!(copy.read(0x100d), Err(ReadError::BeyondCopy));
        assert_eq!(copy.read(0x1ff8), Err(ReadError::BeyondCopy));
        assert_eq!(copy.read(0x1ff9), Err(ReadError::Unreadable));
        assert_eq!(copy.read(0xff8), Err(ReadError::RedZone));
        assert_eq!(copy.read(0xf80), Err(ReadError::RedZone));
        assert_eq!(copy.read(0xf78), Err(ReadError::Unreadable));
        assert_eq!(copy.read(u64::MAX), Err(ReadError::Unreadable));
    }

    /// Check that only reads beyond the copy reach the second source, and mark it as unsure.
    #[test]
    fn splice_marks() {
        let (low, high) = ([1_u8; 8], [2_u8; 16]);
        let mut rest = StackCopy::new(Avma(0x1000), &high, Avma(0x1010));
        let copy = StackCopy::new(Avma(0x1000), &low, Avma(0x1010));
        let mut spliced = SplicedStack::new(copy, &mut rest);
        assert_eq!(spliced.read(0x1000), Ok(0x0101_0101_0101_0101));
        assert!(!spliced.took_unsure());
        assert_eq!(spliced.read(0x1008), Ok(0x0202_0202_0202_0202));
        assert!(spliced.took_unsure() && !spliced.took_unsure());
        assert_eq!(spliced.read(0x1010), Err(ReadError::Unreadable));
        assert_eq!(spliced.read(0xff8), Err(ReadError::RedZone));
    }
}
