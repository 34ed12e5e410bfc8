//! Turns a trace file back into tables and spans. Keeps what comes before a cut or a damaged
//! block, and says so.

use std::fmt;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use zstd::bulk::Decompressor;

use crate::content::{Content, first_header};
use crate::error::{Malformed, TraceError};
use crate::limits;
use crate::model::{Header, Span, Tables, Trace};
use crate::v1::block::{BLOCK_HEADER_BYTES, BlockHeader};
use crate::v1::wire::within;
use crate::v1::{FILE_HEADER_BYTES, FORMAT_VERSION, MAGIC};

/// How a trace file ended.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Ending {
    /// The recording ended cleanly and the whole file was read.
    Clean,
    /// The file ends after a whole block, but the recording did not end cleanly.
    Unfinished,
    /// The file was cut within a block.
    Cut {
        /// Bytes after the last whole block, which were ignored.
        ignored: u64,
    },
    /// A block is damaged. It and everything after it was ignored.
    Damaged {
        /// Position of the block in the file, bytes.
        offset: u64,
    },
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Clean => f.write_str("the trace is complete"),
            Self::Unfinished => f.write_str(
                "the recording did not end cleanly: the trace holds what was saved until then",
            ),
            Self::Cut { ignored } => write!(
                f,
                "the trace file is cut: {ignored} bytes after its last whole block were ignored"
            ),
            Self::Damaged { offset } => write!(
                f,
                "the trace file is damaged at byte {offset}: everything from there on was ignored"
            ),
        }
    }
}

/// Reads a trace, block by block.
pub struct TraceReader<R> {
    source: R,
    /// Bytes read of whole blocks (and the file header).
    offset: u64,
    decompressor: Decompressor<'static>,
    content: Content,
    /// The sections of the first block, which is read for its header.
    first: Option<(u64, Vec<u8>)>,
}

/// A block's place in the file and its sections, or how the file ended.
type Next = Result<(u64, Vec<u8>), Ending>;

impl TraceReader<BufReader<File>> {
    /// Opens a trace file and reads its header.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, TraceError> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|source| TraceError::Open {
            path: path.to_owned(),
            source,
        })?;
        Self::from_reader(BufReader::with_capacity(1 << 16, file))
    }
}

impl<R: Read> TraceReader<R> {
    /// Reads the header of a trace.
    pub fn from_reader(mut source: R) -> Result<Self, TraceError> {
        check_file_header(&read_up_to(&mut source, FILE_HEADER_BYTES)?)?;
        let mut reader = Self {
            source,
            offset: FILE_HEADER_BYTES as u64,
            decompressor: Decompressor::new().map_err(TraceError::Read)?,
            content: Content::default(),
            first: None,
        };
        match reader.next_block()? {
            Err(Ending::Damaged { offset }) => {
                return Err(TraceError::DamagedAtBeginning(offset));
            }
            Err(_) => return Err(TraceError::Empty),
            Ok((offset, sections)) => {
                reader.content.tables.header = first_header(&sections)
                    .map_err(|source| TraceError::Malformed { offset, source })?;
                reader.first = Some((offset, sections));
            }
        }
        Ok(reader)
    }

    /// Facts known when the recording began.
    pub fn header(&self) -> &Header {
        &self.content.tables.header
    }

    /// Reads the whole trace and hands over its spans one by one, in the order in which they were
    /// written. The tables hold everything that the span refers to, and what else was read so
    /// far. Memory does not grow with the spans.
    pub fn read(self, mut each: impl FnMut(&Tables, Span)) -> Result<(Tables, Ending), TraceError> {
        self.read_until_end(|tables, span| {
            each(tables, span);
            Ok(())
        })
    }

    /// As [`read`](Self::read), until `enough` says so of the tables; it is asked after each block.
    /// From there on spans are skipped, unchecked, so that the tables are read in little time; then
    /// begins and ends of threads are as far as they were read. The last value is whether that happened.
    pub(crate) fn read_spans_until(
        mut self,
        mut enough: impl FnMut(&Tables) -> bool,
        mut each: impl FnMut(&Tables, Span),
    ) -> Result<(Tables, Ending, bool), TraceError> {
        let mut each = |tables: &Tables, span| {
            each(tables, span);
            Ok(())
        };
        let ending = loop {
            if let Some(ending) = self.read_block(&mut each)? {
                break ending;
            }
            self.content.skips_spans |= enough(&self.content.tables);
        };
        Ok((self.content.tables, ending, self.content.skips_spans))
    }

