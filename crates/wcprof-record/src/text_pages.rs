//! Code of a target, read while it runs to check return addresses. Each read asks another thread, which may get no answer; so
//! pages are kept: those of files that the target cannot write as long as they are mapped, all others for a tick.

use std::collections::HashMap;
use std::ops::Range;

use foldhash::fast::RandomState;
use wcprof_host::clock::monotonic_ns;
use wcprof_host::read_memory;
use wcprof_types::{Avma, Mapping, Pid};
use wcprof_unwind::TextMemory;

const PAGE: usize = 4096;
/// Pages read for one stack: 4 MiB.
const MAX_READS: usize = 1024;
/// Pages of a process that are kept, 4 MiB, and those that were before them.
const MAX_PAGES: usize = 1024;
/// For how long memory is trusted that the target can write or map anew without a trace in its mappings, ns: a tick.
const FRESH_NS: u64 = 10_000_000;

/// A mapping of a file whose contents stay.
#[derive(Clone, PartialEq, Eq, Debug)]
struct FixedRange {
    range: Range<u64>,
    file: ((u32, u32), u64, u64),
}

#[derive(Clone, Debug)]
struct KeptPage {
    /// What could be read.
    bytes: Box<[u8]>,
    /// `CLOCK_MONOTONIC`, ns; `None` for a page of a [`FixedRange`].
    read_at: Option<u64>,
}

/// Pages of a process's code.
#[derive(Debug, Default)]
pub(crate) struct TextPages {
    /// By address.
    fixed: Vec<FixedRange>,
    young: HashMap<u64, KeptPage, RandomState>,
    /// What was `young` before, without those used since.
    old: HashMap<u64, KeptPage, RandomState>,
}

impl TextPages {
    /// Takes over the mappings, sorted by address: pages are forgotten whose mapping is not there any more.
    pub(crate) fn set_mappings(&mut self, mappings: &[Mapping]) {
        let fixed = mappings.iter().filter(|m| !m.mutable && !m.is_anonymous());
        let fixed = fixed.map(|m| FixedRange {
            range: m.start.0..m.end.0,
            file: (m.device, m.inode, m.offset.0),
        });
        let before = std::mem::replace(&mut self.fixed, fixed.collect());
        if before == self.fixed {
            return;
        }
        let now = &self.fixed;
        let is_same = |address: u64| {
            let range = range_at(now, address);
            range.is_some() && range == range_at(&before, address)
        };
        for pages in [&mut self.young, &mut self.old] {
            pages.retain(|&address, _| is_same(address));
        }
    }

    /// A page, read if it is not known; `None` when it would be one more than `n_left`.
    fn page(&mut self, pid: Pid, page: u64, now: u64, n_left: &mut usize) -> Option<&[u8]> {
        let is_valid = |known: &KeptPage| {
            known
                .read_at
                .is_none_or(|read_at| now.saturating_sub(read_at) < FRESH_NS)
        };
        if !self.young.get(&page).is_some_and(is_valid) {
            let known = self.old.remove(&page).filter(is_valid);
            let kept = match known {
                Some(known) => known,
                None => {
                    *n_left = n_left.checked_sub(1)?;
                    self.read(pid, page, now)
                }
            };
            if self.young.len() >= MAX_PAGES {
                self.old = std::mem::take(&mut self.young);
            }
            self.young.insert(page, kept);
        }
        self.young.get(&page).map(|kept| &*kept.bytes)
    }

    fn read(&self, pid: Pid, page: u64, now: u64) -> KeptPage {
        let mut bytes = vec![0; PAGE];
        let read = read_memory(pid, Avma(page), &mut bytes);
        bytes.truncate(read.unwrap_or(0));
        let is_fixed = read.is_ok() && range_at(&self.fixed, page).is_some();
        KeptPage {
            bytes: bytes.into(),
            read_at: (!is_fixed).then_some(now),
        }
    }
}

fn range_at(sorted: &[FixedRange], address: u64) -> Option<&FixedRange> {
    let n_before = sorted.partition_point(|fixed| fixed.range.start <= address);
    let before = sorted.get(n_before.checked_sub(1)?)?;
    before.range.contains(&address).then_some(before)
}

/// The code of a process, for one stack.
pub(crate) struct LiveText<'a> {
    pid: Pid,
    pages: &'a mut TextPages,
    /// When it was begun, `CLOCK_MONOTONIC` ns.
    now: u64,
    n_left: usize,
}

impl<'a> LiveText<'a> {
    pub(crate) fn new(pid: Pid, pages: &'a mut TextPages) -> Self {
        Self {
            pid,
            pages,
            now: monotonic_ns(),
            n_left: MAX_READS,
        }
    }
}

