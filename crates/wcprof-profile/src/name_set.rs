//! Many regular expressions, matched against names of functions at once.

use regex_automata::meta::{BuildError, Config, Regex};
use regex_automata::nfa::thompson::WhichCaptures;
use regex_automata::util::syntax;
use regex_automata::{Input, MatchKind, PatternSet};

/// Regular expressions over bytes: `\w` and the like are ASCII, which makes them small. Names in
/// other scripts still match literally.
///
/// As `regex::bytes::RegexSet`, without its search for literals ahead of the match: names are
/// short, and the tables for that search take half of the time that compiling takes.
#[derive(Clone, Debug)]
pub struct NameSet(Regex);

impl NameSet {
    /// Compiles expressions whose program takes at most `max_bytes`.
    ///
    /// # Errors
    /// When an expression is none, or all together are larger.
    pub fn new<S: AsRef<str>>(
        expressions: &[S],
        max_bytes: usize,
    ) -> Result<Self, Box<BuildError>> {
        let config = Config::new()
            .match_kind(MatchKind::All)
            .utf8_empty(false)
            .which_captures(WhichCaptures::None)
            .auto_prefilter(false)
            .nfa_size_limit(Some(max_bytes))
            .hybrid_cache_capacity(max_bytes);
        Regex::builder()
            .configure(config)
            .syntax(syntax::Config::new().unicode(false).utf8(false))
            .build_many(expressions)
            .map(Self)
            .map_err(Box::new)
    }

    /// Whether one of the expressions matches.
    pub fn is_match(&self, name: &[u8]) -> bool {
        self.0.is_match(name)
    }

    /// Which of the expressions match, by their order.
    pub fn matches(&self, name: &[u8]) -> PatternSet {
        let mut matches = PatternSet::new(self.0.pattern_len());
        self.0
            .which_overlapping_matches(&Input::new(name), &mut matches);
        matches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that each expression is matched by itself, by bytes, and that bad and huge ones are
    /// refused.
    #[test]
    fn matches() {
        let set = NameSet::new(&["^a+$", "b", r"^\w\w$", "é"], 1 << 20).unwrap();
        let matched = |name: &str| -> Vec<usize> {
            let matches = set.matches(name.as_bytes());
            assert_eq!(set.is_match(name.as_bytes()), !matches.is_empty());
            matches.iter().map(|at| at.as_usize()).collect()
        };
        assert_eq!(matched("aa"), [0, 2]);
        assert_eq!(matched("ab"), [1, 2]);
        assert_eq!(matched("caféb"), [1, 3]);
        assert_eq!(matched("xyz"), [0usize; 0]);
        assert!(set.is_match(b"\xffb"));
        assert!(NameSet::new(&["("], 1 << 20).is_err());
        assert!(NameSet::new(&["(abc){1000}"], 1 << 10).is_err());
        assert!(!NameSet::new(&[""; 0], 1 << 20).unwrap().is_match(b"a"));
    }
}
