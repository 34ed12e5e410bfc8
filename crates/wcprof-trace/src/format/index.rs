//! The footer: which blocks a file has, where, and of which time. A reader that wants a part of the recording goes
//! to the blocks of that part. A file that was cut has none: its blocks are found one after the other.

use std::io::{self, Read, Seek, SeekFrom};

use super::block::{self, BLOCK_HEADER_BYTES, BlockHeader, kind};
use super::codec::{Codec, Entries, Sizes, write_entry};
use super::section::{self, next_section, put_section};
use super::wire::{Input, put};
use crate::error::Malformed;

/// The last bytes of a file that ends with an index.
const END: [u8; 8] = *b"\x89wcend\r\n";
/// Bytes of the last section's content: the place of the index, and [`END`].
const END_BYTES: usize = 16;

/// A block in a file.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Placed {
    pub(crate) offset: u64,
    pub(crate) kind: u8,
    /// See [`BlockHeader::times`].
    pub(crate) times: (u64, u64),
}

impl Placed {
    /// Numbers as differences from those of the block before.
    fn fields(&mut self, c: &mut Codec<'_, '_>, before: &mut Self) -> Result<(), Malformed> {
        c.byte(&mut self.kind)?;
        c.delta(&mut self.offset, before.offset)?;
        c.delta(&mut self.times.0, before.times.1)?;
        c.delta(&mut self.times.1, self.times.0)?;
        *before = *self;
        Ok(())
    }

    /// Whether it can have spans of `from..to`, or what they refer to.
    fn is_wanted(&self, (from, to): (u64, u64)) -> bool {
        self.kind != kind::SPANS || self.times.1 > from && self.times.0 < to
    }
}

/// The blocks that were written so far, encoded.
#[derive(Debug, Default)]
pub(crate) struct Index {
    n: u64,
    entries: Vec<u8>,
    last: Placed,
}

impl Index {
    /// Adds a block that comes after all others.
    pub(crate) fn add(&mut self, mut placed: Placed) -> Result<(), Malformed> {
        self.n += 1;
        let (out, last) = (&mut self.entries, &mut self.last);
        write_entry(out, &Sizes::default(), |c| placed.fields(c, last))
    }

    /// Appends the block of the index, which begins at `at` in the file.
    pub(crate) fn pack(&self, at: u64, out: &mut Vec<u8>) -> Result<(), Malformed> {
        let mut content = Vec::new();
        put(&mut content, self.n);
        content.extend_from_slice(&self.entries);
        let mut sections = Vec::new();
        put_section(&mut sections, section::INDEX, &content);
        let mut end = at.to_le_bytes().to_vec();
        end.extend(END);
        put_section(&mut sections, section::END, &end);
        block::store(kind::INDEX, &sections, out)
    }
}

/// The places of the blocks of `file` that are wanted for `from..to`, in their order; `None` if it has no
/// index, or none that can be read.
pub(crate) fn wanted_blocks(file: &mut (impl Read + Seek), part: (u64, u64)) -> Option<Vec<u64>> {
    let sections = read_block(file).ok().flatten()?;
    let mut rest = Input(&sections);
    let (section::INDEX, mut content) = next_section(&mut rest).ok()? else {
        return None;
    };
    let n = content.count().ok()?;
    let mut entries = Entries::default();
    let (mut wanted, mut before) = (Vec::new(), Placed::default());
    for _ in 0..n {
        let placed = entries.read(&mut content, |input| {
            let (mut placed, at) = (Placed::default(), before.offset);
            placed.fields(&mut Codec::reader(input, Sizes::default()), &mut before)?;
            // Blocks follow each other.
            (placed.offset > at)
                .then_some(placed)
                .ok_or(Malformed::UnexpectedEnd)
        });
        wanted.extend(placed.ok()?.filter(|placed| placed.is_wanted(part)));
    }
    Some(wanted.into_iter().map(|placed| placed.offset).collect())
}

/// The sections of the index at the end of a file.
fn read_block(file: &mut (impl Read + Seek)) -> io::Result<Option<Vec<u8>>> {
    let len = file.seek(SeekFrom::End(0))?;
    let Some(end) = len.checked_sub(END_BYTES as u64) else {
        return Ok(None);
    };
    file.seek(SeekFrom::Start(end))?;
    let mut bytes = [0; END_BYTES];
    file.read_exact(&mut bytes)?;
    let at = u64::from_le_bytes(*bytes.first_chunk().unwrap_or(&[0; 8]));
    if !bytes.ends_with(&END) || at >= len {
        return Ok(None);
    }
    file.seek(SeekFrom::Start(at))?;
    let mut head = [0; BLOCK_HEADER_BYTES];
    file.read_exact(&mut head)?;
    let header = BlockHeader::parse(&head).filter(|header| {
        let after = at + (BLOCK_HEADER_BYTES as u64) + u64::from(header.payload_len);
        header.kind == kind::INDEX && header.check().is_ok() && after == len
    });
    let Some(header) = header else {
        return Ok(None);
    };
    let mut payload = vec![0; header.payload_len as usize];
    file.read_exact(&mut payload)?;
    Ok(header.is_intact(&payload).then_some(payload))
}
