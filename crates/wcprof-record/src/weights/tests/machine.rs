//! Programs to the acts of their threads on a machine, and a sampling rate to the ticks taken there.

use super::MS;
use super::model::{Act, Model};

/// Pseudo-random numbers with a fixed seed, as the fixtures of the live tests have.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Self(88_172_645_463_325_252 + 7919 * seed);
        for _ in 0..8 {
            random.next();
        }
        random
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(super) fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 16) % n
    }

    /// From half of the mean to one and a half.
    pub(super) fn jitter(&mut self, mean: u64) -> u64 {
        mean / 2 + self.below(mean)
    }
}

/// What a program does next.
#[derive(Copy, Clone, Debug)]
pub(super) enum Step {
    /// Needs the CPU for some ns, in a place.
    Run(u64, u32),
    /// Reads its CPU clock.
    Clock,
    /// Waits until a moment, in a place; goes on at once when it is over.
    Until(u64, u32),
    /// Others of higher priority have its CPU for some ns.
    Starve(u64),
}

/// What is beside the target.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Around {
    /// Nothing.
    Calm,
    /// A busy loop on each CPU.
    Busy,
    /// A hypervisor that takes all CPUs for 0.2 to 1.4 s every few seconds, and tells the kernel.
    Stolen,
    /// The same, and the sampler, in spite of its priority, is the last to go on.
    Late,
    /// A hypervisor that does not tell.
    Frozen,
}

impl Around {
    pub(super) const ALL: [Self; 5] = [
        Self::Calm,
        Self::Busy,
        Self::Stolen,
        Self::Late,
        Self::Frozen,
    ];

    pub(super) fn stands_still(self) -> bool {
        matches!(self, Self::Stolen | Self::Late | Self::Frozen)
    }
}

/// For how long the threads queue that a machine wakes at once which stood still.
const CROWD_NS: u64 = 300_000;

pub(super) struct Machine {
    pub(super) around: Around,
    /// When all CPUs stand still.
    pauses: Vec<(u64, u64)>,
    end: u64,
}

impl Machine {
    pub(super) fn new(around: Around, end: u64) -> Self {
        let mut random = Random::new(1 << 20);
        let mut pauses = Vec::new();
        let mut at = 0;
        while around.stands_still() {
            at += random.jitter(2500 * MS);
            let length = 200 * MS + random.below(1200 * MS);
            if at + length + 100 * MS >= end {
                break;
            }
            pauses.push((at, at + length));
            at += length;
        }
        Self {
            around,
            pauses,
            end,
        }
    }

    /// The pause that a moment lies in.
    fn pause_at(&self, time: u64) -> Option<(u64, u64)> {
        let n = self.pauses.partition_point(|&(_, end)| end <= time);
        self.pauses
            .get(n)
            .copied()
            .filter(|(start, _)| *start <= time)
    }

    fn next_pause(&self, time: u64) -> u64 {
        let n = self.pauses.partition_point(|&(start, _)| start < time);
        self.pauses.get(n).map_or(u64::MAX, |(start, _)| *start)
    }

    /// For how long the machine stands still each time, ns.
    pub(super) fn pauses(&self) -> impl Iterator<Item = f64> + '_ {
        self.pauses.iter().map(|(start, end)| (end - start) as f64)
    }

    /// Ticks at absolute deadlines, the first at a random moment. Where the machine stands still they
    /// come when it goes on, and those that have passed are left out.
    pub(super) fn ticks(&self, rate: u64, random: &mut Random) -> Vec<u64> {
        let interval = 1_000_000_000 / rate;
        let mut due = 10 * MS + random.below(20 * MS);
        let mut ticks = Vec::new();
        while due < self.end {
            let mut time = due + random.below(interval / 100);
            if self.around == Around::Busy && random.below(10) == 0 {
                time += random.below(3 * MS);
            }
            if let Some((_, end)) = self.pause_at(time) {
                time = match self.around {
                    Around::Late => end + 2 * CROWD_NS,
                    _ => end,
                };
            }
            due += ((time - due) / interval + 1) * interval;
            ticks.push(time);
        }
        ticks
    }

    /// The acts of a thread with a program. `rivals` busy threads of its own process are on its CPU.
    pub(super) fn thread(
        &self,
        rivals: u64,
        random: &mut Random,
        program: &mut dyn FnMut(u64, &mut Random) -> Step,
    ) -> Model {
        let mut course = Course {
            machine: self,
            rivals: rivals + u64::from(self.around == Around::Busy),
            acts: Vec::new(),
            now: 0,
            slice: 0,
        };
        while course.now < self.end + 20 * MS {
            match program(course.now, random) {
                Step::Run(ns, place) => course.run(ns, place, random),
                Step::Clock => course.acts.push(Act::Clock),
                Step::Starve(ns) => course.wait(ns),
                Step::Until(time, place) if time > course.now => {
                    course.block(time, place);
                    course.wake(random);
                }
                // Over already.
                Step::Until(..) => {}
            }
        }
        Model::new(&course.acts)
    }
}

/// One thread's acts so far.
struct Course<'a> {
    machine: &'a Machine,
    /// Busy threads on its CPU.
    rivals: u64,
    acts: Vec<Act>,
    now: u64,
    /// What is left of its turn on the CPU.
    slice: u64,
}

impl Course<'_> {
    fn push(&mut self, act: Act, until: u64) {
        self.acts.push(act);
        self.now = until;
    }

    /// Waits for the CPU; what the machine stands still meanwhile comes on top.
    fn wait(&mut self, ns: u64) {
        let mut until = self.now + ns;
        let pauses = self.machine.pauses.iter();
        for (start, end) in pauses.filter(|(start, _)| *start >= self.now) {
            if *start < until {
                until += end - start;
            }
        }
        self.push(Act::Wait(until - self.now), until);
    }

    fn block(&mut self, until: u64, place: u32) {
        let until = match self.machine.pause_at(until) {
            Some((_, end)) => end,
            None => until,
        };
        self.push(Act::Block(until - self.now, place), until);
    }

    /// Gets a CPU after a wait: soon, but for those of a busy machine and for the many that a machine
    /// wakes at once which stood still.
    fn wake(&mut self, random: &mut Random) {
        let after_pause = self.machine.pauses.iter().any(|(_, end)| *end == self.now);
        let queue = match self.machine.around {
            _ if after_pause => CROWD_NS,
            Around::Busy if random.below(2) == 0 => 4 * MS,
            _ => 20_000,
        };
        self.wait(1 + random.below(queue));
        self.slice = 3 * MS + random.below(MS);
    }

    /// Runs in turn with its rivals.
    fn run(&mut self, ns: u64, place: u32, random: &mut Random) {
        let mut rest = ns;
        while rest > 0 {
            if self.slice == 0 {
                let turns = (0..self.rivals).map(|_| 3 * MS + random.below(MS));
                let wait = turns.sum();
                if wait > 0 {
                    self.wait(wait);
                }
                self.slice = 3 * MS + random.below(MS);
            }
            let pause = self.machine.next_pause(self.now);
            let part = rest.min(self.slice).min(pause - self.now);
            if part > 0 {
                self.push(Act::Run(part, place), self.now + part);
            }
            rest -= part;
            self.slice -= part;
            if self.now == pause
                && let Some((start, end)) = self.machine.pause_at(pause)
            {
                let act = match self.machine.around {
                    Around::Frozen => Act::Frozen(end - start, place),
                    _ => Act::Robbed(end - start, place),
                };
                self.push(act, end);
            }
        }
    }
}
