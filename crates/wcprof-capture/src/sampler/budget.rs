//! Own CPU time to the rate of ticks: lowers it when wcprof would use more than its share of a core, and raises it
//! again in calm times. What is left of the share takes in new threads.

use std::time::Duration;

use crate::sys::OwnCpu;

/// Own CPU use is accounted after so much CPU time as is permitted, ns, or as soon as half of it is used: some ticks that
/// take longer than others, as when mappings are read again, are part of each account.
const ACCOUNT_CPU_NS: f64 = 50e6;
/// The shortest and the longest time between accounts.
const ACCOUNT_NS: std::ops::RangeInclusive<f64> = 1e9..=10e9;
/// What was used too much is made up for over at least this long.
const MAX_DEBT_NS: f64 = 10e9;
/// Time that must be calm, at most, before the rate is raised.
const MAX_PATIENCE_NS: f64 = 64e9;
/// The lowest rate: a tick of tens of thousands of threads can take most of a second.
const MIN_HZ: f64 = 0.1;
/// Calm is to use less of the share than this.
const CALM: f64 = 0.6;
/// The rate is raised by this factor at most.
const MAX_RISE: f64 = 4.0;
/// CPU time of a thread's first look, ns: its stack is read and unwound.
const NEW_NS: f64 = 40_000.0;
/// So many new threads are taken in between two accounts in any case; with a whole core so many.
const MIN_NEW: usize = 256;
const MIN_NEW_OF_CORE: f64 = 1280.0;
/// The most of a share that making up for earlier use takes.
const MAX_REPAID: f64 = 0.75;
/// What ticks may use of the share while new threads wait.
const TICKS_PART: f64 = 0.5;
/// Work in lumps is charged over this long: several intervals of the agent, or each lump would stop the ticks.
const SPREAD_NS: f64 = 120e9;

#[derive(Debug)]
pub(super) struct CpuBudget {
    /// Ticks a second that were asked for, and now.
    asked_hz: f64,
    rate_hz: f64,
    /// Of a core.
    share: f64,
    /// Between two accounts, ns.
    account_ns: f64,
    /// When the own CPU time was last read, and what it was, ns.
    read_at: u64,
    cpu: OwnCpu,
    /// Ticks since then; `None` before the first, which opens files and so tells nothing of later ones.
    n_ticks: Option<u32>,
    /// CPU time that was used beyond the share and is not made up for, ns.
    debt: f64,
    /// CPU time of lumps that is not charged yet, ns.
    lumps: f64,
    /// New threads since the last account, and whether more wait.
    n_new: usize,
    is_taking_in: bool,
    calm: Calm,
}

/// When the rate is raised.
#[derive(Debug)]
struct Calm {
    /// Calm accounts in a row, and how many it takes. A rise that did not last doubles these.
    n: u32,
    patience: u32,
    has_risen: bool,
}

impl CpuBudget {
    pub(super) fn new(rate_hz: u32, max_cpu_percent: u32) -> Self {
        let share = f64::from(max_cpu_percent) / 100.0;
        Self {
            asked_hz: f64::from(rate_hz.max(1)),
            rate_hz: f64::from(rate_hz.max(1)),
            share,
            account_ns: (ACCOUNT_CPU_NS / share).clamp(*ACCOUNT_NS.start(), *ACCOUNT_NS.end()),
            read_at: 0,
            cpu: OwnCpu::default(),
            n_ticks: None,
            debt: 0.0,
            lumps: 0.0,
            n_new: 0,
            is_taking_in: false,
            calm: Calm {
                n: 0,
                patience: 1,
                has_risen: false,
            },
        }
    }

    /// Counts from now on; preparations took `before`, ns, which is made up for.
    pub(super) fn begin(&mut self, now: u64, cpu: OwnCpu, before: u64) {
        (self.read_at, self.cpu) = (now, cpu);
        self.owe(before as f64);
    }

    /// Between two ticks.
    pub(super) fn interval(&self) -> Duration {
        Duration::from_secs_f64(1.0 / self.rate_hz)
    }

    /// Ticks a second; a part of one counts as one.
    pub(super) fn rate_hz(&self) -> u32 {
        self.rate_hz.ceil() as u32
    }

    /// Whether [`Self::check`] is to be called in any case.
    pub(super) fn is_due(&self, now: u64) -> bool {
        self.n_ticks.is_none() || now.saturating_sub(self.read_at) as f64 >= self.account_ns
    }

