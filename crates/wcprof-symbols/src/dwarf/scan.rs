//! `.debug_info` from begin to end, once, with the units that are wanted handed over one by one.
//!
//! Expanding is what takes the time, and it cannot be divided: so it has a thread of its own, and
//! the units are read beside it. Memory is taken by the units in flight only.

use std::sync::mpsc::sync_channel;

use super::DwarfError;
use crate::budget::{Budget, Reservation};
use crate::elf::{ElfFile, Section, SectionStream};

/// Units that wait to be read.
const QUEUE: usize = 2;
/// Bytes of a unit that are read to see its root entry, at first and at most.
const PEEKS: [u64; 2] = [4096, 1 << 20];
/// Bytes of an initial length, the longer form.
const LENGTH_SIZE: usize = 12;

/// What to do with a unit.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Choice {
    Skip,
    Take,
    /// Its root entry decides.
    Peek,
}

/// What a pass is for. Runs on the thread that expands.
pub(super) trait Chooser: Send {
    /// Looks at where a unit is: offset and size with its header.
    fn choose(&mut self, offset: u64, size: u64) -> Choice;

    /// Looks at the begin of a unit, whose stated length is that of `bytes`.
    fn peek(&mut self, offset: u64, bytes: &[u8]) -> Result<bool, DwarfError>;

    /// Nothing from this offset on is wanted.
    fn end(&self) -> u64;
}

/// A unit that was taken.
pub(super) struct TakenUnit<'b> {
    pub(super) offset: u64,
    /// Its bytes, or why they are not there.
    pub(super) bytes: Result<Vec<u8>, DwarfError>,
    _reservation: Option<Reservation<'b>>,
}

/// Hands the chosen units to `consume`, in order. `in_flight` limits their bytes; a larger unit is
/// an error of its own.
pub(super) fn scan(
    elf: &ElfFile,
    section: &Section,
    in_flight: &Budget,
    mut chooser: impl Chooser,
    mut consume: impl FnMut(TakenUnit<'_>),
) -> Result<(), DwarfError> {
    let (sender, receiver) = sync_channel(QUEUE);
    std::thread::scope(|scope| {
        let expand = move || -> Result<(), DwarfError> {
            let mut stream = elf.stream(section)?;
            while let Some(unit) = next_unit(&mut stream, in_flight, &mut chooser)? {
                if sender.send(unit).is_err() {
                    break;
                }
            }
            Ok(())
        };
        let thread = std::thread::Builder::new()
            .name("wcprof-expand".to_owned())
            .spawn_scoped(scope, expand)
            .map_err(DwarfError::Thread)?;
        for unit in receiver {
            consume(unit);
        }
        match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Moves to the next unit that is wanted.
fn next_unit<'b>(
    stream: &mut SectionStream<'_>,
    in_flight: &'b Budget,
    chooser: &mut impl Chooser,
) -> Result<Option<TakenUnit<'b>>, DwarfError> {
    while stream.position() < stream.size().min(chooser.end()) {
        let offset = stream.position();
        let mut begin = [0; LENGTH_SIZE];
        let n = stream.read(&mut begin)?;
        let bytes = begin.get(..n).unwrap_or_default();
        let size = unit_size(bytes).ok_or(DwarfError::UnitLength(offset))?;
        if size > stream.size() - offset || size < n as u64 {
            return Err(DwarfError::UnitLength(offset));
        }
        let choice = chooser.choose(offset, size);
        let mut unit = Vec::new();
        let mut take = choice == Choice::Take;
        if choice == Choice::Peek {
            for peek in PEEKS {
                unit.resize(unit.len().max(n), 0);
                unit.get_mut(..n).unwrap_or_default().copy_from_slice(bytes);
                fill(stream, &mut unit, size.min(peek))?;
                set_unit_size(&mut unit);
                match chooser.peek(offset, &unit) {
                    Ok(wanted) => take = wanted,
                    Err(_) if unit.len() as u64 == peek => continue,
                    // As addr2line does with a unit that cannot be read.
                    Err(_) => {}
                }
                break;
            }
        }
        if !take {
            stream.skip(size - (stream.position() - offset))?;
            continue;
        }
        let Some(reservation) = in_flight.reserve(size) else {
            stream.skip(size - (stream.position() - offset))?;
            return Ok(Some(TakenUnit {
                offset,
                bytes: Err(DwarfError::Memory {
                    need: size,
                    limit: in_flight.limit(),
                }),
                _reservation: None,
            }));
        };
        unit.resize(unit.len().max(n), 0);
        fill(stream, &mut unit, size)?;
        unit.get_mut(..n).unwrap_or_default().copy_from_slice(bytes);
        return Ok(Some(TakenUnit {
            offset,
            bytes: Ok(unit),
            _reservation: Some(reservation),
        }));
    }
    Ok(None)
}

/// Makes `unit` as long as `size`.
fn fill(stream: &mut SectionStream<'_>, unit: &mut Vec<u8>, size: u64) -> Result<(), DwarfError> {
    let begin = unit.len();
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    unit.resize(size.max(begin), 0);
    stream.read(unit.get_mut(begin..).unwrap_or_default())?;
    Ok(())
}

/// Size of a unit with its initial length.
pub(super) fn unit_size(bytes: &[u8]) -> Option<u64> {
    match u32::from_le_bytes(*bytes.first_chunk()?) {
        u32::MAX => {
            let length = u64::from_le_bytes(*bytes.get(4..)?.first_chunk()?);
            length.checked_add(12)
        }
        // Reserved.
        0xffff_fff0.. => None,
        length => Some(u64::from(length) + 4),
    }
}

/// Sets the initial length to what is there.
fn set_unit_size(unit: &mut [u8]) {
    let size = unit.len();
    if let Some((length, rest)) = unit.split_first_chunk_mut::<4>() {
        if *length == [0xff; 4] {
            if let Some(length) = rest.first_chunk_mut::<8>() {
                *length = (size as u64).saturating_sub(12).to_le_bytes();
            }
        } else {
            let size = u32::try_from(size).unwrap_or(u32::MAX);
            *length = size.saturating_sub(4).to_le_bytes();
        }
    }
}
