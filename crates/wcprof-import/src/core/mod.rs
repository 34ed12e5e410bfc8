//! A core file of a process to a trace: all its threads as they stood, what each waits for, and who holds the locks.
//!
//! A core has registers, stacks and memory, but no code: call frame information and names come from files that have the
//! build-ids which are in its memory. It has no names of threads either: pools are named by the functions that threads begin with
//! ([`ThreadStarts`]). A core is one moment: each thread has a weight of 1 s, so that threads at a time are numbers of
//! threads.

mod elf;
mod images;
mod memory;
mod notes;
mod packed;
mod start;

pub(crate) use elf::is_core;
pub(crate) use memory::{Forward, OpenCore, Plain};
pub(crate) use packed::Packing;
pub use start::ThreadStarts;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use wcprof_trace::model::{
    LockLook, LockOwner, OwnerState, ProcessId, SNAPSHOT_NS, Span, StackId, ThreadId, Trace, WaitId,
};
use wcprof_types::lock::{FutexWords, OWNER_WORDS, WORD_BYTES, can_be_lock, is_wait};
use wcprof_types::{Avma, Pid, RED_ZONE, ThreadState, TimeNs, Wait, redact_args};
use wcprof_unwind::{ReadError, StackMemory, UnwoundStack};

use crate::builder::Builder;
use crate::code::CodeFiles;
use crate::error::{ImportError, Result, within};
use crate::options::Options;
use elf::{HEADER, PROGRAM_HEADER, ProgramHeaders, Segment};
use images::Images;
use memory::{CoreMemory, Reading};
use notes::{CoreNotes, CoreThread};

/// First bytes that tell a core file.
pub(crate) const HEAD: usize = HEADER;
/// Segments of a core: a process has at most `vm.max_map_count` mappings, 65 530 unless that was raised.
const MAX_SEGMENTS: u64 = 1 << 20;
/// Bytes of notes: each thread has some 4 KiB of them.
const MAX_NOTES: u64 = 1 << 27;
/// Bytes of the stack of a thread from its stack pointer on, and of all threads; each has the least in any case.
const MAX_STACK: u64 = 1 << 20;
const MIN_STACK: u64 = 1 << 13;
const MAX_STACKS: u64 = 96 << 20;
/// Bytes of a loaded file that hold its build-id: the kernel dumps the first page (`vma_dump_size`, `fs/coredump.c`).
const FIRST_PAGE: u64 = 4096;
const MAX_VDSO: u64 = 1 << 20;
const SYS_FUTEX: u32 = 202;
/// System calls whose second argument is an operation: `ioctl`, `futex`.
const WITH_OPERATION: [u32; 2] = [16, SYS_FUTEX];
/// Files that are named in a note.
const MAX_NAMED: usize = 3;

/// Reads a core, again from its beginning where its notes are at its end, as gdb writes them. `code` opens the files that it maps.
pub(crate) fn import(
    open: &OpenCore<'_>,
    options: &Options,
    code: &mut dyn CodeFiles,
) -> Result<Trace> {
    let mut reading = Reading::new(open)?;
    let segments = segments(&mut reading)?;
    let notes = segments.iter().find(|segment| segment.is_notes());
    let notes = notes.ok_or_else(|| ImportError::Core("it has no notes".to_owned()))?;
    let len = notes.in_file.min(MAX_NOTES) as usize;
    let bytes = reading.read(notes.offset, len)?;
    let notes = CoreNotes::parse(&bytes)?;
    drop(bytes);
    if notes.threads.is_empty() {
        return Err(ImportError::Core(
            "its notes have no thread: it was cut, or is no core of a process".to_owned(),
        ));
    }
    let mut images = Images::new(notes.files.clone());
    let wanted = wanted(&notes, &segments, &images);
    let memory = CoreMemory::read(&mut reading, &segments, &wanted)?;
    let is_code = |address: Avma| {
        let at = segments
            .iter()
            .find(|segment| segment.is_memory() && segment.contains(address.0));
        at.is_some_and(Segment::is_code)
    };
    images.find(&memory, |map| is_code(map.start), code);
    if let Some(vdso) = notes.vdso {
        let bytes = memory.from(vdso);
        images.add_vdso(vdso, &bytes[..bytes.len().min(MAX_VDSO as usize)]);
    }
    let mut builder = Builder::new("a core file", options);
    builder.trace.tables.header.n_snapshots = 1;
    let mut core = Core {
        builder,
        notes,
        memory,
        images,
        waits: BTreeMap::new(),
    };
    core.add()?;
    core.say_what_is_missing();
    Ok(core.builder.finish(SNAPSHOT_NS))
}

