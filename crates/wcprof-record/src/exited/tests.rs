//! Threads of a few milliseconds of life, observed at the ticks that meet them.

use std::collections::{BTreeMap, BTreeSet};

use wcprof_capture::{KernelStack, Since, StackCopy, TargetId, ThreadCounters, ThreadTick};
use wcprof_types::{Sched, Tid};

use super::*;
use crate::threads::ThreadState;

const MS: u64 = 1_000_000;
const TICK: u64 = 10 * MS + 101_010;
const SCHEDULER_TICK: u64 = 4 * MS;
const N_CPUS: usize = 2;
const END: u64 = 6000 * MS;

/// A thread from its birth to its death, and when it is on a CPU.
struct Life {
    tid: i32,
    born: u64,
    runs: Vec<(u64, u64)>,
}

impl Life {
    fn died(&self) -> u64 {
        self.runs.last().map_or(self.born, |run| run.1)
    }

    fn ran_until(&self, time: u64) -> u64 {
        let parts = self.runs.iter();
        parts
            .map(|&(start, end)| end.min(time).saturating_sub(start))
            .sum()
    }

    /// What the kernel counts, which settles at its ticks and when the thread leaves its CPU.
    fn counted_until(&self, time: u64) -> u64 {
        let now = self.runs.iter().find(|run| run.0 <= time && time < run.1);
        let settled = |run: &(u64, u64)| run.0.max(time - time % SCHEDULER_TICK);
        self.ran_until(now.map_or(time, settled))
    }

    fn at(&self, time: u64, since: Option<Since>) -> ThreadTick {
        let over = self.runs.iter().filter(|run| run.1 <= time).count();
        let is_running = self.runs.get(over).is_some_and(|run| run.0 <= time);
        let mut from = self.born;
        let mut delay_ns = 0;
        for run in &self.runs[..over + usize::from(is_running)] {
            delay_ns += run.0 - from;
            from = run.1;
        }
        ThreadTick {
            target: TargetId(0),
            tid: Tid(self.tid),
            time,
            since,
            comm: None,
            sched: match is_running {
                true => Sched::OnCpu,
                false => Sched::Queued {
                    waited_ns: Some(time - from),
                },
            },
            stop: None,
            counters: ThreadCounters {
                switches: over as u64,
                voluntary: Some(0),
                run_ns: self.counted_until(time),
                delay_ns,
                guest_ns: 0,
            },
            n_ticks: 1,
            wait: None,
            stack: StackCopy::None,
            kernel: KernelStack::None,
        }
    }
}

/// What is beside the target.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Around {
    Calm,
    /// Busy loops, which have the CPU for 3 to 4 ms at a time.
    Busy,
    /// A hypervisor that takes all CPUs at times.
    StandsStill,
}

const PAUSES: [(u64, u64); 3] = [
    (700 * MS, 1500 * MS),
    (2503 * MS, 2703 * MS),
    (3900 * MS, 5300 * MS),
];

fn after_pause(around: Around, time: u64) -> u64 {
    let pause = PAUSES.iter().find(|p| p.0 <= time && time < p.1);
    match pause {
        Some(&(_, end)) if around == Around::StandsStill => end,
        _ => time,
    }
}

fn below(random: &mut u64, n: u64) -> u64 {
    *random = random
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1);
    (*random >> 33) % n
}

/// Threads born each `interval` ns that run for 1 ms each, in turn on two CPUs. A pause's share is born
/// at its end.
fn churn(around: Around, interval: u64) -> Vec<Life> {
    let mut random = 7;
    let mut free = [0; N_CPUS];
    let mut lives = Vec::new();
    let mut due = 0;
    while due < END {
        let born = after_pause(around, due);
        due += interval / 2 + below(&mut random, interval);
        let cpu = usize::from(free[1] < free[0]);
        let mut at = free[cpu].max(born + 20_000);
        let mut runs = Vec::new();
        let mut rest = MS;
        while rest > 0 {
            if around == Around::Busy && below(&mut random, 2) == 0 {
                at += below(&mut random, 4 * MS);
            }
            at = after_pause(around, at);
            let mut run = match below(&mut random, 4) {
                // Its turn is over.
                0 => rest.min(1 + below(&mut random, MS)),
                _ => rest,
            };
            if around == Around::StandsStill
                && let Some(pause) = PAUSES.iter().find(|p| (at..at + run).contains(&p.0))
            {
                run = pause.0 - at;
            }
            if run > 0 {
                runs.push((at, at + run));
            }
            rest -= run;
            at += run;
        }
        free[cpu] = at;
        let tid = 1000 + lives.len() as i32;
        lives.push(Life { tid, born, runs });
    }
    lives
}

