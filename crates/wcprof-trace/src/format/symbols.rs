//! Names of frames. A large table is several sections; the first one of them replaces the names
//! that the file had before.

use std::collections::HashMap;

use super::codec::{Entries, put_len};
use super::wire::{Input, cut, known, put, put_str, unknown, within};
use crate::error::Malformed;
use crate::limits::{MAX_INLINE, MAX_LATER_NAMES, MAX_TABLE_BYTES};
use crate::model::{FrameId, LaterName, SymbolFrame, SymbolTable};

/// A section is closed when it is this large.
const SECTION_BYTES: usize = 4 << 20;

const HAS_FILE: u8 = 1;
const HAS_LINE: u8 = 1 << 1;
const INLINED: u8 = 1 << 2;
const RESOLVED: u8 = 1 << 3;

/// The contents of the sections that hold `table`; at least one.
pub(crate) fn sections(table: &SymbolTable) -> Vec<Vec<u8>> {
    let mut done = Vec::new();
    let mut part = Part::default();
    let mut used = 0;
    for (frame, functions) in &table.frames {
        used += memory(functions);
        if used > MAX_TABLE_BYTES {
            break;
        }
        part.push(*frame, functions);
        if part.strings.len() + part.entries.len() >= SECTION_BYTES {
            done.push(std::mem::take(&mut part).into_bytes(done.is_empty()));
        }
    }
    if done.is_empty() || part.n_entries > 0 {
        done.push(part.into_bytes(done.is_empty()));
    }
    done
}

#[derive(Default)]
struct Part<'a> {
    indices: HashMap<&'a str, u64>,
    strings: Vec<u8>,
    n_entries: u64,
    entries: Vec<u8>,
    frame: u32,
}

impl<'a> Part<'a> {
    fn push(&mut self, frame: FrameId, functions: &'a [SymbolFrame]) {
        let Self {
            indices, strings, ..
        } = self;
        let at = self.entries.len();
        put(&mut self.entries, (frame.0 - self.frame).into());
        put_functions(&mut self.entries, functions, |out, s| {
            let next = indices.len() as u64;
            let index = indices.entry(cut(s)).or_insert_with_key(|s| {
                put_str(strings, s);
                next
            });
            put(out, *index);
        });
        put_len(&mut self.entries, at);
        self.frame = frame.0;
        self.n_entries += 1;
    }

    fn into_bytes(self, is_first: bool) -> Vec<u8> {
        let mut out = vec![is_first.into()];
        put(&mut out, self.indices.len() as u64);
        out.extend_from_slice(&self.strings);
        put(&mut out, self.n_entries);
        out.extend_from_slice(&self.entries);
        out
    }
}

/// Reads a section into `table`. `used` are the bytes of all names so far.
pub(crate) fn read(
    input: &mut Input<'_>,
    entries: &mut Entries,
    n_frames: usize,
    table: &mut Option<SymbolTable>,
    used: &mut usize,
) -> Result<(), Malformed> {
    match input.byte()? {
        0 => {}
        1 => {
            *table = Some(SymbolTable::default());
            *used = 0;
        }
        code => return Err(unknown("symbols", code)),
    }
    let table = table.get_or_insert_default();
    let n_strings = input.count()?;
    let strings: Vec<&str> = (0..n_strings)
        .map(|_| input.str())
        .collect::<Result<_, _>>()?;
    // A string may be named any number of times, and each time is a copy in memory.
    let mut string = |input: &mut Input<'_>| {
        let index = input.id("string", strings.len())?;
        Ok(strings[index as usize])
    };
    let mut frame = 0_u32;
    for _ in 0..input.count()? {
        entries.read(input, |input| {
            frame = frame
                .checked_add(input.number32()?)
                .ok_or(Malformed::NumberTooLarge)?;
            known("frame", frame, n_frames)?;
            let functions = read_functions(input, used, &mut string)?;
            table.frames.insert(FrameId(frame), functions);
            Ok(())
        })?;
    }
    input.end()
}

