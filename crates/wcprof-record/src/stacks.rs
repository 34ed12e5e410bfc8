//! Copies of stacks to stacks of a trace: unwound, or remembered from before.

use std::collections::{BTreeMap, HashMap};

use wcprof_capture::{KernelStack, StackBytes, TargetId};
use wcprof_host::work_cpu_ns;
use wcprof_trace::model::{Frame, FrameId, NodeId, StackId};
use wcprof_trace::{TraceError, TraceSink};
use wcprof_types::{Avma, FrameAddress, StackEnd};
use wcprof_unwind::UnwoundStack;

use crate::need::Unwinding;
use crate::process::ProcessState;
use crate::replay::{Reads, Replay};
use crate::shared::SharedFiles;
use crate::taking_in::TakingIn;
use crate::unmapped::UnmappedFrames;

/// A copy of a stack in a batch.
pub(crate) struct Copied<'a> {
    pub(crate) copy: &'a StackBytes,
    /// The bytes of all stacks of the batch.
    pub(crate) all: &'a [u8],
    /// When it was copied, `CLOCK_MONOTONIC` ns.
    pub(crate) time: u64,
}

/// What unwinding the stacks of all processes needs, and what is known of them.
#[derive(Debug)]
pub(crate) struct Stacks {
    pub(crate) shared: SharedFiles,
    pub(crate) taking_in: TakingIn,
    pub(crate) unmapped: UnmappedFrames,
    /// How often stacks ended for each reason.
    pub(crate) ends: BTreeMap<StackEnd, u64>,
    /// Leaves of the stacks met so far, to which the kernel's part is added; `None` without one.
    leaves: Option<HashMap<StackId, (Option<NodeId>, StackEnd)>>,
    replay: Replay,
    /// Stacks for which the trace had no room.
    pub(crate) n_bare: u64,
    // Memory that each unwinding uses again.
    unwound: UnwoundStack,
    reads: Reads,
}

impl Stacks {
    /// No stacks yet; with `kernel`, batches hold kernel stacks.
    pub(crate) fn new(kernel: bool, module_files: usize, max_cpu_percent: u32) -> Self {
        let mut shared = SharedFiles::default();
        shared.max_files = module_files;
        Self {
            shared,
            taking_in: TakingIn::new(max_cpu_percent),
            unmapped: UnmappedFrames::default(),
            ends: BTreeMap::new(),
            leaves: kernel.then(HashMap::new),
            replay: Replay::default(),
            n_bare: 0,
            unwound: UnwoundStack::default(),
            reads: Reads::default(),
        }
    }

    /// Takes in modules of a process, as far as its turn goes.
    pub(crate) fn take_in(
        &mut self,
        target: TargetId,
        process: &mut ProcessState,
        now: u64,
        sink: &mut impl TraceSink,
    ) -> Result<(), TraceError> {
        let (turn, before) = (self.taking_in.turn(target), work_cpu_ns());
        let more_wait = process.read_modules(now, sink, &mut self.shared, &turn)?;
        let took = work_cpu_ns().saturating_sub(before);
        self.taking_in.took(target, took, more_wait);
        Ok(())
    }

    /// Unwinds a copy of a process's stack. What the unwinding needed is `None` for a stack that is
    /// known from before.
    pub(crate) fn unwind(
        &mut self,
        target: TargetId,
        process: &mut ProcessState,
        copied: &Copied<'_>,
        sink: &mut impl TraceSink,
    ) -> Result<(StackId, Option<Unwinding>), TraceError> {
        let Copied { copy, all, time } = *copied;
        let bytes = all.get(copy.bytes.clone()).unwrap_or_default();
        let mut begin = process.begin(&copy.regs, &mut self.replay);
        if let Some((stack, end)) = self.replay.find(&begin, bytes, copy.below) {
            self.count(end);
            return Ok((stack, None));
        }
        if !sink.room().stacks {
            self.n_bare += 1;
            self.count(StackEnd::TooManyFrames);
            let stack = self.intern(Vec::new(), StackEnd::TooManyFrames, sink)?;
            return Ok((stack, None));
        }
        process.unwind(copy, bytes, &mut self.reads, &mut self.unwound);
        if process.is_outdated(&self.unwound.frames, time) {
            // A library may have been loaded since.
            self.taking_in.wants(target);
            if self.taking_in.next(time) == Some(target) {
                self.take_in(target, process, time, sink)?;
                begin = process.begin(&copy.regs, &mut self.replay);
                process.unwind(copy, bytes, &mut self.reads, &mut self.unwound);
            }
        }
        let end = self.unwound.end;
        self.count(end);
        let mut root_first = Vec::with_capacity(self.unwound.frames.len());
        for i in (0..self.unwound.frames.len()).rev() {
            root_first.push(process.frame(&self.unwound, i, sink, &mut self.unmapped)?);
        }
        let stack = self.intern(root_first, end, sink)?;
        // One that was cut may get further with what is known of its frames by now.
        if end != StackEnd::TooManyFrames && !self.unwound.used_scratch {
            self.replay.remember(&begin, &self.reads, stack, end);
        }
        let unwinding = Unwinding {
            sp: copy.regs.sp,
            copied: bytes.len().saturating_sub(copy.below),
            needed: self.reads.extent,
            end,
            could_be_longer: copy.limit.is_some(),
        };
        Ok((stack, Some(unwinding)))
    }

