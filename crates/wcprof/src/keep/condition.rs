//! The text of `--trigger` to a condition.
//!
//! ```text
//! condition = [over-threads] what "of" whom (">" | "<") number "%" "over" time
//! over-threads = "max" | "min" | "p1" ... "p99"
//! what = a state (lock, disk, on-cpu, ...) | "func:" glob
//! whom = "all" | a glob over names of pools and threads
//! time = number ["us" | "ms" | "s" | "m" | "min" | "h"]
//! ```

use std::fmt;
use std::time::Duration;

use globset::{Glob, GlobMatcher};
use wcprof_profile::model::State;

use crate::time::parse_duration;

/// A share of threads' time that is looked at all the time.
#[derive(Clone, Debug)]
pub(crate) struct Condition {
    /// As it was typed.
    text: String,
    pub(crate) threads: OverThreads,
    pub(crate) what: What,
    /// `None`: all threads.
    pub(crate) whom: Option<GlobMatcher>,
    pub(crate) side: Side,
    pub(crate) percent: f64,
    pub(crate) window: Duration,
}

/// How the shares of single threads become one.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum OverThreads {
    /// The share of the time of all of them together.
    Together,
    /// The share of the thread at this percentile, 0 to 100, by nearest rank.
    Percentile(u8),
}

/// Whose share it is.
#[derive(Clone, Debug)]
pub(crate) enum What {
    /// Time in a state.
    State(State),
    /// Time with a function anywhere in the stack.
    Function(GlobMatcher),
}

/// Which side of the limit makes it hold.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Above,
    Below,
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Condition {
    /// Whether a share (0 to 1) makes it hold.
    pub(crate) fn holds(&self, share: f64) -> bool {
        match self.side {
            Side::Above => share * 100.0 > self.percent,
            Side::Below => share * 100.0 < self.percent,
        }
    }
}

/// Why a text is no condition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ConditionError {
    /// Of the character at which it goes wrong, from 1.
    column: usize,
    problem: String,
}

impl fmt::Display for ConditionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "column {}: {}", self.column, self.problem)
    }
}

impl std::error::Error for ConditionError {}

/// Shortest window: a thread that waits is heard of once a second.
const MIN_WINDOW: Duration = Duration::from_secs(2);
/// Longest condition.
const MAX_CHARS: usize = 1000;

/// Parses a condition.
pub(crate) fn parse(text: &str) -> Result<Condition, ConditionError> {
    let mut words = Words::new(text)?;
    let mut word = words.next("a state or func:GLOB")?;
    let mut threads = OverThreads::Together;
    if let Some(percentile) = percentile(&word)? {
        threads = OverThreads::Percentile(percentile);
        word = words.next("a state or func:GLOB")?;
    }
    let what = what(&word)?;
    words.literal("of")?;
    let word = words.next("`all` or a glob over names of pools and threads")?;
    let whom = match word.text.as_str() {
        "all" if !word.quoted => None,
        _ => Some(glob(&word, &word.text)?),
    };
    let word = words.next("`>` or `<`")?;
    let side = match word.text.as_str() {
        ">" => Side::Above,
        "<" => Side::Below,
        _ => return Err(word.error("expected `>` or `<`")),
    };
    let percent = words.percent()?;
    words.literal("over")?;
    let word = words.next("a time such as 5s")?;
    let window = parse_duration(&word.text).map_err(|problem| word.error(problem))?;
    if window < MIN_WINDOW {
        return Err(word.error("the shortest window is 2s"));
    }
    words.end()?;
    Ok(Condition {
        text: text.to_owned(),
        threads,
        what,
        whom,
        side,
        percent,
        window,
    })
}

fn percentile(word: &Word) -> Result<Option<u8>, ConditionError> {
    match word.text.as_str() {
        _ if word.quoted => Ok(None),
        "max" => Ok(Some(100)),
        "min" => Ok(Some(0)),
        text => match text.strip_prefix('p').map(str::parse::<u8>) {
            Some(Ok(n @ 1..=99)) => Ok(Some(n)),
            Some(Ok(_)) => Err(word.error("percentiles are p1 to p99; `min` and `max` are apart")),
            _ => Ok(None),
        },
    }
}

fn what(word: &Word) -> Result<What, ConditionError> {
    if let Some(pattern) = word.text.strip_prefix("func:") {
        if pattern.is_empty() {
            return Err(word.error("func: needs a glob, such as func:ObjectCacher::*"));
        }
        return Ok(What::Function(glob(word, pattern)?));
    }
    let state = word.text.parse::<State>();
    state
        .map(What::State)
        .map_err(|error| word.error(format!("{error}; or func:GLOB for a function")))
}

fn glob(word: &Word, pattern: &str) -> Result<GlobMatcher, ConditionError> {
    Glob::new(pattern)
        .map(|glob| glob.compile_matcher())
        .map_err(|error| word.error(error.kind().to_string()))
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
}

