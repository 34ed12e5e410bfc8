//! What a node of a call tree stands for.

use std::borrow::Cow;

use wcprof_types::{FdKind, StackEnd, Wait};

use crate::model::{Function, FunctionId, Profile, State};
use crate::syscalls::syscall_name;

/// A function, or a frame that stands in for something that is not one.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Label {
    /// A function.
    Function(FunctionId),
    /// The state, as a frame: `[lock]`.
    State(State),
    /// Frames are missing at the root side: `[truncated: no unwind info]`; or there are none at
    /// all: `[no user stack]`.
    End(StackEnd),
    /// Time without a stack: `[on-cpu, not sampled]`.
    NotSampled(State),
    /// All frames of the stack are hidden by the view: `[hidden]`.
    Hidden,
    /// The file or socket of a wait, with the call, as a frame: `[fdatasync: /var/x]`. Index into
    /// [`Profile::waits`].
    File(u32),
    /// What was pruned here, as one node: `[below 0.5%]`.
    Below,
}

impl Label {
    /// The function, if it is one.
    pub fn function<'p>(&self, profile: &'p Profile) -> Option<&'p Function> {
        match self {
            Self::Function(id) => Some(&profile.functions[id.0 as usize]),
            _ => None,
        }
    }

    /// The frame's text. `min_percent` is the limit that [`Label::Below`] names. The text comes
    /// from the target: escape it for its destination.
    pub fn text<'p>(&self, profile: &'p Profile, min_percent: f64) -> Cow<'p, str> {
        match self {
            Self::Function(id) => {
                let function = &profile.functions[id.0 as usize];
                match function.place() {
                    Some(place) => Cow::Owned(format!("{} ({place})", function.shown_name())),
                    None => Cow::Borrowed(function.shown_name()),
                }
            }
            Self::State(state) => Cow::Borrowed(state.frame()),
            Self::End(end) if end.is_truncated() => {
                Cow::Owned(format!("[truncated: {}]", end.reason()))
            }
            Self::End(StackEnd::NoUserStack) => Cow::Borrowed("[no user stack]"),
            Self::End(_) => Cow::Borrowed("[no frames]"),
            // Stolen time never has a stack: the state says it all.
            Self::NotSampled(State::StealIrq) => Cow::Borrowed(State::StealIrq.frame()),
            Self::NotSampled(state) => Cow::Owned(format!("[{}, not sampled]", state.name())),
            Self::Hidden => Cow::Borrowed("[hidden]"),
            Self::File(wait) => {
                let text = file_text(&profile.waits[*wait as usize], ": ");
                Cow::Owned(format!("[{text}]"))
            }
            Self::Below => Cow::Owned(format!("[below {min_percent}%]")),
        }
    }
}

/// `fdatasync on /var/lib/x`: the call of a wait and its file, with `between` between them. The
/// text comes from the target: escape it for its destination.
pub fn file_text(wait: &Wait, between: &str) -> String {
    let call = match wait.syscall.map(|number| (number, syscall_name(number))) {
        Some((_, Some(name))) => name.to_owned(),
        Some((number, None)) => format!("syscall {number}"),
        None => "page fault".to_owned(),
    };
    let file = match &wait.fd {
        Some(fd) if !fd.path.is_empty() => fd.path.as_str(),
        Some(fd) if fd.kind == FdKind::Socket => "a socket",
        Some(fd) if fd.kind == FdKind::Pipe => "a pipe",
        Some(fd) if fd.kind == FdKind::Anon => "an anonymous file",
        Some(fd) if fd.kind != FdKind::Unknown => "an unknown file",
        _ => "a file that could not be read",
    };
    format!("{call}{between}{file}")
}
