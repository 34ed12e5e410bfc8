//! Finds callers where call frame information is not enough: `rbp` is unknown, or no FDE covers
//! the address. A guess is taken only when what follows from it holds together.

use std::iter::StepBy;
use std::ops::Range;

use wcprof_types::{Avma, FrameAddress, ScratchRegs, StackEnd};

use crate::call::{
    CALL_LOOKBEHIND, called_pointer, called_register, direct_call_target, is_preceded_by_call,
};
use crate::memory::{StackMemory, TextMemory, bytes_before, is_called};
use crate::row::{Cursor, Fault, Rbx, is_leaf, raw};
use crate::unwinder::{Step, Unwinder};
use crate::walk::is_user_address;

/// Candidates that are unwound to the end, for one search.
const MAX_TRIALS: u32 = 64;

/// Steps that a search of the whole stack stands for.
const SEARCH_STEPS: u32 = 256;

/// Bytes of the stack that are searched for a saved `rbp`.
const BP_SEARCH_BYTES: u64 = 64 << 10;

/// Bytes above the stack pointer in which a function without an FDE has its return address.
const CALL_SEARCH_BYTES: u64 = 1024;

/// Bytes above the stack pointer in which a function that keeps its frame below that has its return address: OpenSSL's
/// SHA-512 aligns 1.3 KB to 2 KB.
const FRAME_SEARCH_BYTES: u64 = 8 << 10;

/// Bytes of a function in which it may choose another one for the CPU at hand: OpenSSL's SHA-512 does in 81.
const CHOICE_BYTES: usize = 256;

/// Bytes of a function in which it may jump to another one, and nothing else.
const TAIL_BYTES: usize = 16;

/// Longest function without an FDE.
const MAX_FUNCTION: u64 = 16 << 10;

/// Bytes that tell what a function returns to.
const AFTER_CALL: usize = 9;

/// `sub $8,%rsp; call *%rcx; add $8,%rsp; ret`: what CPython 3.12 with `-X perf` calls each Python function through
/// (Python/asm_trampoline.S).
const TRAMPOLINE: [u8; 11] = [0x48, 0x83, 0xec, 8, 0xff, 0xd1, 0x48, 0x83, 0xc4, 8, 0xc3];

/// `endbr64`, with which functions begin that calls by pointers may lead to.
const LANDING: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// Where its call ends.
const TRAMPOLINE_CALL: u64 = 6;

/// Whether the code ends the thread, or the program, at once.
fn ends_thread(code: [u8; AFTER_CALL]) -> bool {
    matches!(
        code,
        // `mov %eax,%edi; xor %eax,%eax; mov $60,%al; syscall`: musl's `__clone` (src/thread/x86_64/clone.s).
        [0x89, 0xc7, 0x31, 0xc0, 0xb0, 0x3c, 0x0f, 0x05, _]
            // `xor %rdi,%rdi; call _exit; hlt`: `make_fcontext` of Boost.Context (src/asm/make_x86_64_sysv_elf_gas.S).
            | [0x48, 0x31, 0xff, 0xe8, _, _, _, _, 0xf4]
    )
}

/// `pop %rdx; mov $58,%eax; syscall; push %rdx`: musl's `vfork` (src/process/x86_64/vfork.s), which has its return address in
/// `rdx` from the first to the last of these.
const VFORK: [u8; 9] = [0x5a, 0xb8, 0x3a, 0, 0, 0, 0x0f, 0x05, 0x52];

/// The DWARF number of `rdx`.
const RDX: u16 = 1;

/// Frames that one trial walks.
const TRIAL_FRAMES: usize = 512;

/// Checked frames that suffice when the copy ends before the stack does.
const ENOUGH_FRAMES: usize = 4;

/// What the call before a candidate's return address says about it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Evidence {
    /// A direct call of the function that is being unwound.
    Certain,
    /// An indirect call, or a call through the PLT.
    Possible,
    /// A direct call of another function.
    Against,
}

impl Unwinder {
    /// Whether searches for this stack have so many steps left, which are taken.
    fn take_steps(&mut self, n: u32) -> bool {
        // A trial that could not be finished is no reason to take another candidate.
        let has_left = self.n_steps_left >= n && self.n_bytes_left > 0;
        self.n_steps_left = self.n_steps_left.saturating_sub(n);
        has_left
    }

