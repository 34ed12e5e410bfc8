//! One process of a profile to what a profile store takes of an interval: pprof with few labels, within the store's
//! limits.
//!
//! A store adds up what it gets for months. So samples of threads of one pool are one, idle time has no stacks, and
//! stacks with little time are `[other]`: half a percent of each state's time, and more only where the store's limits ask for it.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::fmt;

use indexmap::IndexMap;
use prost::Message;
use wcprof_profile::model::{Profile, State};
use wcprof_profile::{GroupBy, View};
use wcprof_text::terminal_name;
use wcprof_trace::FastState;
use wcprof_types::Pid;

use super::labels::{Labels, label_value};
use crate::pprof::proto;
use crate::pprof::tables::{Tables, number};
use crate::stacks::{Frame, Stacks};

const IDLE: Frame = Frame::Stand("[idle]");
const OTHER: Frame = Frame::Stand("[other]");

/// Of so many parts of a state's time the stacks with least time may have one together, and be `[other]` whatever a store's limits.
const RARE_PART: u64 = 200;

/// Samples that are `[other]` and have their pool.
const MAX_OTHERS: usize = 900;

/// The name of the series: stores call time on a CPU so, and have the wall-clock time as its second type. Both have the
/// same stacks and names, which are most of the bytes.
pub(super) const SERIES: &str = "process_cpu";

/// What a store takes at most.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct StoreLimits {
    /// Samples of a profile.
    pub n_samples: usize,
    /// Bytes of a profile that is not compressed.
    pub n_bytes: usize,
}

impl StoreLimits {
    /// Below those of Grafana Pyroscope 2 as it is delivered: 16 000 samples a profile (`max_profile_stacktrace_samples`),
    /// and half of the 2 MB that a tenant may send at once (`ingestion_burst_size_mb`): a larger profile is never taken
    /// from one of two agents that share a tenant.
    pub const PYROSCOPE: Self = Self {
        n_samples: 15_000,
        n_bytes: 1_000_000,
    };
}

/// A process's part of a profile, for a store.
#[derive(Clone, PartialEq, Debug)]
pub struct StoreProfile {
    /// Samples have two values: time on a CPU, and wall-clock time, ns.
    pub(super) message: proto::Profile,
    /// `None` where it stands for several processes.
    pub(super) pid: Option<Pid>,
    /// The process's name.
    pub(super) comm: String,
    /// Stacks that are `[other]`, and their time, ns.
    pub n_folded: usize,
    /// See `n_folded`.
    pub folded_ns: u64,
}

impl StoreProfile {
    /// Samples, those that are `[other]` among them.
    pub fn n_samples(&self) -> usize {
        self.message.sample.len()
    }

    /// Series that Pyroscope makes of it: one for each type of value and each set of labels that samples have.
    pub fn n_series(&self) -> usize {
        let samples = self.message.sample.iter();
        let series = samples.flat_map(|sample| {
            let labels: Vec<_> = sample
                .label
                .iter()
                .map(|label| (label.key, label.str))
                .collect();
            let kinds = sample
                .value
                .iter()
                .enumerate()
                .filter(|(_, value)| **value != 0);
            kinds.map(move |(kind, _)| (kind, labels.clone()))
        });
        series.collect::<HashSet<_>>().len()
    }

    /// Bytes of the message.
    pub fn len_bytes(&self) -> usize {
        self.message.encoded_len()
    }

    /// When it begins, ns since 1970.
    pub fn begin_unix_ns(&self) -> u64 {
        self.message.time_nanos.try_into().unwrap_or(0)
    }

    /// A message of pprof, not compressed: requests are compressed whole.
    pub fn to_pprof(&self) -> Vec<u8> {
        self.message.encode_to_vec()
    }
}

/// Time of a stack (root first) of a pool in a state, ns.
type Sample<'p> = ((Vec<Frame>, State, &'p str), u64);

/// Makes the profiles of single processes.
pub struct StoreProfiles<'p> {
    profile: &'p Profile,
    stacks: Stacks<'p>,
    /// Whether idle time is part of it, as one sample for each pool.
    idle: bool,
    /// By process: indices of its rows.
    rows: Vec<Vec<usize>>,
}

impl fmt::Debug for StoreProfiles<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreProfiles").finish_non_exhaustive()
    }
}

impl<'p> StoreProfiles<'p> {
    /// Of the processes of a profile, with their idle time or without it.
    pub fn new(profile: &'p Profile, idle: bool) -> Self {
        let view = View {
            by: GroupBy::All,
            idle: true,
            min_percent: 0.0,
            ..View::default()
        };
        let mut rows = vec![Vec::new(); profile.processes.len()];
        for (at, row) in profile.rows.iter().enumerate() {
            if let Some(of_process) = rows.get_mut(profile.threads[row.thread].process) {
                of_process.push(at);
            }
        }
        Self {
            profile,
            stacks: Stacks::new(profile, &view),
            idle,
            rows,
        }
    }

    /// The profile of a process: index into [`Profile::processes`]. `None` where it has no such time.
    pub fn of(&self, process: usize, limits: StoreLimits) -> Option<StoreProfile> {
        let samples = self.samples(process);
        (!samples.is_empty()).then(|| self.within(process, samples, limits))
    }

    /// A profile for each state and pool of a process, for stores that show no labels of samples: the labels that each has
    /// beside the process's.
    pub fn split(&self, process: usize, limits: StoreLimits) -> Vec<(Labels, StoreProfile)> {
        let mut parts: IndexMap<(State, &str), Vec<Sample<'p>>> = IndexMap::new();
        for sample in self.samples(process) {
            let ((_, state, pool), _) = &sample;
            parts.entry((*state, *pool)).or_default().push(sample);
        }
        let parts = parts.into_iter().map(|((state, pool), samples)| {
            let state = ("state".to_owned(), state.name().to_owned());
            let pool = ("pool".to_owned(), label_value(pool));
            (vec![pool, state], self.within(process, samples, limits))
        });
        parts.collect()
    }

