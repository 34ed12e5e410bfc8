//! Tests stacks and waits against a rule's patterns.
//!
//! An expression is run once for each function of the profile; stacks are then compared by bit.

use std::cell::LazyCell;
use std::collections::HashMap;

use wcprof_profile::model::{FunctionId, Profile, ProfileStack, Row};
use wcprof_profile::{KERNEL, NameSet};
use wcprof_types::StackEnd;
use wildmatch::WildMatch;

use crate::rule::{FrameTest, Pattern, Rule, Show};

/// Functions without a name in a row that lock functions may call each other by.
const MAX_UNNAMED: usize = 2;

/// Compiled size of one test's expressions together, bytes.
const MAX_REGEX_BYTES: usize = 16 << 20;

/// The functions of a profile that pass a [`FrameTest`](crate::FrameTest), by [`FunctionId`].
struct FunctionBits(Vec<bool>);

impl FunctionBits {
    fn new(profile: &Profile, function: &[String], module: &[String]) -> Self {
        // Compiled only where a module has them. That was done when the rule was read, too; should it
        // fail here after all, nothing matches.
        let functions = LazyCell::new(|| NameSet::new(function, MAX_REGEX_BYTES).ok());
        let mut modules: HashMap<&str, bool> = HashMap::new();
        let bits = profile.functions.iter().map(|f| {
            // What a program calls its functions says nothing of the kernel's.
            let in_module = || match module.is_empty() {
                true => f.module != KERNEL,
                false => any_glob(module, &f.module),
            };
            let is_named = |names: &NameSet| names.is_match(f.name.as_bytes());
            *modules.entry(&f.module).or_insert_with(in_module)
                && (function.is_empty() || functions.as_ref().is_some_and(is_named))
        });
        Self(bits.collect())
    }

    fn has(&self, id: FunctionId) -> bool {
        self.0[id.0 as usize]
    }
}

/// Whether `text` matches `pattern`, in which `*` stands for any characters and `?` for one.
pub(crate) fn glob(pattern: &str, text: &str) -> bool {
    WildMatch::new(pattern).matches(text)
}

/// Whether one of `globs` matches, or there is none.
pub(crate) fn any_glob(globs: &[String], text: &str) -> bool {
    globs.is_empty() || globs.iter().any(|g| glob(g, text))
}

/// What a row has of a pattern: the place of the frame that matches, counted from the root; `None`
/// for a pattern on the wait alone.
pub(crate) type Anchor = Option<u32>;

struct CompiledPattern<'r> {
    pattern: &'r Pattern,
    /// The root-most frame that matches, by stack; `None` when the pattern tests no frame.
    stacks: Option<Vec<Anchor>>,
}

impl<'r> CompiledPattern<'r> {
    fn new(profile: &Profile, pattern: &'r Pattern) -> Self {
        let stacks = pattern.tests_frame().then(|| {
            let frame = FunctionBits::new(profile, &pattern.function, &pattern.module);
            let below = pattern.below.as_ref();
            let below = below.map(|b| FunctionBits::new(profile, &b.function, &b.module));
            let or_anywhere = |n| if n == 0 { usize::MAX } else { n as usize };
            let leaf_within = or_anywhere(pattern.leaf_within);
            let below_within = or_anywhere(pattern.below_within);
            let below = below.as_ref().map(|bits| (bits, below_within));
            let find = |s: &ProfileStack| first_match(s, &frame, below, leaf_within);
            profile.stacks.iter().map(find).collect()
        });
        Self { pattern, stacks }
    }

    /// `None` if the row does not match.
    fn test(&self, profile: &Profile, row: &Row) -> Option<Anchor> {
        if !self.test_wait(profile, row) {
            return None;
        }
        match &self.stacks {
            None => Some(None),
            Some(stacks) => stacks[row.stack?.0 as usize].map(Some),
        }
    }

