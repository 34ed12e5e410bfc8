//! A view made ready for one profile: a row to its path in a tree.

use std::collections::HashMap;

use crate::filter::FunctionFilter;
use crate::label::Label;
use crate::model::{FunctionId, Profile, ProfileStack, Row};
use crate::view::{Relation, View};

/// A view, and what its filters say of each function of a profile.
#[derive(Debug)]
pub(crate) struct Prepared<'a> {
    pub(crate) profile: &'a Profile,
    pub(crate) view: &'a View,
    focus: Option<Vec<bool>>,
    hide: Option<Vec<bool>>,
    around: Option<Vec<bool>>,
    /// The waits that have a file.
    files: HashMap<u32, u32>,
}

impl<'a> Prepared<'a> {
    pub(crate) fn new(profile: &'a Profile, view: &'a View) -> Self {
        let names = || profile.functions.iter().map(|f| f.name.as_str());
        let test = |filter: &FunctionFilter| names().map(|name| filter.matches(name)).collect();
        let around = view.around.as_ref().map(|around| &around.function);
        Self {
            profile,
            view,
            focus: view.focus.as_ref().map(test),
            hide: view.hide.as_ref().map(test),
            around: around.map(|f| names().map(|name| f.matches(name)).collect()),
            files: files_of(profile, view),
        }
    }

    /// The stack of a row and the part of its frames (root first) that the view is about, hidden
    /// ones too. `None` when the view does not show the row.
    pub(crate) fn frames(&self, row: &Row) -> Option<(Option<&'a ProfileStack>, &'a [FunctionId])> {
        if !self.view.shows(row.state) {
            return None;
        }
        let stack = row.stack.map(|id| &self.profile.stacks[id.0 as usize]);
        let frames = stack.map_or(&[][..], |s| s.frames.as_slice());
        if let Some(focus) = &self.focus
            && !frames.iter().any(|f| focus[f.0 as usize])
        {
            return None;
        }
        let Some(around) = &self.around else {
            return Some((stack, frames));
        };
        let at = frames.iter().position(|f| around[f.0 as usize])?;
        match self.view.around.as_ref()?.relation {
            Relation::CallersOf => Some((stack, &frames[..=at])),
            Relation::CalleesOf => Some((stack, &frames[at..])),
        }
    }

    /// Whether frames of a function are left out.
    pub(crate) fn hides(&self, function: FunctionId) -> bool {
        (self.hide.as_ref()).is_some_and(|hide| hide[function.0 as usize])
    }

    /// The labels of a row's path, from the tree's root on; false when the view does not show it.
    pub(crate) fn path(&self, row: &Row, path: &mut Vec<Label>) -> bool {
        path.clear();
        let Some((stack, frames)) = self.frames(row) else {
            return false;
        };
        match stack {
            None => path.push(Label::NotSampled(row.state)),
            Some(stack) => {
                let from_root = frames.len() == stack.frames.len()
                    || self.view.around.as_ref().map(|a| a.relation) == Some(Relation::CallersOf);
                if from_root && stack.end.is_truncated() || stack.frames.is_empty() {
                    path.push(Label::End(stack.end));
                }
                let shown = frames.iter().filter(|&&f| !self.hides(f));
                path.extend(shown.map(|&f| Label::Function(f)));
                if path.is_empty() {
                    path.push(Label::Hidden);
                }
            }
        }
        let file = row.wait.and_then(|wait| self.files.get(&wait));
        path.extend(file.copied().map(Label::File));
        if self.view.state_frames {
            path.push(Label::State(row.state));
        }
        if self.view.is_leaf_first() {
            path.reverse();
        }
        true
    }
}

/// The waits that have a file, each with the first wait by the same call for the same file: they
/// may differ in what is not shown.
fn files_of(profile: &Profile, view: &View) -> HashMap<u32, u32> {
    let mut same = HashMap::new();
    let waits = (0..).zip(&profile.waits).filter(|_| view.files);
    waits
        .filter_map(|(at, wait)| {
            let fd = wait.fd.as_ref()?;
            Some((at, *same.entry((wait.syscall, fd)).or_insert(at)))
        })
        .collect()
}

/// The rows, thread by thread.
pub(crate) fn by_thread(profile: &Profile) -> Vec<&Row> {
    let mut rows: Vec<&Row> = profile.rows.iter().collect();
    rows.sort_by_key(|row| row.thread);
    rows
}

/// Whether any time of a profile passes the filters of a view.
pub fn shows_any(profile: &Profile, view: &View) -> bool {
    let prepared = Prepared::new(profile, view);
    profile.rows.iter().any(|row| {
        row.weight > 0
            && view.threads.matches(profile, &profile.threads[row.thread])
            && prepared.frames(row).is_some()
    })
}

/// Calls `each` with every row that `view` shows and the frames that it shows of the row's stack,
/// root first, thread by thread; the view's grouping and direction do not matter.
pub fn for_each_shown<'p>(
    profile: &'p Profile,
    view: &View,
    mut each: impl FnMut(&'p Row, &[FunctionId]),
) {
    let prepared = Prepared::new(profile, view);
    let threads = profile.threads.iter();
    let threads: Vec<bool> = threads.map(|t| view.threads.matches(profile, t)).collect();
    let mut shown = Vec::new();
    for row in by_thread(profile) {
        if row.weight > 0
            && threads[row.thread]
            && let Some((_, frames)) = prepared.frames(row)
        {
            shown.clear();
            shown.extend(frames.iter().copied().filter(|&f| !prepared.hides(f)));
            each(row, &shown);
        }
    }
}
