//! What the notes of a core file say: its process, threads with their registers, mapped files (`fs/binfmt_elf.c`).

use wcprof_types::{Avma, FileOffset, Mapping, ScratchRegs, Tid, UserRegs};

use super::elf::{notes, u16_at, u32_at, u64_at};
use crate::error::{Result, within};
use crate::limits;

const NT_PRSTATUS: u32 = 1;
const NT_PRPSINFO: u32 = 3;
const NT_AUXV: u32 = 6;
/// `FILE`
const NT_FILE: u32 = 0x4649_4c45;
/// Of the auxiliary vector: where the vdso is.
const AT_SYSINFO_EHDR: u64 = 33;

/// Places in `struct elf_prstatus` of x86-64: signal, tid, registers.
const PR_CURSIG: usize = 12;
const PR_PID: usize = 32;
const PR_REGS: usize = 112;
/// Places in `struct elf_prpsinfo`: pid, file name, arguments.
const PS_PID: usize = 24;
const PS_NAME: usize = 40;
const PS_ARGS: usize = 56;

/// Numbers of registers in `struct user_regs_struct` (`arch/x86/include/asm/user_64.h`).
mod reg {
    pub(super) const BP: usize = 4;
    pub(super) const BX: usize = 5;
    pub(super) const R10: usize = 7;
    pub(super) const DX: usize = 12;
    pub(super) const SI: usize = 13;
    pub(super) const DI: usize = 14;
    pub(super) const ORIG_AX: usize = 15;
    pub(super) const IP: usize = 16;
    pub(super) const SP: usize = 19;
    /// `rax`, `rdx`, `rdi`, `r8` to `r11`, by their DWARF numbers.
    pub(super) const SCRATCH: [(u16, usize); 7] = [
        (0, 10),
        (1, DX),
        (5, DI),
        (8, 9),
        (9, 8),
        (10, R10),
        (11, 6),
    ];
}

/// A thread as it was when the core was written.
#[derive(Clone, Debug)]
pub(super) struct CoreThread {
    /// In the pid namespace of the process.
    pub(super) tid: Tid,
    pub(super) regs: UserRegs,
    /// The system call that it was in, and its first three arguments.
    pub(super) call: Option<(u32, [u64; 3])>,
}

impl CoreThread {
    fn new(tid: Tid, regs: &[u8]) -> Self {
        let get = |at: usize| u64_at(regs, 8 * at);
        let call = get(reg::ORIG_AX);
        // Of what was not in a call it is -1.
        let call = u32::try_from(call).ok();
        Self {
            tid,
            regs: UserRegs {
                ip: Avma(get(reg::IP)),
                sp: Avma(get(reg::SP)),
                bp: Some(get(reg::BP)),
                bx: Some(get(reg::BX)),
                scratch: ScratchRegs::new(reg::SCRATCH.map(|(dwarf, at)| (dwarf, Some(get(at))))),
            },
            call: call.map(|call| (call, [reg::DI, reg::SI, reg::DX].map(get))),
        }
    }
}

/// What all notes say.
#[derive(Debug, Default)]
pub(super) struct CoreNotes {
    pub(super) pid: i32,
    /// File name of the program, up to 15 bytes.
    pub(super) comm: String,
    /// Its arguments, up to 79 bytes of them.
    pub(super) args: String,
    /// The signal that ended the process; 0 for none.
    pub(super) signal: u16,
    /// The first is the one that the signal was for.
    pub(super) threads: Vec<CoreThread>,
    /// Mapped files, by address.
    pub(super) files: Vec<Mapping>,
    /// Where the vdso is.
    pub(super) vdso: Option<u64>,
}

impl CoreNotes {
    /// By the bytes of the note segment.
    ///
    /// # Errors
    /// When there are more threads or mappings than can be read.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self> {
        let mut found = Self::default();
        for (name, kind, desc) in notes(bytes) {
            if name != b"CORE\0" {
                continue;
            }
            match kind {
                NT_PRSTATUS => {
                    let n = found.threads.len() + 1;
                    within(n, limits::MAX_THREADS, "the number of threads")?;
                    let tid = Tid(u32_at(desc, PR_PID).cast_signed());
                    if found.threads.is_empty() {
                        found.signal = u16_at(desc, PR_CURSIG);
                    }
                    let regs = desc.get(PR_REGS..).unwrap_or_default();
                    found.threads.push(CoreThread::new(tid, regs));
                }
                NT_PRPSINFO => {
                    found.pid = u32_at(desc, PS_PID).cast_signed();
                    found.comm = text(desc, PS_NAME, PS_ARGS);
                    found.args = text(desc, PS_ARGS, desc.len());
                }
                NT_AUXV => {
                    let mut entries = desc.chunks_exact(16);
                    let vdso = entries.find(|entry| u64_at(entry, 0) == AT_SYSINFO_EHDR);
                    found.vdso = vdso.map(|entry| u64_at(entry, 8));
                }
                NT_FILE => found.files = mapped_files(desc)?,
                _ => {}
            }
        }
        found.files.sort_by_key(|file| file.start);
        Ok(found)
    }
}

/// A text that ends with the first 0.
fn text(bytes: &[u8], from: usize, to: usize) -> String {
    let bytes = bytes.get(from..to.min(bytes.len())).unwrap_or_default();
    let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(bytes).trim_end().to_owned()
}

/// `fill_files_note`: count, size of a page, then begin, end and page in the file of each mapping, then their paths.
fn mapped_files(bytes: &[u8]) -> Result<Vec<Mapping>> {
    let (count, page) = (u64_at(bytes, 0), u64_at(bytes, 8));
    let table = bytes.get(16..).unwrap_or_default();
    let count = usize::try_from(count)
        .unwrap_or(usize::MAX)
        .min(table.len() / 24);
    within(count, limits::MAX_MAPPINGS, "the number of mappings")?;
    let paths = table.get(count * 24..).unwrap_or_default();
    let mut files = Vec::new();
    for (entry, path) in table
        .chunks_exact(24)
        .take(count)
        .zip(paths.split(|b| *b == 0))
    {
        let (start, end) = (u64_at(entry, 0), u64_at(entry, 8));
        if start >= end {
            continue;
        }
        files.push(Mapping {
            start: Avma(start),
            end: Avma(end),
            readable: true,
            mutable: false,
            executable: false,
            offset: FileOffset(u64_at(entry, 16).saturating_mul(page)),
            device: (0, 0),
            inode: 0,
            path: String::from_utf8_lossy(path).into_owned(),
        });
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the table of mapped files, and that one which says more than it holds gives what is there.
    #[test]
    fn files() {
        let mut bytes = Vec::new();
        let numbers: [u64; 8] = [2, 4096, 0x1000, 0x3000, 0, 0x3000, 0x4000, 2];
        for number in numbers {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(b"/a\0/b (deleted)\0");
        let all = mapped_files(&bytes).unwrap();
        let seen: Vec<_> = all
            .iter()
            .map(|file| (file.start.0, file.end.0, file.offset.0, file.path.as_str()))
            .collect();
        let expected = [
            (0x1000, 0x3000, 0, "/a"),
            (0x3000, 0x4000, 0x2000, "/b (deleted)"),
        ];
        assert_eq!(seen, expected);
        bytes[..8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(mapped_files(&bytes).unwrap().len() <= 3);
        assert_eq!(mapped_files(&bytes[..20]).unwrap(), []);
    }
}