    /// The caller of a frame whose rule needs the unknown `rbp`. Every slot of the stack is taken
    /// for the place that `rbp` points to; a candidate must give a return address behind a call
    /// and unwind on to the root.
    ///
    /// Left-overs of earlier calls in a frame's locals look like frames too, and lie below the
    /// real one. A call that tells where it went distinguishes them: a direct one, one by a pointer beside the code, one by a
    /// register that the function has saved. Where the real call tells nothing, any left-over that got as far makes the case
    /// ambiguous, and nothing is taken.
    pub(crate) fn search_bp<M: StackMemory + ?Sized>(
        &mut self,
        cursor: &Cursor,
        memory: &mut M,
        text: &mut dyn TextMemory,
    ) -> Result<Cursor, Fault> {
        if !self.take_steps(SEARCH_STEPS) {
            return Err(Fault::End(StackEnd::NoUnwindInfo));
        }
        let range = memory.searchable();
        let from = cursor.sp.max(range.start).next_multiple_of(8);
        let to = range
            .end
            .min(cursor.sp.saturating_add(BP_SEARCH_BYTES))
            .saturating_sub(16);
        let function = self.fde_start(cursor.address.for_lookup());
        let mut ambiguous = false;
        let mut n_trials = 0;
        for slot in (from..=to).step_by(8) {
            let candidate = Cursor {
                bp: Some(slot),
                ..*cursor
            };
            // Asked anew each time: a trial may have emptied the cache.
            let (step, _) = self.step_at(cursor.address, text);
            let Ok(caller) = self.find_caller(&candidate, step, memory) else {
                continue;
            };
            let FrameAddress::ReturnAddress(return_address) = caller.address else {
                continue;
            };
            let lookup = caller.address.for_lookup();
            let is_foreign = self.is_foreign_code(lookup);
            if !(is_foreign || self.is_code(lookup)) || !links(slot, &caller, step) {
                continue;
            }
            if !self.take_steps(1) {
                break;
            }
            let mut buffer = [0; CALL_LOOKBEHIND];
            let before = bytes_before(text, return_address.0, &mut buffer);
            // A pointer to the function, which it has saved.
            let mut by_register =
                |register| self.saved_register(cursor.address, register, caller.sp, memory);
            let target = call_target(before, return_address.0, text)
                .or_else(|| by_register(called_register(before)?));
            let Some(evidence) = self.evidence(before, target, function, text) else {
                continue;
            };
            if n_trials == MAX_TRIALS {
                break;
            }
            n_trials += 1;
            if is_foreign {
                // Code of a JIT compiler, whose own caller only its frame pointer has. Where it keeps none,
                // what lies above may have called it, and not this function.
                match self.goes_on_by_bp(caller, memory, text) {
                    true if !ambiguous => return Ok(caller),
                    _ => ambiguous = true,
                }
                continue;
            }
            if !self.reaches_root(caller, memory, text) {
                continue;
            }
            match evidence {
                Evidence::Certain => return Ok(caller),
                Evidence::Possible if !ambiguous => return Ok(caller),
                _ => ambiguous = true,
            }
        }
        memory.took_unsure();
        Err(Fault::End(StackEnd::NoUnwindInfo))
    }

    /// The caller of a frame whose CFA is in the red zone, of which there is no copy. The one slot above the stack pointer
    /// that holds the return address of a call of this function, from which unwinding goes on to the root, says
    /// where the frame ends; with two such slots nothing is taken: one is left over from an earlier call.
    pub(crate) fn search_frame<M: StackMemory + ?Sized>(
        &mut self,
        cursor: &Cursor,
        step: Step,
        memory: &mut M,
        text: &mut dyn TextMemory,
    ) -> Result<Cursor, Fault> {
        let found = self.the_call_of(cursor, step, memory, text);
        // What trials read says nothing about what is taken.
        memory.took_unsure();
        found.ok_or(Fault::NeedsRedZone)
    }

