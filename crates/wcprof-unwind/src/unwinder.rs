//! The modules of one process, and one step from a frame to its caller.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use gimli::UnwindContext;
use wcprof_types::{Avma, FrameAddress, LoadBias, ScratchRegs, StackEnd, Svma};

use crate::code::ModuleCode;
use crate::go_step::{CallOfC, GoStep, by_frame_pointer};
use crate::memory::{StackMemory, TextMemory, is_called};
use crate::row::{Cursor, Fault, PlainRow, Rbx, Row, is_leaf, raw, saved_register};
use crate::step_cache::StepCache;

/// Most rows that are not plain; beyond it both caches start afresh.
const MAX_ROWS: usize = 4096;

/// `mov $15,%rax; syscall`: a signal trampoline, with or without call frame information (musl
/// has none). GDB knows it by the same bytes.
const SIGRETURN: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];

/// Offsets in the signal frame that the stack pointer is at in a trampoline: `struct ucontext`
/// with its `sigcontext_64` at 40 (`arch/x86/include/uapi/asm/sigcontext.h`).
const UC_RBP: u64 = 120;
const UC_RBX: u64 = 128;
const UC_RSP: u64 = 160;
const UC_RIP: u64 = 168;
/// Of registers that calls do not preserve, with their DWARF numbers.
const UC_SCRATCH: [(u16, u64); 7] = [
    (0, 144),
    (1, 136),
    (5, 104),
    (8, 40),
    (9, 48),
    (10, 56),
    (11, 64),
];

/// A module as [`Unwinder::add_module`] numbered it.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ModuleKey(pub u32);

#[derive(Debug)]
struct Entry {
    end: u64,
    bias: LoadBias,
    key: ModuleKey,
    /// Else why stacks end there.
    code: Result<Arc<ModuleCode>, StackEnd>,
}

/// What to do at a lookup address.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    End(StackEnd),
    Plain(PlainRow),
    /// The same at the start of a function that nothing called.
    Uncalled(PlainRow),
    /// Index into `rows`.
    Own {
        row: u32,
        signal: bool,
        /// Its CFA is based on a register that calls do not preserve.
        scratch: bool,
        /// Its caller can depend on `rbx`.
        bx: bool,
        /// Its CFA is read from memory, which may hold the stack pointer of another stack: OCaml's fibers.
        loads: bool,
    },
    /// A signal trampoline without call frame information.
    Sigreturn,
    /// A function that is only ever returned to: a coroutine's root.
    Start,
    /// A function of Go that has changed to another stack.
    FramePointer,
    /// A function of Go that calls C on another stack.
    CallOfC(CallOfC),
}

impl From<GoStep> for Step {
    fn from(step: GoStep) -> Self {
        match step {
            GoStep::End(end) => Self::End(end),
            GoStep::Plain(row) => Self::Plain(row),
            GoStep::Uncalled(row) => Self::Uncalled(row),
            GoStep::Sigreturn => Self::Sigreturn,
            GoStep::FramePointer => Self::FramePointer,
            GoStep::CallOfC(call) => Self::CallOfC(call),
        }
    }
}

impl Step {
    /// The address is where execution goes on, although it was found as a return address: no call
    /// precedes it, and the byte before may be another function's.
    pub fn is_uncalled(self) -> bool {
        matches!(
            self,
            Self::Own { signal: true, .. } | Self::Uncalled(_) | Self::Sigreturn | Self::Start
        )
    }

    /// The caller is on another stack without a signal: whatever was read as its return address is checked.
    pub fn changes_stack(self) -> bool {
        matches!(self, Self::FramePointer | Self::CallOfC(_))
    }
}

/// Unwinds the stacks of one process.
pub struct Unwinder {
    /// By first address, without overlaps.
    modules: BTreeMap<u64, Entry>,
    /// Executable parts of these, by address. Searches ask about each word of a stack.
    code: Vec<Range<u64>>,
    /// Executable memory of no module, sorted.
    foreign: Vec<Range<u64>>,
    next_key: u32,
    steps: StepCache<(Step, Option<ModuleKey>)>,
    rows: Vec<(Row, Arc<ModuleCode>)>,
    context: UnwindContext<usize>,
    /// What searches for callers may still take for the stack that is being unwound.
    pub(crate) n_steps_left: u32,
    /// Bytes of call frame information that may still be executed for it.
    pub(crate) n_bytes_left: usize,
    /// Its frames without an FDE, as address, stack pointer and `rbp`, whose call was searched for: the slot that has its return
    /// address; `None` when no call was found to lead there.
    pub(crate) searched: HashMap<(u64, u64, Option<u64>), Option<u64>>,
}

impl std::fmt::Debug for Unwinder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unwinder")
            .field("modules", &self.modules)
            .finish_non_exhaustive()
    }
}