struct Words {
    words: std::vec::IntoIter<Word>,
    /// Behind the last character.
    end: usize,
}

impl Words {
    fn new(text: &str) -> Result<Self, ConditionError> {
        let mut words: Vec<Word> = Vec::new();
        let mut quote = None;
        // Whether the next character belongs to the last word.
        let mut inside = false;
        for (at, c) in text.chars().enumerate() {
            let column = at + 1;
            if at >= MAX_CHARS {
                let problem = format!("longer than {MAX_CHARS} characters");
                return Err(ConditionError { column, problem });
            }
            match (quote, c) {
                (Some((open, _)), _) if c == open => quote = None,
                (Some(_), _) => push(&mut words, c),
                (None, '"' | '\'') => {
                    quote = Some((c, column));
                    match words.last_mut().filter(|_| inside) {
                        // func:"a b"
                        Some(_) => {}
                        None => words.push(Word {
                            text: String::new(),
                            column,
                            quoted: true,
                        }),
                    }
                    inside = true;
                }
                (None, _) if c.is_whitespace() => inside = false,
                (None, '>' | '<' | '%') if !(inside && is_function(&words)) => {
                    words.push(Word {
                        text: c.to_string(),
                        column,
                        quoted: false,
                    });
                    inside = false;
                }
                (None, _) if inside => push(&mut words, c),
                (None, _) => {
                    words.push(Word {
                        text: c.to_string(),
                        column,
                        quoted: false,
                    });
                    inside = true;
                }
            }
        }
        if let Some((_, column)) = quote {
            let problem = "the quote is not closed".to_owned();
            return Err(ConditionError { column, problem });
        }
        Ok(Self {
            words: words.into_iter(),
            end: text.chars().count() + 1,
        })
    }

    fn next(&mut self, expected: &str) -> Result<Word, ConditionError> {
        self.words.next().ok_or_else(|| ConditionError {
            column: self.end,
            problem: format!("expected {expected}"),
        })
    }

    fn literal(&mut self, text: &str) -> Result<(), ConditionError> {
        let word = self.next(&format!("`{text}`"))?;
        match word.text == text && !word.quoted {
            true => Ok(()),
            false => Err(word.error(format!("expected `{text}`"))),
        }
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

    fn end(&mut self) -> Result<(), ConditionError> {
        match self.words.next() {
            None => Ok(()),
            Some(word) => Err(word.error("expected nothing more")),
        }
    }
}

/// Names of functions have `<` and `>` in them.
fn is_function(words: &[Word]) -> bool {
    words.last().is_some_and(|w| w.text.starts_with("func:"))
}

fn push(words: &mut [Word], c: char) {
    if let Some(word) = words.last_mut() {
        word.text.push(c);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    /// Check the parts of conditions, with and without blanks around signs, and in quotes.
    #[test]
    fn conditions() {
        let c = parse("lock of tp_osd_tp > 30% over 5s").unwrap();
        assert!(matches!(c.what, What::State(State::Lock)));
        assert_eq!((c.threads, c.side), (OverThreads::Together, Side::Above));
        assert_eq!((c.percent, c.window), (30.0, Duration::from_secs(5)));
        let whom = c.whom.as_ref().unwrap();
        assert!(whom.is_match("tp_osd_tp") && !whom.is_match("msgr"));
        assert!(c.holds(0.301) && !c.holds(0.3));
        assert_eq!(c.to_string(), "lock of tp_osd_tp > 30% over 5s");

        let c = parse("func:ObjectCacher::* of all>10 % over 1.5m").unwrap();
        let What::Function(glob) = &c.what else {
            panic!("{c:?}");
        };
        assert!(glob.is_match("ObjectCacher::readx(int)") && !glob.is_match("x::ObjectCacher::f"));
        assert!(c.whom.is_none());
        assert_eq!((c.percent, c.window.as_secs()), (10.0, 90));

        let c = parse("p99 on-cpu of \"CPU N/KVM\"<2.5% over 2s").unwrap();
        assert_eq!(
            (c.threads, c.side),
            (OverThreads::Percentile(99), Side::Below)
        );
        assert!(c.whom.as_ref().unwrap().is_match("CPU N/KVM"));
        assert!(c.holds(0.02) && !c.holds(0.03));

        let c = parse("max func:\"f(int, std::vector<int>&)\" of 'all' > 1% over 10s").unwrap();
        assert_eq!(c.threads, OverThreads::Percentile(100));
        assert!(c.whom.unwrap().is_match("all"));
        let What::Function(glob) = &c.what else {
            panic!("not a function");
        };
        assert!(glob.is_match("f(int, std::vector<int>&)"));
        assert!(parse("func:vector<int>::* of all > 1% over 2s").is_ok());
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
        ] {
            let got = error(text);
            assert!(got.starts_with(expected), "{text}: {got}");
        }
        assert!(error(&"x".repeat(5000)).starts_with("column 1001: longer"));
    }
}