    fn the_call_of<M: StackMemory + ?Sized>(
        &mut self,
        cursor: &Cursor,
        step: Step,
        memory: &mut M,
        text: &mut dyn TextMemory,
    ) -> Option<Cursor> {
        let function = self.fde_start(cursor.address.for_lookup())?;
        let from = cursor.sp.checked_next_multiple_of(8)?;
        let to = memory
            .searchable()
            .end
            .min(cursor.sp.checked_add(FRAME_SEARCH_BYTES)?);
        let mut only = None;
        for slot in (from..to.saturating_sub(7)).step_by(8) {
            let Some((word, _)) = self.candidate(cursor, slot, memory)? else {
                continue;
            };
            let mut buffer = [0; CALL_LOOKBEHIND];
            let before = bytes_before(text, word, &mut buffer);
            let target = call_target(before, word, text);
            if !target.is_some_and(|target| self.goes_to(target, function, text)) {
                continue;
            }
            let caller = self.find_caller_at(cursor, step, slot + 8, memory)?;
            if raw(caller.address) == word && self.reaches_root(caller, memory, text) {
                if only.is_some() {
                    return None;
                }
                only = Some(caller);
            }
        }
        only
    }

    /// Whether a call of `target` gets to the start of a function: at once, through a PLT entry, or by way of one that
    /// chooses it among others for the CPU at hand.
    fn goes_to(&self, target: u64, function: Avma, text: &mut dyn TextMemory) -> bool {
        let target = through_plt(target, text).map_or(Avma(target), Avma);
        if target == function {
            return true;
        }
        let mut code = [0; CHOICE_BYTES];
        self.fde_start(target) == Some(target)
            && text.read_text(target, &mut code)
            && (target.0..).zip(code.windows(6)).any(|(at, code)| {
                let to = match *code {
                    [0x0f, 0x80..=0x8f, a, b, c, d] => relative(at, 6, [a, b, c, d]),
                    [0xe9, a, b, c, d, _] => relative(at, 5, [a, b, c, d]),
                    _ => return false,
                };
                to == function.0 && self.fde_start(Avma(at)) == Some(target)
            })
    }

    /// The caller where no FDE covers the address: by the call that went there, else by `rbp`.
    pub(crate) fn without_fde<M: StackMemory + ?Sized>(
        &mut self,
        cursor: &Cursor,
        memory: &mut M,
        text: &mut dyn TextMemory,
    ) -> Result<Cursor, Fault> {
        let found = self.through_trampoline(cursor, memory, text);
        let found = found.or_else(|| self.leave_vfork(cursor, text));
        let found = found.or_else(|| self.search_call(cursor, memory, text));
        let found = found.or_else(|| self.called_first(cursor, memory, text));
        let found = found.or_else(|| self.without_frame(cursor, memory, text));
        let found = found.or_else(|| self.follow_bp(cursor, memory, text));
        found.ok_or_else(|| {
            Fault::End(match self.is_code(cursor.address.for_lookup()) {
                false => StackEnd::NotInModule,
                true if self.is_first(cursor, text) => StackEnd::Root,
                true => StackEnd::NoUnwindInfo,
            })
        })
    }

    /// The caller of a trampoline that CPython has made for a function ([`TRAMPOLINE`]), which keeps no frame pointer.
    fn through_trampoline<M: StackMemory + ?Sized>(
        &self,
        cursor: &Cursor,
        memory: &mut M,
        text: &mut dyn TextMemory,
    ) -> Option<Cursor> {
        let FrameAddress::ReturnAddress(Avma(at)) = cursor.address else {
            return None;
        };
        if !self.is_foreign_code(cursor.address.for_lookup()) {
            return None;
        }
        let (return_address, caller) = caller_at(cursor, cursor.sp.checked_add(8)?, memory)?;
        // Before its code is read, of which nothing is kept for long.
        if !is_user_address(return_address) || !self.is_code(caller.address.for_lookup()) {
            return None;
        }
        let mut code = [0; TRAMPOLINE.len()];
        let start = at.checked_sub(TRAMPOLINE_CALL)?;
        let is_there = text.read_text(Avma(start), &mut code) && code == TRAMPOLINE;
        (is_there && is_called(text, return_address)).then_some(caller)
    }

    /// The caller of musl's `vfork` inside its system call.
    fn leave_vfork(&self, cursor: &Cursor, text: &mut dyn TextMemory) -> Option<Cursor> {
        let return_address = Avma(cursor.scratch.get(RDX).filter(|_| is_leaf(cursor))?);
        let mut around = [0; VFORK.len()];
        let from = raw(cursor.address).checked_sub(VFORK.len() as u64 - 1)?;
        let caller = Cursor {
            address: FrameAddress::ReturnAddress(return_address),
            scratch: ScratchRegs::default(),
            ..*cursor
        };
        let is_there = text.read_text(Avma(from), &mut around)
            && around == VFORK
            && self.is_code(caller.address.for_lookup())
            && is_called(text, return_address.0);
        is_there.then_some(caller)
    }

