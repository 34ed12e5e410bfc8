//! Go programs to their functions: names, bounds and frame sizes, by the table that each carries for its own
//! tracebacks (`.gopclntab`; Go's `src/runtime/symtab.go` and `src/cmd/link/internal/ld/pcln.go`). `strip` and
//! `-ldflags=-s` leave it, since the garbage collector needs it.
//!
//! The table has one of three layouts since Go 1.16. All of it is hostile input: counts and offsets are
//! checked against the bytes that were read.

mod header;
mod place;
mod relocations;

#[cfg(test)]
mod tests;

use header::{Header, Layout, u32_at, u64_at};
use place::Place;

use crate::elf::{ElfError, ElfFile, c_string};

/// Most frame sizes that are read of one function; the compiler writes two, and some for each call that pushes.
const MAX_STEPS: usize = 1 << 12;
/// `funcFlagSPWrite`.
const WRITES_SP: u8 = 2;

/// The functions of a Go program, by address.
#[derive(Debug)]
pub struct GoFunctions {
    bytes: Vec<u8>,
    header: Header,
    /// Start and where its description is, by start.
    functions: Vec<(u64, usize)>,
    /// First address after the last one.
    end: u64,
}

/// A function of a Go program.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct GoFunction<'a> {
    /// First address, as stated in the file.
    pub start: u64,
    /// Where the next one begins.
    pub end: u64,
    /// Name as Go writes it: `main.(*box).take`.
    pub name: &'a [u8],
    /// Where that is in [`GoFunctions::names`].
    pub name_at: u32,
    /// Its code sets the stack pointer to what no frame size says, as functions do that change to another stack.
    /// Go 1.16 does not say it.
    pub writes_sp: bool,
    /// Which list of frame sizes it has ([`GoFunctions::frame_sizes`]); many functions have the same one.
    pub sizes: u32,
}

/// Up to which byte of a function its frame has so many bytes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct FrameSize {
    /// Exclusive, from the start of the function.
    pub until: u32,
    /// Bytes between the stack pointer and the return address.
    pub bytes: u32,
}

impl GoFunctions {
    /// Reads the table of a file; `Ok(None)` for a file that is no Go program. Without a section of its name it
    /// is searched where the file has no sections or notes of Go.
    ///
    /// # Errors
    /// When the table has more than `limit` bytes, or is damaged.
    pub fn read(elf: &ElfFile, limit: u64) -> Result<Option<Self>, ElfError> {
        let Some(mut place) = Place::find(elf, limit)? else {
            return Ok(None);
        };
        let malformed = || ElfError::Malformed("table of Go's functions".to_owned());
        let size = place.bytes.len() as u64;
        let header = Header::parse(&place.bytes, size).ok_or_else(malformed)?;
        place.relocate(elf)?;
        let text = match header.layout {
            Layout::V16 => 0,
            Layout::V18 | Layout::V20 => place.text(elf)?.ok_or_else(malformed)?,
        };
        let bytes = place.bytes;
        let (functions, end) = list(&bytes, header, text).ok_or_else(malformed)?;
        let is_code = |start: u64| {
            let mut code = elf.segments.iter().filter(|s| s.is_code());
            code.any(|s| (s.address..=s.address.saturating_add(s.memory_size)).contains(&start))
        };
        let first = functions.first().ok_or_else(malformed)?.0;
        if !is_code(first) || !is_code(end) {
            return Err(malformed());
        }
        Ok(Some(Self {
            bytes,
            header,
            functions,
            end,
        }))
    }

    /// The functions by address. Those whose description lies outside of the table are left out.
    pub fn iter(&self) -> impl Iterator<Item = GoFunction<'_>> {
        let starts = self.functions.iter().map(|(start, _)| *start);
        let ends = starts.skip(1).chain([self.end]);
        let functions = self.functions.iter().zip(ends);
        functions.filter_map(|(&(start, at), end)| self.function(start, end, at))
    }

    /// The names, each ended by a zero, and what is between them and the frame sizes.
    pub fn names(&self) -> &[u8] {
        let range = self.header.names..self.header.by_address;
        self.bytes.get(range).unwrap_or_default()
    }

    fn function(&self, start: u64, end: u64, at: usize) -> Option<GoFunction<'_>> {
        let description = self.bytes.get(self.header.functions.checked_add(at)?..)?;
        let [name, sizes, flags] = self.header.layout.fields();
        let name_at = u32_at(description, name)?;
        Some(GoFunction {
            start,
            end,
            name: c_string(self.names(), name_at),
            name_at,
            writes_sp: description.get(flags)? & WRITES_SP != 0,
            sizes: u32_at(description, sizes)?,
        })
    }

    /// A list of frame sizes by its [`GoFunction::sizes`], from the function's start on.
    pub fn frame_sizes(&self, sizes: u32) -> impl Iterator<Item = FrameSize> + '_ {
        let list = self.header.by_address..self.header.functions;
        let lists = self.bytes.get(list).unwrap_or_default();
        // 0 stands for no list.
        let list = lists.get(sizes as usize..).filter(|_| sizes > 0);
        FrameSizes {
            bytes: list.unwrap_or_default(),
            until: 0,
            size: -1,
            is_first: true,
        }
        .take(MAX_STEPS)
    }
}

/// The functions with where their descriptions are, and the end of the last one. `None` if they are not in order.
fn list(bytes: &[u8], header: Header, text: u64) -> Option<(Vec<(u64, usize)>, u64)> {
    let size = header.layout.entry_size();
    let entry = |i: usize| bytes.get(header.functions + i * size..);
    let start = |entry: &[u8]| match header.layout {
        Layout::V16 => u64_at(entry, 0),
        Layout::V18 | Layout::V20 => text.checked_add(u64::from(u32_at(entry, 0)?)),
    };
    let mut functions: Vec<(u64, usize)> = Vec::with_capacity(header.n_functions);
    for i in 0..header.n_functions {
        let entry = entry(i)?;
        let at = match header.layout {
            Layout::V16 => usize::try_from(u64_at(entry, 8)?).ok()?,
            Layout::V18 | Layout::V20 => u32_at(entry, 4)? as usize,
        };
        functions.push((start(entry)?, at));
    }
    let end = start(entry(header.n_functions)?)?;
    let is_sorted = functions.is_sorted_by(|a, b| a.0 < b.0);
    (is_sorted && functions.last()?.0 < end).then_some((functions, end))
}

/// A list of values by address (`runtime.pcvalue`): pairs of differences, of the value and of the address, as numbers
/// of variable length.
struct FrameSizes<'a> {
    bytes: &'a [u8],
    until: u32,
    size: i32,
    is_first: bool,
}

impl FrameSizes<'_> {
    fn number(&mut self) -> Option<u32> {
        let mut number = 0_u32;
        for shift in (0..32).step_by(7) {
            let (byte, rest) = self.bytes.split_first()?;
            self.bytes = rest;
            number |= u32::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }
}

impl Iterator for FrameSizes<'_> {
    type Item = FrameSize;

    fn next(&mut self) -> Option<FrameSize> {
        let difference = self.number()?;
        if difference == 0 && !self.is_first {
            return None;
        }
        self.is_first = false;
        // The sign is in the lowest bit.
        let difference = (difference >> 1) as i32 ^ -((difference & 1) as i32);
        self.size = self.size.checked_add(difference)?;
        self.until = self.until.checked_add(self.number()?)?;
        Some(FrameSize {
            until: self.until,
            bytes: u32::try_from(self.size).ok()?,
        })
    }
}
