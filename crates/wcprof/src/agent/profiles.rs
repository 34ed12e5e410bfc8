//! What the ring holds of an interval to requests of a store, on a thread that neither samples nor records.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::mpsc::Receiver;
use std::time::{Duration, UNIX_EPOCH};

use wcprof_capture::add_lump_cpu;
use wcprof_export::{
    Labels, PushedProfile, StoreLimits, StoreProfiles, labels, otlp_request, parca_request,
    pyroscope_request,
};
use wcprof_host::sys::return_freed_memory;
use wcprof_host::work_cpu_ns;
use wcprof_host::{CephFacts, ceph_facts};
use wcprof_net::StoreKind;
use wcprof_profile::model::{Detail, Profile};
use wcprof_profile::rename_functions;
use wcprof_record::NamedSnapshot;
use wcprof_symbols::{SymbolOptions, call_name};
use wcprof_trace::model::{Header, Process, Tables};
use wcprof_types::{Pid, ceph_daemon, process_title};

use super::figures::{Figures, ProfileSize};
use super::identity::{Claim, NameHolders, doubtful_label};
use super::intervals::{Interval, MIN_NS};
use super::log::{self, Level, Sparing};
use super::plan::Plan;
use super::pushing::Destination;
use super::rates::Rates;
use crate::failure::Failure;
use crate::live_names::LiveNames;

/// Of the CPU limit, which names are not under, for names in the long run: one part of so many.
const NAMES_SHARE: u32 = 4;

/// Of an interval, for which its profile may wait for names: one part of so many. The next one waits as long.
const NAMES_PATIENCE: u32 = 4;

/// The longest pause between two look-ups of names, in times of what one takes.
fn longest_pause(max_cpu_percent: u32) -> u32 {
    NAMES_SHARE * 100 / max_cpu_percent.max(1)
}

/// Makes profiles.
#[derive(Debug)]
pub(super) struct Profiles<'a> {
    plan: &'a Plan,
    symbols: SymbolOptions,
    destination: Option<Destination>,
    figures: &'a Figures,
    names: LiveNames,
    ceph: Looked,
    claimed: NameHolders,
    doubts: Sparing,
    late: Sparing,
    rates: Rates,
}

impl<'a> Profiles<'a> {
    pub(super) fn new(
        plan: &'a Plan,
        symbols: SymbolOptions,
        destination: Option<Destination>,
        figures: &'a Figures,
    ) -> Self {
        Self {
            plan,
            symbols,
            destination,
            figures,
            names: LiveNames::new(plan.args.interval / NAMES_PATIENCE)
                .with_detail(Detail::Frames)
                .with_longest_pause(longest_pause(plan.args.sampling.max_cpu)),
            ceph: Looked::default(),
            claimed: NameHolders::default(),
            doubts: Sparing::default(),
            late: Sparing::default(),
            rates: Rates::default(),
        }
    }

    /// Takes intervals until no more come.
    pub(super) fn run(&mut self, intervals: &Receiver<(NamedSnapshot, Interval)>) {
        let mut cpu = work_cpu_ns();
        for (kept, interval) in intervals {
            self.take(&kept, interval);
            // The next interval needs as much, and until then nobody does.
            drop(kept);
            return_freed_memory();
            let now = work_cpu_ns();
            add_lump_cpu(now - std::mem::replace(&mut cpu, now));
        }
    }

    /// Says which engine samples, and what it cannot see, unless the last recording had the same.
    fn say_engine(&self, header: &Header) {
        let engine = (header.engine.clone(), header.notes.clone());
        let before = std::mem::replace(&mut self.figures.lock().engine, engine.clone());
        if before == engine {
            return;
        }
        log::line(Level::Info, &format!("engine {}", engine.0));
        for note in engine.1 {
            log::line(Level::Warning, &note);
        }
    }