    /// Whether a frame without an FDE has no caller: it is the function that the program begins with, or one that begins
    /// a thread of musl or a fiber of Boost and ends it when what it called returns. That `rbp` is 0 shows nothing: many
    /// functions leave it as they found it.
    fn is_first(&self, cursor: &Cursor, text: &mut dyn TextMemory) -> bool {
        let mut after_call = [0; AFTER_CALL];
        self.is_in_entry(cursor.address.for_lookup())
            || matches!(cursor.address, FrameAddress::ReturnAddress(at)
                if text.read_text(at, &mut after_call) && ends_thread(after_call))
    }

    /// Where the return address of a function without an FDE may be: words above the stack pointer. `None` for other code.
    fn slots_above(&self, cursor: &Cursor) -> Option<StepBy<Range<u64>>> {
        let lookup = cursor.address.for_lookup();
        if !self.is_code(lookup) || self.fde_start(lookup).is_some() {
            return None;
        }
        let end = cursor.sp.checked_add(CALL_SEARCH_BYTES)?;
        Some((cursor.sp.next_multiple_of(8)..end).step_by(8))
    }

    /// The word of a slot and the caller that it makes as a return address, if that is in code: a step of a search. The outer `None`
    /// ends the search: the slot cannot be read, or no step is left.
    fn candidate<M: StackMemory + ?Sized>(
        &mut self,
        cursor: &Cursor,
        slot: u64,
        memory: &mut M,
    ) -> Option<Option<(u64, Cursor)>> {
        let (word, caller) = caller_at(cursor, slot, memory)?;
        if !is_user_address(word) || !self.is_code(caller.address.for_lookup()) {
            return Some(None);
        }
        self.take_steps(1).then_some(Some((word, caller)))
    }

    /// The caller of a function without an FDE that the first function of the program or of a thread has called through a
    /// pointer, as musl's do: the first return address above the stack pointer, if it is in that function.
    fn called_first<M: StackMemory + ?Sized>(
        &mut self,
        cursor: &Cursor,
        memory: &mut M,
        text: &mut dyn TextMemory,
    ) -> Option<Cursor> {
        for slot in self.slots_above(cursor)? {
            let (word, caller) = caller_at(cursor, slot, memory)?;
            let is_code = is_user_address(word) && self.is_code(caller.address.for_lookup());
            if is_code && is_called(text, word) {
                // Any other frame between the two would have its return address there.
                return self.is_first(&caller, text).then_some(caller);
            }
        }
        None
    }

    /// The caller of a leaf without an FDE that has no frame pointer yet, or none at all, among functions that keep one: `rbp` is still
    /// its caller's, and would lead past it. The first return address below that frame whose direct call went to code that
    /// does not begin by setting up `rbp`, or has not come so far.
    fn without_frame<M: StackMemory + ?Sized>(
        &mut self,
        cursor: &Cursor,
        memory: &mut M,
        text: &mut dyn TextMemory,
    ) -> Option<Cursor> {
        let bp = cursor.bp.filter(|bp| is_leaf(cursor) && *bp >= cursor.sp)?;
        let lookup = cursor.address.for_lookup();
        // Where that says that it was called itself, there is no other frame.
        let linked = linked(cursor, memory).and_then(|caller| {
            let mut buffer = [0; CALL_LOOKBEHIND];
            let address = raw(caller.address);
            direct_call_target(bytes_before(text, address, &mut buffer), address)
        });
        for slot in self.slots_above(cursor)?.take_while(|slot| *slot < bp) {
            let Some((word, caller)) = self.candidate(cursor, slot, memory)? else {
                continue;
            };
            let mut buffer = [0; CALL_LOOKBEHIND];
            let before = bytes_before(text, word, &mut buffer);
            let Some(target) = direct_call_target(before, word) else {
                continue;
            };
            let into = lookup.0.checked_sub(target);
            let is_nearer = linked.is_none_or(|other| other < target || other > lookup.0);
            if into.is_some_and(|n| n < MAX_FUNCTION)
                && is_nearer
                && self.fde_start(Avma(target)).is_none()
            {
                let set_up = frame_set_up(target, text);
                return set_up.is_none_or(|end| lookup.0 < end).then_some(caller);
            }
        }
        None
    }

