//! Turns a trace file back into tables and spans. Keeps what comes before a cut and around damaged
//! blocks, and says so.

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use wcprof_types::TimeNs;
use zstd::bulk::Decompressor;

use crate::content::{Content, first_header};
use crate::error::{Malformed, TraceError};
use crate::format::block::{BLOCK_HEADER_BYTES, BlockHeader, MARK, kind};
use crate::format::index::wanted_blocks;
use crate::format::wire::{Input, within};
use crate::format::{FILE_HEADER_BYTES, FORMAT_VERSION, FileHeader, MAGIC};
use crate::limits;
use crate::model::{Header, Span, Tables, Trace};
use crate::source::{Source, read_over};

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
        }
    }
}

/// Reads a trace, block by block.
pub struct TraceReader<R> {
    source: Source<R>,
    decompressor: Decompressor<'static>,
    pub(crate) content: Content,
    /// The first block, which is read for its header.
    first: Option<Block>,
    /// Spans outside are not needed.
    part: Option<(u64, u64)>,
    /// Places of the blocks to read, from the index; others are passed over.
    wanted: Option<VecDeque<u64>>,
}

/// A block's place in the file and its sections.
struct Block {
    offset: u64,
    sections: Vec<u8>,
}

impl TraceReader<File> {
    /// Opens a trace file and reads its header.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, TraceError> {
        Self::from_source(Source::new(open(path.as_ref())?, seek_over))
    }

    /// The same for who needs only spans of `from..to`: reads what these are in, and all tables.
    pub fn open_part(
        path: impl AsRef<Path>,
        (from, to): (TimeNs, TimeNs),
    ) -> Result<Self, TraceError> {
        let part = (from.0, to.0);
        let mut file = open(path.as_ref())?;
        let wanted = wanted_blocks(&mut file, part);
        // A pipe has no index, and stays where it is.
        let is_at_start = file.rewind().is_ok();
        let mut reader = Self::from_source(Source::new(file, seek_over))?;
        reader.part = Some(part);
        reader.wanted = wanted.filter(|_| is_at_start).map(VecDeque::from);
        Ok(reader)
    }
}

fn open(path: &Path) -> Result<File, TraceError> {
    File::open(path).map_err(|source| TraceError::Open {
        path: path.to_owned(),
        source,
    })
}

/// Passes over bytes of a file that need not be read.
fn seek_over(file: &mut File, n: u64) -> io::Result<u64> {
    let Ok(at) = file.stream_position() else {
        return read_over(file, n);
    };
    let left = file.metadata()?.len().saturating_sub(at);
    let n = n.min(left);
    file.seek(SeekFrom::Start(at + n))?;
    Ok(n)
}

impl<R: Read> TraceReader<R> {
    /// Reads the header of a trace.
    pub fn from_reader(source: R) -> Result<Self, TraceError> {
        Self::from_source(Source::new(source, read_over))
    }

