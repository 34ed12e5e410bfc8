//! Addresses and a jitdump file (`jit-PID.dump`) in, names, lines and times of compiled code out.
//!
//! The format is that of `tools/perf/Documentation/jitdump-specification.txt`, version 1. Code can take
//! the place of other code, so that an address may have several names, each from some time on.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read};
use std::rc::Rc;

use thiserror::Error;
use wcprof_trace::model::SymbolFrame;
use wcprof_types::Avma;

use crate::demangle::{demangle, printable};
use crate::wanted::Wanted;

/// Largest part of a dump that is read, bytes; most is code, which is passed over.
const MAX_BYTES: u64 = 1 << 30;
/// Largest record, bytes.
const MAX_RECORD: u64 = 64 << 20;
/// Longest name, bytes.
const MAX_NAME: usize = 4096;
/// Most bytes kept for code that may be moved later: its name, and an entry for it.
const MAX_KEPT: usize = 32 << 20;
/// Most names given to addresses.
const MAX_WORK: usize = 1 << 22;
/// Most bytes given to addresses: text, and an entry for each. Real recordings stay below: 20 000 addresses with
/// ten names of 100 bytes each make 34 MB.
const MAX_GIVEN: usize = 64 << 20;

const MAGIC: u32 = 0x4a69_5444;
const HEADER: usize = 40;
const RECORD_HEADER: usize = 16;
/// Times are not of `CLOCK_MONOTONIC` but of a counter of the processor.
const ARCH_TIMESTAMP: u64 = 1;

const CODE_LOAD: u32 = 0;
const CODE_MOVE: u32 = 1;
const CODE_DEBUG_INFO: u32 = 2;
const CODE_CLOSE: u32 = 3;

/// Why a jitdump gives no names.
#[derive(Debug, Error)]
pub enum JitdumpError {
    /// The file ends before its header does.
    #[error(
        "it has no header yet: its runtime writes it through a buffer, and a recording that ends later finds more"
    )]
    Unwritten,
    /// Another file, or another byte order.
    #[error("it does not begin as a jitdump of this machine (magic {0:#x})")]
    Magic(u32),
    /// A version that is not known.
    #[error("its format version is {0}, wcprof reads version 1")]
    Version(u32),
    /// It could not be read.
    #[error(transparent)]
    Read(#[from] io::Error),
}

/// Code at an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JitCode {
    /// Since when it is there, `CLOCK_MONOTONIC` ns; 0 where the file has other times, or none.
    pub since: u64,
    /// Its name, and source line where the file has it.
    pub function: SymbolFrame,
}

/// What a file of a JIT compiler says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct JitNames {
    /// For each address, in the order in which they were given: its code, in the order of the file.
    pub codes: Vec<Vec<JitCode>>,
    /// Records or lines that make no sense.
    pub n_malformed: u64,
    /// It is too large, takes too much memory, or a record has no sane length: the rest was not read. Where it ends inside a
    /// record, that is still written.
    pub cut: bool,
}

/// A line table entry: from this address on.
#[derive(Clone, Debug)]
struct Line {
    address: u64,
    line: u32,
    /// Shared: an entry may repeat the file of the one before.
    file: Rc<str>,
}

struct Dump {
    wanted: Wanted,
    codes: Vec<Vec<JitCode>>,
    /// By code index, for moves.
    names: HashMap<u64, String>,
    kept: usize,
    /// Lines of the code that is loaded next, and its address.
    lines: Option<(u64, Vec<Line>)>,
    work: usize,
    /// Bytes in `codes`.
    given: usize,
}

