//! The memory of a core file that is wanted: read from its beginning to its end, so that a packed file needs no copy.

use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;

use super::elf::Segment;
use crate::error::{ImportError, Result};

/// Bytes that are unpacked: beyond this a file is refused.
const MAX_UNPACKED: u64 = 1 << 37;

/// A file that is read from its beginning to its end.
pub(crate) trait Forward: Read {
    /// Leaves `n` bytes out; fewer at the end of the file.
    ///
    /// # Errors
    /// Those of reading.
    fn skip(&mut self, n: u64) -> io::Result<()>;
}

/// A file as it is on the disk.
pub(crate) struct Plain<R>(pub(crate) R);

impl<R: Read> Read for Plain<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.read(bytes)
    }
}

impl<R: Read + Seek> Forward for Plain<R> {
    fn skip(&mut self, n: u64) -> io::Result<()> {
        let n = i64::try_from(n).map_err(|_| io::ErrorKind::InvalidInput)?;
        self.0.seek(SeekFrom::Current(n)).map(drop)
    }
}

/// A file that is unpacked while it is read.
pub(crate) struct Packed<R> {
    file: R,
    /// Bytes that may still be unpacked.
    left: u64,
}

impl<R> Packed<R> {
    pub(crate) fn new(file: R) -> Self {
        Self {
            file,
            left: MAX_UNPACKED,
        }
    }
}

impl<R: Read> Read for Packed<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read(bytes)?;
        let left = self.left.checked_sub(n as u64);
        self.left = left.ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(n)
    }
}

impl<R: Read> Forward for Packed<R> {
    fn skip(&mut self, n: u64) -> io::Result<()> {
        if n > self.left {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        io::copy(&mut self.by_ref().take(n), &mut io::sink()).map(drop)
    }
}

/// Begins to read a file at its beginning.
pub(crate) type OpenCore<'a> = dyn Fn() -> Result<Box<dyn Forward + 'a>> + 'a;

/// A file, and how far it was read.
pub(super) struct Reading<'o, 'a> {
    open: &'o OpenCore<'a>,
    file: Box<dyn Forward + 'a>,
    at: u64,
}

impl<'o, 'a> Reading<'o, 'a> {
    /// # Errors
    /// When the file cannot be read.
    pub(super) fn new(open: &'o OpenCore<'a>) -> Result<Self> {
        Ok(Self {
            open,
            file: open()?,
            at: 0,
        })
    }

    /// The bytes at `offset`; fewer where the file ends. For what is before the end of the last ones the file is read again from
    /// its beginning.
    ///
    /// # Errors
    /// When reading fails.
    pub(super) fn read(&mut self, offset: u64, len: usize) -> Result<Vec<u8>> {
        if offset < self.at {
            (self.file, self.at) = ((self.open)()?, 0);
        }
        let mut bytes = Vec::new();
        let read = self.file.skip(offset - self.at).and_then(|()| {
            let mut part = (&mut *self.file).take(len as u64);
            part.read_to_end(&mut bytes)
        });
        read.map_err(ImportError::Read)?;
        self.at = offset.saturating_add(bytes.len() as u64);
        Ok(bytes)
    }
}

/// Pieces of the memory of a process, by address.
#[derive(Debug, Default)]
pub(super) struct CoreMemory {
    pieces: BTreeMap<u64, Vec<u8>>,
    /// Bytes that should be in the file by its headers, and are not: it was cut.
    pub(super) n_cut: u64,
}

impl CoreMemory {
    /// Reads ranges of addresses, as far as they were dumped.
    ///
    /// # Errors
    /// When reading fails.
    pub(super) fn read(
        reading: &mut Reading<'_, '_>,
        segments: &[Segment],
        wanted: &[Range<u64>],
    ) -> Result<Self> {
        let dumped = wanted.iter().flat_map(|range| {
            let parts = segments.iter().filter(|segment| segment.is_memory());
            parts.filter_map(|segment| segment.dumped(range.start, range.end))
        });
        let mut parts: Vec<(u64, Range<u64>)> = dumped.collect();
        parts.sort_by_key(|(offset, range)| (*offset, range.start));
        let mut memory = Self::default();
        let mut done = 0;
        for (offset, range) in parts {
            // What was read before is there already.
            let known = done.max(offset) - offset;
            let (offset, start) = (offset + known, range.start.saturating_add(known));
            if start >= range.end {
                continue;
            }
            let len = usize::try_from(range.end - start).unwrap_or(usize::MAX);
            let bytes = reading.read(offset, len)?;
            memory.n_cut = memory.n_cut.saturating_add((len - bytes.len()) as u64);
            done = offset.saturating_add(bytes.len() as u64);
            memory.add(start, bytes);
        }
        Ok(memory)
    }