impl Default for Unwinder {
    fn default() -> Self {
        Self {
            modules: BTreeMap::new(),
            code: Vec::new(),
            foreign: Vec::new(),
            next_key: 0,
            steps: StepCache::default(),
            rows: Vec::new(),
            context: UnwindContext::new(),
            n_steps_left: 0,
            n_bytes_left: 0,
            searched: HashMap::new(),
        }
    }
}

impl Unwinder {
    /// Adds a module that covers `start..end` in the target. Without `code` stacks end there with the given
    /// [`StackEnd`]. Modules that
    /// overlap the range are removed first, since the newer mapping replaced them. `None` if the range is
    /// empty.
    pub fn add_module(
        &mut self,
        start: Avma,
        end: Avma,
        bias: LoadBias,
        code: Result<Arc<ModuleCode>, StackEnd>,
    ) -> Option<ModuleKey> {
        let (start, end) = (start.0, end.0);
        if start >= end {
            return None;
        }
        // Overlaps are rare, and a process may map thousands of files: each takes its place alone.
        while let Some((&known, _)) = self.modules.range(..end).next_back()
            && self.modules[&known].end > start
        {
            self.modules.remove(&known);
        }
        let mut parts: Vec<Range<u64>> = match &code {
            Ok(module) => {
                let in_memory = |svma| bias.to_avma(Svma(svma)).0;
                let parts = module.code();
                let parts = parts.map(|r| in_memory(r.start).max(start)..in_memory(r.end).min(end));
                parts.filter(|r| r.start < r.end).collect()
            }
            Err(_) => std::iter::once(start..end).collect(),
        };
        parts.sort_unstable_by_key(|range| range.start);
        self.replace_code(start..end, parts);
        let key = ModuleKey(self.next_key);
        self.next_key = self.next_key.wrapping_add(1);
        let entry = Entry {
            end,
            bias,
            key,
            code,
        };
        self.modules.insert(start, entry);
        self.clear_caches();
        Some(key)
    }

    /// Removes the module whose range begins at `start`.
    pub fn remove_module(&mut self, start: Avma) {
        if let Some(removed) = self.modules.remove(&start.0) {
            self.replace_code(start.0..removed.end, Vec::new());
        }
        self.clear_caches();
    }

    /// Executable parts of a range of addresses, sorted, in place of those that were there.
    fn replace_code(&mut self, range: Range<u64>, parts: Vec<Range<u64>>) {
        let from = self.code.partition_point(|part| part.end <= range.start);
        let to = self.code.partition_point(|part| part.start < range.end);
        self.code.splice(from..to.max(from), parts);
    }

    /// First address of the function around a lookup address, if an FDE covers it.
    pub fn fde_start(&self, lookup: Avma) -> Option<Avma> {
        let entry = self.entry_at(lookup.0)?;
        let start = entry
            .code
            .as_ref()
            .ok()?
            .fde_start(entry.bias.to_svma(lookup))?;
        Some(entry.bias.to_avma(start))
    }

    /// Whether an address is in the function that its module's program begins with, which has no FDE.
    pub(crate) fn is_in_entry(&self, address: Avma) -> bool {
        self.entry_at(address.0).is_some_and(|m| {
            let code = m.code.as_ref();
            code.is_ok_and(|code| code.is_in_entry(m.bias.to_svma(address)))
        })
    }

    /// Whether an address is in executable code of a module.
    pub fn is_code(&self, address: Avma) -> bool {
        let n_before = self.code.partition_point(|range| range.start <= address.0);
        let before = n_before.checked_sub(1).and_then(|at| self.code.get(at));
        before.is_some_and(|range| address.0 < range.end)
    }

    /// Tells where executable memory is that is of no module: code that a JIT compiler made. Ranges in any
    /// order replace those before. Whether they differ from those.
    pub fn set_foreign_code(&mut self, ranges: impl IntoIterator<Item = Range<Avma>>) -> bool {
        let ranges = ranges.into_iter().map(|r| r.start.0..r.end.0);
        let mut foreign: Vec<_> = ranges.collect();
        foreign.sort_by_key(|range| range.start);
        let is_new = foreign != self.foreign;
        self.foreign = foreign;
        is_new
    }

    /// The executable memory of no module that an address is in.
    pub fn foreign_code(&self, address: Avma) -> Option<Range<Avma>> {
        let n_before = self
            .foreign
            .partition_point(|range| range.start <= address.0);
        let range = self.foreign.get(n_before.checked_sub(1)?)?;
        let range = range.contains(&address.0).then_some(range)?;
        Some(Avma(range.start)..Avma(range.end))
    }

