//! How much of a thread's stack unwinding needs: where it ends, and how deep it gets.
//!
//! The words that unwinding reads lie between the stack pointer and the thread's first frame, which
//! stays where it is. So once that has been met, no copy has to go further up, and a copy of a shallow
//! stack is as short as the stack. Copying 16 KiB of what 2 KiB are needed costs more than the CPU time
//! that it takes: both sides of the copy push the target's own data out of the caches.

use wcprof_capture::StackRequest;
use wcprof_types::{Avma, StackEnd, Tid};

/// Unwindings of a thread after which what it needs is known.
const SETTLED: u32 = 16;

/// What is known of a thread.
#[derive(Debug, Default)]
pub(crate) struct Need {
    /// Most bytes that an unwinding needed, over `n_unwound` of them.
    most: usize,
    n_unwound: u32,
    /// Behind the highest word that a whole unwinding read.
    end: Option<Avma>,
    /// There was more behind `end` once.
    is_unsure: bool,
}

/// How a copy of a stack was unwound.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Unwinding {
    pub(crate) sp: Avma,
    /// Bytes of the copy, and those from `sp` upward that were read, also behind the copy.
    pub(crate) copied: usize,
    pub(crate) needed: usize,
    pub(crate) end: StackEnd,
    /// The mapping of the stack is known.
    pub(crate) could_be_longer: bool,
}

impl Need {
    /// Takes account of an unwinding; what the sampler is to be asked for when that is something else
    /// than before: twice as much where it needed more than it got, less where it needed far less.
    pub(crate) fn learn(&mut self, tid: Tid, of: &Unwinding) -> Option<StackRequest> {
        self.most = self.most.max(of.needed);
        let is_short = of.end == StackEnd::CopyTooShort || of.needed > of.copied;
        let needed_end = Avma(of.sp.0.saturating_add(of.needed as u64));
        let mut bytes = None;
        let known_end = self.end;
        if is_short && of.could_be_longer {
            self.most = of.needed;
            bytes = Some(of.needed.max(of.copied) * 2);
            let copied_end = of.sp.0.saturating_add(of.copied as u64);
            // Copies are cut to whole words.
            if self
                .end
                .is_some_and(|end| copied_end.saturating_add(8) > end.0)
            {
                self.end = None;
                self.is_unsure = true;
            }
        } else {
            if self.n_unwound >= SETTLED && self.most * 3 < of.copied * 2 {
                bytes = Some(self.most + self.most / 4);
            }
            let is_whole = of.end == StackEnd::Root && of.could_be_longer && !self.is_unsure;
            if is_whole && self.end.is_none_or(|end| end < needed_end) {
                self.end = Some(needed_end);
            }
        }
        if bytes.is_none() && self.end == known_end {
            self.n_unwound += 1;
            return None;
        }
        self.n_unwound = 0;
        let end = self.end;
        Some(StackRequest { tid, bytes, end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(sp: u64, copied: usize, needed: usize, end: StackEnd) -> Unwinding {
        Unwinding {
            sp: Avma(sp),
            copied,
            needed,
            end,
            could_be_longer: true,
        }
    }

    fn ask(need: &mut Need, of: &Unwinding) -> Option<(Option<usize>, Option<u64>)> {
        let asked = need.learn(Tid(7), of)?;
        assert_eq!(asked.tid, Tid(7));
        Some((asked.bytes, asked.end.map(|end| end.0)))
    }

    /// Check that the end of a stack is learned from whole unwindings alone, once, and moves up where a
    /// thread has another stack.
    #[test]
    fn ends() {
        let mut need = Need::default();
        let stopped = at(0x1000, 4096, 0x300, StackEnd::NoUnwindInfo);
        assert_eq!(ask(&mut need, &stopped), None);
        let unknown = Unwinding {
            could_be_longer: false,
            ..at(0x1000, 4096, 0x300, StackEnd::Root)
        };
        assert_eq!(ask(&mut need, &unknown), None);
        let whole = at(0x1000, 4096, 0x800, StackEnd::Root);
        assert_eq!(ask(&mut need, &whole), Some((None, Some(0x1800))));
        let deeper = at(0xc00, 0xc00, 0xc00, StackEnd::Root);
        assert_eq!(ask(&mut need, &deeper), None);
        let lower_stack = at(0x100, 0x1700, 0x80, StackEnd::Root);
        assert_eq!(ask(&mut need, &lower_stack), None);
        let higher_stack = at(0x9000, 4096, 0x80, StackEnd::Root);
        assert_eq!(ask(&mut need, &higher_stack), Some((None, Some(0x9080))));
    }

    /// Check that more is asked for where a copy was too short; that an end which was not one is given up
    /// for good, and one that the copy did not reach is kept.
    #[test]
    fn grows() {
        let mut need = Need::default();
        let whole = at(0x1000, 4096, 0x800, StackEnd::Root);
        assert_eq!(ask(&mut need, &whole), Some((None, Some(0x1800))));
        let too_deep = at(0x400, 0x200, 0x200, StackEnd::CopyTooShort);
        assert_eq!(ask(&mut need, &too_deep), Some((Some(0x400), Some(0x1800))));
        let behind = at(0x1001, 0x7f8, 0x900, StackEnd::Root);
        assert_eq!(ask(&mut need, &behind), Some((Some(0x1200), None)));
        assert_eq!(ask(&mut need, &whole), None);
    }

    /// Check that less is asked for after a while of shallow stacks without an end.
    #[test]
    fn shrinks() {
        let mut need = Need::default();
        let shallow = at(0x1000, 4096, 400, StackEnd::NoUnwindInfo);
        for _ in 0..SETTLED {
            assert_eq!(ask(&mut need, &shallow), None);
        }
        assert_eq!(ask(&mut need, &shallow), Some((Some(500), None)));
    }
}
