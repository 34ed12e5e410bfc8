//! Rules that say what a wait means and which threads are a pool: data, from TOML.

mod parse;
mod patterns;

use std::collections::HashSet;
use std::sync::Arc;

use globset::GlobSet;
use regex::bytes::Regex;
use regex_automata::meta::BuildError;
use thiserror::Error;
use wcprof_types::FdKind;

pub(crate) use self::patterns::Mark;
use self::patterns::{PatternTexts, Patterns};
use crate::NameSet;
use crate::model::KERNEL;
use crate::model::State;

/// A rules file that is not valid.
#[derive(Debug, Error)]
#[error("failed to read rules `{file}`, line {line}: {what}")]
pub struct RulesError {
    /// The file, as named to [`Rules::with_user_files`].
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// What is wrong there.
    pub what: String,
}

/// Gives a state to waits.
#[derive(Debug)]
pub(crate) struct StateRule {
    /// States by default that it applies to; empty for all.
    pub(crate) when: Vec<State>,
    pub(crate) stack: OfStack,
    /// The system call is one of these; `None` stands for no system call.
    pub(crate) syscalls: Option<HashSet<Option<u32>>>,
    /// The operation is one of these.
    pub(crate) ops: Option<HashSet<u32>>,
    /// The descriptor is of one of these kinds.
    pub(crate) fds: Option<Vec<FdKind>>,
    /// The kernel place matches.
    pub(crate) kernel: Option<NameSet>,
    /// The thread's name or its pool's name matches.
    pub(crate) pool: Option<GlobSet>,
    /// The process's name matches.
    pub(crate) process: Option<GlobSet>,
    /// The state it gives.
    pub(crate) state: State,
    /// File, line and why, for readers.
    pub(crate) origin: Arc<str>,
}

/// What a rule asks of a stack.
#[derive(Debug)]
pub(crate) struct OfStack {
    /// Some function has this mark, among so many leaf-most ones.
    pub(crate) with: Option<(Mark, usize)>,
    /// The innermost function of the program, which called into the C library, has this mark.
    pub(crate) caller: Option<Mark>,
    /// No function has this mark.
    pub(crate) without: Option<Mark>,
    /// The functions from the leaf to the innermost of the program all have names.
    pub(crate) named: bool,
}

/// Names the pool of threads.
#[derive(Debug)]
struct PoolRule {
    comm: Regex,
    process: Option<GlobSet>,
    name: String,
}

/// Puts processes into a class.
#[derive(Debug)]
struct ClassRule {
    process: GlobSet,
    name: String,
    ratio_to: Option<String>,
    like_threads: Option<GlobSet>,
}

/// A kind of work.
#[derive(Clone, Debug)]
struct Category {
    /// Of its functions.
    mark: Mark,
    /// Its functions can be the kernel's: it says of which modules they are.
    of_kernel: bool,
    name: String,
}

/// All rules in force, in order of precedence: the user's, then the built-in ones.
#[derive(Debug)]
pub struct Rules {
    states: Vec<StateRule>,
    defaults: Vec<StateRule>,
    pools: Vec<PoolRule>,
    classes: Vec<ClassRule>,
    patterns: Patterns,
    /// Their marks are of `category_texts`.
    categories: Vec<Category>,
    /// Compiled when they are asked for: most commands do not.
    category_texts: PatternTexts,
}

impl Rules {
    /// The rules that change what the default table gave.
    pub(crate) fn states(&self) -> impl Iterator<Item = &StateRule> {
        self.states.iter()
    }

    /// The default table.
    pub(crate) fn defaults(&self) -> impl Iterator<Item = &StateRule> {
        self.defaults.iter()
    }

    /// The class of a process, by its name and its program's; one that no rule names is in the class of its
    /// program, or without one of its name.
    pub(crate) fn class<'a>(&'a self, comm: &'a str, program: Option<&'a str>) -> &'a str {
        let is = |rule: &&ClassRule| {
            rule.process.is_match(comm) || program.is_some_and(|p| rule.process.is_match(p))
        };
        self.classes
            .iter()
            .find(is)
            .map_or(program.unwrap_or(comm), |rule| &rule.name)
    }

    /// Whether the threads of a pool, in a process of a class, are to each other what processes of a class are.
    pub(crate) fn has_like_threads(&self, class: &str, pool: &str) -> bool {
        let rule = self.classes.iter().find(|rule| rule.name == class);
        let pools = rule.and_then(|rule| rule.like_threads.as_ref());
        pools.is_some_and(|pools| pools.is_match(pool))
    }

    /// Pairs of classes of which one's cores are compared with the other's.
    pub fn class_ratios(&self) -> Vec<(String, String)> {
        let pairs = self.classes.iter().filter_map(|rule| {
            let to = rule.ratio_to.clone()?;
            Some((rule.name.clone(), to))
        });
        pairs.collect()
    }

    /// The pool that a rule names for a thread.
    pub(crate) fn pool(&self, comm: &str, process: &str) -> Option<String> {
        let rule = self.pools.iter().find(|rule| {
            rule.comm.is_match(comm.as_bytes())
                && rule.process.as_ref().is_none_or(|p| p.is_match(process))
        })?;
        // Only the first match and its groups: the rest of the name is not part of the pool's.
        let captures = rule.comm.captures(comm.as_bytes())?;
        let mut name = Vec::new();
        captures.expand(rule.name.as_bytes(), &mut name);
        Some(String::from_utf8_lossy(&name).into_owned())
    }

    /// What a function matches.
    pub(crate) fn marks(&self, function: &str, module: &str) -> Box<[Mark]> {
        self.patterns.marks(function, module)
    }

    /// The kinds of work that functions belong to.
    ///
    /// # Errors
    /// The expressions together are too large.
    pub fn categories(&self) -> Result<Categories, RulesError> {
        Ok(Categories {
            rules: self.categories.clone(),
            patterns: self.category_texts.compile().map_err(too_large)?,
        })
    }
}

fn too_large(error: Box<BuildError>) -> RulesError {
    RulesError {
        file: "all rules together".to_owned(),
        line: 0,
        what: error.to_string(),
    }
}

/// Finds the kind of work of functions.
#[derive(Debug)]
pub struct Categories {
    rules: Vec<Category>,
    patterns: Patterns,
}

impl Categories {
    /// The first category that names a function of a module. What a program calls its functions says nothing of the
    /// kernel's: those are named by categories alone that say of which modules their functions are.
    pub fn of(&self, function: &str, module: &str) -> Option<&str> {
        let marks = self.patterns.marks(function, module);
        let is_kernel = module == KERNEL;
        let is = |rule: &&Category| marks.contains(&rule.mark) && (rule.of_kernel || !is_kernel);
        let found = self.rules.iter().find(is);
        found.map(|rule| rule.name.as_str())
    }
}