impl TextMemory for LiveText<'_> {
    fn read_text(&mut self, address: Avma, bytes: &mut [u8]) -> bool {
        let (mut address, mut rest) = (address.0, bytes);
        while !rest.is_empty() {
            let offset = (address % PAGE as u64) as usize;
            let n = rest.len().min(PAGE - offset);
            let page = address - offset as u64;
            let page = self.pages.page(self.pid, page, self.now, &mut self.n_left);
            let Some(found) = page.and_then(|page| page.get(offset..offset + n)) else {
                return false;
            };
            let (now, later) = rest.split_at_mut(n);
            now.copy_from_slice(found);
            (address, rest) = (address.wrapping_add(n as u64), later);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use wcprof_host::Target;
    use wcprof_types::UserRegs;
    use wcprof_unwind::{StackCopy, Unwinder, UnwoundStack};

    use super::*;

    fn own_pid() -> Pid {
        Pid(std::process::id() as i32)
    }

    /// Check that code is read across pages and as far as it goes, and no more pages than the limit.
    #[test]
    fn text() {
        let memory: Vec<u8> = (0..4 * PAGE).map(|i| (i / 3) as u8).collect();
        let mut pages = TextPages::default();
        let mut text = LiveText::new(own_pid(), &mut pages);
        let start = memory.as_ptr() as u64;
        for at in 0..2 * PAGE {
            let mut bytes = [0; 7];
            assert!(text.read_text(Avma(start + at as u64), &mut bytes));
            assert_eq!(bytes, memory[at..at + 7]);
        }
        assert!(MAX_READS - text.n_left <= 4);
        assert!(!text.read_text(Avma(u64::MAX - 2), &mut [0; 7]));
        for page in 0..2 * MAX_READS as u64 {
            assert!(!text.read_text(Avma(page << 50), &mut [0; 7]));
        }
        assert_eq!(text.n_left, 0);
        assert!(!text.read_text(Avma(start + (3 * PAGE) as u64), &mut [0; 7]));
        for pages in [&pages.young, &pages.old] {
            assert!(pages.len() <= MAX_PAGES);
        }
    }

    /// Check that memory which can be written is read again after a tick, and not before.
    #[test]
    fn rewritten() {
        let mut memory = vec![1_u8; 64];
        let mut pages = TextPages::default();
        let mappings = Target::open(own_pid()).unwrap().mappings().unwrap();
        pages.set_mappings(&mappings);
        let start = memory.as_ptr() as u64;
        let mut read = |after_ns| {
            let mut text = LiveText::new(own_pid(), &mut pages);
            text.now += after_ns;
            let mut bytes = [0; 4];
            assert!(text.read_text(Avma(start), &mut bytes));
            (bytes[0], text.n_left)
        };
        assert_eq!(read(0).0, 1);
        memory.fill(2);
        std::hint::black_box(&mut memory);
        assert_eq!(read(FRESH_NS), (2, MAX_READS - 1));
    }

    /// Check that a stack through code which is rewritten at its address is the new one after a tick: what was a call is none.
    #[test]
    fn rewritten_stack() {
        const STACK: u64 = 0x7000_0000;
        const RETURN: usize = 0x20;
        let mut code = vec![0x90_u8; 64];
        // `call`, five bytes long.
        code[RETURN - 5] = 0xe8;
        let start = code.as_ptr() as u64;
        let mut unwinder = Unwinder::default();
        unwinder.set_foreign_code([Avma(start)..Avma(start + 64)]);
        let regs = UserRegs {
            ip: Avma(start + 0x10),
            sp: Avma(STACK),
            bp: Some(STACK),
            ..UserRegs::default()
        };
        let words = [0, start + RETURN as u64];
        let copy: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut pages = TextPages::default();
        let mut n_frames = |after_ns| {
            let mut text = LiveText::new(own_pid(), &mut pages);
            text.now += after_ns;
            let mut memory = StackCopy::new(Avma(STACK), &copy, Avma(STACK + 16));
            let mut stack = UnwoundStack::default();
            unwinder.unwind(&regs, &mut memory, &mut text, &mut stack);
            stack.frames.len()
        };
        assert_eq!(n_frames(0), 2);
        code[RETURN - 5] = 0x90;
        std::hint::black_box(&mut code);
        assert_eq!(n_frames(FRESH_NS), 1);
    }

    /// Check that code of a file is read once, until its mapping is another one.
    #[test]
    fn of_file() {
        let mut mappings = Target::open(own_pid())
            .unwrap()
            .mappings()
            .unwrap()
            .to_vec();
        let code = Avma(of_file as fn() as usize as u64);
        let mut pages = TextPages::default();
        pages.set_mappings(&mappings);
        let n_read = |pages: &mut TextPages, after_ns| {
            let mut text = LiveText::new(own_pid(), pages);
            text.now += after_ns;
            assert!(text.read_text(code, &mut [0; 1]));
            MAX_READS - text.n_left
        };
        assert_eq!(n_read(&mut pages, 0), 1);
        pages.set_mappings(&mappings);
        assert_eq!(n_read(&mut pages, 100 * FRESH_NS), 0);
        for change in [
            |m: &mut Mapping| m.inode += 1,
            |m: &mut Mapping| m.offset.0 += 1,
            |m: &mut Mapping| m.end.0 += 1,
        ] {
            mappings
                .iter_mut()
                .filter(|m| m.contains(code))
                .for_each(change);
            pages.set_mappings(&mappings);
            assert_eq!(n_read(&mut pages, 0), 1);
            assert_eq!(n_read(&mut pages, 0), 0);
        }
        mappings.iter_mut().for_each(|m| m.mutable = true);
        pages.set_mappings(&mappings);
        assert_eq!(n_read(&mut pages, 0), 1);
        assert_eq!(n_read(&mut pages, FRESH_NS), 1);
    }
}
