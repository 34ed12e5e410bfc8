//! Names of frames. A large table is several sections; the first one of them replaces the names
//! that the file had before.

use std::collections::HashMap;

use super::wire::{Input, cut, known, put, put_str};
use crate::error::Malformed;
use crate::limits::{MAX_INLINE, MAX_TABLE_BYTES};
use crate::model::{FrameId, SymbolFrame, SymbolTable};

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
    for (frame, functions) in &table.frames {
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
        let functions = &functions[functions.len().saturating_sub(MAX_INLINE)..];
        put(&mut self.entries, (frame.0 - self.frame).into());
        put(&mut self.entries, functions.len() as u64);
        for function in functions {
            let name = self.string(&function.name);
            let file = function.file.as_ref().map(|file| self.string(file));
            self.entries.push(
                if file.is_some() { HAS_FILE } else { 0 }
                    | if function.line.is_some() { HAS_LINE } else { 0 }
                    | if function.inlined { INLINED } else { 0 }
                    | if function.resolved { RESOLVED } else { 0 },
            );
            put(&mut self.entries, name);
            for n in [file, function.line.map(u64::from)].into_iter().flatten() {
                put(&mut self.entries, n);
            }
        }
        self.frame = frame.0;
        self.n_entries += 1;
    }

    fn string(&mut self, s: &'a str) -> u64 {
        let next = self.indices.len() as u64;
        *self.indices.entry(cut(s)).or_insert_with_key(|s| {
            put_str(&mut self.strings, s);
            next
        })
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

/// Reads a section into `table`. `budget` is what all names together may take, in bytes.
pub(crate) fn read(
    input: &mut Input<'_>,
    n_frames: usize,
    table: &mut Option<SymbolTable>,
    budget: &mut usize,
) -> Result<(), Malformed> {
    match input.byte()? {
        0 => {}
        1 => {
            *table = Some(SymbolTable::default());
            *budget = MAX_TABLE_BYTES;
        }
        code => {
            return Err(Malformed::UnknownCode {
                what: "symbols",
                code: code.into(),
            });
        }
    }
    let table = table.get_or_insert_default();
    let n_strings = input.count()?;
    let strings: Vec<&str> = (0..n_strings)
        .map(|_| input.str())
        .collect::<Result<_, _>>()?;
    // A string may be named any number of times, and each time is a copy in memory.
    let mut string = |input: &mut Input<'_>| {
        let index = input.number32()?;
        known("string", index, strings.len())?;
        let s = strings.get(index as usize).copied().unwrap_or_default();
        *budget = budget
            .checked_sub(s.len() + size_of::<SymbolFrame>())
            .ok_or(Malformed::TooMany {
                what: "bytes of names",
                count: MAX_TABLE_BYTES as u64 + 1,
                limit: MAX_TABLE_BYTES as u64,
            })?;
        Ok(s.to_owned())
    };
    let mut frame = 0_u32;
    for _ in 0..input.count()? {
        frame = frame
            .checked_add(input.number32()?)
            .ok_or(Malformed::NumberTooLarge)?;
        known("frame", frame, n_frames)?;
        let n = input.count()?;
        super::wire::within("functions of a frame", n as u64, MAX_INLINE)?;
        let mut functions = Vec::with_capacity(n);
        for _ in 0..n {
            let flags = input.byte()?;
            let name = string(input)?;
            let file = (flags & HAS_FILE != 0).then(|| string(input)).transpose()?;
            let line = (flags & HAS_LINE != 0)
                .then(|| input.number32())
                .transpose()?;
            functions.push(SymbolFrame {
                name,
                file,
                line,
                inlined: flags & INLINED != 0,
                resolved: flags & RESOLVED != 0,
            });
        }
        table.frames.insert(FrameId(frame), functions);
    }
    input.end()
}
