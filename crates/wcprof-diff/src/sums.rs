//! Both profiles to sums by line.

use std::collections::HashMap;
use std::hash::Hash;

use wcprof_profile::model::{FunctionId, Profile, State};
use wcprof_profile::{Course, Estimator, View, for_each_shown, without_numbers};

use crate::class::daemon_class;

/// Time of a line on one side.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sum {
    pub(crate) weight: u64,
    pub(crate) n_samples: u64,
    pub(crate) course: Course,
    /// Threads that it is the time of, about.
    pub(crate) n_threads: u64,
    last_thread: Option<usize>,
}

impl Sum {
    fn add(&mut self, thread: usize, weight: u64, n_samples: u64, course: &Course) {
        self.weight = self.weight.saturating_add(weight);
        self.n_samples = self.n_samples.saturating_add(n_samples);
        self.course.add(course);
        if self.last_thread != Some(thread) {
            self.last_thread = Some(thread);
            self.n_threads += 1;
        }
    }
}

/// Lines by what they are about, in the order of first appearance.
#[derive(Debug)]
pub(crate) struct Lines<K> {
    index: HashMap<K, usize>,
    pub(crate) list: Vec<(K, [Sum; 2])>,
}

impl<K: Hash + Eq + Clone> Lines<K> {
    fn new() -> Self {
        Self {
            index: HashMap::new(),
            list: Vec::new(),
        }
    }

    fn at(&mut self, key: K) -> usize {
        *self.index.entry(key).or_insert_with_key(|key| {
            self.list.push((key.clone(), Default::default()));
            self.list.len() - 1
        })
    }

    fn get(&mut self, key: K, side: usize) -> &mut Sum {
        let at = self.at(key);
        &mut self.list[at].1[side]
    }
}

/// A name of either side, as an index into [`Sums::names`].
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Name(u32);

/// All lines of both sides.
#[derive(Debug)]
pub(crate) struct Sums {
    names: Vec<String>,
    ids: HashMap<String, Name>,
    /// By class: CPU time.
    pub(crate) classes: Lines<Name>,
    /// By pool; and by pool and state.
    pub(crate) pools: Lines<(Name, Option<State>)>,
    pub(crate) leaves: Lines<Name>,
    pub(crate) totals: Lines<Name>,
    /// By pool and frames, root first.
    pub(crate) stacks: Lines<(Name, Box<[Name]>)>,
    /// Time shown of each side, ns.
    pub(crate) shown: [u64; 2],
}

impl Sums {
    pub(crate) fn new() -> Self {
        Self {
            names: Vec::new(),
            ids: HashMap::new(),
            classes: Lines::new(),
            pools: Lines::new(),
            leaves: Lines::new(),
            totals: Lines::new(),
            stacks: Lines::new(),
            shown: [0; 2],
        }
    }

    pub(crate) fn name(&self, name: Name) -> &str {
        self.names.get(name.0 as usize).map_or("", String::as_str)
    }

    fn intern(&mut self, name: &str) -> Name {
        if let Some(&id) = self.ids.get(name) {
            return id;
        }
        let id = Name(self.names.len() as u32);
        self.names.push(name.to_owned());
        self.ids.insert(name.to_owned(), id);
        id
    }

    /// Adds a profile as one side. Functions without a name of the modules in `rebuilt` are one
    /// function a module: their addresses say nothing about the other side's.
    pub(crate) fn add(
        &mut self,
        side: usize,
        profile: &Profile,
        view: &View,
        estimator: Option<&Estimator>,
        rebuilt: &[String],
    ) {
        let functions: Vec<Name> = profile
            .functions
            .iter()
            .map(|f| match !f.resolved && rebuilt.contains(&f.module) {
                true => self.intern(&format!("{}+?", f.module)),
                false => self.intern(&f.name),
            })
            .collect();
        // A lone thread's pool keeps its number.
        let pools: Vec<Name> = profile
            .pools
            .iter()
            .map(|pool| self.intern(&without_numbers(&pool.name)))
            .collect();
        let not_sampled: Vec<Name> = State::ALL
            .iter()
            .map(|state| self.intern(&format!("[{}, not sampled]", state.name())))
            .collect();
        let truncated = self.intern("[truncated]");
        let unknown = self.intern("");
        self.add_classes(side, profile, view, estimator);

        let mut seen: Vec<Name> = Vec::new();
        // Most rows share a stack with others of their pool.
        let mut stack_lines: HashMap<(Name, Option<u32>, State), usize> = HashMap::new();
        for_each_shown(profile, view, |row, frames: &[FunctionId]| {
            let course = estimator.map_or_else(Course::default, |e| e.course(&row.slices));
            let thread = profile.threads.get(row.thread);
            let pool = thread
                .and_then(|t| pools.get(t.pool))
                .copied()
                .unwrap_or(unknown);
            let (weight, n) = (row.weight, row.n_samples);
            self.shown[side] = self.shown[side].saturating_add(weight);
            for key in [(pool, None), (pool, Some(row.state))] {
                self.pools
                    .get(key, side)
                    .add(row.thread, weight, n, &course);
            }
            let name = |f: &FunctionId| functions.get(f.0 as usize).copied().unwrap_or(unknown);
            let stack = row.stack.and_then(|id| profile.stacks.get(id.0 as usize));
            seen.clear();
            for (depth, function) in frames.iter().rev().map(name).enumerate() {
                if depth == 0 {
                    let sum = self.leaves.get(function, side);
                    sum.add(row.thread, weight, n, &course);
                }
                // Stacks are short, and recursion is rare.
                if !seen.contains(&function) {
                    seen.push(function);
                    let sum = self.totals.get(function, side);
                    sum.add(row.thread, weight, n, &course);
                }
            }
            let at = *stack_lines
                .entry((pool, row.stack.map(|id| id.0), row.state))
                .or_insert_with(|| {
                    let mut path: Vec<Name> = Vec::with_capacity(frames.len() + 1);
                    match stack {
                        None => path.push(not_sampled[row.state as usize]),
                        Some(stack) if stack.end.is_truncated() => path.push(truncated),
                        Some(_) => {}
                    }
                    path.extend(frames.iter().map(name));
                    self.stacks.at((pool, path.into()))
                });
            self.stacks.list[at].1[side].add(row.thread, weight, n, &course);
        });
    }

    /// CPU time of all threads that the filter chooses, whatever states and stacks are shown.
    fn add_classes(
        &mut self,
        side: usize,
        profile: &Profile,
        view: &View,
        estimator: Option<&Estimator>,
    ) {
        let classes: Vec<Option<Name>> = profile
            .threads
            .iter()
            .map(|thread| {
                let shown = view.threads.matches(profile, thread);
                shown.then(|| self.intern(daemon_class(&thread.process_comm)))
            })
            .collect();
        for row in &profile.rows {
            let Some(&Some(class)) = classes.get(row.thread) else {
                continue;
            };
            if matches!(row.state, State::OnCpu | State::Guest) {
                let course = estimator.map_or_else(Course::default, |e| e.course(&row.slices));
                let sum = self.classes.get(class, side);
                sum.add(row.thread, row.weight, row.n_samples, &course);
            }
        }
    }
}
