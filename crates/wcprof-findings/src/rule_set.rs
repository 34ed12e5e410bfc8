//! Reads and checks rule files; lists the rules that are built in.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::check::{Problem, check, check_expressions};
use crate::rule::Rule;

/// A rule file is a page of text; a longer file is no rule file.
const MAX_FILE_BYTES: u64 = 256 << 10;

macro_rules! builtin {
    ($($file:literal),* $(,)?) => {
        &[$(($file, include_str!(concat!("../rules/", $file)))),*]
    };
}

/// File name and text of every built-in rule.
pub(crate) const BUILTIN: &[(&str, &str)] = builtin![
    "aes-gcm.toml",
    "cipher.toml",
    "cpu-quota.toml",
    "compression.toml",
    "crc32c.toml",
    "database-locks.toml",
    "deadlock.toml",
    "fsync.toml",
    "io-limit.toml",
    "libc-malloc.toml",
    "lock-contention.toml",
    "logging.toml",
    "memcpy.toml",
    "memory-high.toml",
    "memory-max.toml",
    "msgr-saturated.toml",
    "page-faults.toml",
    "pool-imbalance.toml",
    "polling-idle.toml",
    "rbd-cache.toml",
    "reactor-imbalance.toml",
    "rocksdb-compaction.toml",
    "run-queue-delay.toml",
    "thread-saturated.toml",
    "threads-stopped.toml",
    "tcmalloc-central.toml",
    "unlike.toml",
];

/// Why a rule could not be used.
#[derive(Debug, Error)]
pub enum RuleError {
    /// The file or folder could not be read.
    #[error("failed to read rules from `{0}`: {1}")]
    Read(PathBuf, #[source] io::Error),
    /// The file is too long to be a rule.
    #[error("failed to read rule `{0}`: it is longer than {MAX_FILE_BYTES} bytes")]
    TooLong(PathBuf),
    /// The folder holds no rule file.
    #[error("failed to read rules from `{0}`: it holds no `*.toml` file")]
    NoRules(PathBuf),
    /// The file is not TOML, or a key is missing, unknown or of the wrong type: line, column, key
    /// and what is wrong.
    #[error("failed to parse rule `{0}`: {1}")]
    Parse(PathBuf, String),
    /// A key, as in `match.when[2].function[0]`, holds a value that makes no sense: what is wrong,
    /// and what is expected.
    #[error("failed to use rule `{0}`: key `{1}`: {2}")]
    Invalid(PathBuf, String, String),
}

/// Rules, in the order they were added; ids are unique.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct RuleSet {
    rules: Vec<Rule>,
}

impl RuleSet {
    /// The rules that come with wcprof.
    ///
    /// # Errors
    /// None as built: a test reads every one of them.
    pub fn builtin() -> Result<Self, RuleError> {
        let mut set = Self::default();
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
        let mut text = String::new();
        fs::File::open(path)
            .and_then(|f| f.take(MAX_FILE_BYTES + 1).read_to_string(&mut text))
            .map_err(|e| RuleError::Read(path.to_owned(), e))?;
        if text.len() as u64 > MAX_FILE_BYTES {
            return Err(RuleError::TooLong(path.to_owned()));
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
        let read_error = |error| RuleError::Read(path.to_owned(), error);
        let mut files = Vec::new();
        for entry in fs::read_dir(path).map_err(read_error)? {
            let file = entry.map_err(read_error)?.path();
            if file.extension().is_some_and(|e| e == "toml") {
                files.push(file);
            }
        }
        if files.is_empty() {
            return Err(RuleError::NoRules(path.to_owned()));
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
        check_expressions: impl Fn(&Rule) -> Result<(), Problem>,
    ) -> Result<(), RuleError> {
        let rule: Rule = toml::from_str(text)
            .map_err(|e| RuleError::Parse(path.to_owned(), e.to_string().trim_end().to_owned()))?;
        check(&rule)
            .and_then(|()| check_expressions(&rule))
            .map_err(|(key, what)| RuleError::Invalid(path.to_owned(), key, what))?;
        match self.rules.iter_mut().find(|r| r.id == rule.id) {
            Some(old) => *old = rule,
            None => self.rules.push(rule),
        }
        Ok(())
    }
}
