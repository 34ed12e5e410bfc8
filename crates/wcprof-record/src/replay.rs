//! Remembers unwound stacks: an unwinding is a function of its registers and of the words it read,
//! so where both are the same as before, so is the stack. Registers that calls do not preserve hold other values each time;
//! stacks that they may have told are not remembered, so that the others need not compare them. Threads that come back to the same wait
//! are the rule, and comparing some words is far cheaper than unwinding.

use std::collections::HashMap;
use std::ops::Range;

use wcprof_trace::model::StackId;
use wcprof_types::{StackEnd, UserRegs};
use wcprof_unwind::{ReadError, StackMemory};

/// Words that remembered stacks may have read, 16 bytes each: the stacks of 5000 threads and more. Beyond it, stacks are
/// forgotten that were not seen while half of it filled.
const MAX_WORDS: usize = 1 << 19;
/// What a stack takes beside them, in words.
const WORDS_PER_STACK: usize = 12;
/// Words that one remembered stack may have read; longer unwindings are not remembered.
const MAX_READS: usize = 512;

/// A stack that was unwound before.
#[derive(Clone, Debug)]
struct Known {
    /// Offsets from the stack pointer and the words found there.
    reads: Box<[(i32, u64)]>,
    stack: StackId,
    end: StackEnd,
}

impl Known {
    fn n_words(&self) -> usize {
        self.reads.len() + WORDS_PER_STACK
    }
}

/// What is mapped in a process, until it changes.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct AddressSpace(u64);

/// Where an unwinding begins: registers without those that calls do not preserve. They name thread and place: no two threads
/// share a stack pointer.
pub(crate) type Begin = (AddressSpace, UserRegs);

/// Stacks of all processes by where they begin.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    /// Those seen lately.
    young: HashMap<Begin, Known>,
    /// What was `young` before, without those seen since.
    old: HashMap<Begin, Known>,
    /// Size of `young`.
    n_words: usize,
    n_spaces: u64,
}

impl Replay {
    /// Another process, or other mappings.
    pub(crate) fn address_space(&mut self) -> AddressSpace {
        self.n_spaces += 1;
        AddressSpace(self.n_spaces)
    }

    /// The stack of a copy that gives every word of the last unwinding that began there. The first `below` bytes of the
    /// copy lie below the stack pointer.
    pub(crate) fn find(
        &mut self,
        begin: &Begin,
        copy: &[u8],
        below: usize,
    ) -> Option<(StackId, StackEnd)> {
        let known = match self.young.get(begin) {
            Some(known) => known,
            None => {
                let known = self.old.remove(begin)?;
                self.add(*begin, known);
                self.young.get(begin)?
            }
        };
        let same = known.reads.iter().all(|&(offset, word)| {
            let at = below.checked_add_signed(offset as isize);
            let bytes = at.and_then(|at| copy.get(at..));
            bytes
                .and_then(|b| b.first_chunk())
                .map(|b| u64::from_le_bytes(*b))
                == Some(word)
        });
        same.then_some((known.stack, known.end))
    }

    /// Remembers an unwinding; those that needed more than the copy are left out.
    pub(crate) fn remember(&mut self, begin: &Begin, reads: &Reads, stack: StackId, end: StackEnd) {
        if reads.incomplete || end == StackEnd::CopyTooShort {
            return;
        }
        let known = Known {
            reads: reads.words.clone().into(),
            stack,
            end,
        };
        self.add(*begin, known);
    }

    fn add(&mut self, begin: Begin, known: Known) {
        if self.n_words >= MAX_WORDS / 2 {
            self.old = std::mem::take(&mut self.young);
            self.n_words = 0;
        }
        self.n_words += known.n_words();
        let before = self.young.insert(begin, known);
        self.n_words -= before.map_or(0, |known| known.n_words());
    }

    /// Stacks have other ids.
    pub(crate) fn forget(&mut self) {
        *self = Self {
            n_spaces: self.n_spaces,
            ..Self::default()
        };
    }
}

/// What an unwinding read.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    words: Vec<(i32, u64)>,
    /// Bytes from the stack pointer upward that it needed.
    pub(crate) extent: usize,
    incomplete: bool,
}

impl Reads {
    pub(crate) fn clear(&mut self) {
        self.words.clear();
        self.extent = 0;
        self.incomplete = false;
    }
}

/// Stack memory that notes what is read of it.
pub(crate) struct Watched<'a, M> {
    pub(crate) memory: M,
    /// The stack pointer.
    pub(crate) sp: u64,
    pub(crate) reads: &'a mut Reads,
}

impl<M: StackMemory> StackMemory for Watched<'_, M> {
    fn read(&mut self, address: u64) -> Result<u64, ReadError> {
        let read = self.memory.read(address);
        let offset = i32::try_from(address.wrapping_sub(self.sp).cast_signed());
        match (read, offset) {
            (Ok(word), Ok(offset)) if self.reads.words.len() < MAX_READS => {
                self.reads.words.push((offset, word));
                let end = usize::try_from(offset).map_or(0, |offset| offset + 8);
                self.reads.extent = self.reads.extent.max(end);
            }
            // What could not be read might be readable the next time.
            _ => self.reads.incomplete = true,
        }
        read
    }

    fn searchable(&self) -> Range<u64> {
        // A search depends on words that it does not read through here in order.
        self.memory.searchable()
    }

    fn took_unsure(&mut self) -> bool {
        self.memory.took_unsure()
    }
}