/// The contents of the sections that hold later names; none without any.
pub(crate) fn later_sections(later: &[LaterName]) -> Vec<Vec<u8>> {
    let mut done = Vec::new();
    let mut part = Vec::new();
    let mut used = 0;
    for entry in &later[..later.len().min(MAX_LATER_NAMES)] {
        used += memory(&entry.functions);
        if used > MAX_TABLE_BYTES {
            break;
        }
        let at = part.len();
        put(&mut part, entry.frame.0.into());
        put(&mut part, entry.since.0);
        put_functions(&mut part, &entry.functions, put_str);
        put_len(&mut part, at);
        if part.len() >= SECTION_BYTES {
            done.push(std::mem::take(&mut part));
        }
    }
    if !part.is_empty() {
        done.push(part);
    }
    done
}

/// Reads a section of later names.
pub(crate) fn read_later(
    input: &mut Input<'_>,
    entries: &mut Entries,
    n_frames: usize,
    later: &mut Vec<LaterName>,
    used: &mut usize,
) -> Result<(), Malformed> {
    while !input.is_empty() {
        let n = later.len() as u64 + 1;
        within("later names", n, MAX_LATER_NAMES)?;
        entries.read(input, |input| {
            let frame = input.id("frame", n_frames)?;
            let since = input.time()?;
            let functions = read_functions(input, used, Input::str)?;
            later.push(LaterName {
                frame: FrameId(frame),
                since,
                functions,
            });
            Ok(())
        })?;
    }
    Ok(())
}

/// Bytes of memory that the functions of a frame take where they are read, at most.
fn memory(functions: &[SymbolFrame]) -> usize {
    functions.iter().map(SymbolFrame::memory).sum()
}

/// Appends the functions of one frame, the outermost [`MAX_INLINE`]; `put_string` a name or a file.
fn put_functions<'a>(
    out: &mut Vec<u8>,
    functions: &'a [SymbolFrame],
    mut put_string: impl FnMut(&mut Vec<u8>, &'a str),
) {
    let functions = &functions[functions.len().saturating_sub(MAX_INLINE)..];
    put(out, functions.len() as u64);
    for function in functions {
        out.push(flags(function));
        put_string(out, &function.name);
        if let Some(file) = &function.file {
            put_string(out, file);
        }
        if let Some(line) = function.line {
            put(out, line.into());
        }
    }
}

/// Reads the functions of one frame; `string` reads a name or a file.
fn read_functions<'a>(
    input: &mut Input<'a>,
    used: &mut usize,
    mut string: impl FnMut(&mut Input<'a>) -> Result<&'a str, Malformed>,
) -> Result<Vec<SymbolFrame>, Malformed> {
    let n = input.count()?;
    within("functions of a frame", n as u64, MAX_INLINE)?;
    let mut functions = Vec::with_capacity(n);
    for _ in 0..n {
        let flags = input.byte()?;
        let name = string(input)?;
        let file = (flags & HAS_FILE != 0).then(|| string(input)).transpose()?;
        let line = (flags & HAS_LINE != 0)
            .then(|| input.number32())
            .transpose()?;
        let function = SymbolFrame {
            name: name.to_owned(),
            file: file.map(str::to_owned),
            line,
            inlined: flags & INLINED != 0,
            resolved: flags & RESOLVED != 0,
        };
        *used += function.memory();
        within("bytes of names", *used as u64, MAX_TABLE_BYTES)?;
        functions.push(function);
    }
    Ok(functions)
}

fn flags(function: &SymbolFrame) -> u8 {
    (if function.file.is_some() { HAS_FILE } else { 0 })
        | (if function.line.is_some() { HAS_LINE } else { 0 })
        | (if function.inlined { INLINED } else { 0 })
        | (if function.resolved { RESOLVED } else { 0 })
}
