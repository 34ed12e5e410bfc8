//! What is known of each process while it is recorded: its modules, how to unwind through them, and
//! its CPU clock.

use std::collections::HashMap;
use std::sync::Arc;

use wcprof_capture::StackBytes;
use wcprof_host::{Liveness, SocketNames, Target, TargetError};
use wcprof_trace::model::{Frame, FrameId, ModuleId, ProcessId};
use wcprof_trace::{TraceError, TraceSink};
use wcprof_types::{Avma, FrameAddress, Pid, RelativeAddress, ScratchRegs, UserRegs};
use wcprof_unwind::{SplicedStack, StackCopy as Copy, Unwinder, UnwoundFrame, UnwoundStack};

use crate::exited::ExitedCpu;
use crate::files::{NewModule, TargetFiles};
use crate::folds::FoldId;
use crate::live_stack::LiveStack;
use crate::locks::Locks;
use crate::modules::{ModuleProblem, Modules};
use crate::replay::{AddressSpace, Begin, Reads, Replay, Watched};
use crate::shared::SharedFiles;
use crate::taking_in::Turn;
use crate::text_pages::LiveText;
use crate::unmapped::{CodePlace, UnmappedFrames};

/// Mappings are read again at most this often for code that is in no module; more often while a
/// process is young, when it loads its libraries.
const REFRESH_NS: u64 = 500_000_000;
/// The same for what was a JIT compiler's code at the last time: a library may have taken its place.
const JIT_REFRESH_NS: u64 = 10_000_000_000;
/// Frames of which the id is remembered; beyond it the memory starts afresh.
const MAX_FRAME_IDS: usize = 1 << 20;

/// A process of the recording.
pub(crate) struct ProcessState {
    pub(crate) id: ProcessId,
    /// Other processes have the same id.
    pub(crate) fold: Option<FoldId>,
    /// Code outside of its modules has names that belong to this process alone.
    pub(crate) owns_id: bool,
    target: Arc<Target>,
    modules: Modules,
    unwinder: Unwinder,
    /// For what is remembered of its stacks; `None` after a change.
    address_space: Option<AddressSpace>,
    pub(crate) locks: Locks,
    pub(crate) sockets: SocketNames,
    frame_ids: HashMap<FrameAddress<Avma>, FrameId>,
    /// When its mappings were read first, and last.
    mapped: Option<(u64, u64)>,
    pub(crate) exited: ExitedCpu,
}

impl ProcessState {
    pub(crate) fn pid(&self) -> Pid {
        self.target.pid()
    }

    /// A process that has an id in the trace; its modules are not read yet.
    pub(crate) fn new(id: ProcessId, target: Arc<Target>) -> Self {
        Self {
            id,
            fold: None,
            owns_id: true,
            modules: Modules::new(id, &target),
            locks: Locks::default(),
            sockets: SocketNames::new(target.pid()),
            target,
            unwinder: Unwinder::default(),
            address_space: None,
            frame_ids: HashMap::new(),
            mapped: None,
            exited: ExitedCpu::default(),
        }
    }

    /// Opens a jitdump that was opened late.
    pub(crate) fn hold_late_files(&mut self) {
        if self.target.liveness() == Liveness::Same
            && let Ok(mappings) = self.target.mappings()
        {
            self.modules.hold_jitdumps(&mappings);
        }
    }

    /// Forgets ids of frames and stacks, and what addresses mean.
    pub(crate) fn forget(&mut self) {
        self.frame_ids.clear();
        self.address_space = None;
    }

    /// Where an unwinding from these registers begins, among those of all processes.
    pub(crate) fn begin(&mut self, regs: &UserRegs, replay: &mut Replay) -> Begin {
        let new = || replay.address_space();
        let regs = UserRegs {
            bx: None,
            scratch: ScratchRegs::default(),
            ..*regs
        };
        (*self.address_space.get_or_insert_with(new), regs)
    }

    /// The files of its modules; the recording goes on.
    pub(crate) fn files(&self) -> TargetFiles {
        self.modules.files().clone()
    }

    /// The same, and nothing else of it is needed any more.
    pub(crate) fn into_files(self) -> TargetFiles {
        self.modules.into_files()
    }

    /// Modules that stacks could not be unwound through, since this was last asked. What is missing because it
    /// has exited or runs another program is no problem of its files.
    pub(crate) fn take_problems(&mut self) -> Vec<ModuleProblem> {
        let problems = self.modules.take_problems();
        let has_memory = || match self.target.mappings() {
            Ok(all) => !all.is_empty(),
            Err(error) => !matches!(error, TargetError::NoSuchProcess(_)),
        };
        let is_same = || self.target.liveness() == Liveness::Same && has_memory();
        match problems.is_empty() || is_same() {
            true => problems,
            false => Vec::new(),
        }
    }

    /// Its modules.
    pub(crate) fn modules(&mut self) -> &mut Modules {
        &mut self.modules
    }