    /// Whether an address is in executable memory of no module.
    pub fn is_foreign_code(&self, address: Avma) -> bool {
        self.foreign_code(address).is_some() && !self.is_code(address)
    }

    /// Whether an address is in code that a program has made, of which it says how to unwind it. That may not hold for
    /// each instruction.
    pub(crate) fn is_registered_code(&self, address: Avma) -> bool {
        self.foreign_code(address).is_some() && self.is_code(address)
    }

    /// Whether a uretprobe has put this return address on the stack: the first one of its module.
    pub(crate) fn is_of_probe(&self, address: FrameAddress<Avma>) -> bool {
        let is_return = matches!(address, FrameAddress::ReturnAddress(_));
        let entry = self.entry_at(raw(address)).filter(|_| is_return);
        entry.is_some_and(|entry| matches!(entry.code, Err(StackEnd::ReturnProbe)))
    }

    fn entry_at(&self, address: u64) -> Option<&Entry> {
        let (_, entry) = self.modules.range(..=address).next_back()?;
        (address < entry.end).then_some(entry)
    }

    fn clear_caches(&mut self) {
        self.steps.clear();
        self.rows.clear();
    }

    /// What to do at a frame, and its module.
    #[inline]
    pub(crate) fn step_at(
        &mut self,
        address: FrameAddress<Avma>,
        text: &mut dyn TextMemory,
    ) -> (Step, Option<ModuleKey>) {
        let lookup = address.for_lookup().0;
        let is_return = matches!(address, FrameAddress::ReturnAddress(_));
        if let Some(known) = self.steps.get(lookup, is_return) {
            return known;
        }
        let (step, module) = self.look_up_step(address, text);
        if self.n_bytes_left == 0 {
            // The next stack with this frame knows those below it, and gets further.
            return (Step::End(StackEnd::TooManyFrames), module);
        }
        self.steps.add(lookup, is_return, (step, module));
        (step, module)
    }

    /// The same without the cache.
    fn look_up_step(
        &mut self,
        address: FrameAddress<Avma>,
        text: &mut dyn TextMemory,
    ) -> (Step, Option<ModuleKey>) {
        let lookup = address.for_lookup();
        let Some(entry) = self.entry_at(lookup.0) else {
            return (Step::End(StackEnd::NotInModule), None);
        };
        let (key, bias) = (entry.key, entry.bias);
        let code = match &entry.code {
            Ok(code) => Arc::clone(code),
            Err(end) => return (Step::End(*end), Some(key)),
        };
        if let Some(step) = code.go.as_ref().and_then(|go| go.step(address, bias, text)) {
            return (step.into(), Some(key));
        }
        let (context, n_bytes_left) = (&mut self.context, &mut self.n_bytes_left);
        let row = Row::find(&code, bias.to_svma(lookup).0, context, n_bytes_left);
        // Nothing calls these: the kernel lets a handler return to the start of a trampoline
        // (whose FDE glibc, but not others, begins one byte early), and makecontext lets a
        // coroutine return to the start of `__start_context`.
        if let FrameAddress::ReturnAddress(exact) = address
            && code.has_fde_at(bias.to_svma(exact))
        {
            let svma = bias.to_svma(exact).0;
            let exact_row = Row::find(&code, svma, context, n_bytes_left);
            if let Some(exact_row) = exact_row.filter(|r| r.start == svma) {
                if exact_row.signal {
                    return (self.keep_row(exact_row, code), Some(key));
                }
                // The instruction after a call may start a function too, when the call never
                // returns; then the lookup address has a row, or the bytes before are a call.
                if !is_called(text, exact.0) {
                    return (Step::Start, Some(key));
                }
            }
        }
        // A look at memory for each new place of a running thread would take as long as its unwinding.
        let svma = bias.to_svma(Avma(raw(address))).0;
        let is_other = |row: &Row| row.signal || row.is_function_at(svma);
        if !row.as_ref().is_some_and(is_other) && is_sigreturn(address, text) {
            return (Step::Sigreturn, Some(key));
        }
        let Some(row) = row else {
            return (Step::End(StackEnd::NoUnwindInfo), Some(key));
        };
        let step = match row.plain() {
            _ if row.is_root() => Step::End(StackEnd::Root),
            Some(plain) => Step::Plain(plain),
            None => self.keep_row(row, code),
        };
        (step, Some(key))
    }

    /// Keeps a row that is not plain.
    fn keep_row(&mut self, row: Row, code: Arc<ModuleCode>) -> Step {
        if self.rows.len() >= MAX_ROWS {
            self.clear_caches();
        }
        let (signal, scratch) = (row.signal, row.is_scratch_based());
        let bx = row.may_need_rbx(&code);
        let loads = row.loads_cfa(&code);
        self.rows.push((row, code));
        Step::Own {
            row: (self.rows.len() - 1) as u32,
            signal,
            scratch,
            bx,
            loads,
        }
    }