/// Two threads that always run, but for pauses.
fn spinners(around: Around) -> Vec<Life> {
    let mut runs = Vec::new();
    let mut from = 0;
    for (start, end) in PAUSES.iter().filter(|_| around == Around::StandsStill) {
        runs.push((from, *start));
        from = *end;
    }
    runs.push((from, END + 1000 * MS));
    let spinner = |tid| Life {
        tid,
        born: 0,
        runs: runs.clone(),
    };
    vec![spinner(1), spinner(2)]
}

/// What was given to the pseudo-thread by each reading of the clock, and the truth until then, ns.
#[derive(Debug, Default)]
struct Given {
    readings: Vec<(u64, u64)>,
    /// The same in the end.
    all: (u64, u64),
    /// Threads that were seen.
    n_seen: usize,
}

/// A recorder's account of the threads.
struct Recording<'a> {
    lives: &'a [Life],
    begin: u64,
    exited: ExitedCpu,
    /// Threads that are known, and when they were last seen.
    threads: BTreeMap<i32, (ThreadState, u64, &'a Life)>,
    seen: BTreeSet<i32>,
    /// What threads ran after they were last seen, ns.
    after: u64,
    /// What was given to the pseudo-thread, ns.
    given: u64,
}

impl Recording<'_> {
    /// Observes those that live.
    fn tick(&mut self, now: u64) {
        let mut pieces = Vec::new();
        let alive = |life: &&Life| life.born <= now && now < life.died();
        for life in self.lives.iter().filter(alive) {
            let since = match now == self.begin {
                true => Since::FirstTick,
                false => Since::Birth(life.born),
            };
            let is_new = self.seen.insert(life.tid);
            let tick = life.at(now, is_new.then_some(since));
            let (thread, last, _) = self.threads.entry(life.tid).or_insert_with(|| {
                let id = ThreadId(life.tid as u32);
                (ThreadState::new(id, &tick, self.begin), now, life)
            });
            self.exited.show(thread.observe(&tick, None, &mut pieces));
            *last = now;
        }
        self.end_threads(now, |last| last < now);
    }

    /// Ends threads by when they were last seen.
    fn end_threads(&mut self, now: u64, ends: impl Fn(u64) -> bool) {
        let mut pieces = Vec::new();
        self.threads.retain(|_, (thread, last, life)| {
            if ends(*last) {
                self.exited.show(thread.finish(&mut pieces));
                self.after += life.ran_until(now) - life.ran_until(*last);
            }
            !ends(*last)
        });
    }

    /// Reads the process's CPU clock, in which threads count as they settle, some time after they were looked at.
    fn read_clock(&mut self, now: u64, unseen_ns: u64) -> (u64, u64) {
        let lives = self.lives.iter();
        let cpu_ns = lives.map(|life| life.counted_until(now + unseen_ns)).sum();
        self.exited
            .read(&clock(cpu_ns, unseen_ns), N_CPUS as u64, now);
        let pieces = self.exited.take_settled(N_CPUS as u64, now);
        self.give(&pieces, now)
    }

    /// What the pseudo-thread has with these pieces, and what it should have, ns.
    fn give(&mut self, pieces: &[Piece<Place>], now: u64) -> (u64, u64) {
        for p in pieces {
            assert!(
                p.weight <= p.end - p.start && p.start >= self.begin,
                "{p:?}"
            );
            assert_eq!((p.end, p.state, p.place), (now, State::OnCpu, None));
            self.given += p.weight;
        }
        let unseen = self.lives.iter().filter(|l| !self.seen.contains(&l.tid));
        let ran = |life: &Life| life.ran_until(now) - life.ran_until(self.begin);
        (self.given, self.after + unseen.map(ran).sum::<u64>())
    }
}

fn clock(cpu_ns: u64, unseen_ns: u64) -> CpuClock {
    CpuClock {
        target: TargetId(0),
        cpu_ns,
        unseen_ns,
    }
}

