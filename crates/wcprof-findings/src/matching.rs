//! Tests stacks and waits against a rule's patterns.
//!
//! An expression is run once for each function of the profile; stacks are then compared by bit.

use std::cell::LazyCell;
use std::collections::HashMap;

use wcprof_profile::NameSet;
use wcprof_profile::model::{FunctionId, Profile, ProfileStack, ProfileStackId, Row};
use wcprof_types::StackEnd;

use crate::rule::{FrameTest, Pattern, Rule};
use crate::rule_set::frame_test;

/// Compiled size of one test's expressions together, bytes.
const MAX_REGEX_BYTES: usize = 16 << 20;

/// The functions of a profile that pass a [`FrameTest`], by [`FunctionId`].
struct FunctionBits(Vec<bool>);

impl FunctionBits {
    fn new(profile: &Profile, test: &FrameTest) -> Self {
        // Compiled only where a module has them. That was done when the rule was read, too; should it
        // fail here after all, nothing matches.
        let functions = LazyCell::new(|| NameSet::new(&test.function, MAX_REGEX_BYTES).ok());
        let mut modules: HashMap<&str, bool> = HashMap::new();
        let bits = profile.functions.iter().map(|f| {
            let in_module = test.module.is_empty()
                || *modules
                    .entry(f.module.as_str())
                    .or_insert_with(|| test.module.iter().any(|g| glob(g, &f.module)));
            in_module
                && (test.function.is_empty()
                    || functions
                        .as_ref()
                        .is_some_and(|s| s.is_match(f.name.as_bytes())))
        });
        Self(bits.collect())
    }

    fn has(&self, id: FunctionId) -> bool {
        self.0.get(id.0 as usize).copied().unwrap_or(false)
    }
}

/// Whether `text` matches `pattern`, in which `*` stands for any characters and `?` for one.
/// Takes time in proportion to the product of both lengths at worst.
pub(crate) fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    // Where to go on when the characters after the last `*` do not fit: the star eats one more.
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                retry = Some((p, t));
                p += 1;
            }
            Some(c) if *c == '?' || text.get(t) == Some(c) => {
                p += 1;
                t += 1;
            }
            _ => match retry {
                Some((star, eaten)) => {
                    retry = Some((star, eaten + 1));
                    p = star + 1;
                    t = eaten + 1;
                }
                None => return false,
            },
        }
    }
    pattern.iter().skip(p).all(|c| *c == '*')
}

/// Whether one of `globs` matches, or there is none.
pub(crate) fn any_glob(globs: &[String], text: &str) -> bool {
    globs.is_empty() || globs.iter().any(|g| glob(g, text))
}

/// What a stack has of a pattern's frame.
#[derive(Copy, Clone, PartialEq, Eq)]
enum OnStack {
    No,
    /// Root-most matching frame, counted from the root.
    At(u32),
}

struct CompiledPattern<'r> {
    pattern: &'r Pattern,
    /// By [`ProfileStackId`]; `None` when the pattern tests no frame.
    stacks: Option<Vec<OnStack>>,
}

impl<'r> CompiledPattern<'r> {
    fn new(profile: &Profile, pattern: &'r Pattern) -> Self {
        let stacks = frame_test(pattern).map(|test| {
            let frame = FunctionBits::new(profile, &test);
            let below = pattern
                .below
                .as_ref()
                .map(|b| FunctionBits::new(profile, b));
            let leaf_within = match pattern.leaf_within {
                0 => usize::MAX,
                n => n as usize,
            };
            let below_within = match pattern.below_within {
                0 => usize::MAX,
                n => n as usize,
            };
            let below = below.as_ref().map(|bits| (bits, below_within));
            let find = |s: &ProfileStack| first_match(s, &frame, below, leaf_within);
            profile.stacks.iter().map(find).collect()
        });
        Self { pattern, stacks }
    }