    /// Adds a piece behind the one that it continues, if there is one.
    fn add(&mut self, start: u64, bytes: Vec<u8>) {
        let before = self.pieces.range_mut(..start).next_back();
        match before {
            Some((at, piece)) if at + piece.len() as u64 == start => piece.extend(bytes),
            _ => {
                self.pieces.insert(start, bytes);
            }
        }
    }

    /// The known bytes that begin at `address`: none where that was not read.
    pub(super) fn from(&self, address: u64) -> &[u8] {
        let piece = self.pieces.range(..=address).next_back();
        let piece = piece.and_then(|(start, bytes)| {
            let into = usize::try_from(address - start).ok()?;
            bytes.get(into..)
        });
        piece.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(offset: u64, start: u64, in_file: u64) -> Segment {
        let mut bytes = vec![0; 56];
        bytes[0] = 1;
        bytes[8..16].copy_from_slice(&offset.to_le_bytes());
        bytes[16..24].copy_from_slice(&start.to_le_bytes());
        bytes[32..40].copy_from_slice(&in_file.to_le_bytes());
        bytes[40..48].copy_from_slice(&0x1000_u64.to_le_bytes());
        Segment::parse(&bytes)
    }

    /// Check that overlapping ranges are read once, that what was not dumped is unknown, and that a cut file is counted.
    #[test]
    fn ranges() {
        let file: Vec<u8> = (0..200).collect();
        let segments = [segment(100, 0x5000, 50), segment(150, 0x1000, 100)];
        let wanted = [
            0x5010..0x5020,
            0x5000..0x5018,
            0x5030..0x6000,
            0x1000..0x1040,
        ];
        for is_packed in [false, true] {
            let open = || -> Result<Box<dyn Forward + '_>> {
                Ok(match is_packed {
                    false => Box::new(Plain(io::Cursor::new(&file))),
                    true => Box::new(Packed::new(&file[..])),
                })
            };
            let mut reading = Reading::new(&open).unwrap();
            let memory = CoreMemory::read(&mut reading, &segments, &wanted).unwrap();
            let expected: Vec<u8> = (100..132).collect();
            assert_eq!(memory.from(0x5000), expected);
            assert_eq!(memory.from(0x5030), [148, 149]);
            assert_eq!(memory.from(0x5020), [0; 0]);
            assert_eq!(memory.from(0x103f), [0; 0]);
            assert_eq!(memory.from(0x1031), [199]);
            assert_eq!(memory.n_cut, 14);
            assert_eq!(reading.read(7, 2).unwrap(), [7, 8], "read again");
        }
    }

    /// Check that nobody unpacks more than the limit to come to what is behind it.
    #[test]
    fn bomb() {
        let open = || -> Result<Box<dyn Forward>> { Ok(Box::new(Packed::new(io::repeat(0)))) };
        let mut reading = Reading::new(&open).unwrap();
        assert_eq!(reading.read(10, 2).unwrap(), [0, 0]);
        let error = reading.read(MAX_UNPACKED + 1, 1).unwrap_err();
        assert!(error.to_string().contains("failed to read"), "{error}");
    }
}
