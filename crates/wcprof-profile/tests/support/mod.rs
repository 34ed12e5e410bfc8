//! Makes synthetic traces for tests.
#![allow(dead_code, reason = "each test binary uses a part")]

pub mod random;

use std::sync::LazyLock;

use wcprof_profile::model::{Detail, Profile};
use wcprof_profile::{ProfileBuilder, Rules};
use wcprof_trace::model::{
    Frame, FrameId, Header, Module, ModuleId, Names, NodeId, Process, ProcessId, Span, Stack,
    StackId, StackNode, Stats, SymbolFrame, SymbolTable, Tables, Thread, ThreadId, WaitId,
};
use wcprof_types::{
    Avma, FdKind, FdTarget, FileOffset, LoadBias, Pid, RelativeAddress, StackEnd, Svma,
    ThreadState, Tid, TimeNs, Wait,
};

pub const MS: u64 = 1_000_000;

/// Tables and spans under construction.
#[derive(Debug)]
pub struct Maker {
    pub tables: Tables,
    pub spans: Vec<Span>,
}

impl Maker {
    /// A trace of one process, `ceph-osd` with pid 100 and modules `ceph-osd` and `libc.so.6`.
    pub fn new() -> Self {
        let module = |path: &str, base: u64| Module {
            process: ProcessId(0),
            path: path.to_owned(),
            build_id: None,
            start: Avma(0x5500_0000_0000),
            end: Avma(0x5500_1000_0000),
            offset: FileOffset(0),
            bias: LoadBias(0x5500_0000_0000),
            base: Svma(base),
            deleted: false,
        };
        Self {
            tables: Tables {
                processes: vec![Process {
                    pid: Pid(100),
                    comm: "ceph-osd".into(),
                    cmdline: vec![],
                    cgroup: String::new(),
                    birth: String::new(),
                }],
                modules: vec![
                    module("/usr/bin/ceph-osd", 0x40_0000),
                    module("/lib/libc.so.6", 0),
                ],
                stats: Stats {
                    duration: TimeNs(1_000_000_000),
                    n_ticks: 100,
                    complete: true,
                    end_reason: "duration".into(),
                    ..Stats::default()
                },
                names: Names {
                    symbols: Some(SymbolTable::default()),
                    ..Names::default()
                },
                ..Tables::new(Header {
                    wcprof_version: "0.1.0".into(),
                    engine: "bpf".into(),
                    notes: vec![],
                    rate_hz: 100,
                    host: "node1".into(),
                    kernel: "6.1.0".into(),
                    n_cpus: 4,
                    started_unix_ns: 1_700_000_000_000_000_000,
                    n_snapshots: 0,
                })
            },
            spans: vec![],
        }
    }

    pub fn process(&mut self, pid: i32, comm: &str) -> ProcessId {
        self.tables.processes.push(Process {
            pid: Pid(pid),
            comm: comm.into(),
            cmdline: vec![],
            cgroup: String::new(),
            birth: String::new(),
        });
        ProcessId(self.tables.processes.len() as u32 - 1)
    }

    /// A thread of the first process.
    pub fn thread(&mut self, tid: i32, comm: &str) -> ThreadId {
        self.thread_of(ProcessId(0), tid, comm)
    }

    pub fn thread_of(&mut self, process: ProcessId, tid: i32, comm: &str) -> ThreadId {
        self.tables.threads.push(Thread {
            process,
            tid: Tid(tid),
            names: vec![(TimeNs(0), comm.into())],
            start: TimeNs(0),
            end: TimeNs(1_000_000_000),
            n_ticks: 100,
        });
        ThreadId(self.tables.threads.len() as u32 - 1)
    }

    /// A frame with inline frames: `inner+outer` is `inner` inlined into `outer`, each with its line as
    /// `name @ dir/file.cc:12` if it is known; a name that begins with `?` is an address in libc without a
    /// symbol, `0x..` one outside every module, `k:name` a kernel place, `libc:name` a function of libc.
    fn frame(&mut self, text: &str) -> FrameId {
        let at = self.tables.frames.len() as u64;
        let native = |module| Frame::Native {
            module: ModuleId(module),
            address: RelativeAddress(0x1000 * at + 0x10),
            function: Some(RelativeAddress(0x1000 * at)),
        };
        let (frame, names) = if let Some(offset) = text.strip_prefix('?') {
            let function = u64::from_str_radix(offset, 16).ok();
            let frame = Frame::Native {
                module: ModuleId(1),
                address: RelativeAddress(function.unwrap_or(0) + 4),
                function: function.map(RelativeAddress),
            };
            (frame, None)
        } else if let Some(hex) = text.strip_prefix("0x") {
            let address = u64::from_str_radix(hex, 16).unwrap_or(0);
            (Frame::Unmapped(Avma(address)), None)
        } else if text.starts_with("[code in ") {
            (Frame::Unmapped(Avma(0x7f00)), Some(text))
        } else if let Some(name) = text.strip_prefix("k:") {
            (Frame::Kernel(name.into()), None)
        } else if let Some(name) = text.strip_prefix("libc:") {
            (native(1), Some(name))
        } else {
            (native(0), Some(text))
        };
        // Frames are interned by their text.
        let names: Option<Vec<SymbolFrame>> = names.map(|names| {
            let parts: Vec<_> = names.split('+').collect();
            parts
                .iter()
                .enumerate()
                .map(|(i, part)| {
                    let (name, place) = part.split_once(" @ ").unzip();
                    let place = place.and_then(|place: &str| place.rsplit_once(':'));
                    SymbolFrame {
                        name: name.unwrap_or(part).into(),
                        file: place.map(|(file, _)| file.into()),
                        line: place.and_then(|(_, line)| line.parse().ok()),
                        inlined: i + 1 < parts.len(),
                        resolved: true,
                    }
                })
                .collect()
        });
        let id = FrameId(at as u32);
        self.tables.frames.push(frame);
        if let (Some(names), Some(symbols)) = (names, &mut self.tables.names.symbols) {
            symbols.frames.insert(id, names);
        }
        id
    }