/// Names lookup addresses by a jitdump.
///
/// # Errors
/// When it is no jitdump, or cannot be read. What is wrong further on is counted.
pub fn jitdump_names(dump: impl Read, addresses: &[Avma]) -> Result<JitNames, JitdumpError> {
    let mut input = dump.take(MAX_BYTES);
    let header = up_to(HEADER, &mut input)?;
    let magic = word32(&header, 0);
    if header.len() < HEADER {
        return Err(JitdumpError::Unwritten);
    }
    if magic != MAGIC {
        return Err(JitdumpError::Magic(magic));
    }
    if word32(&header, 4) != 1 {
        return Err(JitdumpError::Version(word32(&header, 4)));
    }
    let timed = word64(&header, 32) & ARCH_TIMESTAMP == 0;
    let rest = u64::from(word32(&header, 8)).saturating_sub(HEADER as u64);
    skip(&mut input, rest)?;

    let wanted = Wanted::new(addresses);
    let mut dump = Dump {
        codes: vec![Vec::new(); wanted.len()],
        wanted,
        names: HashMap::new(),
        kept: 0,
        lines: None,
        work: 0,
        given: 0,
    };
    let mut out = JitNames::default();
    while dump.record(&mut input, timed, &mut out)? {}
    out.cut |= dump.is_enough() || input.limit() == 0;
    out.codes = dump.wanted.in_order(addresses, &dump.codes);
    Ok(out)
}

impl Dump {
    /// Reads a record: false if no more can be read.
    fn record(
        &mut self,
        input: &mut impl Read,
        timed: bool,
        out: &mut JitNames,
    ) -> io::Result<bool> {
        let record = up_to(RECORD_HEADER, input)?;
        if record.len() < RECORD_HEADER || self.is_enough() {
            return Ok(false);
        }
        let (id, total) = (word32(&record, 0), u64::from(word32(&record, 4)));
        let len = total.checked_sub(RECORD_HEADER as u64);
        let Some(len) = len.filter(|len| *len <= MAX_RECORD) else {
            out.n_malformed += 1;
            out.cut = true;
            return Ok(false);
        };
        let since = if timed { word64(&record, 8) } else { 0 };
        let mut body = (&mut *input).take(len);
        let read = match id {
            CODE_LOAD => self.load(&mut body, since),
            CODE_MOVE => self.moved(&mut body, since),
            CODE_DEBUG_INFO => self.debug_info(&mut body),
            CODE_CLOSE => return Ok(false),
            // Unwinding information, and what later versions add.
            _ => Ok(()),
        };
        let left = body.limit();
        let is_whole = skip(input, left)? == left;
        if let Err(error) = read {
            match error.kind() {
                ErrorKind::UnexpectedEof | ErrorKind::InvalidData => {
                    out.n_malformed += u64::from(is_whole);
                }
                _ => return Err(error),
            }
        }
        Ok(is_whole)
    }

    /// pid, tid, vma, address, size, index, name, code
    fn load(&mut self, body: &mut impl Read, since: u64) -> io::Result<()> {
        let head = fixed::<40>(body)?;
        let (address, size, index) = (word64(&head, 16), word64(&head, 24), word64(&head, 32));
        let name = name(body)?;
        let entry = size_of::<(u64, String)>() + name.len();
        if self.kept + entry <= MAX_KEPT {
            self.kept += entry;
            self.names.insert(index, name.clone());
        }
        let lines = self.lines.take().filter(|(at, _)| *at == address);
        let lines = lines.map(|(_, lines)| lines).unwrap_or_default();
        self.place(address, size, since, &name, &lines)
    }

    /// pid, tid, vma, old address, new address, size, index
    fn moved(&mut self, body: &mut impl Read, since: u64) -> io::Result<()> {
        let head = fixed::<48>(body)?;
        let (address, size, index) = (word64(&head, 24), word64(&head, 32), word64(&head, 40));
        let name = self.names.get(&index).cloned();
        let name = name.ok_or(ErrorKind::InvalidData)?;
        self.place(address, size, since, &name, &[])
    }