    /// Counts a tick. Whether [`Self::check`] is to be called after it.
    pub(super) fn tick(&mut self, now: u64, cpu: OwnCpu) -> bool {
        if let Some(n) = &mut self.n_ticks {
            *n += 1;
        }
        // What is to be made up for is not there to be used.
        let share = self.share * self.account_ns;
        let half = (share - self.debt.min(MAX_REPAID * share)) / 2.0;
        let used = self.used(cpu) - self.new_ns();
        self.is_due(now) || used > half
    }

    /// CPU time since the last account, ns.
    fn used(&self, cpu: OwnCpu) -> f64 {
        cpu.ticks.saturating_sub(self.cpu.ticks) as f64
    }

    fn new_ns(&self) -> f64 {
        self.n_new as f64 * NEW_NS
    }

    /// How many new threads may be taken in now.
    pub(super) fn n_new(&self, now: u64, cpu: OwnCpu) -> usize {
        let wall = now.saturating_sub(self.read_at) as f64;
        let room = self.share * wall - self.used(cpu) - self.debt;
        let least = MIN_NEW.max((MIN_NEW_OF_CORE * self.share) as usize);
        ((room / NEW_NS) as usize).max(least.saturating_sub(self.n_new))
    }

    /// So many were, and whether more wait.
    pub(super) fn took_in(&mut self, n_new: usize, more_wait: bool) {
        self.n_new += n_new;
        self.is_taking_in = more_wait;
    }

    /// Whether the rate is another one from now on.
    pub(super) fn check(&mut self, now: u64, cpu: OwnCpu) -> bool {
        let wall = now.saturating_sub(self.read_at).max(1) as f64;
        let used = self.used(cpu);
        self.lumps += cpu.lumps.saturating_sub(self.cpu.lumps) as f64;
        let charged = self.lumps * (1.0 - (-wall / SPREAD_NS).exp());
        self.lumps -= charged;
        let steady = cpu.steady.saturating_sub(self.cpu.steady) as f64;
        // What these leave to ticks.
        let left = (self.share * wall - charged).max(0.0) - steady;
        let allowed = left.max(0.0);
        let aim = allowed - self.debt.min(MAX_REPAID * allowed);
        (self.read_at, self.cpu) = (now, cpu);
        self.owe(used - left);
        // Fewer ticks would not make new threads cheaper.
        let new = self.new_ns().min(used);
        let used = used - new;
        self.n_new = 0;
        let least = aim.min(TICKS_PART * allowed);
        let aim = match self.is_taking_in {
            true => least,
            false => (aim - new).max(least),
        };
        let Some(n_ticks) = self.n_ticks.replace(0) else {
            return false;
        };
        let rate = match () {
            () if used > aim => {
                self.calm.n = 0;
                if std::mem::take(&mut self.calm.has_risen) {
                    let longest = MAX_PATIENCE_NS / self.account_ns;
                    self.calm.patience = (2 * self.calm.patience).min(longest as u32);
                }
                // Where ticks take longer than their interval, there were fewer.
                let taken = f64::from(n_ticks) * 1e9 / wall;
                // Aim below, or noise would lower the rate again and again.
                let rate = self.rate_hz.min(taken) * aim / used * 0.9;
                whole(rate).clamp(MIN_HZ, self.rate_hz)
            }
            () if used < CALM * aim => {
                self.calm.n += 1;
                if self.calm.n < self.calm.patience {
                    return false;
                }
                self.calm.n = 0;
                let room = 0.8 * aim / used.max(1.0);
                whole(self.rate_hz * room.min(MAX_RISE)).clamp(self.rate_hz, self.asked_hz)
            }
            () => {
                self.calm.n = 0;
                return false;
            }
        };
        self.calm.has_risen |= rate > self.rate_hz;
        std::mem::replace(&mut self.rate_hz, rate) != rate
    }

    fn owe(&mut self, ns: f64) {
        self.debt = (self.debt + ns).clamp(0.0, MAX_DEBT_NS * self.share);
    }
}

