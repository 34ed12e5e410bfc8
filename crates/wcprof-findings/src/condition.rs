//! The text of `--trigger` to a condition.
//!
//! ```text
//! condition = [over-threads] subject "of" threads (">" | "<") number "%" "over" time
//!           | counter (">" | "<") time "over" time
//! over-threads = "max" | "min" | "p1" ... "p99"
//! subject = a state (lock, disk, on-cpu, ...) | "func:" glob
//! threads = "all" | a glob over names of pools and threads
//! counter = the name of a counter that adds up times, with or without what precedes its last dot
//! time = number ["us" | "ms" | "s" | "m" | "min" | "h"]
//! ```

use std::fmt;
use std::iter::Peekable;
use std::str::FromStr;
use std::sync::LazyLock;
use std::time::Duration;

use globset::{Glob, GlobMatcher};
use regex::Regex;
use thiserror::Error;
use wcprof_profile::model::State;
use wcprof_text::{duration, parse_short_time};

/// A limit on a share of threads' time, or on what a process counts. A recording tests it all the time.
#[derive(Clone, Debug)]
pub struct Condition {
    /// As it was typed.
    text: String,
    /// The share of the thread at this percentile, 0 to 100, by nearest rank; `None`: of the time of all of
    /// them together.
    pub(crate) percentile: Option<u8>,
    pub(crate) subject: Subject,
    /// `None`: all threads.
    pub(crate) threads: Option<GlobMatcher>,
    limit: Limit,
    /// The time that the share is of.
    pub window: Duration,
}

/// Which time the share is about.
#[derive(Clone, Debug)]
pub(crate) enum Subject {
    /// Time in a state.
    State(State),
    /// Time with a function anywhere in the stack.
    Function(GlobMatcher),
    /// The mean of a counter of times: this is its name, or what follows the last dot of it.
    Counter(String),
}

/// A limit: percent, or ns.
#[derive(Copy, Clone, PartialEq, Debug)]
enum Limit {
    Above(f64),
    Below(f64),
}

impl Limit {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::Above(limit) => value > limit,
            Self::Below(limit) => value < limit,
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Condition {
    /// Whether it holds for a value: percent, or of a counter ns.
    pub(crate) fn holds(&self, value: f64) -> bool {
        self.limit.holds(value)
    }

    /// A value as text: `12.3 %`, or `23.1 ms` of a counter.
    pub fn value_text(&self, value: f64) -> String {
        match self.counter() {
            Some(_) => duration(value as u64),
            None => format!("{value:.1} %"),
        }
    }

    /// The counter that it is about.
    pub fn counter(&self) -> Option<&str> {
        match &self.subject {
            Subject::Counter(name) => Some(name),
            _ => None,
        }
    }

    /// Whether it is about the counter of this name.
    pub(crate) fn is_about(&self, counter: &str) -> bool {
        self.counter()
            .is_some_and(|name| name == counter || name == bare_counter(counter))
    }
}

/// A counter's name without what precedes its last dot, as a condition may have it.
pub fn bare_counter(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(_, bare)| bare)
}

/// Why a text is no condition.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("column {column}: {problem}")]
pub struct ConditionError {
    /// Of the character at which it goes wrong, from 1.
    column: usize,
    problem: String,
}

/// Shortest window: a waiting thread is accounted once a second.
const MIN_WINDOW: Duration = Duration::from_secs(2);
/// Longest condition.
const MAX_CHARS: usize = 1000;

impl FromStr for Condition {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Self, ConditionError> {
        let mut words = Words::new(text)?;
        let mut word = words.next("a state or func:GLOB")?;
        let percentile = percentile(&word)?;
        if percentile.is_some() {
            word = words.next("a state or func:GLOB")?;
        }
        let counter = word.counter().filter(|_| percentile.is_none());
        let next = words.found.peek().map(|found| found.as_str());
        let is_counter = matches!(next, Some(">" | "<"));
        let (subject, threads, limit) = match counter.filter(|_| is_counter) {
            Some(name) => (Subject::Counter(name), None, words.limit(Words::time)?),
            None => {
                let subject = subject(&word)?;
                words.literal("of")?;
                let word = words.next("`all` or a glob over names of pools and threads")?;
                let threads = match word.text.as_str() {
                    "all" if !word.quoted => None,
                    pattern => Some(glob(&word, pattern)?),
                };
                (subject, threads, words.limit(Words::percent)?)
            }
        };
        words.literal("over")?;
        let word = words.next("a time such as 5s")?;
        let window = parse_short_time(&word.text).map_err(|problem| word.error(problem))?;
        if window < MIN_WINDOW {
            return Err(word.error("the shortest window is 2s"));
        }
        if let Some(found) = words.found.next() {
            return Err(words.error(found.start(), "expected nothing more".to_owned()));
        }
        Ok(Self {
            text: text.to_owned(),
            percentile,
            subject,
            threads,
            limit,
            window,
        })
    }
}