    fn test_wait(&self, profile: &Profile, row: &Row) -> bool {
        if !self.pattern.outside_syscall && self.pattern.syscalls.is_empty() {
            return true;
        }
        let Some(wait) = row.wait.map(|w| &profile.waits[w as usize]) else {
            return false;
        };
        // Kernel threads and io_uring workers wait outside system calls, too.
        let end = stack(profile, row).map_or(StackEnd::NotSampled, |stack| stack.end);
        let has_user_stack = !matches!(end, StackEnd::NoUserStack | StackEnd::NotSampled);
        match wait.syscall {
            Some(n) => self.pattern.syscalls.contains(&n),
            None => self.pattern.outside_syscall && has_user_stack,
        }
    }
}

/// The root-most frame that matches.
fn first_match(
    stack: &ProfileStack,
    frame: &FunctionBits,
    below: Option<(&FunctionBits, usize)>,
    leaf_within: usize,
) -> Anchor {
    let n = stack.frames.len();
    let first_allowed = n.saturating_sub(leaf_within);
    // Where the last frame is that `below` asks for.
    let mut caller = None;
    for (i, &f) in stack.frames.iter().enumerate() {
        let is_below = below.is_none_or(|(_, within)| caller.is_some_and(|c| i - c <= within));
        if is_below && i >= first_allowed && frame.has(f) {
            return u32::try_from(i).ok();
        }
        if below.is_some_and(|(bits, _)| bits.has(f)) {
            caller = Some(i);
        }
    }
    None
}

/// The stack of a row.
pub(crate) fn stack<'p>(profile: &'p Profile, row: &Row) -> Option<&'p ProfileStack> {
    Some(&profile.stacks[row.stack?.0 as usize])
}

/// A rule's tests, prepared for one profile.
pub(crate) struct CompiledRule<'r> {
    rule: &'r Rule,
    when: Vec<CompiledPattern<'r>>,
    unless: Vec<CompiledPattern<'r>>,
    skip: Vec<FunctionBits>,
    /// Functions without a name.
    unnamed: FunctionBits,
}

impl<'r> CompiledRule<'r> {
    pub(crate) fn new(profile: &Profile, rule: &'r Rule) -> Self {
        let pattern = |pattern: &'r Pattern| CompiledPattern::new(profile, pattern);
        let frame = |test: &FrameTest| FunctionBits::new(profile, &test.function, &test.module);
        let m = &rule.matches;
        Self {
            rule,
            when: m.when.iter().map(pattern).collect(),
            unless: m.unless.iter().map(pattern).collect(),
            skip: m.skip.iter().map(frame).collect(),
            unnamed: FunctionBits(profile.functions.iter().map(|f| !f.resolved).collect()),
        }
    }

    /// Whether the time of a row counts; its thread is not looked at.
    pub(crate) fn test(&self, profile: &Profile, row: &Row) -> Option<Anchor> {
        let counts = match self.rule.matches.states.as_slice() {
            [] => row.state.is_active(),
            states => states.contains(&row.state),
        };
        if !counts {
            return None;
        }
        let anchor = match self.when.is_empty() {
            true => None,
            false => self.when.iter().find_map(|p| p.test(profile, row))?,
        };
        let is_excluded = self.unless.iter().any(|p| p.test(profile, row).is_some());
        (!is_excluded).then_some(anchor)
    }

    /// How evidence is drawn.
    pub(crate) fn show(&self) -> Show {
        self.rule.matches.evidence
    }

    /// The frames from the lock site on, leaf first: those above the functions that the rule skips, and above functions
    /// without a name between such ones. Where all are skipped, the root-most one is all that is known.
    pub(crate) fn site(&self, root_first: &[FunctionId]) -> Vec<FunctionId> {
        let mut n_skipped = 0;
        for (depth, id) in root_first.iter().rev().enumerate() {
            if self.skip.iter().any(|bits| bits.has(*id)) {
                n_skipped = depth + 1;
            } else if !self.unnamed.has(*id) || depth >= n_skipped + MAX_UNNAMED {
                break;
            }
        }
        let site = root_first.iter().rev().skip(n_skipped);
        let site: Vec<FunctionId> = site.copied().collect();
        match site.is_empty() {
            true => root_first.first().copied().into_iter().collect(),
            false => site,
        }
    }
}
