//! Both profiles to sums by line.

use std::collections::HashMap;

use indexmap::{IndexMap, IndexSet};

use super::class::daemon_class;
use super::model::DiffOptions;
use crate::categories::Work;
use crate::model::{FunctionId, Profile, ProfileStackId, Row, State};
use crate::prepared::{by_thread, for_each_shown};
use crate::weight_sum::WeightSum;
use crate::{Course, Estimator, View, without_numbers};

/// Lines by what they are about, in the order of first appearance: sums before and after.
pub(crate) type Lines<K> = IndexMap<K, [WeightSum; 2]>;

/// A name of either side, as an index into [`Sums::names`].
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Name(u32);

/// All lines of both sides.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    names: IndexSet<String>,
    /// By class: CPU time.
    pub(crate) classes: Lines<Name>,
    /// By kind of work: CPU time.
    pub(crate) categories: Lines<Name>,
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
    pub(crate) fn name(&self, name: Name) -> &str {
        &self.names[name.0 as usize]
    }

    fn intern(&mut self, name: &str) -> Name {
        let known = self.names.get_index_of(name);
        Name(known.unwrap_or_else(|| self.names.insert_full(name.to_owned()).0) as u32)
    }

    /// Adds a profile as one side. Functions without a name of the modules in `rebuilt` are one
    /// function a module: their addresses say nothing about the other side's.
    pub(crate) fn add(
        &mut self,
        side: usize,
        profile: &Profile,
        options: &DiffOptions<'_>,
        estimator: Option<&Estimator>,
        rebuilt: &[String],
    ) {
        let view = &options.view;
        let work = options
            .categories
            .map(|categories| Work::new(profile, categories));
        let functions = profile.functions.iter();
        let functions = functions.map(|f| match !f.resolved && rebuilt.contains(&f.module) {
            true => self.intern(&format!("{}+?", f.module)),
            false => self.intern(&f.name),
        });
        let functions: Vec<Name> = functions.collect();
        // A lone thread's pool keeps its number.
        let pools = profile.pools.iter();
        let pools = pools.map(|pool| self.intern(&without_numbers(&pool.name)));
        let pools: Vec<Name> = pools.collect();
        let not_sampled =
            State::ALL.map(|state| self.intern(&format!("[{}, not sampled]", state.name())));
        let truncated = self.intern("[truncated]");
        let course = |row: &Row| estimator.map_or_else(Course::default, |e| e.course(&row.slices));
        self.add_classes(side, profile, view, course);

        // By name: the last row that has it, counted from 1.
        let mut last_rows = vec![0_u64; self.names.len()];
        let mut n_rows = 0;
        // Most rows share a stack with others of their pool.
        let mut stack_lines: HashMap<(Name, Option<ProfileStackId>, State), usize> = HashMap::new();
        for_each_shown(profile, view, |row, frames: &[FunctionId]| {
            let course = course(row);
            let pool = pools[profile.threads[row.thread].pool];
            self.shown[side] = self.shown[side].saturating_add(row.weight);
            for key in [(pool, None), (pool, Some(row.state))] {
                self.pools.entry(key).or_default()[side].add(row, &course);
            }
            if let Some(work) = work.as_ref().filter(|_| row.state.is_running()) {
                let end = row.stack.map(|id| profile.stacks[id.0 as usize].end);
                let (category, _) = work.of_stack(row.state, end, frames);
                let category = self.intern(category.unwrap_or("other code"));
                self.categories.entry(category).or_default()[side].add(row, &course);
            }
            let name = |f: &FunctionId| functions[f.0 as usize];
            if let Some(leaf) = frames.last().map(name) {
                self.leaves.entry(leaf).or_default()[side].add(row, &course);
            }
            n_rows += 1;
            for function in frames.iter().rev().map(name) {
                let last = std::mem::replace(&mut last_rows[function.0 as usize], n_rows);
                if last != n_rows {
                    self.totals.entry(function).or_default()[side].add(row, &course);
                }
            }
            let line = *(stack_lines.entry((pool, row.stack, row.state))).or_insert_with(|| {
                let first = match row.stack.map(|id| profile.stacks[id.0 as usize].end) {
                    None => Some(not_sampled[row.state as usize]),
                    Some(end) => end.is_truncated().then_some(truncated),
                };
                let path = first.into_iter().chain(frames.iter().map(name)).collect();
                let line = self.stacks.entry((pool, path));
                let index = line.index();
                line.or_default();
                index
            });
            self.stacks[line][side].add(row, &course);
        });
    }

    /// CPU time of all threads that the filter chooses, whatever states and stacks are shown.
    fn add_classes(
        &mut self,
        side: usize,
        profile: &Profile,
        view: &View,
        course: impl Fn(&Row) -> Course,
    ) {
        let threads = profile.threads.iter();
        let classes = threads.map(|thread| {
            let is_shown = view.threads.matches(profile, thread);
            is_shown.then(|| self.intern(daemon_class(&thread.process_comm)))
        });
        let classes: Vec<Option<Name>> = classes.collect();
        for row in by_thread(profile) {
            if let Some(class) = classes[row.thread]
                && row.state.is_running()
            {
                self.classes.entry(class).or_default()[side].add(row, &course(row));
            }
        }
    }
}
