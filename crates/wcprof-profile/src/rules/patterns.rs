//! Conditions on functions: names by regular expressions, modules by globs.

use globset::GlobSet;
use regex_automata::PatternID;
use regex_automata::meta::BuildError;

use crate::NameSet;

/// Size of the program of all expressions together, bytes.
pub(super) const MAX_REGEX_BYTES: usize = 10 << 20;

/// A condition that a function met, as an index into the patterns that it comes from.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Mark(u32);

/// A function's name matches, and so does its module.
#[derive(Clone, Debug)]
struct Pattern {
    /// Indices into the expressions; empty for any name.
    names: std::ops::Range<usize>,
    module: Option<GlobSet>,
}

/// Conditions as they were read.
#[derive(Debug, Default)]
pub(super) struct PatternTexts {
    patterns: Vec<Pattern>,
    regexes: Vec<String>,
}

impl PatternTexts {
    /// Adds a condition: one of the expressions, or any name if there are none, and one of the modules.
    pub(super) fn add(
        &mut self,
        names: impl IntoIterator<Item = String>,
        module: Option<GlobSet>,
    ) -> Mark {
        let start = self.regexes.len();
        self.regexes.extend(names);
        self.patterns.push(Pattern {
            names: start..self.regexes.len(),
            module,
        });
        Mark(self.patterns.len() as u32 - 1)
    }

    /// # Errors
    /// All together are too large. A user's were each compiled by themselves before.
    pub(super) fn compile(&self) -> Result<Patterns, Box<BuildError>> {
        Ok(Patterns {
            patterns: self.patterns.clone(),
            regexes: NameSet::new(&self.regexes, MAX_REGEX_BYTES)?,
        })
    }
}

/// Conditions, ready to be tested.
#[derive(Debug)]
pub(super) struct Patterns {
    patterns: Vec<Pattern>,
    regexes: NameSet,
}

impl Patterns {
    /// The conditions that a function meets, in their order.
    pub(super) fn marks(&self, function: &str, module: &str) -> Box<[Mark]> {
        let matches = self.regexes.matches(function.as_bytes());
        let contains = |at| PatternID::new(at).is_ok_and(|id| matches.contains(id));
        let meets = |pattern: &Pattern| {
            let module_is = |set: &GlobSet| set.is_match(module);
            (pattern.names.is_empty() || pattern.names.clone().any(contains))
                && pattern.module.as_ref().is_none_or(module_is)
        };
        let patterns = self.patterns.iter().zip(0..);
        let met = patterns.filter(|(pattern, _)| meets(pattern));
        met.map(|(_, at)| Mark(at)).collect()
    }
}