    /// These samples of a process, of which there is one at least.
    fn within(
        &self,
        process: usize,
        samples: Vec<Sample<'p>>,
        limits: StoreLimits,
    ) -> StoreProfile {
        let (samples, n_frequent) = rare_last(samples);
        let mut n_kept = limits.n_samples.min(n_frequent);
        loop {
            let (kept, folded) = fold(&samples, n_kept);
            let message = message(self.profile, &self.stacks, kept);
            if message.encoded_len() > limits.n_bytes && n_kept > 0 {
                // Strings are shared: half of the stacks may take more than half of the bytes. A single one may take
                // more than there are.
                n_kept /= 2;
                continue;
            }
            let of = self.profile.processes.get(process);
            return StoreProfile {
                pid: of.filter(|of| !of.is_folded).map(|of| of.pid),
                comm: of.map_or_else(String::new, |of| of.comm.clone()),
                message,
                n_folded: folded.0,
                folded_ns: folded.1,
            };
        }
    }

    /// The samples of a process, most time first.
    fn samples(&self, process: usize) -> Vec<Sample<'p>> {
        let profile = self.profile;
        // In the order of the rows, so that each run gives the same.
        let mut sums: IndexMap<(Vec<Frame>, State, &str), u64, FastState> = IndexMap::default();
        for &at in self.rows.get(process).into_iter().flatten() {
            let row = &profile.rows[at];
            if row.weight == 0 || row.state.is_idle() && !self.idle {
                continue;
            }
            let frames = match row.state.is_idle() {
                true => Some(vec![IDLE]),
                false => self.stacks.frames(at),
            };
            let pool = profile.pools.get(profile.threads[row.thread].pool);
            let pool = pool.map_or("", |pool| pool.name.as_str());
            if let Some(frames) = frames {
                let sum = sums.entry((frames, row.state, pool)).or_default();
                *sum = sum.saturating_add(row.weight);
            }
        }
        let mut samples: Vec<Sample<'_>> = sums.into_iter().collect();
        samples.sort_by(|(a, of_a), (b, of_b)| {
            (Reverse(of_a), a.2, a.1).cmp(&(Reverse(of_b), b.2, b.1))
        });
        samples
    }
}

/// Puts those samples last, in their order otherwise, that have together at most one part in [`RARE_PART`] of the time of their state, idle ones apart; how many
/// there are before. Samples begin with most time.
fn rare_last(samples: Vec<Sample<'_>>) -> (Vec<Sample<'_>>, usize) {
    let mut rooms: HashMap<State, u64> = HashMap::new();
    for ((_, state, _), ns) in &samples {
        let room = rooms.entry(*state).or_default();
        *room = room.saturating_add(*ns);
    }
    rooms.values_mut().for_each(|room| *room /= RARE_PART);
    let (mut all, mut rare) = (Vec::new(), Vec::new());
    for sample in samples.into_iter().rev() {
        let ((_, state, _), ns) = &sample;
        // Idle time has no stacks.
        let room = rooms.get_mut(state).filter(|_| !state.is_idle());
        match room.filter(|room| **room >= *ns) {
            Some(room) => {
                *room -= ns;
                rare.push(sample);
            }
            None => all.push(sample),
        }
    }
    let n_frequent = all.len();
    all.reverse();
    all.extend(rare.into_iter().rev());
    (all, n_frequent)
}

/// Keeps about `n` samples with most time. Others are one for each state and pool, of pools beyond [`MAX_OTHERS`] for each
/// state; how many they are, and their time.
fn fold<'p>(samples: &[Sample<'p>], n: usize) -> (Vec<Sample<'p>>, (usize, u64)) {
    let mut kept: Vec<Sample<'_>> = samples.iter().take(n).cloned().collect();
    let rest = samples.get(n..).unwrap_or_default();
    let mut others: IndexMap<(Vec<Frame>, State, &str), u64> = IndexMap::new();
    for ((_, state, pool), ns) in rest {
        let mut key = (vec![OTHER], *state, *pool);
        if others.len() >= MAX_OTHERS && !others.contains_key(&key) {
            key.2 = "";
        }
        let sum = others.entry(key).or_default();
        *sum = sum.saturating_add(*ns);
    }
    kept.extend(others);
    let all = rest.iter().map(|(_, ns)| *ns);
    (kept, (rest.len(), all.fold(0, u64::saturating_add)))
}

fn message(profile: &Profile, stacks: &Stacks<'_>, samples: Vec<Sample<'_>>) -> proto::Profile {
    let mut tables = Tables::new(stacks);
    let [cpu, wall] = ["cpu", "wall"].map(|kind| tables.value_type(kind, "nanoseconds"));
    let sample = samples.into_iter().map(|((frames, state, pool), ns)| {
        let texts = [("state", state.name()), ("pool", &*terminal_name(pool))];
        let texts = texts.into_iter().filter(|(_, text)| !text.is_empty());
        proto::Sample {
            location_id: tables.location_ids(&frames),
            value: vec![if state.is_running() { number(ns) } else { 0 }, number(ns)],
            label: texts.map(|(key, text)| tables.label(key, text)).collect(),
        }
    });
    let sample = sample.collect();
    proto::Profile {
        sample_type: vec![cpu, wall],
        sample,
        default_sample_type: wall.r#type,
        ..tables.into_message(profile, cpu)
    }
}
