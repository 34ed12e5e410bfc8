//! Turns a trace file back into tables and spans. Keeps what comes before a cut or a damaged
//! block, and says so.

use std::fmt;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use zstd::bulk::Decompressor;

use crate::error::{Malformed, TraceError};
use crate::limits;
use crate::model::{Header, Span, Tables, Trace};
use crate::v1::block::{BLOCK_HEADER_BYTES, BlockHeader};
use crate::v1::span_reader::SpanReader;
use crate::v1::spans::Sizes;
use crate::v1::wire::{Input, within};
use crate::v1::{
    FILE_HEADER_BYTES, FORMAT_VERSION, MAGIC, OPTIONAL_SECTIONS, entries, facts, locks, origins,
    section, symbols,
};

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
    tables: Tables,
    /// Counts were read, be they final or not.
    has_stats: bool,
    finished: bool,
    has_header: bool,
    spans: SpanReader,
    /// Of all spans, ns.
    weight: u64,
    table_bytes: usize,
    symbol_bytes_left: usize,
    /// The same for names that only the recorded machine had, and for later ones.
    local_bytes_left: usize,
    later_bytes_left: usize,
    /// The sections of the first block, which `new` has read for its header.
    first: Option<(u64, Vec<u8>)>,
    /// Spans are no longer read.
    skips_spans: bool,
}

