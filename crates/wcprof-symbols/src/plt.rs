//! PLT stubs to the functions they jump to, x86-64.
//!
//! A stub jumps through a slot of the GOT; the relocation of that slot names the function. The
//! stub's instructions are looked at, so that the layout (`.plt`, `.plt.sec`, `.plt.got`) does not
//! matter. Encodings: System V ABI for x86-64, "Procedure Linkage Table".

use std::collections::HashMap;

use dwarf_stream::elf::{DynamicSymbols, ElfError, ElfFile, Section, c_string, entries};
use object::LittleEndian as LE;
use object::elf::{
    EM_X86_64, R_X86_64_GLOB_DAT, R_X86_64_IRELATIVE, R_X86_64_JUMP_SLOT, Rela64, Sym64,
};
use wcprof_types::Svma;

use crate::symtab::SymbolIndex;

/// Largest PLT or relocation section, bytes.
const MAX_SECTION: u64 = 64 << 20;
const STUB_SIZE: u64 = 16;

/// What a GOT slot holds once it is relocated.
enum Target {
    /// A symbol of `.dynsym`, by index.
    Symbol(u32),
    /// What the ifunc at that address chooses.
    Ifunc(u64),
}

/// The stubs of a file.
#[derive(Debug, Default)]
pub(crate) struct PltStubs {
    /// Start, end (exclusive) and the linkage name of the function, sorted.
    stubs: Vec<(u64, u64, Vec<u8>)>,
}

/// Whether a section holds stubs, by its name.
pub(crate) fn is_plt(section: &Section) -> bool {
    section.has_data() && matches!(section.name.as_str(), ".plt" | ".plt.sec" | ".plt.got")
}

impl PltStubs {
    /// Reads all stubs of a file. Empty for other machines than x86-64.
    pub(crate) fn read(elf: &ElfFile, symbols: &SymbolIndex) -> Result<Self, ElfError> {
        if elf.machine != EM_X86_64.0 {
            return Ok(Self::default());
        }
        let (slots, lazy) = relocations(elf)?;
        let dynamic = DynamicSymbols::read(elf)?.unwrap_or_default();
        let name = |target: &Target| match target {
            Target::Symbol(i) => {
                let symbol: &Sym64<LE> = entries(&dynamic.symbols).get(*i as usize)?;
                Some(c_string(&dynamic.strings, symbol.st_name.get(LE)).to_vec())
            }
            Target::Ifunc(address) => symbols.at(Svma(*address)).map(<[u8]>::to_vec),
        };
        let mut stubs = Vec::new();
        for section in elf.sections.iter().filter(|s| is_plt(s)) {
            let bytes = elf.read(section, MAX_SECTION)?;
            let size = if section.entry_size == 8 {
                8
            } else {
                STUB_SIZE
            };
            let mut start = section.address;
            for stub in bytes.chunks(size as usize) {
                let slot = match decode(stub, start) {
                    Some(Jump::Slot(slot)) => Some(slot),
                    Some(Jump::Lazy(i)) => lazy.get(i as usize).copied(),
                    None => None,
                };
                let target = slot.and_then(|slot| slots.get(&slot));
                let end = start.saturating_add(size);
                if let Some(name) = target.and_then(name).filter(|n| !n.is_empty()) {
                    stubs.push((start, end, name));
                }
                start = end;
            }
        }
        stubs.sort_unstable();
        Ok(Self { stubs })
    }

    /// The linkage name of the function that the stub at `address` jumps to.
    pub(crate) fn at(&self, address: Svma) -> Option<&[u8]> {
        let i = self
            .stubs
            .partition_point(|(start, ..)| *start <= address.0);
        let (_, end, name) = self.stubs.get(i.checked_sub(1)?)?;
        (address.0 < *end).then_some(name)
    }
}

/// GOT slots by address, and the slots of `.rela.plt` in its order.
fn relocations(elf: &ElfFile) -> Result<(HashMap<u64, Target>, Vec<u64>), ElfError> {
    let mut slots = HashMap::new();
    let mut lazy = Vec::new();
    for name in [".rela.plt", ".rela.dyn"] {
        let Some(section) = elf.section(name) else {
            continue;
        };
        let bytes = elf.read(section, MAX_SECTION)?;
        for entry in entries::<Rela64<LE>>(&bytes) {
            let slot = entry.r_offset.get(LE);
            if name == ".rela.plt" {
                lazy.push(slot);
            }
            let target = match entry.r_type(LE, false) {
                R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT => Target::Symbol(entry.r_sym(LE, false)),
                R_X86_64_IRELATIVE => Target::Ifunc(entry.r_addend.get(LE) as u64),
                _ => continue,
            };
            slots.insert(slot, target);
        }
    }
    Ok((slots, lazy))
}

/// The `u32` at a position of a stub.
fn u32_at(stub: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*stub.get(at..)?.first_chunk()?))
}

/// How a stub finds its function.
#[derive(PartialEq, Eq, Debug)]
enum Jump {
    /// Through the GOT slot at this address.
    Slot(u64),
    /// By the number of its relocation in `.rela.plt`, which the loader resolves.
    Lazy(u32),
}

/// Reads a stub's instructions.
fn decode(stub: &[u8], start: u64) -> Option<Jump> {
    const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
    let mut at = if stub.starts_with(&ENDBR64) { 4 } else { 0 };
    if stub.get(at) == Some(&0x68) {
        // push $index; jmp to the first stub
        return u32_at(stub, at + 1).map(Jump::Lazy);
    }
    if stub.get(at) == Some(&0xf2) {
        at += 1; // bnd
    }
    if stub.get(at..at + 2) != Some(&[0xff, 0x25]) {
        return None;
    }
    // jmp *offset(%rip), relative to the next instruction
    let offset = i64::from(u32_at(stub, at + 2)? as i32);
    let next = start.wrapping_add(at as u64 + 6);
    Some(Jump::Slot(next.wrapping_add_signed(offset)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the stubs of each layout that linkers write, quoted from objdump.
    #[test]
    fn layouts() {
        // jmp *0x2fe2(%rip); push $3; jmp
        let plain = [
            0xff, 0x25, 0xe2, 0x2f, 0, 0, 0x68, 3, 0, 0, 0, 0xe9, 0, 0, 0, 0,
        ];
        assert_eq!(decode(&plain, 0x1030), Some(Jump::Slot(0x4018)));
        // endbr64; bnd jmp *0x2f9d(%rip); nop
        let secure = [
            0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 0x9d, 0x2f, 0, 0, 0x0f, 0x1f, 0x44, 0, 0,
        ];
        assert_eq!(decode(&secure, 0x1050), Some(Jump::Slot(0x3ff8)));
        // endbr64; push $1; bnd jmp
        let lazy = [
            0xf3, 0x0f, 0x1e, 0xfa, 0x68, 1, 0, 0, 0, 0xf2, 0xe9, 0, 0, 0, 0, 0x90,
        ];
        assert_eq!(decode(&lazy, 0x1020), Some(Jump::Lazy(1)));
        // jmp *-0x10(%rip); xchg %ax,%ax
        let got = [0xff, 0x25, 0xf0, 0xff, 0xff, 0xff, 0x66, 0x90];
        assert_eq!(decode(&got, 0x1000), Some(Jump::Slot(0xff6)));
        // push 0x2fe2(%rip), the first stub
        assert_eq!(decode(&[0xff, 0x35, 0xe2, 0x2f, 0, 0], 0x1020), None);
        assert_eq!(decode(&[0xff, 0x25, 0], 0x1020), None);
    }
}