    /// Makes the profiles of an interval, and hands them on.
    fn take(&mut self, kept: &NamedSnapshot, interval: Interval) {
        self.say_engine(kept.snapshot.header());
        {
            let mut figures = self.figures.lock();
            figures.samples.clone_from(kept.snapshot.stats());
            figures.ring_bytes = kept.snapshot.memory().bytes;
        }
        if interval.to.saturating_sub(interval.from) < MIN_NS {
            return;
        }
        if let Err(failure) = self.push(kept, interval) {
            let text = failure.to_string();
            let text = text.trim_start_matches("wcprof: ");
            log::line(Level::Error, &format!("no profile of an interval: {text}"));
        }
    }

    fn push(&mut self, kept: &NamedSnapshot, interval: Interval) -> Result<(), Failure> {
        let [from, to] = [interval.from, interval.to].map(|time| kept.time_of(time));
        let cut = kept.snapshot.cut(from)?;
        let symbols = (&self.plan.symbols, &self.symbols);
        let before = self.names.spent;
        let mut profile = self
            .names
            .profile(kept, &cut, to, symbols, &self.plan.rules)?;
        if self.names.is_late() {
            let text = "the look-up of names takes long: what is new to it has addresses in place of names until it is over";
            log::sparingly(&mut self.late, Level::Warning, text);
        }
        // The clock of the day may have been set since the recording began.
        let end = to.0.saturating_sub(cut.from().0);
        profile.header.started_unix_ns = interval.unix_to.saturating_sub(end);
        // Parameters and template arguments are most of the bytes of a profile.
        rename_functions(&mut profile, call_name);
        {
            let mut figures = self.figures.lock();
            figures.names += self.names.spent - before;
            figures.lost += lost((from.0, to.0), cut.from().0);
        }
        let seen = self.rates.seen(kept.snapshot.observations().filter_map(
            |(thread, process, n_ticks)| Some((thread, cut.process(process)?, n_ticks)),
        ));
        let sampling = &self.plan.args.sampling;
        self.rates.note(&profile, &seen, sampling);
        let profiles = self.profiles(&profile, cut.tables(), &seen);
        let Some(destination) = &self.destination else {
            return Ok(());
        };
        // Pyroscope takes each series or refuses it: one a request, so that a request is taken or refused whole.
        for pushed in profiles {
            let begin = UNIX_EPOCH + Duration::from_nanos(pushed.profile.begin_unix_ns());
            let request = match destination.kind {
                StoreKind::Pyroscope => pyroscope_request(&[pushed]),
                StoreKind::Parca => parca_request(&[pushed]),
                StoreKind::Otlp => otlp_request(&[pushed]),
            };
            destination.add(request, begin);
        }
        Ok(())
    }

    /// Processes that are perhaps not what they say they are.
    fn doubtful(&mut self, tables: &Tables, profile: &Profile) -> HashSet<usize> {
        let (mut claims, mut places) = (Vec::new(), Vec::new());
        let processes = tables.processes.iter().zip(&profile.processes);
        // One that has ended has no rival any more.
        let living = processes
            .enumerate()
            .filter(|(_, (_, shown))| shown.ended.is_none());
        for (at, (process, shown)) in living {
            let fsid = if shown.fsid.is_empty() {
                self.ceph.of(process).fsid
            } else {
                Some(shown.fsid.clone())
            };
            if let Some(claim) = Claim::of(process, fsid.as_deref()) {
                claims.push(claim);
                places.push(at);
            }
        }
        let (doubtful, remarks) = self.claimed.doubtful(&claims);
        for remark in remarks {
            log::sparingly(&mut self.doubts, Level::Warning, &remark);
        }
        let doubtful = places.into_iter().zip(doubtful);
        doubtful.filter_map(|(at, is)| is.then_some(at)).collect()
    }