/// What comes next in the file.
enum Next {
    Block { offset: u64, sections: Vec<u8> },
    End(Ending),
}

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
        let mut head = [0; FILE_HEADER_BYTES];
        let n = fill(&mut source, &mut head)?;
        check_file_header(&head[..n])?;
        let mut reader = Self {
            source,
            offset: FILE_HEADER_BYTES as u64,
            decompressor: Decompressor::new().map_err(TraceError::Read)?,
            tables: Tables::new(Header::default()),
            has_stats: false,
            finished: false,
            has_header: false,
            spans: SpanReader::default(),
            weight: 0,
            table_bytes: 0,
            symbol_bytes_left: limits::MAX_TABLE_BYTES,
            local_bytes_left: limits::MAX_TABLE_BYTES,
            later_bytes_left: limits::MAX_TABLE_BYTES,
            first: None,
            skips_spans: false,
        };
        match reader.next_block()? {
            Next::End(Ending::Damaged { offset }) => {
                return Err(TraceError::DamagedAtBeginning { offset });
            }
            Next::End(_) => return Err(TraceError::Empty),
            Next::Block { offset, sections } => {
                reader.tables.header = first_header(&sections)
                    .map_err(|source| TraceError::Malformed { offset, source })?;
                reader.first = Some((offset, sections));
            }
        }
        Ok(reader)
    }

    /// Facts known when the recording began.
    pub fn header(&self) -> &Header {
        &self.tables.header
    }

    /// Reads the whole trace and hands over its spans one by one, in the order in which they were
    /// written. The tables hold everything that the span refers to, and what else was read so
    /// far. Memory does not grow with the spans.
    pub fn read(self, mut each: impl FnMut(&Tables, Span)) -> Result<(Tables, Ending), TraceError> {
        let (tables, ending, _) = self.read_until_end(|tables, span| {
            each(tables, span);
            Ok(())
        })?;
        Ok((tables, ending))
    }

    /// As [`read`](Self::read), until `enough` says so of the tables; it is asked after each block.
    /// From there on spans are skipped, unchecked, so that the tables are read in little time; then
    /// begins and ends of threads are as far as they were read. The last value is whether that happened.
    pub fn read_spans_until(
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
            self.skips_spans |= enough(&self.tables);
        };
        Ok((self.tables, ending, self.skips_spans))
    }

    /// Reads the whole trace into memory, at most
    /// [`MAX_SPANS_IN_MEMORY`](limits::MAX_SPANS_IN_MEMORY) spans, which are put into the order of
    /// their ends.
    pub fn read_all(self) -> Result<(Trace, Ending), TraceError> {
        let mut spans = Vec::new();
        let (tables, ending, _) = self.read_until_end(|_, span| {
            let count = spans.len() as u64 + 1;
            within("spans", count, limits::MAX_SPANS_IN_MEMORY)?;
            spans.push(span);
            Ok(())
        })?;
        spans.sort_by_key(|span: &Span| span.end);
        Ok((Trace { tables, spans }, ending))
    }

    /// As [`read`](Self::read); also the position after the last whole block.
    pub(crate) fn read_until_end(
        mut self,
        mut each: impl FnMut(&Tables, Span) -> Result<(), Malformed>,
    ) -> Result<(Tables, Ending, u64), TraceError> {
        let ending = loop {
            if let Some(ending) = self.read_block(&mut each)? {
                break ending;
            }
        };
        Ok((self.tables, ending, self.offset))
    }

    /// Takes over one block; at the end says what that was like.
    fn read_block(
        &mut self,
        each: &mut impl FnMut(&Tables, Span) -> Result<(), Malformed>,
    ) -> Result<Option<Ending>, TraceError> {
        let (offset, sections) = match self.first.take() {
            Some(first) => first,
            None => match self.next_block()? {
                Next::Block { offset, sections } => (offset, sections),
                Next::End(ending) => {
                    if !self.finished {
                        self.reconstruct();
                    }
                    return Ok(Some(ending));
                }
            },
        };
        self.apply(&sections, each)
            .map_err(|source| TraceError::Malformed { offset, source })?;
        Ok(None)
    }

    fn next_block(&mut self) -> Result<Next, TraceError> {
        let offset = self.offset;
        let mut head = [0; BLOCK_HEADER_BYTES];
        let n = fill(&mut self.source, &mut head)?;
        if n == 0 {
            return Ok(Next::End(match self.finished {
                true => Ending::Clean,
                false => Ending::Unfinished,
            }));
        }
        if n < head.len() {
            return Ok(Next::End(Ending::Cut { ignored: n as u64 }));
        }
        let Some(header) = BlockHeader::parse(&head) else {
            return Ok(Next::End(Ending::Damaged { offset }));
        };
        let malformed = |source| TraceError::Malformed { offset, source };
        header.check().map_err(malformed)?;
        let mut payload = Vec::new();
        (&mut self.source)
            .take(header.payload_len.into())
            .read_to_end(&mut payload)
            .map_err(TraceError::Read)?;
        if payload.len() < header.payload_len as usize {
            return Ok(Next::End(Ending::Cut {
                ignored: (n + payload.len()) as u64,
            }));
        }
        if !header.is_intact(&payload) {
            return Ok(Next::End(Ending::Damaged { offset }));
        }
        self.offset += (n + payload.len()) as u64;
        let sections = header
            .unpack(&mut self.decompressor, payload)
            .map_err(malformed)?;
        Ok(Next::Block { offset, sections })
    }

    /// Takes over the content of a block.
    fn apply(
        &mut self,
        sections: &[u8],
        each: &mut impl FnMut(&Tables, Span) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        let mut rest = Input(sections);
        while !rest.is_empty() {
            let (tag, mut input) = next_section(&mut rest)?;
            if !self.has_header && tag != section::HEADER {
                return Err(Malformed::Header);
            }
            if self.finished && !matches!(tag, section::SYMBOLS | OPTIONAL_SECTIONS..) {
                return Err(Malformed::AfterEnd(tag));
            }
            self.section(tag, &mut input, each)?;
            input.end()?;
        }
        Ok(())
    }

    fn section(
        &mut self,
        tag: u8,
        input: &mut Input<'_>,
        each: &mut impl FnMut(&Tables, Span) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        let grows_tables = !matches!(
            tag,
            section::THREAD_FACTS | section::SPANS | section::STATS | section::SYMBOLS
        );
        if grows_tables {
            self.table_bytes += input.0.len();
            within(
                "bytes of tables",
                self.table_bytes as u64,
                limits::MAX_TABLE_BYTES,
            )?;
        }
        let t = &mut self.tables;
        match tag {
            section::HEADER => {
                if std::mem::replace(&mut self.has_header, true) {
                    return Err(Malformed::Header);
                }
                t.header = entries::header(input)?;
            }
            section::PROCESSES => {
                let what = ("processes", limits::MAX_PROCESSES);
                table(input, what, &mut t.processes, |input, _| {
                    entries::process(input)
                })?;
            }
            section::MODULES => {
                let n = t.processes.len();
                let what = ("modules", limits::MAX_MODULES);
                table(input, what, &mut t.modules, |input, _| {
                    entries::module(input, n)
                })?;
            }
            section::THREADS => {
                let n = t.processes.len();
                let what = ("threads", limits::MAX_THREADS);
                table(input, what, &mut t.threads, |input, _| {
                    entries::thread(input, n)
                })?;
            }
            section::FRAMES => {
                let n = t.modules.len();
                let what = ("frames", limits::MAX_FRAMES);
                table(input, what, &mut t.frames, |input, _| {
                    entries::frame(input, n)
                })?;
            }
            section::NODES => {
                let n = t.frames.len();
                let what = ("stack nodes", limits::MAX_NODES);
                table(input, what, &mut t.nodes, |input, id| {
                    entries::node(input, id, n)
                })?;
            }
            section::STACKS => {
                let n = t.nodes.len();
                let what = ("stacks", limits::MAX_STACKS);
                table(input, what, &mut t.stacks, |input, _| {
                    entries::stack(input, n)
                })?;
            }
            section::WAITS => {
                let what = ("waits", limits::MAX_WAITS);
                table(input, what, &mut t.waits, |input, _| entries::wait(input))?;
            }
            section::THREAD_NAMES => facts::names(input, &mut t.threads)?,
            section::THREAD_FACTS => facts::seen(input, &mut t.threads)?,
            section::SPANS if self.skips_spans => *input = Input(&[]),
            section::SPANS => {
                let sizes = Sizes {
                    n_threads: t.threads.len(),
                    n_stacks: t.stacks.len(),
                    n_waits: t.waits.len(),
                };
                let weight = &mut self.weight;
                self.spans.read(input, sizes, |span| {
                    let sum = weight.checked_add(span.weight);
                    *weight = sum.ok_or(Malformed::WeightTooLarge)?;
                    each(t, span)
                })?;
            }
            section::STATS => {
                let (mut stats, is_final) = facts::stats(input)?;
                stats.complete &= is_final;
                t.stats = stats;
                self.has_stats = true;
                self.finished = is_final;
            }
            section::SYMBOLS => symbols::read(
                input,
                t.frames.len(),
                &mut t.symbols,
                &mut self.symbol_bytes_left,
            )?,
            section::CGROUPS => facts::cgroups(input, &mut t.processes)?,
            section::PROCESS_ENDS => {
                origins::process_ends(input, t.processes.len(), &mut t.process_ends)?;
            }
            section::SOURCES => origins::sources(input, &mut t.sources)?,
            section::SETUP => {
                within("setups", t.setups.len() as u64 + 1, limits::MAX_PROCESSES)?;
                t.setups.push(facts::setup(input)?);
            }
            section::LOCAL_NAMES => {
                let mut names = Some(std::mem::take(&mut t.local_names.names));
                let budget = &mut self.local_bytes_left;
                symbols::read(input, t.frames.len(), &mut names, budget)?;
                t.local_names.names = names.unwrap_or_default();
            }
            section::LATER_NAMES => symbols::read_later(
                input,
                t.frames.len(),
                &mut t.local_names.later,
                &mut self.later_bytes_left,
            )?,
            section::LOCKS => locks::read(input, t)?,
            optional if optional >= OPTIONAL_SECTIONS => *input = Input(&[]),
            _ => {
                return Err(Malformed::UnknownCode {
                    what: "section",
                    code: tag.into(),
                });
            }
        }
        Ok(())
    }

    /// Fills in what the end of the recording would have told.
    fn reconstruct(&mut self) {
        let t = &mut self.tables;
        for (thread, seen) in t.threads.iter_mut().zip(self.spans.seen()) {
            if let Some((start, end)) = seen {
                thread.start = thread.start.min(start);
                thread.end = thread.end.max(end);
            }
        }
        let ends = t.threads.iter().map(|thread| thread.end);
        t.stats.duration = ends.fold(t.stats.duration, Ord::max);
        if !self.has_stats {
            let ticks = t.threads.iter().map(|thread| thread.n_ticks);
            t.stats.n_ticks = ticks.clone().max().unwrap_or(0);
            t.stats.n_observations = ticks.fold(0, u64::saturating_add);
        }
    }
}