/// All program headers.
fn segments(reading: &mut Reading<'_, '_>) -> Result<Vec<Segment>> {
    let header = reading.read(0, HEADER)?;
    if !is_core(&header) {
        return Err(ImportError::NoCore);
    }
    let headers = ProgramHeaders::new(&header).map_err(ImportError::Core)?;
    let mut bytes = reading.read(headers.offset, PROGRAM_HEADER)?;
    let count = match headers.count {
        Some(count) => u64::from(count),
        // What the first has, the notes, is behind the last one (`elf_core_dump`).
        None => {
            let first = Segment::parse(&bytes);
            first.offset.saturating_sub(headers.offset) / PROGRAM_HEADER as u64
        }
    };
    within(
        count as usize,
        MAX_SEGMENTS as usize,
        "the number of segments",
    )?;
    let rest = (count as usize).saturating_sub(1) * PROGRAM_HEADER;
    bytes.extend(reading.read(headers.offset + PROGRAM_HEADER as u64, rest)?);
    Ok(bytes
        .chunks_exact(PROGRAM_HEADER)
        .map(Segment::parse)
        .collect())
}

/// The addresses whose memory is read: stacks, the words of futexes, first pages of files, the vdso.
fn wanted(notes: &CoreNotes, segments: &[Segment], images: &Images) -> Vec<Range<u64>> {
    let of_each = (MAX_STACKS / notes.threads.len() as u64).clamp(MIN_STACK, MAX_STACK);
    let mut by_start: Vec<&Segment> = segments.iter().filter(|s| s.is_memory()).collect();
    by_start.sort_by_key(|segment| segment.start);
    let segment_of = |address: u64| {
        let at = by_start.partition_point(|segment| segment.start <= address);
        let before = at.checked_sub(1).map(|at| by_start[at]);
        before.filter(|segment| segment.contains(address))
    };
    let stacks = notes.threads.iter().filter_map(|thread| {
        let sp = thread.regs.sp.0;
        let end = segment_of(sp)?.end();
        Some(sp.saturating_sub(RED_ZONE as u64)..end.min(sp.saturating_add(of_each)))
    });
    let futexes = notes.threads.iter().filter_map(futex_of);
    let futexes = futexes.map(|(address, _)| address..address.saturating_add(WORD_BYTES as u64));
    let first_pages = images
        .starts()
        .map(|start| start..start.saturating_add(FIRST_PAGE));
    let vdso = notes
        .vdso
        .map(|start| start..start.saturating_add(MAX_VDSO));
    stacks
        .chain(futexes)
        .chain(first_pages)
        .chain(vdso)
        .collect()
}

/// The word that a thread waits for in `futex`, and the operation.
fn futex_of(thread: &CoreThread) -> Option<(u64, u32)> {
    let (call, [word, op, _]) = thread.call?;
    let op = op as u32;
    (call == SYS_FUTEX && is_wait(op) && word % 4 == 0).then_some((word, op))
}

/// A core on its way to a trace.
struct Core {
    builder: Builder,
    notes: CoreNotes,
    memory: CoreMemory,
    images: Images,
    waits: BTreeMap<(u32, u32, Option<u64>), WaitId>,
}

impl Core {
    fn add(&mut self) -> Result<()> {
        let comm = self.notes.comm.clone();
        let process = self.builder.process(Pid(self.notes.pid), &comm)?;
        let args: Vec<String> = self
            .notes
            .args
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        let known = &mut self.builder.trace.tables.processes[process.0 as usize];
        known.cmdline = redact_args(&comm, &args);
        let threads = self.notes.threads.clone();
        let mut unwinder = self.images.unwinder();
        let mut stack = UnwoundStack::default();
        let mut stood: Vec<(ThreadId, Option<WaitId>, StackId)> = Vec::new();
        for thread in &threads {
            let id = self.builder.thread(process, thread.tid, &comm)?;
            let known = &mut self.builder.trace.tables.threads[id.0 as usize];
            known.end = TimeNs(SNAPSHOT_NS);
            let mut memory = CoreStack {
                memory: &self.memory,
                sp: thread.regs.sp.0,
            };
            unwinder.unwind(&thread.regs, &mut memory, &mut &self.images, &mut stack);
            let stack = self.stack(&stack, process)?;
            let wait = thread.call.map(|call| self.wait(call, futex_of(thread)));
            self.builder.span(Span {
                thread: id,
                start: TimeNs(0),
                end: TimeNs(SNAPSHOT_NS),
                weight: SNAPSHOT_NS,
                n_samples: 1,
                state: wait.map_or(ThreadState::OnCpu, |_| ThreadState::Blocked),
                wait,
                stack: Some(stack),
            })?;
            stood.push((id, wait, stack));
        }
        self.locks(process, &threads, &stood);
        Ok(())
    }