    /// Those of each process.
    fn profiles(
        &mut self,
        profile: &Profile,
        tables: &Tables,
        seen: &BTreeMap<usize, u64>,
    ) -> Vec<PushedProfile> {
        let of_processes = StoreProfiles::new(profile, self.plan.idle);
        let kind = self
            .destination
            .as_ref()
            .map(|destination| destination.kind);
        let limits = StoreLimits::PYROSCOPE;
        let end_ns = profile.header.started_unix_ns + profile.time.end.0;
        let mut all = Vec::new();
        self.ceph.keep(&tables.processes);
        let doubtful = self.doubtful(tables, profile);
        let processes = tables.processes.iter().zip(&profile.processes);
        for (at, (process, shown)) in processes.enumerate() {
            let CephFacts { version, fsid } = self.ceph.of(process);
            let looked_up = [("version", version), ("fsid", fsid)];
            let mut labels = labels(process, shown, &looked_up, &self.plan.args.store.label);
            // That of the process, not of those that stand for several, which have their number.
            let mut name = process_title(&process.comm, &process.cmdline);
            if doubtful.contains(&at) {
                labels = merged(&labels, vec![doubtful_label(process.pid)]);
                // Its profiles say nothing of the age of the other's.
                name = format!("{name} (pid {})", process.pid);
            }
            let (n_before, mut n_folded) = (all.len(), 0);
            let made = match kind {
                // It shows no labels of samples.
                Some(StoreKind::Parca) => of_processes.split(at, limits),
                _ => {
                    let whole = of_processes.of(at, limits).into_iter();
                    whole.map(|whole| (Labels::new(), whole)).collect()
                }
            };
            for (more, of_process) in made {
                n_folded += of_process.n_folded as u64;
                all.push(PushedProfile {
                    labels: merged(&labels, more),
                    profile: of_process,
                    id: uuid(),
                });
            }
            // Not before: what is above waits for files of the process.
            let mut figures = self.figures.lock();
            if self.plan.args.check {
                let made = all.iter().skip(n_before).map(|pushed| &pushed.profile);
                let measured = made.map(|profile| ProfileSize {
                    n_series: profile.n_series(),
                    n_samples: profile.n_samples(),
                    n_bytes: profile.len_bytes(),
                });
                let measured = measured.map(|measured| (shown.title.clone(), measured));
                figures.measured.extend(measured);
            }
            figures.n_folded += n_folded;
            figures.target(&name).n_observations += seen.get(&at).copied().unwrap_or(0);
            if all.len() > n_before {
                figures.n_profiles += (all.len() - n_before) as u64;
                figures.target(&name).last_ns = end_ns;
            }
        }
        all
    }
}

/// Facts of Ceph's daemons by pid and birth, each looked up once.
#[derive(Debug, Default)]
struct Looked(HashMap<(Pid, String), CephFacts>);

impl Looked {
    /// Forgets processes that have gone.
    fn keep(&mut self, processes: &[Process]) {
        self.0.retain(|(pid, birth), _| {
            let mut all = processes.iter();
            all.any(|process| process.pid == *pid && process.birth == *birth)
        });
    }

    fn of(&mut self, process: &Process) -> CephFacts {
        if ceph_daemon(&process.comm, &process.cmdline).is_none() {
            return CephFacts::default();
        }
        let key = (process.pid, process.birth.clone());
        match self.0.entry(key) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(new) => ceph_facts(process.pid)
                .map(|facts| new.insert(facts).clone())
                .unwrap_or_default(),
        }
    }
}

/// How much of an interval the ring does not hold, which begins at `held`; times in ns.
fn lost((from, to): (u64, u64), held: u64) -> Duration {
    Duration::from_nanos(held.min(to).saturating_sub(from))
}

/// Labels of a process and those of a part of it, which count more.
fn merged(labels: &Labels, more: Labels) -> Labels {
    let all = labels.iter().cloned().chain(more);
    all.collect::<BTreeMap<_, _>>().into_iter().collect()
}

/// A random UUID (RFC 9562, version 4).
fn uuid() -> String {
    let bits = fastrand::u128(..) & !(0xf << 76 | 0x3 << 62) | (4 << 76 | 2 << 62);
    let hex = format!("{bits:032x}");
    [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ]
    .join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that no more is lost of an interval than it has, however late it comes.
    #[test]
    fn lost_at_most_all() {
        let lost = |held| lost((100, 130), held).as_nanos();
        assert_eq!([0, 100, 110, 130, 900].map(lost), [0, 0, 10, 30, 30]);
    }
}