/// Reads a section of a table: first id, count, entries.
fn table<T>(
    input: &mut Input<'_>,
    (what, limit): (&'static str, usize),
    entries: &mut Vec<T>,
    entry: impl Fn(&mut Input<'_>, u32) -> Result<T, Malformed>,
) -> Result<(), Malformed> {
    let found = input.number()?;
    let expected = entries.len() as u64;
    if found != expected {
        return Err(Malformed::Gap {
            what,
            found,
            expected,
        });
    }
    let n = input.count()?;
    within(what, expected + n as u64, limit)?;
    for _ in 0..n {
        let id = u32::try_from(entries.len()).map_err(|_| Malformed::NumberTooLarge)?;
        entries.push(entry(input, id)?);
    }
    Ok(())
}

fn next_section<'a>(rest: &mut Input<'a>) -> Result<(u8, Input<'a>), Malformed> {
    let tag = rest.byte()?;
    let len = rest.number()?;
    Ok((tag, Input(rest.bytes(len)?)))
}

fn first_header(sections: &[u8]) -> Result<Header, Malformed> {
    match next_section(&mut Input(sections))? {
        (section::HEADER, mut input) => entries::header(&mut input),
        _ => Err(Malformed::Header),
    }
}

/// Reads until `buf` is full or the source ends: how many bytes.
fn fill(source: &mut impl Read, buf: &mut [u8]) -> Result<usize, TraceError> {
    let mut n = 0;
    while n < buf.len() {
        match source.read(&mut buf[n..]) {
            Ok(0) => break,
            Ok(more) => n += more,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(TraceError::Read(e)),
        }
    }
    Ok(n)
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
            found => Err(TraceError::Version { found }),
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
        [0x7f, b'E', b'L', b'F', ..] => "it is an ELF file; wcprof reads what attach -o wrote",
        _ => "it does not begin as one; wcprof reads what attach -o wrote",
    };
    Err(TraceError::Foreign { hint })
}

impl<R> fmt::Debug for TraceReader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceReader")
            .field("header", &self.tables.header)
            .field("offset", &self.offset)
            .finish_non_exhaustive()
    }
}