    /// The matched frame, counted from the root; `None` inside for a pattern on the wait alone.
    fn test(&self, profile: &Profile, row: &Row) -> Option<Option<u32>> {
        if !self.test_wait(profile, row) {
            return None;
        }
        match &self.stacks {
            None => Some(None),
            Some(stacks) => match stacks.get(row.stack?.0 as usize)? {
                OnStack::No => None,
                OnStack::At(i) => Some(Some(*i)),
            },
        }
    }

    fn test_wait(&self, profile: &Profile, row: &Row) -> bool {
        if !self.pattern.outside_syscall && self.pattern.syscalls.is_empty() {
            return true;
        }
        let Some(wait) = row.wait.and_then(|w| profile.waits.get(w as usize)) else {
            return false;
        };
        match wait.syscall {
            Some(n) => self.pattern.syscalls.contains(&n),
            // Kernel threads and io_uring workers wait outside system calls, too.
            None => {
                self.pattern.outside_syscall
                    && stack(profile, row).is_some_and(|s| {
                        s.end != StackEnd::NoUserStack && s.end != StackEnd::NotSampled
                    })
            }
        }
    }
}

fn first_match(
    stack: &ProfileStack,
    frame: &FunctionBits,
    below: Option<(&FunctionBits, usize)>,
    leaf_within: usize,
) -> OnStack {
    let n = stack.frames.len();
    let first_allowed = n.saturating_sub(leaf_within);
    // Where the last frame is that `below` asks for.
    let mut caller = None;
    for (i, &f) in stack.frames.iter().enumerate() {
        let is_below = below.is_none_or(|(_, within)| caller.is_some_and(|c| i - c <= within));
        if is_below && i >= first_allowed && frame.has(f) {
            return OnStack::At(u32::try_from(i).unwrap_or(u32::MAX));
        }
        if below.is_some_and(|(bits, _)| bits.has(f)) {
            caller = Some(i);
        }
    }
    OnStack::No
}

/// The stack of a row.
pub(crate) fn stack<'p>(profile: &'p Profile, row: &Row) -> Option<&'p ProfileStack> {
    let ProfileStackId(id) = row.stack?;
    profile.stacks.get(id as usize)
}

/// A rule's tests, prepared for one profile.
pub(crate) struct CompiledRule<'r> {
    rule: &'r Rule,
    when: Vec<CompiledPattern<'r>>,
    unless: Vec<CompiledPattern<'r>>,
    skip: Vec<FunctionBits>,
}

impl<'r> CompiledRule<'r> {
    pub(crate) fn new(profile: &Profile, rule: &'r Rule) -> Self {
        let compile = |list: &'r [Pattern]| {
            list.iter()
                .map(|p| CompiledPattern::new(profile, p))
                .collect()
        };
        Self {
            rule,
            when: compile(&rule.matches.when),
            unless: compile(&rule.matches.unless),
            skip: rule
                .matches
                .skip
                .iter()
                .map(|t| FunctionBits::new(profile, t))
                .collect(),
        }
    }

    /// Whether a row's time counts, its thread aside; inside, the root-most matched frame
    /// counted from the root, when a pattern tests frames.
    pub(crate) fn test(&self, profile: &Profile, row: &Row) -> Option<Option<u32>> {
        if !self.counts_state(row) {
            return None;
        }
        let anchor = if self.when.is_empty() {
            None
        } else {
            self.when.iter().find_map(|p| p.test(profile, row))?
        };
        let excluded = self.unless.iter().any(|p| p.test(profile, row).is_some());
        (!excluded).then_some(anchor)
    }

    fn counts_state(&self, row: &Row) -> bool {
        use wcprof_profile::model::State;
        match self.rule.matches.states.as_slice() {
            [] => row.state != State::Idle,
            states => states.contains(&row.state),
        }
    }

    /// Whether evidence by site passes over this function.
    pub(crate) fn skips(&self, id: FunctionId) -> bool {
        self.skip.iter().any(|b| b.has(id))
    }
}