    /// A stack, root first.
    pub fn stack(&mut self, root_first: &[&str], end: StackEnd) -> StackId {
        let mut leaf = None;
        for text in root_first {
            let frame = self.frame(text);
            self.tables.nodes.push(StackNode {
                caller: leaf,
                frame,
            });
            leaf = Some(NodeId(self.tables.nodes.len() as u32 - 1));
        }
        self.tables.stacks.push(Stack { leaf, end });
        StackId(self.tables.stacks.len() as u32 - 1)
    }

    pub fn wait(&mut self, wait: Wait) -> WaitId {
        self.tables.waits.push(wait);
        WaitId(self.tables.waits.len() as u32 - 1)
    }

    pub fn span(
        &mut self,
        thread: ThreadId,
        state: ThreadState,
        wait: Option<WaitId>,
        stack: Option<StackId>,
        weight: u64,
    ) {
        self.spans.push(Span {
            thread,
            start: TimeNs(0),
            end: TimeNs(weight),
            weight,
            n_samples: 1,
            state,
            wait,
            stack,
        });
    }

    /// Moves the last span, whose weight stays.
    pub fn move_last(&mut self, start: u64, end: u64) {
        let span = self.spans.last_mut().expect("a span");
        (span.start, span.end) = (TimeNs(start), TimeNs(end));
    }

    /// On-CPU time with a whole stack.
    pub fn on_cpu(&mut self, thread: ThreadId, root_first: &[&str], weight: u64) {
        let stack = self.stack(root_first, StackEnd::Root);
        self.span(thread, ThreadState::OnCpu, None, Some(stack), weight);
    }

    /// Blocked time with a whole stack.
    pub fn blocked(&mut self, thread: ThreadId, wait: Wait, root_first: &[&str], weight: u64) {
        let stack = self.stack(root_first, StackEnd::Root);
        let wait = self.wait(wait);
        self.span(
            thread,
            ThreadState::Blocked,
            Some(wait),
            Some(stack),
            weight,
        );
    }

    pub fn profile(&self) -> Profile {
        self.profile_of(Detail::Functions)
    }

    /// With frames of one function kept apart.
    pub fn profile_of(&self, detail: Detail) -> Profile {
        static RULES: LazyLock<Rules> =
            LazyLock::new(|| Rules::builtin().expect("the built-in rules are valid"));
        self.build(ProfileBuilder::new().with_detail(detail), &RULES)
    }

    /// With the kernel's functions below user stacks.
    pub fn profile_with_kernel(&self) -> Profile {
        let rules = Rules::builtin().expect("the built-in rules are valid");
        let builder = ProfileBuilder::new();
        builder.add_spans(&self.spans);
        builder.finish_indexed(&self.tables, None, &rules, true).0
    }

    pub fn profile_with(&self, rules: &Rules) -> Profile {
        self.build(ProfileBuilder::new(), rules)
    }

    fn build(&self, builder: ProfileBuilder, rules: &Rules) -> Profile {
        builder.add_spans(&self.spans);
        builder.finish(&self.tables, None, rules)
    }
}

/// A wait in a system call, by name.
pub fn syscall(name: &str) -> Wait {
    Wait {
        syscall: Some(wcprof_profile::syscall_number(name).expect("a known system call")),
        ..Wait::default()
    }
}

/// A wait in a system call with an operation.
pub fn syscall_op(name: &str, op: u32) -> Wait {
    Wait {
        op,
        ..syscall(name)
    }
}

/// A wait in a system call on a descriptor.
pub fn syscall_fd(name: &str, kind: FdKind) -> Wait {
    Wait {
        fd: Some(FdTarget {
            kind,
            path: String::new(),
        }),
        ..syscall(name)
    }
}

/// A wait outside system calls, at a kernel place.
pub fn kernel(place: &str) -> Wait {
    Wait {
        kernel: place.into(),
        ..Wait::default()
    }
}