/// Observes the threads as a recorder does, which reads the clock some time after it looks at threads.
fn record(around: Around, lives: &[Life], unseen_ns: u64) -> Given {
    let mut due = 33 * MS;
    let begin = after_pause(around, due);
    let mut recording = Recording {
        lives,
        begin,
        exited: ExitedCpu::default(),
        threads: BTreeMap::new(),
        seen: BTreeSet::new(),
        after: 0,
        given: 0,
    };
    recording.exited.begin(begin);
    let mut given = Given::default();
    let (mut now, mut read) = (begin, 0);
    while due < END {
        now = after_pause(around, due);
        due += ((now - due) / TICK + 1) * TICK;
        recording.tick(now);
        if now == begin || now - read >= 1000 * MS {
            read = now;
            given.readings.push(recording.read_clock(now, unseen_ns));
        }
    }
    // The last batch comes a moment after the last tick.
    now += LAST;
    recording.read_clock(now, unseen_ns);
    recording.end_threads(now, |_| true);
    let pieces = recording.exited.take_rest(now);
    given.all = recording.give(&pieces, now);
    given.n_seen = recording.seen.len();
    given
}

/// How long after the last tick the last batch comes.
const LAST: u64 = MS / 2;

const MACHINES: [Around; 3] = [Around::Calm, Around::Busy, Around::StandsStill];

/// Check that the pseudo-thread has the time of threads that no tick met and of what others ran after
/// their last one: but for what is kept back since it may still be shown, exactly.
#[test]
fn short_lives() {
    for (around, beside) in MACHINES.iter().flat_map(|&a| [(a, false), (a, true)]) {
        let mut lives = churn(around, 5 * MS / 2);
        if beside {
            lives.extend(spinners(around));
        }
        let given = record(around, &lives, 0);
        // A tick meets some of them, others it misses.
        assert!(
            (200..lives.len() - 800).contains(&given.n_seen),
            "{given:?}"
        );
        let keep = UNSETTLED_NS * N_CPUS as u64;
        assert_eq!(given.readings[0], (0, 0), "{around:?}");
        for (got, truth) in &given.readings[1..] {
            assert_eq!(got + keep, *truth, "{around:?} {beside}: {given:?}");
        }
        let (got, truth) = given.all;
        match beside {
            // Half a percent of all CPU time, which most is of others, is noise.
            true => assert!(
                got <= truth && truth - got <= (2 * END + truth) / 200,
                "{around:?}: {got} ns, truth {truth} ns"
            ),
            false => assert!(
                truth.abs_diff(got) <= SCHEDULER_TICK * N_CPUS as u64,
                "{around:?}: {got} ns, truth {truth} ns"
            ),
        }
    }
}

/// Check that what threads ran before they were first looked at, late since there are many, is not that of exited threads,
/// that this holds no longer than until they are known, and that one that hardly ran hides nothing.
#[test]
fn looked_at_late() {
    let n_cpus = N_CPUS as u64;
    let given = |exited: &mut ExitedCpu, now| {
        let pieces = exited.take_settled(n_cpus, now);
        pieces.iter().map(|piece| piece.weight).sum::<u64>()
    };
    for (ran, is_late) in [(0, false), (MS, false), (9000 * MS, true)] {
        let mut exited = ExitedCpu::default();
        exited.begin(0);
        exited.looked_at_older(MS);
        exited.read(&clock(0, 0), n_cpus, 0);
        assert_eq!(given(&mut exited, 0), 0);
        // For a second nobody sees what runs.
        exited.looked_at_older(ran);
        exited.read(&clock(1000 * MS, 0), n_cpus, 1000 * MS);
        let keep = UNSETTLED_NS * n_cpus;
        let first = given(&mut exited, 1000 * MS);
        assert_eq!(first, if is_late { 0 } else { 1000 * MS - keep - ran });
        exited.show(300 * MS);
        exited.read(&clock(2000 * MS, 0), n_cpus, 2000 * MS);
        assert_eq!(
            first + given(&mut exited, 2000 * MS),
            if is_late {
                700 * MS - keep
            } else {
                1700 * MS - keep - ran
            }
        );
    }
}

/// Check that nothing is left of threads which are seen to the end, however late the clock is read.
#[test]
fn lasting() {
    for (around, unseen_ns) in MACHINES
        .into_iter()
        .flat_map(|around| [(around, 0), (around, 300 * MS)])
    {
        let given = record(around, &spinners(around), unseen_ns);
        assert!(given.readings.len() >= 5, "{given:?}");
        let all = given.readings.iter().chain([&given.all]);
        let got: Vec<u64> = all.map(|(got, _)| *got).collect();
        assert!(got.iter().all(|got| *got == 0), "{around:?}: {got:?}");
    }
}