    fn from_source(mut source: Source<R>) -> Result<Self, TraceError> {
        take_file_header(&mut source)?;
        let mut reader = Self {
            source,
            decompressor: Decompressor::new().map_err(TraceError::Read)?,
            content: Content::default(),
            first: None,
            part: None,
            wanted: None,
        };
        match reader.next_block()? {
            Err(_) => return Err(TraceError::Empty),
            Ok(block) => {
                let offset = block.offset;
                // It may be lost with the first block.
                if reader.content.tables.origins.unread.n_damaged == 0 {
                    reader.content.tables.header = first_header(&block.sections)
                        .map_err(|source| TraceError::Malformed { offset, source })?;
                }
                reader.first = Some(block);
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
            let spans =
                |content: &mut Content, input: &mut Input<'_>, _| content.spans(input, &mut each);
            if let Some(ending) = self.read_block(spans)? {
                break ending;
            }
        };
        self.content.end();
        Ok((self.content.tables, ending))
    }

    /// Takes over one block; `spans` gets sections of them, and where in the file the block is. At the end says what that
    /// was like.
    pub(crate) fn read_block(
        &mut self,
        mut spans: impl FnMut(&mut Content, &mut Input<'_>, u64) -> Result<(), Malformed>,
    ) -> Result<Option<Ending>, TraceError> {
        let next = match self.first.take() {
            Some(first) => Ok(first),
            None => self.next_block()?,
        };
        let Block { offset, sections } = match next {
            Ok(block) => block,
            Err(ending) => return Ok(Some(ending)),
        };
        let spans = |content: &mut Content, input: &mut Input<'_>| spans(content, input, offset);
        let applied = self.content.apply(&sections, spans);
        applied.map_err(|source| TraceError::Malformed { offset, source })?;
        Ok(None)
    }

    /// The next block that is needed, or how the file ended.
    fn next_block(&mut self) -> Result<Result<Block, Ending>, TraceError> {
        loop {
            if let Some(next) = self.take_block()? {
                return Ok(next);
            }
        }
    }

    /// The end of the file after a whole block.
    fn ended(&self) -> Ending {
        match self.content.is_finished {
            true => Ending::Clean,
            false => Ending::Unfinished,
        }
    }

    /// The next block, or the end; `None` after one that is not needed, or cannot be read.
    fn take_block(&mut self) -> Result<Option<Result<Block, Ending>>, TraceError> {
        let here = self.source.offset;
        if let Some(wanted) = &mut self.wanted {
            // Blocks that were passed by are not looked for.
            while wanted.front().is_some_and(|next| *next < here) {
                wanted.pop_front();
            }
            let n = wanted.pop_front().map_or(0, |next| next - here);
            self.source.skip(n).map_err(TraceError::Read)?;
        }
        let offset = self.source.offset;
        let head = self.source.peek(BLOCK_HEADER_BYTES);
        let head = head.map_err(TraceError::Read)?;
        if head.is_empty() {
            return Ok(Some(Err(self.ended())));
        }
        let n_head = head.len();
        let Some(header) = BlockHeader::parse(head) else {
            if n_head < BLOCK_HEADER_BYTES && MARK.starts_with(&head[..n_head.min(MARK.len())]) {
                let ignored = n_head as u64;
                return Ok(Some(Err(Ending::Cut { ignored })));
            }
            self.source.find(&MARK).map_err(TraceError::Read)?;
            self.damaged(offset);
            return Ok(None);
        };
        let malformed = |source| TraceError::Malformed { offset, source };
        header.check().map_err(malformed)?;
        let n_head = BLOCK_HEADER_BYTES as u64;
        let len = header.payload_len as usize;
        self.source.skip(n_head).map_err(TraceError::Read)?;
        let is_known = header.is_known();
        let is_wanted = header.kind != kind::INDEX && is_known && !self.is_needless(&header);
        let (n_found, payload) = match is_wanted {
            true => {
                let payload = self.source.take(len).map_err(TraceError::Read)?;
                (payload.len() as u64, payload)
            }
            false => {
                let skipped = self.source.skip(len as u64);
                (skipped.map_err(TraceError::Read)?, Vec::new())
            }
        };
        if n_found < len as u64 {
            let ignored = n_head + n_found;
            return Ok(Some(Err(Ending::Cut { ignored })));
        }
        if !is_wanted {
            self.content.entries.n_unknown += u64::from(!is_known);
            return Ok(None);
        }
        if !header.is_intact(&payload) {
            self.damaged(offset);
            return Ok(None);
        }
        let sections = header
            .unpack(&mut self.decompressor, payload)
            .map_err(malformed)?;
        Ok(Some(Ok(Block { offset, sections })))
    }

    /// Whether a block has nothing but spans that are not wanted.
    fn is_needless(&self, header: &BlockHeader) -> bool {
        let is_outside = self.part.is_some_and(|part| !header.overlaps(part));
        header.kind == kind::SPANS && (is_outside || self.content.skips_spans)
    }

    /// What begins here, and was passed over, could not be read.
    fn damaged(&mut self, offset: u64) {
        let unread = &mut self.content.tables.origins.unread;
        if unread.n_damaged == 0 {
            unread.first_damage = offset;
        }
        unread.n_damaged += 1;
        unread.n_bytes += self.source.offset - offset;
    }
}

/// Takes the file's header, and refuses files of other formats.
fn take_file_header<R: Read>(source: &mut Source<R>) -> Result<(), TraceError> {
    let head = source.peek(FILE_HEADER_BYTES).map_err(TraceError::Read)?;
    let head = head.to_vec();
    if let Some((magic, version)) = head.split_first_chunk::<8>()
        && *magic == MAGIC
    {
        let Some(version) = version.first_chunk() else {
            return Err(TraceError::Empty);
        };
        let version = u32::from_le_bytes(*version);
        if version != FORMAT_VERSION {
            return Err(TraceError::Version(version));
        }
        FileHeader::parse(&head)?;
        let skipped = source.skip(FILE_HEADER_BYTES as u64);
        return skipped.map(drop).map_err(TraceError::Read);
    }
    let head = head.as_slice();
    let hint = match head {
        [] => "the file is empty",
        _ if MAGIC.starts_with(head) => return Err(TraceError::Empty),
        _ if head.starts_with(b"PERFILE2") => {
            "it is a perf.data file, of which `wcprof import FILE -o TRACE` makes one"
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
            .field("offset", &self.source.offset)
            .finish_non_exhaustive()
    }
}