    /// What a register of the caller's held, if the function at a frame has saved it below a CFA.
    pub(crate) fn saved_register<M: StackMemory + ?Sized>(
        &mut self,
        address: FrameAddress<Avma>,
        register: u16,
        cfa: u64,
        memory: &mut M,
    ) -> Option<u64> {
        let lookup = address.for_lookup();
        let entry = self.entry_at(lookup.0)?;
        let svma = entry.bias.to_svma(lookup).0;
        let code = Arc::clone(entry.code.as_ref().ok()?);
        let (context, left) = (&mut self.context, &mut self.n_bytes_left);
        let offset = saved_register(&code, svma, register, context, left)?;
        memory.read(cfa.checked_add_signed(offset)?).ok()
    }

    /// The caller of a frame whose CFA is known, where its rules are not plain.
    pub(crate) fn find_caller_at<M: StackMemory + ?Sized>(
        &self,
        cursor: &Cursor,
        step: Step,
        cfa: u64,
        memory: &mut M,
    ) -> Option<Cursor> {
        let Step::Own { row, .. } = step else {
            return None;
        };
        let (row, code) = self.rows.get(row as usize)?;
        row.execute_at(code, cursor, cfa, memory).ok()
    }

    /// From a frame to its caller. `step` is that of [`Self::step_at`].
    #[inline]
    pub(crate) fn find_caller<M: StackMemory + ?Sized>(
        &self,
        cursor: &Cursor,
        step: Step,
        memory: &mut M,
    ) -> Result<Cursor, Fault> {
        let caller = match step {
            Step::End(end) => return Err(Fault::End(end)),
            Step::Start => return Err(Fault::End(StackEnd::Root)),
            Step::Plain(row) | Step::Uncalled(row) => row.execute(cursor, memory)?,
            Step::Own { row, .. } => match self.rows.get(row as usize) {
                Some((row, code)) => row.execute(code, cursor, memory)?,
                None => return Err(Fault::End(StackEnd::NoUnwindInfo)),
            },
            Step::Sigreturn => sigreturn(cursor.sp, memory)?,
            Step::FramePointer => by_frame_pointer(cursor, memory)?,
            Step::CallOfC(call) => match call.find_caller(cursor, memory) {
                Err(_) if cursor.bp.is_some() => by_frame_pointer(cursor, memory)?,
                found => found?,
            },
        };
        if raw(caller.address) == 0 {
            return Err(Fault::End(StackEnd::Root));
        }
        // Only a signal, or one of these, may have come from another stack. A leaf whose return address is in a register (glibc's `vfork`)
        // has nothing on the stack.
        let is_call = matches!(caller.address, FrameAddress::ReturnAddress(_));
        let may_change = step.changes_stack() || matches!(step, Step::Own { loads: true, .. });
        let is_call = is_call && !may_change;
        let is_stuck = match is_leaf(cursor) {
            true => caller.sp < cursor.sp,
            false => caller.sp <= cursor.sp,
        };
        if is_stuck && is_call {
            return Err(Fault::End(StackEnd::DidNotAdvance));
        }
        Ok(caller)
    }
}

fn is_sigreturn(address: FrameAddress<Avma>, text: &mut dyn TextMemory) -> bool {
    let mut found = |from: Option<u64>| {
        let mut bytes = [0; SIGRETURN.len()];
        from.is_some_and(|from| text.read_text(Avma(from), &mut bytes)) && bytes == SIGRETURN
    };
    match address {
        FrameAddress::ReturnAddress(Avma(a)) => found(Some(a)),
        // Before or at the system call.
        FrameAddress::InstructionPointer(Avma(a)) => found(Some(a)) || found(a.checked_sub(7)),
    }
}

fn sigreturn<M: StackMemory + ?Sized>(sp: u64, memory: &mut M) -> Result<Cursor, Fault> {
    let mut at = |offset: u64| {
        let address = sp
            .checked_add(offset)
            .ok_or(Fault::End(StackEnd::UnreadableStack))?;
        memory.read(address).map_err(|e| Fault::End(e.into()))
    };
    let mut scratch = UC_SCRATCH.map(|(number, _)| (number, None));
    for ((_, offset), (_, register)) in UC_SCRATCH.iter().zip(&mut scratch) {
        *register = Some(at(*offset)?);
    }
    Ok(Cursor {
        address: FrameAddress::InstructionPointer(Avma(at(UC_RIP)?)),
        sp: at(UC_RSP)?,
        bp: Some(at(UC_RBP)?),
        bx: Rbx::Register(at(UC_RBX)?),
        scratch: ScratchRegs::new(scratch),
    })
}
