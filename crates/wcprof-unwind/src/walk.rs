//! Walks from the leaf to the root, and says why it stopped.

use wcprof_types::{Avma, FrameAddress, ScratchRegs, StackEnd, UserRegs};

use crate::memory::{StackMemory, TextMemory, is_called};
use crate::row::{Cursor, Fault, Rbx, raw};
use crate::unwinder::{ModuleKey, Step, Unwinder};

/// `mov %rbx,%rsp`, with which glibc's `__start_context` begins.
const START_CONTEXT: [u8; 3] = [0x48, 0x89, 0xdc];

/// Steps of all searches for one stack, which its contents decide on: candidates whose code is looked at, and frames of
/// trials. Real stacks take hundreds.
const MAX_STEPS: u32 = 16 << 10;

/// Bytes of call frame information that are executed for one stack, beside what is known of its frames from others. A
/// frame takes some hundred.
const MAX_CFI_BYTES: usize = 1 << 20;

/// Frames after which a stack ends with [`StackEnd::TooManyFrames`].
pub const MAX_FRAMES: usize = 2048;

/// One frame of a stack.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct UnwoundFrame {
    /// Where it is.
    pub address: FrameAddress<Avma>,
    /// The module of its lookup address; `None` outside every module.
    pub module: Option<ModuleKey>,
}

/// A stack; meant to be used again for the next one, so that its memory is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UnwoundStack {
    /// Leaf first. The leaf itself is always there.
    pub frames: Vec<UnwoundFrame>,
    /// Why there are no more.
    pub end: StackEnd,
    /// Steps that call frame information alone did not give: a saved `rbp` or a call found by search, or a
    /// frame pointer followed where no FDE covers the address. Each was checked.
    pub n_guessed: u32,
    /// It may depend on registers that calls do not preserve, or on `rbx`.
    pub used_scratch: bool,
}

/// Whether a step may depend on registers that calls do not preserve, or on an `rbx` that was not saved. Only rows that are not
/// plain refer to them.
fn may_use_scratch(cursor: &Cursor, step: Step) -> bool {
    let Step::Own { bx, .. } = step else {
        return false;
    };
    cursor.scratch != ScratchRegs::default() || (bx && matches!(cursor.bx, Rbx::Register(_)))
}

