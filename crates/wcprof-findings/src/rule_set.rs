//! Reads and checks rule files; lists the rules that are built in.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use regex::bytes::{Regex, RegexBuilder};
use thiserror::Error;
use wcprof_profile::model::State;

use crate::rule::{Base, FrameTest, Kind, Pattern, Rule, Scope, Show};

/// A rule file is a page of text; what is longer is not a rule file.
const MAX_FILE_BYTES: u64 = 256 << 10;

/// Bounds the compiled size of one expression, bytes, so that a file cannot exhaust memory.
const MAX_REGEX_BYTES: usize = 4 << 20;

macro_rules! builtin {
    ($($file:literal),* $(,)?) => {
        &[$(($file, include_str!(concat!("../rules/", $file)))),*]
    };
}

/// File name and text of every built-in rule.
pub(crate) const BUILTIN: &[(&str, &str)] = builtin![
    "aes-gcm.toml",
    "cipher.toml",
    "crc32c.toml",
    "fsync.toml",
    "libc-malloc.toml",
    "lock-contention.toml",
    "logging.toml",
    "memcpy.toml",
    "msgr-saturated.toml",
    "page-faults.toml",
    "pool-imbalance.toml",
    "polling-idle.toml",
    "rbd-cache.toml",
    "reactor-imbalance.toml",
    "rocksdb-compaction.toml",
    "run-queue-delay.toml",
    "thread-saturated.toml",
    "tcmalloc-central.toml",
];

/// Why a rule could not be used.
#[derive(Debug, Error)]
pub enum RuleError {
    /// The file or folder could not be read.
    #[error("failed to read rules from `{path}`: {source}")]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is too long to be a rule.
    #[error("failed to read rule `{path}`: it is longer than {MAX_FILE_BYTES} bytes")]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// The folder holds no rule file.
    #[error("failed to read rules from `{path}`: it holds no `*.toml` file")]
    NoRules {
        /// The folder.
        path: PathBuf,
    },
    /// The file is not TOML, or a key is missing, unknown or of the wrong type.
    #[error("failed to parse rule `{path}`: {message}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// Line, column, key and what is wrong.
        message: String,
    },
    /// A key holds a value that makes no sense.
    #[error("failed to use rule `{path}`: key `{key}`: {what}")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The key, as in `match.when[2].function[0]`.
        key: String,
        /// What is wrong, and what is expected.
        what: String,
    },
}

/// Rules, in the order they were added; ids are unique.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct RuleSet {
    rules: Vec<Rule>,
}

impl RuleSet {
    /// No rules.
    pub fn empty() -> Self {
        Self::default()
    }

    /// The rules that come with wcprof.
    ///
    /// # Errors
    /// None as built: a test reads every one of them.
    pub fn builtin() -> Result<Self, RuleError> {
        let mut set = Self::empty();
        for (file, text) in BUILTIN {
            // Expressions are compiled when they are used; a test compiles these.
            set.add_rule(Path::new(file), text, |_| Ok(()))?;
        }
        Ok(set)
    }

    /// The rules.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Adds the rule of one file. A rule with an id that is already there replaces it.
    ///
    /// # Errors
    /// The file cannot be read, parsed or used; the set is unchanged then.
    pub fn load_file(&mut self, path: &Path) -> Result<(), RuleError> {
        let read_error = |source| RuleError::Read {
            path: path.to_owned(),
            source,
        };
        let mut text = String::new();
        fs::File::open(path)
            .and_then(|f| f.take(MAX_FILE_BYTES + 1).read_to_string(&mut text))
            .map_err(read_error)?;
        if text.len() as u64 > MAX_FILE_BYTES {
            return Err(RuleError::TooLong {
                path: path.to_owned(),
            });
        }
        self.add_text(path, &text)
    }

    /// Whether a text has the form of a hotspot rule: TOML with one of the tables that only such a
    /// rule has. It need not be a valid one.
    pub fn is_rule(text: &str) -> bool {
        let keys = ["match", "threshold", "sources", "severity"];
        toml::from_str::<toml::Table>(text)
            .is_ok_and(|table| keys.iter().any(|key| table.contains_key(*key)))
    }

