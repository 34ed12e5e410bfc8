//! What is shown of a profile: filters, grouping, direction.

use serde::Serialize;

use crate::filter::{FunctionFilter, ThreadFilter};
use crate::model::State;

/// What a tree is made for.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum GroupBy {
    /// One tree a thread.
    #[default]
    Thread,
    /// One tree a pool name; pools of the same name in several processes are one.
    Pool,
    /// One tree a process.
    Process,
    /// One tree a control group: a container, a service.
    Cgroup,
    /// One tree a host.
    Host,
    /// One tree.
    All,
}

/// Which end of the stacks the tree begins with.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Direction {
    /// A call tree: children are callees.
    #[default]
    RootFirst,
    /// An inverted call tree: roots are leaf functions, children are callers.
    LeafFirst,
}

/// One function by its name: the whole name, the name without its arguments, or the end of either
/// after a `::`. Several functions can go by one name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FunctionName(pub String);

impl FunctionName {
    /// Whether `name` (demangled, with arguments) is meant.
    pub fn matches(&self, name: &str) -> bool {
        let wanted = self.0.as_str();
        let ends = |name: &str| {
            name == wanted
                || name
                    .strip_suffix(wanted)
                    .is_some_and(|scope| scope.ends_with("::"))
        };
        !wanted.is_empty() && (ends(name) || ends(without_arguments(name)))
    }
}

/// The name up to the parenthesis that opens its arguments: `f` of `f(int)`, `A::operator()` of
/// `A::operator()(int) const`.
pub(crate) fn without_arguments(name: &str) -> &str {
    let mut depth = 0_i32;
    for (at, c) in name.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            '(' if depth <= 0 && at > 0 => {
                let rest = &name[at..];
                let is_name = rest.starts_with("()(") && name[..at].ends_with("operator")
                    || rest.starts_with("(anonymous namespace)");
                if !is_name {
                    return &name[..at];
                }
                depth = 1;
            }
            ')' if depth == 1 => depth = 0,
            _ => {}
        }
    }
    name
}

/// Which side of one function a tree shows.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Relation {
    /// Who calls it: the function first, its callers below.
    CallersOf,
    /// What it calls: the function first, its callees below.
    CalleesOf,
}

/// A tree around one function: stacks without it are left out, and of a stack that holds it more
/// than once (recursion) the outermost one counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Around {
    /// Callers or callees.
    pub relation: Relation,
    /// The function.
    pub function: FunctionName,
}

/// What to show of a profile.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// What a tree is made for.
    pub by: GroupBy,
    /// Root first or inverted; [`around`](Self::around) has a direction of its own.
    pub direction: Direction,
    /// Show idle time too.
    pub idle: bool,
    /// Add the state as the last frame (right after the group when inverted).
    pub state_frames: bool,
    /// Add the file or socket of a wait as a frame before it.
    pub files: bool,
    /// Nodes below this percentage of their group's shown weight are merged into
    /// [`Label::Below`](crate::Label::Below); 0 prunes nothing.
    pub min_percent: f64,
    /// Which threads.
    pub threads: ThreadFilter,
    /// Which states; `None` for all. Idle also needs `idle`.
    pub states: Option<Vec<State>>,
    /// Only stacks that hold one of these functions.
    pub focus: Option<FunctionFilter>,
    /// Frames of these functions are left out; their time stays with their callers.
    pub hide: Option<FunctionFilter>,
    /// Only what is around one function.
    pub around: Option<Around>,
}

impl View {
    /// Whether a row's state is shown.
    pub fn shows(&self, state: State) -> bool {
        (self.idle || !state.is_idle()) && self.states.as_ref().is_none_or(|s| s.contains(&state))
    }

    /// Whether trees begin at the leaf side of stacks.
    pub fn is_leaf_first(&self) -> bool {
        match &self.around {
            Some(around) => around.relation == Relation::CallersOf,
            None => self.direction == Direction::LeafFirst,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check which names a function goes by.
    #[test]
    fn names() {
        let is = |wanted: &str, name: &str| FunctionName(wanted.to_owned()).matches(name);
        assert!(is("f", "f"));
        assert!(is("f", "ns::f(int, char*)"));
        assert!(is("ns::f", "a::ns::f(int) const"));
        assert!(is("f(int)", "ns::f(int)"));
        assert!(is("A::operator()", "A::operator()(int) const"));
        assert!(is("g", "(anonymous namespace)::g(int)"));
        assert!(is("B<f(int)>::g", "B<f(int)>::g(int)"));
        assert!(!is("f", "gf"));
        assert!(!is("f", "g(f)"));
        assert!(!is("", "g"));
    }
}