    fn stack(&mut self, stack: &UnwoundStack, process: ProcessId) -> Result<StackId> {
        let ends = &mut self.builder.trace.tables.stats.ends;
        *ends.entry(stack.end).or_default() += 1;
        let mut frames = Vec::with_capacity(stack.frames.len());
        for frame in stack.frames.iter().rev() {
            let address = frame.address.for_lookup();
            let frame = self.images.frame(address, process, &mut self.builder)?;
            frames.push(self.builder.frame(frame)?);
        }
        self.builder.stack(frames, stack.end)
    }

    fn wait(&mut self, (call, args): (u32, [u64; 3]), futex: Option<(u64, u32)>) -> WaitId {
        let op = match WITH_OPERATION.contains(&call) {
            true => args[1] as u32,
            false => 0,
        };
        let futex = futex.map(|(address, _)| address);
        let waits = &mut self.builder.trace.tables.waits;
        *self.waits.entry((call, op, futex)).or_insert_with(|| {
            waits.push(Wait {
                syscall: Some(call),
                op,
                futex: futex.map(Avma),
                ..Wait::default()
            });
            WaitId(waits.len() as u32 - 1)
        })
    }

    /// What the words say that threads wait for.
    fn locks(
        &mut self,
        process: ProcessId,
        threads: &[CoreThread],
        stood: &[(ThreadId, Option<WaitId>, StackId)],
    ) {
        let by_tid: HashMap<i32, usize> = threads
            .iter()
            .enumerate()
            .map(|(at, thread)| (thread.tid.0, at))
            .collect();
        let waited = threads.iter().filter_map(|thread| {
            let (address, op) = futex_of(thread)?;
            let (_, args) = thread.call?;
            can_be_lock(op, args[2] as u32).then_some(address)
        });
        let waited: BTreeSet<u64> = waited.collect();
        for address in waited {
            let bytes = self.memory.from(address);
            let bytes = &bytes[..bytes.len().min(WORD_BYTES)];
            let Some(words) = FutexWords::from_bytes(bytes) else {
                continue;
            };
            let owners = OWNER_WORDS.into_iter().filter_map(|word| {
                let (thread, wait, stack) = stood[*by_tid.get(&words.tid(word))?];
                Some(LockOwner {
                    word: word as u8,
                    thread,
                    state: wait.map_or(OwnerState::Running, |_| OwnerState::Blocked),
                    moved: false,
                    stack: Some(stack),
                    wait,
                })
            });
            let owners = owners.collect();
            self.builder.trace.tables.locks.looks.push(LockLook {
                process,
                address: Avma(address),
                since: TimeNs(0),
                until: TimeNs(SNAPSHOT_NS),
                n_looks: 1,
                words,
                owners,
            });
        }
    }

    fn say_what_is_missing(&mut self) {
        let Self {
            builder,
            notes,
            memory,
            images,
            ..
        } = self;
        builder.note(
            "a core file is one moment: threads are counted, each with 1 s; one that is in a system call counts as waiting, any other as running",
        );
        builder.note("a core file has no names of threads: they are named by the function that each begins with");
        if notes.signal > 0 {
            let tid = notes.threads[0].tid;
            builder.note(format!(
                "the process was ended by signal {} in thread {tid}",
                notes.signal
            ));
        }
        if memory.n_cut > 0 {
            let n = memory.n_cut;
            builder.note(format!("the core file was cut: {n} bytes of stacks and locks are missing, so that stacks end early"));
        }
        let mut say = |files: &[String], why: &str| {
            let named: BTreeSet<&str> = files.iter().map(String::as_str).collect();
            if named.is_empty() {
                return;
            }
            let shown: Vec<&str> = named.iter().take(MAX_NAMED).copied().collect();
            let more = if named.len() > shown.len() {
                ", ..."
            } else {
                ""
            };
            let n = match named.len() {
                1 => "1 file".to_owned(),
                n => format!("{n} files"),
            };
            builder.note(format!(
                "stacks are not followed through {n} {why}: {}{more}",
                shown.join(", ")
            ));
        };
        say(
            &images.missing,
            "that is not on this machine with the build-id which the core has (--sysroot says where files are)",
        );
        say(
            &images.unidentified,
            "whose build-id is not in the core (bit 4 of coredump_filter puts it there)",
        );
    }
}

/// The stack of a thread of a core.
struct CoreStack<'a> {
    memory: &'a CoreMemory,
    sp: u64,
}

impl StackMemory for CoreStack<'_> {
    fn read(&mut self, address: u64) -> Result<u64, ReadError> {
        let bytes = self.memory.from(address).first_chunk();
        bytes
            .map(|bytes| u64::from_le_bytes(*bytes))
            .ok_or(ReadError::Unreadable)
    }

    fn searchable(&self) -> Range<u64> {
        self.sp
            ..self
                .sp
                .saturating_add(self.memory.from(self.sp).len() as u64)
    }
}