    /// Adds the rules of every `*.toml` file of a folder (not of its subfolders), by file name.
    ///
    /// # Errors
    /// The folder cannot be read or holds no rule, or a file fails as in
    /// [`RuleSet::load_file`]; the set is unchanged then.
    pub fn load_dir(&mut self, path: &Path) -> Result<(), RuleError> {
        let read_error = |source| RuleError::Read {
            path: path.to_owned(),
            source,
        };
        let mut files = Vec::new();
        for entry in fs::read_dir(path).map_err(read_error)? {
            let file = entry.map_err(read_error)?.path();
            if file.extension().is_some_and(|e| e == "toml") {
                files.push(file);
            }
        }
        if files.is_empty() {
            return Err(RuleError::NoRules {
                path: path.to_owned(),
            });
        }
        files.sort();
        let mut next = self.clone();
        for file in &files {
            next.load_file(file)?;
        }
        *self = next;
        Ok(())
    }

    /// Adds the rule of a file's text; `path` is for errors. A rule with an id that is already there
    /// replaces it.
    ///
    /// # Errors
    /// The text cannot be parsed or used; the set is unchanged then.
    pub fn add_text(&mut self, path: &Path, text: &str) -> Result<(), RuleError> {
        self.add_rule(path, text, check_expressions)
    }

    fn add_rule(
        &mut self,
        path: &Path,
        text: &str,
        check_expressions: impl Fn(&Rule) -> Result<(), Complaint>,
    ) -> Result<(), RuleError> {
        let rule: Rule = toml::from_str(text).map_err(|e| RuleError::Parse {
            path: path.to_owned(),
            message: e.to_string().trim_end().to_owned(),
        })?;
        let checked = check(&rule).and_then(|()| check_expressions(&rule));
        checked.map_err(|(key, what)| RuleError::Invalid {
            path: path.to_owned(),
            key,
            what,
        })?;
        match self.rules.iter_mut().find(|r| r.id == rule.id) {
            Some(old) => *old = rule,
            None => self.rules.push(rule),
        }
        Ok(())
    }
}

/// A key and what is wrong with its value.
type Complaint = (String, String);

fn complain<T>(key: impl Into<String>, what: impl Into<String>) -> Result<T, Complaint> {
    Err((key.into(), what.into()))
}

fn check(rule: &Rule) -> Result<(), Complaint> {
    let id_char = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if rule.id.is_empty() || !rule.id.chars().all(id_char) {
        return complain("id", "expected lower-case words joined by `-`");
    }
    for (key, text) in [
        ("title", &rule.title),
        ("explanation", &rule.explanation),
        ("advice", &rule.advice),
        ("verify", &rule.verify),
        ("gain.text", &rule.gain.text),
        ("gain.source", &rule.gain.source),
        ("threshold.why", &rule.threshold.why),
    ] {
        if text.trim().is_empty() {
            return complain(key, "is empty");
        }
    }
    if rule.title.contains('\n') {
        return complain("title", "expected one line");
    }
    if rule.sources.is_empty() {
        return complain("sources", "a rule without a source is an opinion; name one");
    }
    for (i, source) in rule.sources.iter().enumerate() {
        if source.report.trim().is_empty() || source.figure.trim().is_empty() {
            return complain(format!("sources[{i}]"), "`report` or `figure` is empty");
        }
    }
    check_threshold(rule)?;
    check_match(rule)
}

fn check_threshold(rule: &Rule) -> Result<(), Complaint> {
    let threshold = &rule.threshold;
    for (key, value) in [
        ("threshold.percent", threshold.percent),
        ("threshold.min_wall_percent", threshold.min_wall_percent),
    ] {
        if !(value > 0.0 && value <= 100.0) {
            return complain(
                key,
                format!("expected more than 0 and at most 100, found {value}"),
            );
        }
    }
    if !(threshold.max_over_mean > 1.0 && threshold.max_over_mean <= 1000.0) {
        let found = threshold.max_over_mean;
        return complain(
            "threshold.max_over_mean",
            format!("expected more than 1 and at most 1000, found {found}"),
        );
    }
    if rule.matches.kind == Kind::Threads
        && (threshold.of != Base::Wall || threshold.scope != Scope::Pool)
    {
        return complain(
            "threshold.of",
            "`match.kind = \"threads\"` needs `of = \"wall\"` and no `scope`",
        );
    }
    Ok(())
}