    /// address, count, then for each line: address, line, discriminator, file
    fn debug_info(&mut self, body: &mut impl Read) -> io::Result<()> {
        let head = fixed::<16>(body)?;
        let (code, n) = (word64(&head, 0), word64(&head, 8));
        // Lines are needed only where they may be the last ones before a wanted address.
        if self.wanted.first_from(code) == self.wanted.len() {
            return Ok(());
        }
        let mut lines: Vec<Line> = Vec::new();
        let mut file: Rc<str> = "".into();
        for _ in 0..n {
            let (entry, text) = (fixed::<16>(body)?, name(body)?);
            // The file of the entry before.
            if text != "\u{fffd}" {
                file = printable(&text).into();
            }
            let next = Line {
                address: word64(&entry, 0),
                line: word32(&entry, 8),
                file: file.clone(),
            };
            // Of lines with no wanted address between them, the last one is enough.
            let place = |line: &Line| self.wanted.first_from(line.address);
            if let Some(last) = lines.last_mut()
                && last.address <= next.address
                && place(last) == place(&next)
            {
                *last = next;
            } else if lines.len() <= MAX_WORK / 64 {
                lines.push(next);
            }
        }
        // The last of several at one address stays the last.
        lines.sort_by_key(|l| l.address);
        self.lines = Some((code, lines));
        Ok(())
    }

    /// More would take too long, or too much memory.
    fn is_enough(&self) -> bool {
        self.work > MAX_WORK || self.given > MAX_GIVEN
    }

    /// Names the wanted addresses in a stretch of code; `lines` are in the order of their addresses.
    fn place(
        &mut self,
        address: u64,
        size: u64,
        since: u64,
        name: &str,
        lines: &[Line],
    ) -> io::Result<()> {
        let end = address.checked_add(size).ok_or(ErrorKind::InvalidData)?;
        let inside = self.wanted.between(address, end);
        self.work += inside.len();
        if inside.is_empty() {
            return Ok(());
        }
        let name = demangle(name.as_bytes());
        for (at, codes) in self.wanted.0[inside.clone()]
            .iter()
            .zip(&mut self.codes[inside])
        {
            let after = lines.partition_point(|l| l.address <= *at);
            let line = after.checked_sub(1).and_then(|i| lines.get(i));
            self.given += size_of::<JitCode>() + name.len() + line.map_or(0, |l| l.file.len());
            if self.work > MAX_WORK || self.given > MAX_GIVEN {
                break;
            }
            codes.push(JitCode {
                since,
                function: SymbolFrame {
                    name: name.clone(),
                    file: line.map(|l| l.file.to_string()).filter(|f| !f.is_empty()),
                    line: line.map(|l| l.line),
                    resolved: true,
                    ..SymbolFrame::default()
                },
            });
        }
        Ok(())
    }
}

/// A text up to its NUL, of which at most [`MAX_NAME`] bytes are kept.
fn name(body: &mut impl Read) -> io::Result<String> {
    let mut bytes = Vec::new();
    loop {
        match fixed(body)? {
            [0] => return Ok(String::from_utf8_lossy(&bytes).into_owned()),
            [byte] if bytes.len() < MAX_NAME => bytes.push(byte),
            _ => {}
        }
    }
}

/// The next `N` bytes.
fn fixed<const N: usize>(body: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    body.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn word32(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..).and_then(|b| b.first_chunk());
    word.map_or(0, |b| u32::from_ne_bytes(*b))
}

fn word64(bytes: &[u8], at: usize) -> u64 {
    let word = bytes.get(at..).and_then(|b| b.first_chunk());
    word.map_or(0, |b| u64::from_ne_bytes(*b))
}

/// The next `n` bytes; fewer where the input ends.
fn up_to(n: usize, input: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(n);
    input.take(n as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Passes over `n` bytes; fewer where the input ends.
fn skip(input: &mut impl Read, n: u64) -> io::Result<u64> {
    io::copy(&mut input.take(n), &mut io::sink())
}

#[cfg(test)]
mod tests;