impl Unwinder {
    /// Unwinds a stack into `stack`, whose contents are replaced.
    ///
    /// Guesses are checked with `text`: where it gives nothing, a frame pointer is not followed where no FDE
    /// covers an address, a return address from a [`SplicedStack`](crate::SplicedStack)'s second source ends the
    /// stack, and a trampoline without an FDE is not recognized.
    pub fn unwind<M: StackMemory + ?Sized>(
        &mut self,
        regs: &UserRegs,
        memory: &mut M,
        text: &mut dyn TextMemory,
        stack: &mut UnwoundStack,
    ) {
        stack.frames.clear();
        stack.n_guessed = 0;
        stack.used_scratch = false;
        self.n_steps_left = MAX_STEPS;
        self.n_bytes_left = MAX_CFI_BYTES;
        self.searched.clear();
        memory.took_unsure();
        let mut cursor = Cursor {
            address: FrameAddress::InstructionPointer(regs.ip),
            sp: regs.sp.0,
            bp: regs.bp,
            bx: regs.bx.map_or(Rbx::Unknown, Rbx::Register),
            scratch: regs.scratch,
        };
        let mut scratch_of = None;
        stack.end = loop {
            let (step, module) = self.step_at(cursor.address, text);
            if step == Step::End(StackEnd::NotInModule) && self.is_of_probe(cursor.address) {
                break StackEnd::ReturnProbe;
            }
            let address = if step.is_uncalled() {
                FrameAddress::InstructionPointer(Avma(raw(cursor.address)))
            } else {
                cursor.address
            };
            stack.frames.push(UnwoundFrame { address, module });
            if stack.frames.len() >= MAX_FRAMES {
                // The root-most frame may have been the last one allowed.
                break match step {
                    Step::Start | Step::End(StackEnd::Root) => StackEnd::Root,
                    _ => StackEnd::TooManyFrames,
                };
            }
            // Through a call they are kept only inside a module: assembler relies on what its own
            // functions leave alone. The CFI says nothing, so the caller is checked below.
            let is_leaf = stack.frames.len() == 1;
            if !is_leaf && module != scratch_of {
                cursor.scratch = ScratchRegs::default();
            }
            scratch_of = module;
            stack.used_scratch |= may_use_scratch(&cursor, step);
            let (next, is_guess) = self.find_or_guess(&cursor, step, memory, text);
            stack.n_guessed += u32::from(is_guess);
            // A leaf without anything on the stack has its return address in a register.
            stack.used_scratch |=
                is_guess && next.as_ref().is_ok_and(|caller| caller.sp == cursor.sp);
            let caller = match next {
                Ok(caller) => caller,
                Err(Fault::End(end)) => break end,
                Err(Fault::NeedsBp) => break StackEnd::NoUnwindInfo,
                Err(Fault::NeedsRedZone) => break StackEnd::CopyTooShort,
            };
            let is_scratch = !is_leaf && matches!(step, Step::Own { scratch: true, .. });
            let is_checked =
                is_scratch || step.changes_stack() || self.is_registered_code(address.for_lookup());
            stack.n_guessed += u32::from(is_checked);
            let is_unsure = memory.took_unsure();
            if (is_checked || is_unsure) && !self.is_sure(caller.address, text) {
                break match is_unsure {
                    true => StackEnd::CopyTooShort,
                    false => StackEnd::NoUnwindInfo,
                };
            }
            if !is_user_address(raw(caller.address)) {
                break StackEnd::NotInModule;
            }
            cursor = caller;
        };
        if self.n_bytes_left == 0 {
            stack.end = StackEnd::TooManyFrames;
        }
    }

    /// The caller by call frame information, else by a guess, and whether it is one.
    #[inline]
    fn find_or_guess<M: StackMemory + ?Sized>(
        &mut self,
        cursor: &Cursor,
        step: Step,
        memory: &mut M,
        text: &mut dyn TextMemory,
    ) -> (Result<Cursor, Fault>, bool) {
        let guess = match self.find_caller(cursor, step, memory) {
            Err(Fault::NeedsBp) => self.search_bp(cursor, memory, text),
            Err(Fault::NeedsRedZone) => self.search_frame(cursor, step, memory, text),
            // A module without FDEs here, or code that a JIT compiler made.
            Err(Fault::End(StackEnd::NoUnwindInfo | StackEnd::NotInModule)) => {
                self.without_fde(cursor, memory, text)
            }
            found => return (found, false),
        };
        let is_guess = guess.is_ok();
        (guess, is_guess)
    }

    /// Whether an address from an unsure source can be where a call returns to. What the kernel
    /// or a library put on the stack without a call is known by its module: trampolines, first
    /// frames, interrupted code.
    pub(crate) fn is_sure(
        &mut self,
        address: FrameAddress<Avma>,
        text: &mut dyn TextMemory,
    ) -> bool {
        if !self.is_code(address.for_lookup()) {
            return false;
        }
        let FrameAddress::ReturnAddress(Avma(ip)) = address else {
            return true;
        };
        let (step, _) = self.step_at(address, text);
        match step {
            Step::Own { signal: true, .. }
            | Step::Uncalled(_)
            | Step::Sigreturn
            | Step::End(StackEnd::Root) => true,
            // Any left-over pointer to a function looks like this.
            Step::Start => {
                let mut first = [0; START_CONTEXT.len()];
                text.read_text(Avma(ip), &mut first) && first == START_CONTEXT
            }
            _ => is_called(text, ip),
        }
    }
}

/// Canonical, in the lower half, not in the first page.
pub(crate) fn is_user_address(address: u64) -> bool {
    (0x1000..1 << 47).contains(&address)
}
