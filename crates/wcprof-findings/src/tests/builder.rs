//! Builds small profiles by hand.

use wcprof_profile::model::{
    Function, FunctionId, Pool, Profile, ProfileStack, ProfileStackId, ProfileThread, Reason, Row,
    State, TimeAxis,
};
use wcprof_trace::model::{Header, Stats};
use wcprof_types::{Pid, StackEnd, Tid, TimeNs, Wait};

/// Length of every built recording: 10 s at 100 Hz.
pub(super) const DURATION_NS: u64 = 10_000_000_000;
const TICK_NS: u64 = 10_000_000;

/// A profile under construction. A thread that is left short of the whole recording is idle for
/// the rest.
pub(super) struct Builder {
    profile: Profile,
    n_ticks: u64,
}

impl Builder {
    pub(super) fn new() -> Self {
        Self::with_ticks(DURATION_NS / TICK_NS)
    }

    pub(super) fn with_ticks(n_ticks: u64) -> Self {
        let profile = Profile {
            header: Header {
                wcprof_version: "0.1.0".into(),
                engine: "bpf".into(),
                notes: Vec::new(),
                rate_hz: 100,
                host: "node1".into(),
                kernel: "6.1.0".into(),
                n_cpus: 2,
                started_unix_ns: 0,
                n_snapshots: 0,
            },
            stats: Stats {
                duration: TimeNs(n_ticks * TICK_NS),
                n_ticks,
                complete: true,
                ..Stats::default()
            },
            // Rows have no slices: their weights are exact.
            time: TimeAxis {
                end: TimeNs(n_ticks * TICK_NS),
                slice_ns: 16 * TICK_NS,
                recorded_ns: n_ticks * TICK_NS,
                ..TimeAxis::default()
            },
            processes: vec![super::format::process(100, "ceph-osd", "node1")],
            modules: Vec::new(),
            functions: Vec::new(),
            stacks: Vec::new(),
            threads: Vec::new(),
            pools: Vec::new(),
            waits: Vec::new(),
            rows: Vec::new(),
            locks: Default::default(),
        };
        Self { profile, n_ticks }
    }

    /// Adds a thread to a pool of `ceph-osd`/100; gives its index.
    pub(super) fn thread(&mut self, pool: &str) -> usize {
        let thread = self.profile.threads.len();
        let p = &mut self.profile;
        let known = p.pools.iter().position(|x| x.name == pool);
        let pool = known.unwrap_or_else(|| {
            p.pools.push(Pool {
                name: pool.into(),
                process: 0,
                pid: Pid(100),
                threads: Vec::new(),
                is_fleet: false,
            });
            p.pools.len() - 1
        });
        p.pools[pool].threads.push(thread);
        p.threads.push(ProfileThread {
            process: 0,
            pid: Pid(100),
            process_comm: "ceph-osd".into(),
            tid: Tid(101 + i32::try_from(thread).unwrap()),
            comm: p.pools[pool].name.replace('N', &thread.to_string()),
            pool,
            n_ticks: self.n_ticks,
            observed_ns: self.n_ticks * TICK_NS,
        });
        thread
    }

    /// Adds `ticks` ticks of a state with a stack, root first, each frame `module!function`.
    pub(super) fn row(&mut self, thread: usize, state: State, ticks: u64, stack: &[&str]) {
        let stack = self.stack(stack, StackEnd::Root);
        self.push(thread, state, ticks, Some(stack), None);
    }

    /// As [`Builder::row`], in a wait.
    pub(super) fn wait(
        &mut self,
        thread: usize,
        state: State,
        ticks: u64,
        stack: (&[&str], StackEnd),
        syscall: Option<u32>,
    ) {
        let stack = self.stack(stack.0, stack.1);
        let wait = u32::try_from(self.profile.waits.len()).unwrap();
        self.profile.waits.push(Wait {
            syscall,
            ..Wait::default()
        });
        self.push(thread, state, ticks, Some(stack), Some(wait));
    }

    /// Time without a stack.
    pub(super) fn bare(&mut self, thread: usize, state: State, ticks: u64) {
        self.push(thread, state, ticks, None, None);
    }

    fn push(
        &mut self,
        thread: usize,
        state: State,
        ticks: u64,
        stack: Option<ProfileStackId>,
        wait: Option<u32>,
    ) {
        self.profile.rows.push(Row {
            thread,
            state,
            reason: Reason::Kernel,
            stack,
            wait,
            weight: ticks * TICK_NS,
            n_samples: ticks,
            slices: Default::default(),
        });
    }

    fn stack(&mut self, frames: &[&str], end: StackEnd) -> ProfileStackId {
        let frames = frames.iter().map(|f| self.function(f)).collect();
        let stacks = &mut self.profile.stacks;
        stacks.push(ProfileStack { frames, end });
        ProfileStackId(u32::try_from(stacks.len() - 1).unwrap())
    }

    fn function(&mut self, frame: &str) -> FunctionId {
        let (module, name) = frame.split_once('!').unwrap();
        let function = Function {
            name: name.into(),
            module: module.into(),
            resolved: !name.contains("+0x"),
            ..Function::default()
        };
        let functions = &mut self.profile.functions;
        let known = functions.iter().position(|f| *f == function);
        let id = known.unwrap_or_else(|| {
            functions.push(function);
            functions.len() - 1
        });
        FunctionId(u32::try_from(id).unwrap())
    }

    /// Fills the threads up with idle time.
    pub(super) fn build(mut self) -> Profile {
        for thread in 0..self.profile.threads.len() {
            let rows = self.profile.rows.iter().filter(|r| r.thread == thread);
            let used: u64 = rows.map(|r| r.weight).sum();
            let left = (self.n_ticks * TICK_NS).checked_sub(used).unwrap() / TICK_NS;
            self.row(
                thread,
                State::Idle,
                left,
                &["libc.so.6!clone3", "libc.so.6!epoll_wait"],
            );
        }
        self.profile
    }
}