#[cfg(test)]
mod tests {
    use wcprof_types::Avma;
    use wcprof_unwind::StackCopy;

    use super::*;

    fn copy_of(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    fn read(bytes: &[u8], addresses: &[u64], reads: &mut Reads) {
        reads.clear();
        let memory = StackCopy::new(Avma(0x1000), bytes, Avma(0x2000));
        let mut watched = Watched {
            memory,
            sp: 0x1000,
            reads,
        };
        for &address in addresses {
            // The outcome is what is being noted.
            let _ = watched.read(address);
        }
    }

    fn begin(replay: &mut Replay, ip: u64) -> Begin {
        let regs = UserRegs {
            ip: Avma(ip),
            sp: Avma(0x1000),
            ..UserRegs::default()
        };
        (replay.address_space(), regs)
    }

    /// Check that the same words are found again, that a word that was not read may differ, and
    /// that one that was read may not.
    #[test]
    fn same_words() {
        let (mut replay, mut reads) = (Replay::default(), Reads::default());
        let begin = begin(&mut replay, 7);
        read(&copy_of(&[1, 2, 3]), &[0x1000, 0x1010], &mut reads);
        assert_eq!(reads.extent, 24);
        replay.remember(&begin, &reads, StackId(5), StackEnd::Root);
        let found = Some((StackId(5), StackEnd::Root));
        assert_eq!(replay.find(&begin, &copy_of(&[1, 9, 3]), 0), found);
        assert_eq!(replay.find(&begin, &copy_of(&[1, 2, 4]), 0), None);
        assert_eq!(replay.find(&begin, &copy_of(&[1, 2]), 0), None);
        let regs = UserRegs {
            ip: Avma(8),
            ..begin.1
        };
        for other in [(begin.0, regs), (replay.address_space(), begin.1)] {
            assert_eq!(replay.find(&other, &copy_of(&[1, 2, 3]), 0), None);
        }
        replay.forget();
        assert_eq!(replay.find(&begin, &copy_of(&[1, 2, 3]), 0), None);
    }

    /// Check that words below the stack pointer count, in copies that begin there and in one that does not.
    #[test]
    fn below() {
        let (mut replay, mut reads) = (Replay::default(), Reads::default());
        let begin = begin(&mut replay, 7);
        let bytes = copy_of(&[1, 2, 3]);
        let mut watched = Watched {
            memory: StackCopy::new(Avma(0x0ff0), &bytes, Avma(0x2000)),
            sp: 0x1000,
            reads: &mut reads,
        };
        assert_eq!((watched.read(0x0ff8), watched.read(0x1000)), (Ok(2), Ok(3)));
        assert_eq!((reads.extent, reads.incomplete), (8, false));
        replay.remember(&begin, &reads, StackId(5), StackEnd::Root);
        let found = Some((StackId(5), StackEnd::Root));
        assert_eq!(replay.find(&begin, &bytes, 16), found);
        assert_eq!(replay.find(&begin, &copy_of(&[2, 3]), 8), found);
        assert_eq!(replay.find(&begin, &copy_of(&[9, 3]), 8), None);
        assert_eq!(replay.find(&begin, &copy_of(&[3]), 0), None);
    }

    /// Check that memory is bounded, and that what is seen now and then stays.
    #[test]
    fn bounded() {
        let copy = copy_of(&[1, 2, 3, 4]);
        let (mut replay, mut reads) = (Replay::default(), Reads::default());
        let (space, regs) = begin(&mut replay, 0);
        let begin = |i: usize| {
            let ip = Avma(i as u64);
            (space, UserRegs { ip, ..regs })
        };
        read(&copy, &[0x1000, 0x1008, 0x1010, 0x1018], &mut reads);
        for i in 0..MAX_WORDS / 8 {
            if i > 0 && i % 1000 == 0 {
                assert!(replay.find(&begin(0), &copy, 0).is_some());
            }
            replay.remember(&begin(i), &reads, StackId(5), StackEnd::Root);
            if i % 10_000 == 0 {
                let known = replay.young.values().chain(replay.old.values());
                let n_words: usize = known.map(Known::n_words).sum();
                assert!(n_words <= MAX_WORDS + reads.words.len() + WORDS_PER_STACK);
            }
        }
        assert!(replay.find(&begin(1), &copy, 0).is_none());
    }

    /// Check that an unwinding that met unreadable memory is not remembered.
    #[test]
    fn incomplete() {
        let (mut replay, mut reads) = (Replay::default(), Reads::default());
        let begin = begin(&mut replay, 7);
        read(&copy_of(&[1]), &[0x1000, 0x1008], &mut reads);
        replay.remember(&begin, &reads, StackId(5), StackEnd::UnreadableStack);
        assert_eq!(replay.find(&begin, &copy_of(&[1]), 0), None);
    }
}