    /// Reads the whole trace into memory, at most
    /// [`MAX_SPANS_IN_MEMORY`](limits::MAX_SPANS_IN_MEMORY) spans, which are put into the order of
    /// their ends.
    pub fn read_all(self) -> Result<(Trace, Ending), TraceError> {
        let mut spans = Vec::new();
        let (tables, ending) = self.read_until_end(|_, span| {
            let count = spans.len() as u64 + 1;
            within("spans", count, limits::MAX_SPANS_IN_MEMORY)?;
            spans.push(span);
            Ok(())
        })?;
        spans.sort_by_key(|span: &Span| span.end);
        Ok((Trace { tables, spans }, ending))
    }

    fn read_until_end(
        mut self,
        mut each: impl FnMut(&Tables, Span) -> Result<(), Malformed>,
    ) -> Result<(Tables, Ending), TraceError> {
        let ending = loop {
            if let Some(ending) = self.read_block(&mut each)? {
                break ending;
            }
        };
        Ok((self.content.tables, ending))
    }

    /// Takes over one block; at the end says what that was like.
    fn read_block(
        &mut self,
        each: &mut impl FnMut(&Tables, Span) -> Result<(), Malformed>,
    ) -> Result<Option<Ending>, TraceError> {
        let (offset, sections) = match self.first.take() {
            Some(first) => first,
            None => match self.next_block()? {
                Ok(block) => block,
                Err(ending) => {
                    if !self.content.is_finished {
                        self.content.reconstruct();
                    }
                    return Ok(Some(ending));
                }
            },
        };
        self.content
            .apply(&sections, each)
            .map_err(|source| TraceError::Malformed { offset, source })?;
        Ok(None)
    }

    fn next_block(&mut self) -> Result<Next, TraceError> {
        let offset = self.offset;
        let head = read_up_to(&mut self.source, BLOCK_HEADER_BYTES)?;
        if head.is_empty() {
            return Ok(Err(match self.content.is_finished {
                true => Ending::Clean,
                false => Ending::Unfinished,
            }));
        }
        let ignored = head.len() as u64;
        let Ok(whole) = head.as_slice().try_into() else {
            return Ok(Err(Ending::Cut { ignored }));
        };
        let Some(header) = BlockHeader::parse(whole) else {
            return Ok(Err(Ending::Damaged { offset }));
        };
        let malformed = |source| TraceError::Malformed { offset, source };
        header.check().map_err(malformed)?;
        let payload = read_up_to(&mut self.source, header.payload_len as usize)?;
        let length = ignored + payload.len() as u64;
        if payload.len() < header.payload_len as usize {
            return Ok(Err(Ending::Cut { ignored: length }));
        }
        if !header.is_intact(&payload) {
            return Ok(Err(Ending::Damaged { offset }));
        }
        self.offset += length;
        let sections = header
            .unpack(&mut self.decompressor, payload)
            .map_err(malformed)?;
        Ok(Ok((offset, sections)))
    }
}

/// The next `n` bytes, or fewer where the source ends.
fn read_up_to(source: &mut impl Read, n: usize) -> Result<Vec<u8>, TraceError> {
    let mut bytes = Vec::new();
    let read = source.take(n as u64).read_to_end(&mut bytes);
    read.map_err(TraceError::Read)?;
    Ok(bytes)
}

/// Checks magic and version of a file that begins with `head`.
fn check_file_header(head: &[u8]) -> Result<(), TraceError> {
    if let Some((magic, version)) = head.split_first_chunk::<8>()
        && *magic == MAGIC
    {
        let Ok(version) = version.try_into().map(u32::from_le_bytes) else {
            return Err(TraceError::Empty);
        };
        return match version {
            FORMAT_VERSION => Ok(()),
            found => Err(TraceError::Version(found)),
        };
    }
    let hint = match head {
        [] => "the file is empty",
        _ if MAGIC.starts_with(head) => return Err(TraceError::Empty),
        _ if head.starts_with(b"PERFILE2") => {
            "it is a perf.data file, which perf script or perf report reads"
        }
        [0x1f, 0x8b, ..] => "it is compressed by gzip; decompress it first",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "it is compressed by zstd; decompress it first",
        [0xfd, b'7', b'z', b'X', b'Z', ..] => "it is compressed by xz; decompress it first",
        [0x7f, b'E', b'L', b'F', ..] => {
            "it is an ELF file; expected a file written by wcprof attach"
        }
        _ => "bad header; expected a file written by wcprof attach",
    };
    Err(TraceError::Foreign(hint))
}

impl<R> fmt::Debug for TraceReader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceReader")
            .field("header", &self.content.tables.header)
            .field("offset", &self.offset)
            .finish_non_exhaustive()
    }
}
