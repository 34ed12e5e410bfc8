//! Code that a program has made and registered for debuggers: GDB's JIT interface (its manual, "JIT Compilation Interface").
//! QEMU registers the buffer of its code generator so, with call frame information.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use wcprof_host::read_memory;
use wcprof_types::{Avma, LoadBias, Pid};
use wcprof_unwind::{ModuleCode, Unwinder};

/// Modules that are searched for the list.
const MAX_SEARCHED: usize = 1024;
/// Images of one process that are looked at. QEMU has one; programs with thousands (LLVM) register object files, which
/// have no place of their own.
const MAX_IMAGES: usize = 64;
/// Largest image, bytes. QEMU's has less than 1 KiB.
const MAX_IMAGE: u64 = 1 << 20;

/// What a process has registered.
#[derive(Debug, Default)]
pub(crate) struct RegisteredCode {
    /// Modules in which the list was looked for, by their first addresses.
    searched: HashSet<u64>,
    /// Where the list begins (`__jit_debug_descriptor`).
    pub(crate) descriptor: Option<Avma>,
    /// Images, each with its address and its size, as listed.
    images: Vec<(u64, u64)>,
    /// First addresses of the modules that the unwinder has of them.
    starts: Vec<Avma>,
}

impl RegisteredCode {
    /// Whether the list is to be looked for in the module at an address, once.
    pub(crate) fn wants(&mut self, start: u64) -> bool {
        self.descriptor.is_none()
            && self.searched.len() < MAX_SEARCHED
            && self.searched.insert(start)
    }

    /// Tells the unwinder of images that were registered for code in `foreign`, executable memory of no file. Whether
    /// anything changed.
    pub(crate) fn update(
        &mut self,
        pid: Pid,
        foreign: &[Range<Avma>],
        is_new: bool,
        unwinder: &mut Unwinder,
    ) -> bool {
        let images = self.descriptor.map(|at| listed(pid, at));
        let images = images.filter(|_| !foreign.is_empty()).unwrap_or_default();
        if images == self.images && !is_new {
            return false;
        }
        let mut any = !self.starts.is_empty();
        for start in self.starts.drain(..) {
            unwinder.remove_module(start);
        }
        for &(address, size) in &images {
            let code = read(pid, address, size).and_then(|bytes| ModuleCode::parse(&bytes).ok());
            // It is where it says.
            let Some(code) = code.filter(|code| code.n_fdes() > 0) else {
                continue;
            };
            let (start, end) = (Avma(code.base().0), Avma(code.end().0));
            let is_inside = |range: &Range<Avma>| range.start <= start && end <= range.end;
            if foreign.iter().any(is_inside)
                && let Some(_) = unwinder.add_module(start, end, LoadBias(0), Ok(Arc::new(code)))
            {
                self.starts.push(start);
                any = true;
            }
        }
        self.images = images;
        any
    }
}

/// Addresses and sizes of the images in a list: `struct jit_descriptor` and `struct jit_code_entry`.
fn listed(pid: Pid, descriptor: Avma) -> Vec<(u64, u64)> {
    let mut images = Vec::new();
    let Some([version, _, mut next]) = words(pid, descriptor.0) else {
        return images;
    };
    // The version is the lower half; the upper one says what was done last.
    if version & u64::from(u32::MAX) != 1 {
        return images;
    }
    while next != 0
        && images.len() < MAX_IMAGES
        && let Some([after, _, address, size]) = words(pid, next)
    {
        images.push((address, size));
        next = after;
    }
    images
}

fn words<const N: usize>(pid: Pid, address: u64) -> Option<[u64; N]> {
    let bytes = read(pid, address, 8 * N as u64)?;
    let mut words = bytes.chunks_exact(8).map(|word| word.try_into().ok());
    let mut all = [0; N];
    for slot in &mut all {
        *slot = u64::from_le_bytes(words.next()??);
    }
    Some(all)
}

fn read(pid: Pid, address: u64, size: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(size).ok().filter(|_| size <= MAX_IMAGE)?];
    let n = read_memory(pid, Avma(address), &mut bytes).ok()?;
    (n == bytes.len()).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_pid() -> Pid {
        Pid(std::process::id() as i32)
    }

    /// Check a list, one that never ends, another version, and one that leads nowhere.
    #[test]
    fn lists() {
        let mut second = [0_u64, 0, 0x3000, 30];
        let first = [second.as_ptr() as u64, 0, 0x2000, 20];
        let mut descriptor = [1 | 2 << 32, 0, first.as_ptr() as u64];
        let at = Avma(descriptor.as_ptr() as u64);
        assert_eq!(listed(own_pid(), at), [(0x2000, 20), (0x3000, 30)]);
        second[0] = first.as_ptr() as u64;
        std::hint::black_box(&mut second);
        assert_eq!(listed(own_pid(), at).len(), MAX_IMAGES);
        second[0] = 8;
        std::hint::black_box(&mut second);
        assert_eq!(listed(own_pid(), at).len(), 2);
        descriptor[0] = 2;
        std::hint::black_box(&mut descriptor);
        assert_eq!(listed(own_pid(), at), []);
        assert_eq!(listed(own_pid(), Avma(8)), []);
    }

    /// Check that an image which says that its code is elsewhere, or is none, changes nothing.
    #[test]
    fn refused() {
        let program = std::fs::read("/proc/self/exe").unwrap();
        let code = ModuleCode::parse(&program).unwrap();
        let image = &program[..program.len().min(MAX_IMAGE as usize)];
        let entry = [0, 0, image.as_ptr() as u64, image.len() as u64];
        let descriptor = [1, 0, entry.as_ptr() as u64];
        let mut registered = RegisteredCode {
            descriptor: Some(Avma(descriptor.as_ptr() as u64)),
            ..RegisteredCode::default()
        };
        let mut unwinder = Unwinder::default();
        let beside = Avma(code.end().0 + 0x1000)..Avma(code.end().0 + 0x2000);
        assert!(!registered.update(own_pid(), &[beside], true, &mut unwinder));
        assert!(!unwinder.is_code(Avma(code.base().0 + 0x1000)));
    }
}