fn check_match(rule: &Rule) -> Result<(), Complaint> {
    let m = &rule.matches;
    if m.kind == Kind::Threads && !(m.when.is_empty() && m.unless.is_empty()) {
        return complain(
            "match.when",
            "`match.kind = \"threads\"` takes no `when` and no `unless`",
        );
    }
    let of = rule.threshold.of;
    if of == Base::OnCpu && m.states != [State::OnCpu] {
        return complain(
            "match.states",
            "`of = \"on-cpu\"` needs `states = [\"on-cpu\"]`",
        );
    }
    if of == Base::NonIdle && m.states.contains(&State::Idle) {
        return complain(
            "match.states",
            "idle time is no part of `of = \"non-idle\"`",
        );
    }
    if m.when.is_empty() && m.states.is_empty() {
        return complain("match.states", "without `when` a rule must name its states");
    }
    if m.when.is_empty() && matches!(m.evidence, Show::Callers | Show::Callees) {
        return complain("match.evidence", "needs a frame in `match.when`");
    }
    if (m.evidence == Show::Sites) == m.skip.is_empty() {
        return complain(
            "match.skip",
            "goes with `evidence = \"sites\"`, and only with it",
        );
    }
    for (name, list) in [("when", &m.when), ("unless", &m.unless)] {
        for (i, pattern) in list.iter().enumerate() {
            check_pattern(&format!("match.{name}[{i}]"), pattern)?;
        }
    }
    for (i, test) in m.skip.iter().enumerate() {
        check_frame(&format!("match.skip[{i}]"), &test.function, &test.module)?;
    }
    Ok(())
}

fn check_pattern(key: &str, pattern: &Pattern) -> Result<(), Complaint> {
    let on_frame = !(pattern.function.is_empty() && pattern.module.is_empty());
    let on_wait = pattern.outside_syscall || !pattern.syscalls.is_empty();
    if !on_frame && (pattern.leaf_within > 0 || pattern.below.is_some()) {
        return complain(
            key,
            "`leaf_within` and `below` need `function` or `module` beside them",
        );
    }
    if pattern.below.is_none() && pattern.below_within > 0 {
        return complain(key, "`below_within` needs `below` beside it");
    }
    if pattern.outside_syscall && !pattern.syscalls.is_empty() {
        return complain(key, "`outside_syscall` and `syscalls` exclude each other");
    }
    if on_frame || !on_wait {
        check_frame(key, &pattern.function, &pattern.module)?;
    }
    if let Some(below) = &pattern.below {
        check_frame(&format!("{key}.below"), &below.function, &below.module)?;
    }
    Ok(())
}

fn check_frame(key: &str, function: &[String], module: &[String]) -> Result<(), Complaint> {
    if function.is_empty() && module.is_empty() {
        return complain(key, "tests nothing; give `function` or `module`");
    }
    for (i, expression) in function.iter().enumerate() {
        if expression.is_empty() {
            return complain(format!("{key}.function[{i}]"), "is empty");
        }
    }
    Ok(())
}

/// Compiles each expression, to say which one is wrong.
pub(crate) fn check_expressions(rule: &Rule) -> Result<(), Complaint> {
    let check = |key: &str, functions: &[String]| {
        for (i, expression) in functions.iter().enumerate() {
            if let Err(e) = regex(expression) {
                return complain(format!("{key}.function[{i}]"), e.to_string());
            }
        }
        Ok(())
    };
    let m = &rule.matches;
    for (name, list) in [("when", &m.when), ("unless", &m.unless)] {
        for (i, pattern) in list.iter().enumerate() {
            let key = format!("match.{name}[{i}]");
            check(&key, &pattern.function)?;
            if let Some(below) = &pattern.below {
                check(&format!("{key}.below"), &below.function)?;
            }
        }
    }
    for (i, test) in m.skip.iter().enumerate() {
        check(&format!("match.skip[{i}]"), &test.function)?;
    }
    Ok(())
}

/// Compiles one expression with bounded memory.
pub(crate) fn regex(expression: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(expression)
        .unicode(false)
        .size_limit(MAX_REGEX_BYTES)
        .dfa_size_limit(MAX_REGEX_BYTES)
        .build()
}

/// The tests that `when`, `unless` and `skip` of a rule make of frames.
pub(crate) fn frame_test(pattern: &Pattern) -> Option<FrameTest> {
    (!(pattern.function.is_empty() && pattern.module.is_empty())).then(|| FrameTest {
        function: pattern.function.clone(),
        module: pattern.module.clone(),
    })
}
