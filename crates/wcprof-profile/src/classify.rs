//! What the kernel says of a thread, its wait and its stack to a [`State`].
//!
//! The default table gives a state to every wait; the rules, the user's first, may then change it.

use std::collections::HashMap;

use globset::GlobSet;
use wcprof_types::{StackEnd, ThreadState, Wait};

use crate::model::KERNEL;
use crate::model::{Function, FunctionId, ProfileStackId, Reason, State};
use crate::places::{is_runtime, is_scheduler};
use crate::rules::{Mark, OfStack, Rules, StateRule};
use crate::stacks::Stacks;

/// What is to be classified.
pub(crate) struct Subject<'a> {
    pub(crate) raw: ThreadState,
    pub(crate) wait: Option<&'a Wait>,
    pub(crate) stack: Option<ProfileStackId>,
    pub(crate) stacks: &'a Stacks<'a>,
    pub(crate) comm: &'a str,
    pub(crate) pool: &'a str,
    pub(crate) process: &'a str,
}

/// Applies rules; remembers what each function and each stack matched.
pub(crate) struct Classifier<'r> {
    rules: &'r Rules,
    of_function: HashMap<FunctionId, Box<[Mark]>>,
    of_stack: HashMap<ProfileStackId, StackMarks>,
}

/// What rules ask of a stack.
#[derive(Debug, Default)]
struct StackMarks {
    marks: Marks,
    /// How far from the leaf the innermost function of the program is.
    own: Option<usize>,
    /// All functions from the leaf to that one have names.
    is_named: bool,
}

impl StackMarks {
    /// Whether they are what a rule asks for.
    fn are(&self, asked: &OfStack) -> bool {
        let depth = |mark: Mark| self.marks.get(&mark).copied();
        (self.is_named || !asked.named)
            && (asked.with).is_none_or(|(mark, leaf)| depth(mark).is_some_and(|at| at < leaf))
            // The leaf calls nothing.
            && (asked.caller).is_none_or(|mark| depth(mark).is_some_and(|at| at > 0 && self.own == Some(at)))
            && asked.without.is_none_or(|mark| depth(mark).is_none())
    }
}

/// For each mark of a stack, how far from the leaf it is first met (0 is the leaf).
type Marks = HashMap<Mark, usize>;

impl<'r> Classifier<'r> {
    pub(crate) fn new(rules: &'r Rules) -> Self {
        Self {
            rules,
            of_function: HashMap::new(),
            of_stack: HashMap::new(),
        }
    }

    /// The state, and why it is that. A wait that is idle by the default table alone, which does not
    /// know the program, has [`Reason::NoDispatchLoop`] until its pool's stacks show one. One that a rule
    /// says is [`State::PlaceUnknown`] stays that.
    pub(crate) fn state(&mut self, subject: &Subject<'_>) -> (State, Reason) {
        let is_stopped = subject.wait.is_some_and(|wait| wait.stop.is_some());
        let by_kernel = match subject.raw {
            ThreadState::OnCpu => Some(State::OnCpu),
            ThreadState::Guest => Some(State::Guest),
            ThreadState::VmExit => Some(State::VmExit),
            ThreadState::Runnable => Some(State::Runnable),
            ThreadState::StealIrq => Some(State::StealIrq),
            ThreadState::Unknown | ThreadState::Other(_) => Some(State::Unknown),
            ThreadState::Blocked => is_stopped.then_some(State::Stopped),
        };
        if let Some(state) = by_kernel {
            return (state, Reason::Kernel);
        }
        let rules = self.rules;
        let empty = StackMarks::default();
        let stack = match subject.stack {
            Some(id) => self.marks(id, subject.stacks),
            None => &empty,
        };
        let default = rules
            .defaults()
            .find(|rule| applies(rule, subject, stack, None));
        let by_default = default.map_or(State::Blocked, |rule| rule.state);
        let by_rule = rules
            .states()
            .find(|rule| applies(rule, subject, stack, Some(by_default)));
        match (by_rule, default) {
            (Some(rule), _) => (rule.state, Reason::Rule(rule.origin.clone())),
            // The kernel's own threads have known places.
            (None, Some(rule)) if rule.state == State::Idle && rule.kernel.is_none() => {
                (State::PlaceUnknown, Reason::NoDispatchLoop)
            }
            (None, Some(rule)) => (rule.state, Reason::Table(rule.origin.clone())),
            (None, None) => (by_default, Reason::NoRule),
        }
    }