    /// The caller by `rbp` where no FDE covers the address, or in the code of a JIT compiler: only from a known
    /// `rbp`, to a return address that a call precedes, or to what a handler of a signal returns to.
    fn follow_bp<M: StackMemory + ?Sized>(
        &mut self,
        cursor: &Cursor,
        memory: &mut M,
        text: &mut dyn TextMemory,
    ) -> Option<Cursor> {
        let is_jit = |at: &Cursor| self.is_foreign_code(at.address.for_lookup());
        if !(is_jit(cursor) || self.is_code(cursor.address.for_lookup())) {
            return None;
        }
        let caller = linked(cursor, memory)?;
        // HotSpot's interpreter jumps to what it calls: it puts the return address on the stack itself.
        if is_jit(&caller) && caller.bp > cursor.bp {
            return Some(caller);
        }
        let is_code = is_jit(&caller) || self.is_code(caller.address.for_lookup());
        let is_return = is_code
            && (is_called(text, raw(caller.address))
                || self.returns_from_signal(caller.address, text));
        is_return.then_some(caller)
    }

    /// Whether a handler of a signal returns to an address, which no call precedes.
    fn returns_from_signal(
        &mut self,
        address: FrameAddress<Avma>,
        text: &mut dyn TextMemory,
    ) -> bool {
        let (step, _) = self.step_at(address, text);
        matches!(step, Step::Own { signal: true, .. } | Step::Sigreturn)
    }

    /// The caller of a function without an FDE that keeps no frame pointer, such as those of musl: the first
    /// return address above the stack pointer whose call went to this function. Unwinding must go on from
    /// there through functions with an FDE, to the root or to another function without one.
    fn search_call<M: StackMemory + ?Sized>(
        &mut self,
        cursor: &Cursor,
        memory: &mut M,
        text: &mut dyn TextMemory,
    ) -> Option<Cursor> {
        let mut n_trials = 0;
        let found = self.called_from(cursor, memory, text, &mut n_trials);
        // What trials read says nothing about what is taken.
        memory.took_unsure();
        found
    }

    fn called_from<M: StackMemory + ?Sized>(
        &mut self,
        cursor: &Cursor,
        memory: &mut M,
        text: &mut dyn TextMemory,
        n_trials: &mut u32,
    ) -> Option<Cursor> {
        let lookup = cursor.address.for_lookup();
        let frame = (raw(cursor.address), cursor.sp, cursor.bp);
        let linked = self.linked_code(cursor, memory, text);
        // Its slot in the stack: `rbp` points below it.
        let linked = cursor.bp.map(|bp| bp.wrapping_add(8)).zip(linked);
        let in_slot = |slot, caller| match linked {
            Some((at, linked)) if at == slot => linked,
            _ => caller,
        };
        if let Some(known) = self.searched.get(&frame) {
            let slot = (*known)?;
            let (_, caller) = caller_at(cursor, slot, memory)?;
            return Some(in_slot(slot, caller));
        }
        // Whether `rbp` is the function's own or that of a caller: above lie the frames of others.
        let last = linked.map_or(u64::MAX, |(at, _)| at);
        for slot in self.slots_above(cursor)?.take_while(|slot| *slot <= last) {
            let Some((word, caller)) = self.candidate(cursor, slot, memory)? else {
                continue;
            };
            let caller = in_slot(slot, caller);
            let mut buffer = [0; CALL_LOOKBEHIND];
            let before = bytes_before(text, word, &mut buffer);
            let target = direct_call_target(before, word);
            if !target.is_some_and(|target| self.leads_to(target, lookup, text)) {
                continue;
            }
            if *n_trials == MAX_TRIALS {
                return None;
            }
            *n_trials += 1;
            let has_fde = self.fde_start(caller.address.for_lookup()).is_some();
            let goes_on = match has_fde {
                true => self.reaches_end(caller, memory, text, true),
                false => self.called_from(&caller, memory, text, n_trials).is_some(),
            };
            if goes_on {
                // A search of what it calls goes on through each frame above it.
                self.searched.insert(frame, Some(slot));
                return Some(caller);
            }
            if *n_trials == MAX_TRIALS {
                return None;
            }
        }
        // Nothing that this search knows can change that for the stack.
        self.searched.insert(frame, None);
        None
    }

