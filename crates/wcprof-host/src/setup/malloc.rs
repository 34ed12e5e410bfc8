//! Memory of a live process to the library whose `malloc` it calls: the dynamic linker has written the
//! address into a slot of every module that imports it. No file is read.
//!
//! Facts: the ELF specification (dynamic section, `DT_JMPREL`, `DT_RELA`), x86-64 psABI (relocation
//! types 6 and 7), glibc's `elf/do-rel.h`. What is read is hostile: counts and ranges are capped.

use std::collections::HashSet;

use object::elf::{
    DT_JMPREL, DT_NULL, DT_PLTRELSZ, DT_RELA, DT_RELACOUNT, DT_RELASZ, DT_STRSZ, DT_STRTAB,
    DT_SYMTAB, Dyn64, DynamicTag, ELFCLASS64, ELFDATA2LSB, ELFMAG, FileHeader64, PT_DYNAMIC,
    PT_LOAD, ProgramHeader64, R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT, Rela64, Sym64,
};
use object::pod::{Pod, slice_from_bytes};
use object::{LittleEndian as LE, U64};
use wcprof_types::snapshot::Malloc;
use wcprof_types::{Avma, Mapping, Pid};

use crate::memory::read_memory;

/// Modules that are asked, the program first.
const MAX_MODULES: usize = 24;
/// Bytes of a table.
const MAX_TABLE: u64 = 16 << 20;
const PROGRAM_HEADER: u16 = size_of::<ProgramHeader64<LE>>() as u16;
const RELOCATION: u64 = size_of::<Rela64<LE>>() as u64;
const SYMBOL: u64 = size_of::<Sym64<LE>>() as u64;

/// The first module, the program first, whose slot leads into another module.
pub(super) fn find(pid: Pid, mappings: &[Mapping]) -> Option<Malloc> {
    let mut seen = HashSet::new();
    let is_first = |m: &&Mapping| m.offset.0 == 0 && m.inode != 0 && m.readable;
    let firsts = mappings.iter().filter(is_first);
    let mut modules = firsts
        .filter(|m| seen.insert(m.path.as_str()))
        .take(MAX_MODULES);
    modules.find_map(|first| {
        let target = Avma(Module::read(pid, first.start.0)?.slot(b"malloc\0")?);
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

/// A table of `len` bytes, at most [`MAX_TABLE`]; what is not mapped is missing at the end.
fn read<T: Pod>(pid: Pid, address: u64, len: u64) -> Option<Vec<T>> {
    let mut bytes = vec![0; usize::try_from(len.min(MAX_TABLE)).ok()?];
    let n = read_memory(pid, Avma(address), &mut bytes).ok()?;
    let (entries, _) = slice_from_bytes(&bytes, n / size_of::<T>()).ok()?;
    Some(entries.to_vec())
}

struct Module {
    pid: Pid,
    bias: u64,
    symbols: u64,
    /// Address and length.
    strings: (u64, u64),
    /// Address and length of relocation tables.
    tables: [(u64, u64); 2],
}

impl Module {
    fn read(pid: Pid, start: u64) -> Option<Self> {
        let header: FileHeader64<LE> = *read(pid, start, 64)?.first()?;
        let ident = header.e_ident;
        if (ident.magic, ident.class, ident.data) != (ELFMAG, ELFCLASS64, ELFDATA2LSB)
            || header.e_phentsize.get(LE) != PROGRAM_HEADER
        {
            return None;
        }
        let at = start.checked_add(header.e_phoff.get(LE))?;
        let len = u64::from(header.e_phnum.get(LE)) * u64::from(PROGRAM_HEADER);
        let headers: Vec<ProgramHeader64<LE>> = read(pid, at, len)?;
        let (mut bias, mut dynamic) = (None, None);
        for header in &headers {
            let address = header.p_vaddr.get(LE);
            match header.p_type.get(LE) {
                PT_LOAD if header.p_offset.get(LE) == 0 => bias = Some(start.wrapping_sub(address)),
                PT_DYNAMIC => dynamic = Some((address, header.p_memsz.get(LE))),
                _ => {}
            }
        }
        let (bias, (dynamic, len)) = (bias?, dynamic?);
        let mut entries: Vec<Dyn64<LE>> = read(pid, bias.wrapping_add(dynamic), len.min(1 << 16))?;
        let end = entries.iter().position(|e| e.d_tag.get(LE) == DT_NULL);
        entries.truncate(end.unwrap_or(entries.len()));
        let find = |tag: DynamicTag| entries.iter().rfind(|e| e.d_tag.get(LE) == tag);
        let number = |tag| find(tag).map_or(0, |e| e.d_val.get(LE));
        // glibc has made pointers absolute; other linkers leave them relative to the module.
        let address = |tag| match find(tag).map(|e| e.d_val.get(LE)) {
            Some(value) if value < bias => value.wrapping_add(bias),
            value => value.unwrap_or(0),
        };
        // Relative relocations at the begin of this table import nothing.
        let relative = number(DT_RELACOUNT).saturating_mul(RELOCATION);
        Some(Self {
            pid,
            bias,
            symbols: address(DT_SYMTAB),
            strings: (address(DT_STRTAB), number(DT_STRSZ)),
            tables: [
                (address(DT_JMPREL), number(DT_PLTRELSZ)),
                (
                    address(DT_RELA).checked_add(relative)?,
                    number(DT_RELASZ).saturating_sub(relative),
                ),
            ],
        })
    }

    /// The address in the slot for the imported function `name`, which ends with NUL.
    fn slot(&self, name: &[u8]) -> Option<u64> {
        let strings: Vec<u8> = read(self.pid, self.strings.0, self.strings.1)?;
        for (address, len) in self.tables {
            if address == 0 || len == 0 {
                continue;
            }
            let mut slots: Vec<Rela64<LE>> = read(self.pid, address, len)?;
            slots.retain(|slot| {
                let kind = slot.r_type(LE, false);
                matches!(kind, R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT)
            });
            let symbol = |slot: &Rela64<LE>| slot.r_sym(LE, false);
            let last = slots.iter().map(symbol).max().unwrap_or(0);
            let len = (u64::from(last) + 1) * SYMBOL;
            let symbols: Vec<Sym64<LE>> = read(self.pid, self.symbols, len)?;
            let is_named = |slot: &&Rela64<LE>| {
                let symbol = symbols.get(symbol(slot) as usize);
                let rest = symbol.and_then(|s| strings.get(s.st_name.get(LE) as usize..));
                rest.is_some_and(|rest| rest.starts_with(name))
            };
            if let Some(slot) = slots.iter().find(is_named) {
                let at = self.bias.wrapping_add(slot.r_offset.get(LE));
                let target: Vec<U64<LE>> = read(self.pid, at, 8)?;
                return target.first().map(|target| target.get(LE));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use wcprof_types::{file_name, parse_maps};

    use super::*;

    /// Check that this process's own malloc is found in a library that is mapped.
    #[test]
    fn own_malloc() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let mappings = parse_maps(&maps).unwrap();
        let found = find(Pid(std::process::id() as i32), &mappings).unwrap();
        let file = |path: &str| file_name(path).to_owned();
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