fn percentile(word: &Word) -> Result<Option<u8>, ConditionError> {
    match word.text.as_str() {
        _ if word.quoted => Ok(None),
        "max" => Ok(Some(100)),
        "min" => Ok(Some(0)),
        text => match text.strip_prefix('p').map(str::parse::<u8>) {
            Some(Ok(n @ 1..=99)) => Ok(Some(n)),
            Some(Ok(_)) => Err(word.error("percentiles are p1 to p99; others are `min` and `max`")),
            _ => Ok(None),
        },
    }
}

fn subject(word: &Word) -> Result<Subject, ConditionError> {
    match word.text.strip_prefix("func:") {
        Some("") => Err(word.error("func: needs a glob, such as func:ObjectCacher::*")),
        Some(pattern) => Ok(Subject::Function(glob(word, pattern)?)),
        None => {
            let state = word.text.parse().map(Subject::State);
            state.map_err(|error| word.error(format!("{error}; or func:GLOB for a function")))
        }
    }
}

fn glob(word: &Word, pattern: &str) -> Result<GlobMatcher, ConditionError> {
    let glob = Glob::new(pattern).map_err(|error| word.error(error.kind().to_string()))?;
    Ok(glob.compile_matcher())
}

/// A part of the text: a word, a string in quotes, or a sign.
#[derive(Clone, Debug)]
struct Word {
    text: String,
    column: usize,
    quoted: bool,
}

impl Word {
    fn error(&self, problem: impl Into<String>) -> ConditionError {
        ConditionError {
            column: self.column,
            problem: problem.into(),
        }
    }

    /// The name of a counter, if it can be one.
    fn counter(&self) -> Option<String> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || "_.-:".contains(c);
        let can_be = !self.quoted && self.text.chars().all(is_name) && self.text.contains('_');
        can_be.then(|| self.text.clone())
    }
}

/// Names of functions have `<` and `>` in them. A quote alone is one that is not closed.
static WORD: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r#"func:(?:"[^"]*"|'[^']*'|[^\s"'])+|"[^"]*"|'[^']*'|[<>%"']|[^\s<>%"']+"#;
    Regex::new(pattern).expect("a test compiles it")
});

struct Words<'t> {
    text: &'t str,
    found: Peekable<regex::Matches<'static, 't>>,
}

impl<'t> Words<'t> {
    fn new(text: &'t str) -> Result<Self, ConditionError> {
        if text.chars().count() > MAX_CHARS {
            let problem = format!("longer than {MAX_CHARS} characters");
            let column = MAX_CHARS + 1;
            return Err(ConditionError { column, problem });
        }
        let found = WORD.find_iter(text).peekable();
        Ok(Self { text, found })
    }

    fn next(&mut self, expected: &str) -> Result<Word, ConditionError> {
        let Some(found) = self.found.next() else {
            return Err(self.error(self.text.len(), format!("expected {expected}")));
        };
        match found.as_str() {
            "\"" | "'" => Err(self.error(found.start(), "the quote is not closed".to_owned())),
            text => Ok(Word {
                text: text.replace(['"', '\''], ""),
                column: self.column(found.start()),
                quoted: text.starts_with(['"', '\'']),
            }),
        }
    }

    /// Of the character at a byte of the text, from 1.
    fn column(&self, at: usize) -> usize {
        self.text[..at].chars().count() + 1
    }

    fn error(&self, at: usize, problem: String) -> ConditionError {
        let column = self.column(at);
        ConditionError { column, problem }
    }

    fn literal(&mut self, text: &str) -> Result<(), ConditionError> {
        let word = self.next(&format!("`{text}`"))?;
        match word.text == text && !word.quoted {
            true => Ok(()),
            false => Err(word.error(format!("expected `{text}`"))),
        }
    }

    /// A sign, and what `value` reads.
    fn limit(
        &mut self,
        value: fn(&mut Self) -> Result<f64, ConditionError>,
    ) -> Result<Limit, ConditionError> {
        let word = self.next("`>` or `<`")?;
        match word.text.as_str() {
            ">" => Ok(Limit::Above(value(self)?)),
            "<" => Ok(Limit::Below(value(self)?)),
            _ => Err(word.error("expected `>` or `<`")),
        }
    }

    /// A time, ns.
    fn time(&mut self) -> Result<f64, ConditionError> {
        let word = self.next("a time such as 20ms")?;
        let time = parse_short_time(&word.text).map_err(|problem| word.error(problem))?;
        Ok(time.as_nanos() as f64)
    }

