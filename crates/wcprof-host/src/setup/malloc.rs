//! Memory of a live process to the library whose `malloc` it calls: the dynamic linker has written the
//! address into a slot of every module that imports it. No file is read.
//!
//! Facts: the ELF specification (dynamic section, `DT_JMPREL`, `DT_RELA`), x86-64 psABI (relocation
//! types 6 and 7), glibc's `elf/do-rel.h`. What is read is hostile: counts and ranges are capped.

use std::collections::HashSet;

use wcprof_types::snapshot::Malloc;
use wcprof_types::{Avma, Mapping, Pid};

use crate::memory::read_memory;

/// Modules that are asked, the program first.
const MAX_MODULES: usize = 24;
/// Bytes of a table.
const MAX_TABLE: u64 = 16 << 20;
const RELA_BYTES: usize = 24;
const SYM_BYTES: usize = 24;
const R_X86_64_GLOB_DAT: u64 = 6;
const R_X86_64_JUMP_SLOT: u64 = 7;
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;

/// The first module, the program first, whose slot leads into another module.
pub(super) fn find(pid: Pid, mappings: &[Mapping]) -> Option<Malloc> {
    let mut seen = HashSet::new();
    let is_first = |m: &&Mapping| m.offset.0 == 0 && m.inode != 0 && m.readable;
    let firsts = mappings.iter().filter(is_first);
    let mut modules = firsts
        .filter(|m| seen.insert(m.path.as_str()))
        .take(MAX_MODULES);
    modules.find_map(|first| {
        let target = Avma(Module::read(pid, first.start.0)?.slot("malloc")?);
        let called = mappings
            .iter()
            .find(|m| m.contains(target) && m.executable)?;
        // A slot that still leads into its own module is not bound yet.
        (called.inode != 0 && called.path != first.path).then(|| Malloc {
            caller: first.path.clone(),
            provider: called.path.clone(),
        })
    })
}

#[derive(Default)]
struct Module {
    pid: Pid,
    bias: u64,
    symbols: u64,
    strings: u64,
    strings_len: u64,
    /// Address and length of relocation tables.
    tables: [(u64, u64); 2],
    /// Relative relocations at the begin of the second table.
    n_relative: u64,
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// At most [`MAX_TABLE`] bytes; what is not mapped is missing at the end.
fn read(pid: Pid, address: u64, len: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(len.min(MAX_TABLE)).ok()?];
    let n = read_memory(pid, Avma(address), &mut bytes).ok()?;
    bytes.truncate(n);
    Some(bytes)
}

impl Module {
    fn read(pid: Pid, start: u64) -> Option<Self> {
        let header = read(pid, start, 64)?;
        if !header.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let (at, size) = (u64_at(&header, 32)?, u16_at(&header, 54)?);
        let n = u16_at(&header, 56)?;
        if usize::from(size) != 56 {
            return None;
        }
        let headers = read(pid, start.checked_add(at)?, u64::from(n) * 56)?;
        let (mut bias, mut dynamic) = (None, None);
        for header in headers.chunks_exact(56) {
            let (offset, address) = (u64_at(header, 8)?, u64_at(header, 16)?);
            match u32_at(header, 0)? {
                PT_LOAD if offset == 0 => bias = Some(start.wrapping_sub(address)),
                PT_DYNAMIC => dynamic = Some((address, u64_at(header, 40)?)),
                _ => {}
            }
        }
        let (bias, (dynamic, len)) = (bias?, dynamic?);
        let entries = read(pid, bias.wrapping_add(dynamic), len.min(1 << 16))?;
        let mut module = Self {
            pid,
            bias,
            ..Self::default()
        };
        for entry in entries.chunks_exact(16) {
            let (tag, value) = (u64_at(entry, 0)?, u64_at(entry, 8)?);
            // glibc has made pointers absolute; other linkers leave them relative to the module.
            let is_relative = value < bias;
            let address = value.wrapping_add(if is_relative { bias } else { 0 });
            match tag {
                0 => break,
                2 => module.tables[0].1 = value,
                5 => module.strings = address,
                6 => module.symbols = address,
                7 => module.tables[1].0 = address,
                8 => module.tables[1].1 = value,
                10 => module.strings_len = value,
                23 => module.tables[0].0 = address,
                0x6fff_fff9 => module.n_relative = value,
                _ => {}
            }
        }
        Some(module)
    }

    /// The address in the slot for the imported function `name`.
    fn slot(&self, name: &str) -> Option<u64> {
        let strings = read(self.pid, self.strings, self.strings_len)?;
        let relative = self.n_relative.saturating_mul(RELA_BYTES as u64);
        let [plt, mut other] = self.tables;
        other.0 = other.0.checked_add(relative)?;
        other.1 = other.1.saturating_sub(relative);
        for (address, len) in [plt, other] {
            if address == 0 || len == 0 {
                continue;
            }
            let table = read(self.pid, address, len)?;
            let slots: Vec<(u64, u64)> = table
                .chunks_exact(RELA_BYTES)
                .filter_map(|r| {
                    let info = u64_at(r, 8)?;
                    let kind = info & 0xffff_ffff;
                    let binds = kind == R_X86_64_GLOB_DAT || kind == R_X86_64_JUMP_SLOT;
                    binds.then_some((info >> 32, u64_at(r, 0)?))
                })
                .collect();
            let last = slots.iter().map(|s| s.0).max().unwrap_or(0);
            let len = (last + 1).saturating_mul(SYM_BYTES as u64);
            let symbols = read(self.pid, self.symbols, len)?;
            let slot = slots.iter().find(|(symbol, _)| {
                let at = usize::try_from(*symbol).unwrap_or(usize::MAX);
                let named = u32_at(&symbols, at.saturating_mul(SYM_BYTES));
                named.is_some_and(|at| is_string(&strings, at as usize, name))
            });
            if let Some((_, slot)) = slot {
                let bytes = read(self.pid, self.bias.wrapping_add(*slot), 8)?;
                return u64_at(&bytes, 0);
            }
        }
        None
    }
}

fn is_string(strings: &[u8], at: usize, wanted: &str) -> bool {
    let found = strings.get(at..).unwrap_or_default();
    found.starts_with(wanted.as_bytes()) && found.get(wanted.len()) == Some(&0)
}

#[cfg(test)]
mod tests {
    use wcprof_types::parse_maps;

    use super::*;

    /// Check that this process's own malloc is found in a library that is mapped.
    #[test]
    fn own_malloc() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let mappings = parse_maps(&maps).unwrap();
        let found = find(Pid(std::process::id() as i32), &mappings).unwrap();
        let file = |path: &str| path.rsplit('/').next().unwrap().to_owned();
        assert!(
            file(&found.provider).starts_with("libc.so")
                || file(&found.provider).contains("malloc"),
            "{found:?}"
        );
        assert_ne!(found.caller, found.provider);
    }

    /// Check that memory that is no module is nothing.
    #[test]
    fn no_module() {
        let text = [0_u8; 256];
        let me = Pid(std::process::id() as i32);
        assert!(Module::read(me, text.as_ptr() as u64).is_none());
        assert!(Module::read(me, 8).is_none());
    }
}