    fn marks(&mut self, id: ProfileStackId, stacks: &Stacks<'_>) -> &StackMarks {
        self.of_stack.entry(id).or_insert_with(|| {
            let mut marks = Marks::new();
            let frames = stacks.get(id).map_or(&[][..], |stack| &stack.frames);
            // Whether the kernel's side is shown must not change a state.
            let n = stacks.functions.n_without_kernel(frames);
            let frames = &frames[..n.unwrap_or(frames.len())];
            for (depth, &function) in frames.iter().rev().enumerate() {
                let of_function = self.of_function.entry(function).or_insert_with(|| {
                    let function = stacks.functions.get(function);
                    function.map_or_else(Box::default, |f| self.rules.marks(&f.name, &f.module))
                });
                for &mark in of_function.iter() {
                    marks.entry(mark).or_insert(depth);
                }
            }
            let leaf_first = frames.iter().rev().map(|f| stacks.functions.get(*f));
            let (own, is_named) = own_function(leaf_first);
            StackMarks {
                marks,
                own,
                is_named,
            }
        })
    }
}

/// How far from the leaf the innermost function of the program is, and whether all functions up to it have names: what a
/// thread waits for is in these, so that without one of them nothing is known. The functions are a stack's, innermost first.
fn own_function<'f>(
    leaf_first: impl Iterator<Item = Option<&'f Function>>,
) -> (Option<usize>, bool) {
    let mut is_named = true;
    for (depth, function) in leaf_first.enumerate() {
        is_named &= function.is_some_and(|f| f.resolved);
        if !function.is_some_and(is_runtime) {
            return (Some(depth), is_named);
        }
    }
    (None, false)
}

/// Whether every condition of a rule holds. A condition that the rule does not state holds.
fn applies(
    rule: &StateRule,
    subject: &Subject<'_>,
    stack: &StackMarks,
    by_default: Option<State>,
) -> bool {
    let wait = subject.wait;
    let is_in = |set: &Option<GlobSet>, names: &[&str]| {
        let set = set.as_ref();
        set.is_none_or(|set| names.iter().any(|name| set.is_match(name)))
    };
    // What nothing explains may be a wait for work, and one in the middle of it.
    let is_default = |when: &State, state: State| {
        let is_either = matches!(when, State::Idle | State::Blocked);
        *when == state || state == State::PlaceUnknown && is_either
    };
    by_default
        .is_none_or(|state| rule.when.is_empty() || rule.when.iter().any(|w| is_default(w, state)))
        && stack.are(&rule.stack)
        && (rule.syscalls.as_ref())
            .is_none_or(|numbers| wait.is_some_and(|w| numbers.contains(&w.syscall)))
        && (rule.ops.as_ref()).is_none_or(|ops| wait.is_some_and(|w| ops.contains(&w.op)))
        && rule.fds.as_ref().is_none_or(|kinds| {
            let fd = wait.and_then(|w| w.fd.as_ref());
            fd.is_some_and(|fd| kinds.contains(&fd.kind))
        })
        && rule.kernel.as_ref().is_none_or(|set| {
            kernel_place(subject).is_some_and(|place| set.is_match(place.as_bytes()))
        })
        && is_in(&rule.pool, &[subject.comm, subject.pool])
        && is_in(&rule.process, &[subject.process])
}

/// Where in the kernel a thread without a user stack waits: from the wait, else the innermost function of its
/// stack that is not the scheduler's.
fn kernel_place<'a>(subject: &Subject<'a>) -> Option<&'a str> {
    if let Some(wait) = subject.wait
        && !wait.kernel.is_empty()
    {
        return Some(&wait.kernel);
    }
    let stack = subject.stacks.get(subject.stack?)?;
    if stack.end != StackEnd::NoUserStack {
        return None;
    }
    let functions = stack.frames.iter().rev();
    let mut functions = functions.filter_map(|f| subject.stacks.functions.get(*f));
    let function = functions.find(|f| !is_scheduler(f))?;
    (function.module == KERNEL).then_some(function.name.as_str())
}