    /// Whether code at `target` is the begin of the function at `lookup`, which has no FDE, or jumps there at once.
    fn leads_to(&self, target: u64, lookup: Avma, text: &mut dyn TextMemory) -> bool {
        let is_begin = |target: u64| {
            lookup
                .0
                .checked_sub(target)
                .is_some_and(|n| n < MAX_FUNCTION)
                && self.fde_start(Avma(target)).is_none()
        };
        if is_begin(target) {
            return true;
        }
        // One function may go on as another: `xor %esi,%esi; jmp f`. A PLT entry jumps to where a word of the GOT points.
        let mut code = [0; TAIL_BYTES];
        if !text.read_text(Avma(target), &mut code) {
            return false;
        }
        (target..).zip(code.windows(6)).any(|(at, code)| {
            let to = match *code {
                [0xff, 0x25, a, b, c, d] => match word_at(relative(at, 6, [a, b, c, d]), text) {
                    Some(word) => word,
                    None => return false,
                },
                [0xe9, a, b, c, d, _] => relative(at, 5, [a, b, c, d]),
                [0xeb, offset, ..] => at
                    .wrapping_add(2)
                    .wrapping_add_signed(i64::from(offset as i8)),
                _ => return false,
            };
            is_begin(to)
        })
    }

    /// What `rbp` says is the caller, if that is code of a module, a call precedes the return address, and the saved `rbp` leads
    /// further up.
    fn linked_code<M: StackMemory + ?Sized>(
        &self,
        cursor: &Cursor,
        memory: &mut M,
        text: &mut dyn TextMemory,
    ) -> Option<Cursor> {
        let caller = linked(cursor, memory)?;
        let is_code = caller.bp.is_some_and(|bp| bp >= caller.sp)
            && self.is_code(caller.address.for_lookup())
            && is_called(text, raw(caller.address));
        is_code.then_some(caller)
    }

    /// What the bytes before a return address say of a call of `function`, and where that went, if it is known; `None` when they
    /// are no call.
    fn evidence(
        &self,
        before: &[u8],
        target: Option<u64>,
        function: Option<Avma>,
        text: &mut dyn TextMemory,
    ) -> Option<Evidence> {
        if !is_preceded_by_call(before) {
            return None;
        }
        let Some(target) = target.map(Avma) else {
            return Some(Evidence::Possible);
        };
        if Some(target) == function {
            return Some(Evidence::Certain);
        }
        // A PLT entry or another stub is no function's start, but a jump to one.
        let mut first = [0; 6];
        let stub = text.read_text(target, &mut first)
            && (matches!(first, [0xff, 0x25, ..] | [0xe9, ..])
                || first.starts_with(&LANDING) && self.fde_start(target) != Some(target));
        Some(if stub {
            Evidence::Possible
        } else {
            Evidence::Against
        })
    }

    /// Whether frame pointers lead from code without a module back to a module, and from there to the root.
    fn goes_on_by_bp<M: StackMemory + ?Sized>(
        &mut self,
        mut cursor: Cursor,
        memory: &mut M,
        text: &mut dyn TextMemory,
    ) -> bool {
        for _ in 0..TRIAL_FRAMES {
            if !self.take_steps(1) {
                return false;
            }
            let caller = linked(&cursor, memory);
            let Some(caller) = caller.filter(|caller| is_called(text, raw(caller.address))) else {
                return false;
            };
            let lookup = caller.address.for_lookup();
            if !self.is_foreign_code(lookup) {
                return self.is_code(lookup) && self.reaches_root(caller, memory, text);
            }
            cursor = caller;
        }
        false
    }

    /// Whether unwinding goes on to the root from here without another guess, or far enough when
    /// the copy of the stack ends first.
    fn reaches_root<M: StackMemory + ?Sized>(
        &mut self,
        cursor: Cursor,
        memory: &mut M,
        text: &mut dyn TextMemory,
    ) -> bool {
        self.reaches_end(cursor, memory, text, false)
    }

    /// The same; with `or_gap` a function without an FDE is far enough, too.
    fn reaches_end<M: StackMemory + ?Sized>(
        &mut self,
        mut cursor: Cursor,
        memory: &mut M,
        text: &mut dyn TextMemory,
        or_gap: bool,
    ) -> bool {
        for depth in 0..TRIAL_FRAMES {
            if !self.take_steps(1) {
                return false;
            }
            let (step, _) = self.step_at(cursor.address, text);
            if !self.is_sure(cursor.address, text) {
                return self.is_first(&cursor, text);
            }
            match self.find_caller(&cursor, step, memory) {
                Ok(caller) => cursor = caller,
                Err(Fault::End(StackEnd::Root)) => return true,
                Err(Fault::End(StackEnd::CopyTooShort)) => return depth >= ENOUGH_FRAMES,
                Err(Fault::End(StackEnd::NoUnwindInfo)) => return or_gap && depth > 0,
                Err(_) => return false,
            }
        }
        false
    }
}

