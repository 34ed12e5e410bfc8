//! A row to what its time is about, besides its state: a kind of work, or a lock.

use crate::categories::Work;
use crate::model::{Profile, Row, State};
use crate::places::is_runtime;
use crate::rules::Categories;
use crate::view::without_arguments;

/// What the time of a row is about.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Subject<'a> {
    /// Time on a CPU: the kind of work, `None` for what no rule covers.
    Work(Option<&'a str>),
    /// A wait for a lock: the innermost function of the program, without arguments. Not escaped.
    Lock(&'a str),
}

/// The subjects of a profile's rows.
#[derive(Debug)]
pub struct Subjects<'a> {
    profile: &'a Profile,
    work: Work<'a>,
}

impl<'a> Subjects<'a> {
    /// Functions of the profile must have their full names: the rules are written for these.
    pub fn new(profile: &'a Profile, categories: &'a Categories) -> Self {
        Self {
            profile,
            work: Work::new(profile, categories),
        }
    }

    /// `None` for other states, and where no stack says it.
    pub fn of(&self, row: &Row) -> Option<Subject<'a>> {
        let profile = self.profile;
        let stack = row.stack.and_then(|id| profile.stacks.get(id.0 as usize));
        let frames = stack.map_or(&[][..], |stack| &stack.frames);
        match row.state {
            state if state.is_running() => {
                let end = stack.map(|stack| stack.end);
                let (work, _) = self.work.of_stack(state, end, frames);
                Some(Subject::Work(work))
            }
            State::Lock => {
                let function = profile.leaf_first(row).find(|f| !is_runtime(f))?;
                Some(Subject::Lock(without_arguments(&function.name)))
            }
            _ => None,
        }
    }
}