    /// Whether the mappings are to be read again for frames that are in no module.
    pub(crate) fn is_outdated(&self, frames: &[UnwoundFrame], now: u64) -> bool {
        let lost = frames.iter().filter(|frame| frame.module.is_none());
        let is_jit = |frame: &UnwoundFrame| {
            let address = frame.address.for_lookup();
            self.unwinder.is_foreign_code(address)
        };
        let waits = lost.map(|frame| match is_jit(frame) {
            true => JIT_REFRESH_NS,
            false => REFRESH_NS,
        });
        let (first, last) = self.mapped.unwrap_or_default();
        let wait = waits.min().map(|wait| wait.min(last - first));
        wait.is_some_and(|wait| now.saturating_sub(last) >= wait)
    }

    /// Where the copy ends before the stack does, live memory is read; it may have changed since,
    /// so each return address from there is checked.
    pub(crate) fn unwind(
        &mut self,
        copy: &StackBytes,
        bytes: &[u8],
        reads: &mut Reads,
        unwound: &mut UnwoundStack,
    ) {
        let limit = copy.limit.unwrap_or(Avma(u64::MAX));
        let mut rest = LiveStack::new(self.target.pid());
        let base = Avma(copy.regs.sp.0.saturating_sub(copy.below as u64));
        let memory = Copy::new(base, bytes, limit);
        reads.clear();
        let mut memory = Watched {
            memory: SplicedStack::new(memory, &mut rest),
            sp: copy.regs.sp.0,
            reads,
        };
        self.unwinder.unwind(
            &copy.regs,
            &mut memory,
            &mut LiveText::new(self.target.pid(), self.modules.text_pages()),
            unwound,
        );
    }

    /// The trace's frame of the `i`th unwound frame.
    pub(crate) fn frame(
        &mut self,
        unwound: &UnwoundStack,
        i: usize,
        writer: &mut impl TraceSink,
        unmapped: &mut UnmappedFrames,
    ) -> Result<FrameId, TraceError> {
        let frame = unwound.frames[i];
        if let Some(&id) = self.frame_ids.get(&frame.address) {
            return Ok(id);
        }
        let lookup = frame.address.for_lookup();
        let module = frame.module.and_then(|key| self.modules.id(key));
        let id = writer.intern_frame(match module {
            Some((module, bias, base)) => {
                let relative = |avma: Avma| {
                    let svma = bias.to_svma(avma);
                    RelativeAddress(svma.0.wrapping_sub(base.0))
                };
                Frame::Native {
                    module,
                    address: relative(lookup),
                    function: self.unwinder.fde_start(lookup).map(relative),
                }
            }
            // Each of hundreds of processes would have it somewhere else, and nobody could name it.
            None if !self.owns_id => Frame::Unmapped(Avma(0)),
            None => Frame::Unmapped(lookup),
        })?;
        if module.is_none() {
            let file = self.modules.file_of_code(lookup).map(Arc::from);
            let memory = || self.unwinder.foreign_code(lookup).map(CodePlace::Memory);
            let code = file.map(CodePlace::File).or_else(memory);
            unmapped.note(id, self.owns_id.then_some(self.id), code);
        }
        if self.frame_ids.len() >= MAX_FRAME_IDS {
            self.frame_ids.clear();
        }
        self.frame_ids.insert(frame.address, id);
        Ok(id)
    }

    /// Takes over its mappings, as far as its turn goes. Whether some of its modules still wait. Why they cannot be read is a
    /// problem of its modules.
    pub(crate) fn read_modules(
        &mut self,
        now: u64,
        writer: &mut impl TraceSink,
        shared: &mut SharedFiles,
        turn: &Turn,
    ) -> Result<bool, TraceError> {
        let (first, last) = self.mapped.unwrap_or((now, now));
        self.mapped = Some((first, last.max(now)));
        // What is known stays where it, or its main thread, has exited, and the others go on without its modules.
        let mappings = match self.target.mappings() {
            Ok(mappings) if !mappings.is_empty() => mappings,
            Ok(_) | Err(TargetError::NoSuchProcess(_)) => {
                self.modules.put_off(now);
                return Ok(false);
            }
            Err(error) => {
                self.modules.put_off(now);
                self.modules.note_maps(error.to_string());
                return Ok(false);
            }
        };
        self.modules.note_left_out(mappings.n_left_out);
        let mut failed = None;
        let add = |shared: &mut SharedFiles, new: &NewModule<'_>| {
            let added = match self.fold {
                Some(fold) => shared.folds.module(fold, new, writer),
                None => writer.add_module(new.module.clone()),
            };
            added.unwrap_or_else(|error| {
                failed = Some(error);
                ModuleId(0)
            })
        };
        let unwinder = &mut self.unwinder;
        let changes = self
            .modules
            .update(now, &mappings, unwinder, (&mut *shared, turn), add);
        // Those of a fold may be mapped in other processes.
        for &module in changes.gone.iter().filter(|_| self.fold.is_none()) {
            writer.module_unmapped(module);
        }
        shared.close_idle();
        if changes.any {
            self.forget();
        }
        failed.map_or(Ok(changes.more_wait), Err)
    }
}
