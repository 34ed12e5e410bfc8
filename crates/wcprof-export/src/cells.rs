//! A row of a profile to what formats that are tables say of it beside numbers: text, harmless, empty where not known.

use std::borrow::Cow;

use wcprof_profile::model::Profile;
use wcprof_profile::{Label, View, syscall_name};
use wcprof_text::terminal_name;

use crate::stacks::{Frame, Stacks, ThreadText};

/// The rows of a profile as a view shows them.
pub struct RowCells<'p> {
    profile: &'p Profile,
    stacks: Stacks<'p>,
}

impl std::fmt::Debug for RowCells<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowCells").finish_non_exhaustive()
    }
}

/// What is said of one row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cells<'a> {
    /// Whose time.
    pub thread: ThreadText<'a>,
    /// The state's name: `on-cpu`.
    pub state: &'static str,
    /// The call that the thread waits in: a name, or a number without one.
    pub syscall: Cow<'a, str>,
    /// The file or socket that it waits for.
    pub file: Cow<'a, str>,
    /// The innermost function that the view shows.
    pub function: Cow<'a, str>,
    /// Its module.
    pub module: Cow<'a, str>,
    /// Its source file and line, which is 0 when not known.
    pub source: Option<(Cow<'a, str>, u32)>,
    /// Root first, with what stands in for functions; after its group if the view groups.
    pub stack: Vec<Cow<'a, str>>,
}

impl<'p> RowCells<'p> {
    /// Prepares a profile for a view. The direction of the view does not matter.
    pub fn new(profile: &'p Profile, view: &View) -> Self {
        Self {
            profile,
            stacks: Stacks::new(profile, view),
        }
    }

    /// The cells of a row; `None` for one that is not shown.
    pub fn of(&self, row: usize) -> Option<Cells<'_>> {
        let (profile, stacks) = (self.profile, &self.stacks);
        let frames = stacks.frames(row)?;
        let row = profile.rows.get(row)?;
        let thread = profile.threads.get(row.thread)?;
        let wait = row.wait.and_then(|wait| profile.waits.get(wait as usize));
        let fd = wait.and_then(|wait| wait.fd.as_ref());
        // What follows the innermost function is the state.
        let is_function = |f: &&Frame| matches!(f, Frame::Label(Label::Function(_)));
        let leaf = frames.iter().rfind(is_function).copied();
        let image = leaf.and_then(|leaf| stacks.image(leaf));
        Some(Cells {
            thread: stacks.thread_text(thread),
            state: row.state.name(),
            syscall: match wait.and_then(|wait| wait.syscall) {
                Some(n) => syscall_name(n).map_or_else(|| n.to_string().into(), Cow::from),
                None => Cow::default(),
            },
            file: terminal_name(fd.map_or("", |fd| &fd.path)),
            function: leaf.map_or_else(Cow::default, |leaf| stacks.text(leaf)),
            module: image.map_or_else(Cow::default, |image| stacks.image_text(image).name),
            source: leaf.and_then(|leaf| stacks.source(leaf)),
            stack: frames.iter().map(|frame| stacks.text(*frame)).collect(),
        })
    }
}