/// A rate above one in whole ticks a second.
fn whole(rate: f64) -> f64 {
    if rate < 1.0 { rate } else { rate.floor() }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const MS: u64 = 1_000_000;
    const S: u64 = 1_000 * MS;

    /// Ticks for so many seconds, each of which takes the CPU time that `cost` gives for its time, ns. CPU time and
    /// rate at the end of each second.
    fn simulate(
        budget: &mut CpuBudget,
        seconds: u64,
        cost: impl Fn(u64) -> u64,
    ) -> Vec<(u64, u32)> {
        simulate_beside(budget, seconds, cost, |_| (0, 0))
    }

    /// The same beside other work, of which `beside` gives how much was in lumps and how much is steady until a time, ns; it is
    /// not in the result.
    fn simulate_beside(
        budget: &mut CpuBudget,
        seconds: u64,
        cost: impl Fn(u64) -> u64,
        beside: impl Fn(u64) -> (u64, u64),
    ) -> Vec<(u64, u32)> {
        let (mut now, mut cpu, mut next, mut all) = (0, 0, 0, Vec::new());
        while now < seconds * S {
            now = now.max(next);
            let took = cost(now);
            (now, cpu) = (now + took, cpu + took);
            next += budget.interval().as_nanos() as u64;
            let (lumps, steady) = beside(now);
            let own = OwnCpu {
                ticks: cpu,
                lumps,
                steady,
            };
            if budget.tick(now, own) && budget.check(now, own) {
                next = now + budget.interval().as_nanos() as u64;
            }
            while (all.len() as u64 + 1) * S <= now {
                all.push((cpu, budget.rate_hz()));
            }
        }
        all
    }

    /// Check that the limit holds for a process of many threads from the first second on, preparations and the
    /// first tick included.
    #[test]
    fn from_the_start() {
        let mut budget = CpuBudget::new(99, 20);
        let before = 300 * MS;
        budget.begin(0, OwnCpu::default(), before);
        let cost = |now| if now == 0 { 300 * MS } else { 30 * MS };
        let seconds = simulate(&mut budget, 20, cost);
        for two in seconds.windows(2) {
            let used = two[1].0 - two[0].0;
            assert!(used <= 210 * MS, "{used} ns of {seconds:?}");
        }
        assert!(seconds[0].0 <= 500 * MS, "{seconds:?}");
        let all = seconds[9].0 + before;
        assert!(all <= 2000 * MS, "{all} ns in 10 s: {seconds:?}");
        assert!(seconds[19].1 >= 5, "{seconds:?}");
    }

    /// Check that a process of ten thousand threads is taken in within seconds, and that the limit holds in each of
    /// them meanwhile, also when a first look takes half as long again as thought.
    #[test]
    fn many_threads() {
        for first_look in [20_000, 40_000, 60_000] {
            let mut budget = CpuBudget::new(99, 20);
            // A process that lists its threads before the first tick.
            let before = 80 * MS;
            budget.begin(0, OwnCpu::default(), before);
            let (mut now, mut cpu, mut n_left, mut first) = (0, 0, 10_000, 20 * MS);
            let (mut used, mut all_known) = (vec![before], 0);
            while now < 10 * S {
                let own = |ticks| OwnCpu {
                    ticks,
                    ..OwnCpu::default()
                };
                let n_new = budget.n_new(now, own(cpu)).min(n_left);
                n_left -= n_new;
                budget.took_in(n_new, n_left > 0);
                let took = 7 * MS + std::mem::take(&mut first) + n_new as u64 * first_look;
                (now, cpu) = (now + took, cpu + took);
                if budget.tick(now, own(cpu)) {
                    budget.check(now, own(cpu));
                }
                let second = (now / S) as usize;
                used.resize(second + 1, 0);
                used[second] += took;
                if n_left > 0 {
                    all_known = second + 1;
                }
                now += budget.interval().as_nanos() as u64;
            }
            let is_kept = |used: &u64| *used <= 240 * MS;
            assert!(used[..10].iter().all(is_kept), "{first_look}: {used:?}");
            let all: u64 = used[..10].iter().sum();
            assert!(all <= 2000 * MS, "{first_look}: {used:?}");
            assert!(all_known <= 5, "{first_look}: {all_known} s");
        }
    }

    /// Check that the rate falls in a burst, keeps the limit in it, and is again what was asked for after it.
    #[test]
    fn burst() {
        let mut budget = CpuBudget::new(99, 10);
        budget.begin(0, OwnCpu::default(), 0);
        let is_busy = |now| (10 * S..30 * S).contains(&now);
        let cost = |now| if is_busy(now) { 20 * MS } else { MS / 2 };
        let seconds = simulate(&mut budget, 60, cost);
        assert_eq!(seconds[9].1, 99);
        assert!(seconds[12].1 < 10, "{seconds:?}");
        let used = seconds[29].0 - seconds[9].0;
        assert!(used <= 2100 * MS, "{used} ns in 20 s: {seconds:?}");
        assert_eq!(seconds[45].1, 99, "{seconds:?}");
    }

    /// Check that a load which is too large for the rate does not make it swing.
    #[test]
    fn steady() {
        let mut budget = CpuBudget::new(99, 20);
        budget.begin(0, OwnCpu::default(), 0);
        let seconds = simulate(&mut budget, 1000, |_| 4 * MS);
        let changes = seconds.windows(2).filter(|two| two[0].1 != two[1].1);
        assert!(changes.count() < 20, "{seconds:?}");
        let last = seconds[999];
        assert!(last.0 <= 200 * S && last.1 > 30, "{last:?}");
    }

    /// Check that the limit holds where a tick takes longer than a second's share, and that ticks never end.
    #[test]
    fn lowest() {
        let mut budget = CpuBudget::new(99, 20);
        budget.begin(0, OwnCpu::default(), 0);
        let seconds = simulate(&mut budget, 100, |_| 300 * MS);
        assert!(seconds[99].0 <= 20 * S, "{seconds:?}");
        assert_eq!(seconds[99].1, 1);
        let mut budget = CpuBudget::new(99, 1);
        budget.begin(0, OwnCpu::default(), 0);
        let seconds = simulate(&mut budget, 100, |_| 500 * MS);
        assert!(seconds[99].0 >= seconds[49].0 + 2 * S, "{seconds:?}");
    }

    /// A lump every 30 seconds.
    fn in_lumps(lump: u64) -> impl Fn(u64) -> (u64, u64) {
        move |now| (lump * (now / (30 * S)), 0)
    }

    /// Check that the limit holds over each minute from second 15 on beside work that goes on all the time, and that ticks go on
    /// where that work alone takes all of it.
    #[test]
    fn steady_work() {
        for part in [3, 6, 12] {
            let mut budget = CpuBudget::new(19, 1);
            budget.begin(0, OwnCpu::default(), 0);
            let steady = |now: u64| now * part / 1000;
            let seconds = simulate_beside(&mut budget, 300, |_| 5 * MS, |now| (0, steady(now)));
            let limited = part < 10;
            for from in (15..239).filter(|_| limited) {
                let ticks = seconds[from + 60].0 - seconds[from].0;
                let used = ticks + steady(60 * S);
                assert!(used <= 60 * S / 100 * 11 / 10, "{part}: {used} from {from}");
            }
            assert!(seconds[299].0 > seconds[200].0, "{part}: {seconds:?}");
        }
    }

    /// Check that work in lumps for which there is room does not change the rate, and that with more of it the limit
    /// holds over minutes, at a rate that is about the same all the time.
    #[test]
    fn lumps() {
        let mut budget = CpuBudget::new(19, 1);
        budget.begin(0, OwnCpu::default(), 0);
        let seconds = simulate_beside(&mut budget, 1200, |_| MS / 4, in_lumps(100 * MS));
        assert!(seconds.iter().all(|second| second.1 == 19), "{seconds:?}");

        let lump = 180 * MS;
        let mut budget = CpuBudget::new(19, 1);
        budget.begin(0, OwnCpu::default(), 0);
        let seconds = simulate_beside(&mut budget, 1200, |_| MS / 2, in_lumps(lump));
        let settled = &seconds[599..];
        let used = settled[600].0 - settled[0].0 + 20 * lump;
        assert!(used <= 600 * S / 100, "{used} ns in 600 s: {seconds:?}");
        assert!(
            settled.iter().all(|second| (3..=8).contains(&second.1)),
            "{settled:?}"
        );
    }

    /// Check that some ticks which take longer do not lower a rate that the limit permits.
    #[test]
    fn uneven() {
        let mut budget = CpuBudget::new(19, 1);
        budget.begin(0, OwnCpu::default(), 0);
        let read_at = Cell::new(0);
        // Mappings are read again every two seconds.
        let cost = |now: u64| {
            let is_due = now >= read_at.get() + 2 * S;
            if is_due {
                read_at.set(now);
            }
            3 * MS / 10 + u64::from(is_due) * 5 * MS
        };
        let seconds = simulate(&mut budget, 600, cost);
        let used = seconds[599].0 - seconds[299].0;
        assert!(used <= 3 * S, "{used} ns in 300 s: {seconds:?}");
        assert!(
            seconds[299..].iter().all(|second| second.1 >= 15),
            "{seconds:?}"
        );
    }

    /// Check that ticks become few where lumps alone take more than the limit, never end, and come back afterwards.
    #[test]
    fn too_large_lumps() {
        let mut budget = CpuBudget::new(19, 1);
        budget.begin(0, OwnCpu::default(), 0);
        let seconds = simulate_beside(&mut budget, 600, |_| MS / 4, in_lumps(900 * MS));
        assert_eq!(seconds[599].1, 1, "{seconds:?}");
        assert!(seconds[599].0 > seconds[299].0, "{seconds:?}");
        // It counts from 0 again, which are no lumps.
        budget.begin(0, OwnCpu::default(), 0);
        let seconds = simulate(&mut budget, 900, |_| MS / 4);
        assert_eq!(seconds[899].1, 19, "{seconds:?}");
    }
}