    fn count(&mut self, end: StackEnd) {
        *self.ends.entry(end).or_default() += 1;
    }

    /// The stack of frames, root first.
    pub(crate) fn intern(
        &mut self,
        root_first: Vec<FrameId>,
        end: StackEnd,
        sink: &mut impl TraceSink,
    ) -> Result<StackId, TraceError> {
        let mut leaf = None;
        for frame in root_first {
            leaf = Some(sink.intern_node(leaf, frame)?);
        }
        let stack = sink.intern_leaf(leaf, end)?;
        if let Some(leaves) = &mut self.leaves {
            leaves.insert(stack, (leaf, end));
        }
        Ok(stack)
    }

    /// The stack of a thread without a user stack: its kernel stack. `all` are the bytes of all stacks of
    /// the batch.
    pub(crate) fn of_worker(
        &mut self,
        kernel: &KernelStack,
        all: &[u8],
        sink: &mut impl TraceSink,
    ) -> Result<StackId, TraceError> {
        self.count(StackEnd::NoUserStack);
        let frames = match sink.room().stacks {
            true => kernel_frames(kernel, all),
            false => {
                self.n_bare += 1;
                Vec::new()
            }
        };
        let frames = frames.into_iter().map(|frame| sink.intern_frame(frame));
        let root_first = frames.collect::<Result<_, _>>()?;
        self.intern(root_first, StackEnd::NoUserStack, sink)
    }

    /// The same stack with the kernel's part on its leaf side; `all` are the bytes of all stacks of
    /// the batch.
    pub(crate) fn add_kernel(
        &mut self,
        stack: StackId,
        kernel: &KernelStack,
        all: &[u8],
        sink: &mut impl TraceSink,
    ) -> Result<StackId, TraceError> {
        let known = self.leaves.as_ref().and_then(|leaves| leaves.get(&stack));
        let Some(&(mut leaf, end)) = known else {
            return Ok(stack);
        };
        if !sink.room().stacks {
            self.n_bare += 1;
            return Ok(stack);
        }
        for frame in kernel_frames(kernel, all) {
            let frame = sink.intern_frame(frame)?;
            leaf = Some(sink.intern_node(leaf, frame)?);
        }
        sink.intern_leaf(leaf, end)
    }

    /// Forgets ids that the sink has given up.
    pub(crate) fn forget(&mut self, sink: &impl TraceSink) {
        if let Some(leaves) = &mut self.leaves {
            leaves.clear();
        }
        self.replay.forget();
        self.unmapped.retain(|frame| sink.holds_frame(frame));
    }
}

/// The frames of a kernel stack, root first.
fn kernel_frames(kernel: &KernelStack, all: &[u8]) -> Vec<Frame> {
    match kernel {
        KernelStack::None => Vec::new(),
        KernelStack::Names(names) => names.iter().rev().cloned().map(Frame::Kernel).collect(),
        KernelStack::Addresses { bytes, interrupted } => {
            let (words, _) = all.get(bytes.clone()).unwrap_or_default().as_chunks();
            let leaf_first = words.iter().enumerate().map(|(i, word)| {
                let address = Avma(u64::from_ne_bytes(*word));
                match i == 0 && *interrupted {
                    true => FrameAddress::InstructionPointer(address),
                    false => FrameAddress::ReturnAddress(address),
                }
            });
            let root_first = leaf_first.rev();
            root_first
                .map(|f| Frame::KernelCode(f.for_lookup()))
                .collect()
        }
    }
}