/// Where the call before a return address went: a direct one, or one by a pointer beside the code.
fn call_target(before: &[u8], return_address: u64, text: &mut dyn TextMemory) -> Option<u64> {
    direct_call_target(before, return_address)
        .or_else(|| word_at(called_pointer(before, return_address)?, text))
}

/// First address of a function at which its `rbp` is its own: behind `push %rbp` and the `mov %rsp,%rbp` that follows, perhaps
/// after other instructions; `None` when it does not begin so.
fn frame_set_up(function: u64, text: &mut dyn TextMemory) -> Option<u64> {
    let mut code = [0; 24];
    if !text.read_text(Avma(function), &mut code) {
        return None;
    }
    let at = if code.starts_with(&LANDING) { 4 } else { 0 };
    let (push, rest) = code.get(at..)?.split_first()?;
    let is_move = |code: &[u8]| matches!(code, [0x48, 0x89, 0xe5] | [0x48, 0x8b, 0xec]);
    let moves = rest
        .windows(3)
        .position(is_move)
        .filter(|_| *push == 0x55)?;
    Some(function.wrapping_add((at + 1 + moves + 3) as u64))
}

/// Where a PLT entry jumps to; `None` for other code.
fn through_plt(target: u64, text: &mut dyn TextMemory) -> Option<u64> {
    let mut code = [0; 11];
    if !text.read_text(Avma(target), &mut code) {
        return None;
    }
    let at = if code.starts_with(&LANDING) { 4 } else { 0 };
    // `bnd`, a prefix.
    let at = at + usize::from(code.get(at) == Some(&0xf2));
    let &[0xff, 0x25, a, b, c, d] = code.get(at..)?.first_chunk()? else {
        return None;
    };
    word_at(
        relative(target.wrapping_add(at as u64), 6, [a, b, c, d]),
        text,
    )
}

/// Where an instruction of `n` bytes at `at` refers to by its displacement.
fn relative(at: u64, n: u64, displacement: [u8; 4]) -> u64 {
    let displacement = i64::from(i32::from_le_bytes(displacement));
    at.wrapping_add(n).wrapping_add_signed(displacement)
}

fn word_at(address: u64, text: &mut dyn TextMemory) -> Option<u64> {
    let mut word = [0; 8];
    let is_read = text.read_text(Avma(address), &mut word);
    is_read.then(|| u64::from_le_bytes(word))
}

/// The word in a slot of the stack, and the caller if that is the return address.
fn caller_at<M: StackMemory + ?Sized>(
    cursor: &Cursor,
    slot: u64,
    memory: &mut M,
) -> Option<(u64, Cursor)> {
    let word = memory.read(slot).ok()?;
    let caller = Cursor {
        address: FrameAddress::ReturnAddress(Avma(word)),
        sp: slot + 8,
        // Where a function without an FDE saves it is not known.
        bx: Rbx::Unknown,
        ..*cursor
    };
    Some((word, caller))
}

/// What `rbp` says is the caller.
fn linked<M: StackMemory + ?Sized>(cursor: &Cursor, memory: &mut M) -> Option<Cursor> {
    let bp = cursor.bp.filter(|bp| *bp >= cursor.sp && bp % 8 == 0)?;
    let return_address = memory.read(bp.checked_add(8)?).ok()?;
    let saved = memory.read(bp).ok()?;
    is_user_address(return_address).then_some(Cursor {
        address: FrameAddress::ReturnAddress(Avma(return_address)),
        sp: bp.checked_add(16)?,
        bp: Some(saved),
        bx: Rbx::Unknown,
        scratch: ScratchRegs::default(),
    })
}

/// Whether a candidate is plausible as the place of a saved `rbp`: the saved value, where the
/// caller uses it as a frame pointer, lies above; other callers may hold anything in it.
fn links(slot: u64, caller: &Cursor, step: Step) -> bool {
    matches!(step, Step::Own { .. })
        || caller
            .bp
            .is_some_and(|saved| saved != slot && raw(caller.address) != saved)
}
