//! A section of units, from start to end, to those units that are wanted, one by one.
//!
//! Expanding takes the time, and it cannot be divided: so it has a thread of its own, and the units are
//! read beside it. Only the units in flight take memory.

use std::panic::resume_unwind;
use std::sync::mpsc::sync_channel;

use crate::budget::{Budget, Reservation};
use crate::elf::{ElfFile, Section, SectionStream};
use crate::error::DwarfError;

/// Units that wait to be read.
const QUEUE: usize = 2;
/// Bytes of a unit that are read for its root entry: first so many, then up to so many.
const PEEKS: [u64; 2] = [4096, 1 << 20];
/// Bytes of an initial length, the longer form.
const LENGTH_SIZE: usize = 12;

/// What to do with a unit.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Choice {
    Skip,
    Take,
    /// Its root entry decides.
    Peek,
}

/// Which units of a section are wanted. Runs on the thread that expands.
pub(crate) struct Selection<'s> {
    /// Nothing from this offset on is wanted.
    pub(crate) end: u64,
    /// Looks at where a unit is: offset, and size with its header.
    pub(crate) choose: Box<dyn Fn(u64, u64) -> Choice + Send + 's>,
    /// Whether a unit at an offset is wanted, by its start; its stated length is that of the bytes.
    pub(crate) peek: Box<Peek<'s>>,
}

type Peek<'s> = dyn Fn(u64, &[u8]) -> Result<bool, DwarfError> + Send + 's;

/// Takes the units that hold one of the sorted `offsets`.
pub(crate) fn holding(offsets: &[u64]) -> Selection<'_> {
    Selection {
        end: offsets.last().map_or(0, |last| last.saturating_add(1)),
        choose: Box::new(|offset, size| {
            let next = offsets.get(offsets.partition_point(|o| *o < offset));
            match next.is_some_and(|next| *next < offset.saturating_add(size)) {
                true => Choice::Take,
                false => Choice::Skip,
            }
        }),
        peek: Box::new(|_, _| Ok(false)),
    }
}

/// A unit that was taken.
pub(crate) struct TakenUnit<'b> {
    pub(crate) offset: u64,
    /// Its bytes, or why they are not there.
    pub(crate) bytes: Result<Vec<u8>, DwarfError>,
    _reservation: Option<Reservation<'b>>,
}

/// Hands the selected units to `consume`, in order. `in_flight` limits their bytes; a larger unit is an
/// error of its own.
pub(crate) fn scan(
    elf: &ElfFile,
    section: &Section,
    in_flight: u64,
    selection: Selection<'_>,
    mut consume: impl FnMut(TakenUnit<'_>),
) -> Result<(), DwarfError> {
    let in_flight = &Budget::new(in_flight);
    let (sender, receiver) = sync_channel(QUEUE);
    std::thread::scope(|scope| {
        let expand = move || -> Result<(), DwarfError> {
            let mut stream = elf.stream(section)?;
            while let Some(unit) = next_unit(&mut stream, in_flight, &selection)? {
                if sender.send(unit).is_err() {
                    break;
                }
            }
            Ok(())
        };
        let thread = std::thread::Builder::new()
            .name("dwarf-expand".to_owned())
            .spawn_scoped(scope, expand)
            .map_err(DwarfError::Thread)?;
        for unit in receiver {
            consume(unit);
        }
        thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// Moves to the next unit that is wanted.
fn next_unit<'b>(
    stream: &mut SectionStream<'_>,
    in_flight: &'b Budget,
    selection: &Selection<'_>,
) -> Result<Option<TakenUnit<'b>>, DwarfError> {
    while stream.position() < stream.size().min(selection.end) {
        let offset = stream.position();
        let mut head = [0; LENGTH_SIZE];
        let n = stream.read(&mut head)?;
        let head = head.get(..n).unwrap_or_default();
        let left = stream.size() - offset;
        let size = unit_size(head).filter(|size| (n as u64..=left).contains(size));
        let size = size.ok_or(DwarfError::UnitLength(offset))?;
        let mut unit = head.to_vec();
        let is_wanted = match (selection.choose)(offset, size) {
            Choice::Take => true,
            Choice::Skip => false,
            Choice::Peek => peek(stream, &mut unit, (offset, size), &*selection.peek)?,
        };
        let reservation = match is_wanted {
            true => in_flight.reserve(size),
            false => None,
        };
        if reservation.is_some() {
            fill(stream, &mut unit, size)?;
            // Where its start was looked at, another length stands there.
            unit.get_mut(..n).unwrap_or_default().copy_from_slice(head);
        } else {
            stream.skip(size - (stream.position() - offset))?;
        }
        if is_wanted {
            let too_large = DwarfError::Memory {
                need: size,
                limit: in_flight.limit(),
            };
            return Ok(Some(TakenUnit {
                offset,
                bytes: reservation.as_ref().map(|_| unit).ok_or(too_large),
                _reservation: reservation,
            }));
        }
    }
    Ok(None)
}

/// Reads more and more of a unit (of this offset and size) until `peek` can decide.
fn peek(
    stream: &mut SectionStream<'_>,
    unit: &mut Vec<u8>,
    (offset, size): (u64, u64),
    peek: &Peek<'_>,
) -> Result<bool, DwarfError> {
    for limit in PEEKS {
        fill(stream, unit, size.min(limit))?;
        set_unit_size(unit);
        match peek(offset, unit) {
            Ok(is_wanted) => return Ok(is_wanted),
            Err(_) if unit.len() as u64 == limit => {}
            // As addr2line does with a unit that cannot be read.
            Err(_) => break,
        }
    }
    Ok(false)
}

/// Makes `unit` as long as `size`.
pub(crate) fn fill(
    stream: &mut SectionStream<'_>,
    unit: &mut Vec<u8>,
    size: u64,
) -> Result<(), DwarfError> {
    let begin = unit.len();
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    unit.resize(size.max(begin), 0);
    stream.read(unit.get_mut(begin..).unwrap_or_default())?;
    Ok(())
}

/// Size of a unit with its initial length.
pub(crate) fn unit_size(bytes: &[u8]) -> Option<u64> {
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