    fn percent(&mut self) -> Result<f64, ConditionError> {
        let word = self.next("a number and `%`")?;
        let number = word.text.parse::<f64>();
        let number = number.map_err(|_| word.error("expected a number and `%`"))?;
        if !(0.0..=100.0).contains(&number) {
            return Err(word.error("a share is 0 % to 100 %"));
        }
        self.literal("%")?;
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Condition, ConditionError> {
        text.parse()
    }

    fn error(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    /// Check the parts of conditions, with and without blanks around signs, and in quotes.
    #[test]
    fn conditions() {
        let c = parse("lock of tp_osd_tp > 30% over 5s").unwrap();
        assert!(matches!(c.subject, Subject::State(State::Lock)));
        assert_eq!(c.percentile, None);
        assert_eq!(
            (c.limit, c.window),
            (Limit::Above(30.0), Duration::from_secs(5))
        );
        let threads = c.threads.as_ref().unwrap();
        assert!(threads.is_match("tp_osd_tp") && !threads.is_match("msgr"));
        assert!(c.holds(30.1) && !c.holds(30.0));
        assert_eq!(c.to_string(), "lock of tp_osd_tp > 30% over 5s");

        let c = parse("func:ObjectCacher::* of all>10 % over 1.5m").unwrap();
        let Subject::Function(glob) = &c.subject else {
            panic!("{c:?}");
        };
        assert!(glob.is_match("ObjectCacher::readx(int)") && !glob.is_match("x::ObjectCacher::f"));
        assert!(c.threads.is_none());
        assert_eq!((c.limit, c.window.as_secs()), (Limit::Above(10.0), 90));

        let c = parse("p99 on-cpu of \"CPU N/KVM\"<2.5% over 2s").unwrap();
        assert_eq!((c.percentile, c.limit), (Some(99), Limit::Below(2.5)));
        assert!(c.threads.as_ref().unwrap().is_match("CPU N/KVM"));
        assert!(c.holds(2.0) && !c.holds(3.0));

        let c = parse("max func:\"f(int, std::vector<int>&)\" of 'all' > 1% over 10s").unwrap();
        assert_eq!(c.percentile, Some(100));
        assert!(c.threads.unwrap().is_match("all"));
        let Subject::Function(glob) = &c.subject else {
            panic!("not a function");
        };
        assert!(glob.is_match("f(int, std::vector<int>&)"));
        assert!(parse("func:vector<int>::* of all > 1% over 2s").is_ok());
    }

    /// Check conditions on counters, by their whole names and by their last part.
    #[test]
    fn counters() {
        let c = parse("op_latency > 20ms over 5s").unwrap();
        assert_eq!(c.counter(), Some("op_latency"));
        assert_eq!((c.limit, c.window.as_secs()), (Limit::Above(2e7), 5));
        assert!(c.is_about("osd.op_latency") && c.is_about("op_latency"));
        assert!(!c.is_about("osd.op_w_latency") && !c.is_about("osd.op_latency.x"));
        let c = parse("bluestore.kv_commit_lat<500us over 1m").unwrap();
        assert!(c.is_about("bluestore.kv_commit_lat") && !c.is_about("kv_commit_lat"));
        assert!(c.holds(499e3) && !c.holds(500e3));
        assert_eq!(parse("on-cpu of all > 1% over 2s").unwrap().counter(), None);
    }

    /// Check that what is wrong is named with its column.
    #[test]
    fn errors() {
        for (text, expected) in [
            ("", "column 1: expected a state or func:GLOB"),
            ("lokc of a > 1% over 5s", "column 1: unknown state \"lokc\""),
            (
                "p0 lock of a > 1% over 5s",
                "column 1: percentiles are p1 to p99",
            ),
            ("lock in a > 1% over 5s", "column 6: expected `of`"),
            ("lock of", "column 8: expected `all` or a glob"),
            ("lock of [ > 1% over 5s", "column 9: "),
            ("lock of a = 1% over 5s", "column 11: expected `>` or `<`"),
            (
                "lock of a > x% over 5s",
                "column 13: expected a number and `%`",
            ),
            (
                "lock of a > 101% over 5s",
                "column 13: a share is 0 % to 100 %",
            ),
            ("lock of a > 1 over 5s", "column 15: expected `%`"),
            ("lock of a > 1% over 5x", "column 21: "),
            (
                "lock of a > 1% over 1s",
                "column 21: the shortest window is 2s",
            ),
            (
                "lock of a > 1% over 5s x",
                "column 24: expected nothing more",
            ),
            (
                "lock of \"a > 1% over 5s",
                "column 9: the quote is not closed",
            ),
            ("func: of a > 1% over 5s", "column 1: func: needs a glob"),
            ("op_latency > x over 5s", "column 14: "),
            ("op_latency > 20% over 5s", "column 16: expected `over`"),
            (
                "op_latency > 20ms over 1s",
                "column 24: the shortest window",
            ),
            ("lock > 20ms over 5s", "column 6: expected `of`"),
            ("p99 op_latency > 20ms over 5s", "column 5: unknown state"),
        ] {
            let got = error(text);
            assert!(got.starts_with(expected), "{text}: {got}");
        }
        assert!(error(&"x".repeat(5000)).starts_with("column 1001: longer"));
    }
}
