//! Folded stacks: `root;...;leaf WEIGHT`, a stack a line.
//!
//! When the first frame of every line is `name/TID` (what `wcprof report --format folded` writes), it is the
//! thread; else all is one thread. States stay unknown, and time has no order. Lines that begin with `#` are comments. A file with two weights a
//! line is a differential: one column of it is imported.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::iter;

use wcprof_trace::model::{ProcessId, Span, StackId, ThreadId};
use wcprof_types::{Pid, StackEnd, ThreadState, Tid, TimeNs};

use crate::builder::Builder;
use crate::error::{ImportError, Result, within};
use crate::limits;
use crate::options::Options;
use crate::text::{Escapes, unescaped};
use crate::write::write;

/// What a unit of weight stands for when nobody says: what wcprof writes.
const UNIT_NS: u64 = 1000;
/// Stands for the first frame where that is no thread.
const NO_THREAD: &str = "imported";

/// What a line counts, in units: seconds with a fraction are as common as samples.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Weight {
    whole: u64,
    millionths: u32,
}

impl Weight {
    /// `None` for what is no decimal number, negative ones among them.
    fn parse(text: &str) -> Option<Self> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let is_number = |digits: &str| digits.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() && fraction.is_empty() || !is_number(whole) || !is_number(fraction) {
            return None;
        }
        let six = fraction.bytes().chain(iter::repeat(b'0')).take(6);
        Some(Self {
            whole: match whole {
                "" => 0,
                whole => whole.parse().ok()?,
            },
            millionths: six.fold(0, |n, digit| 10 * n + u32::from(digit - b'0')),
        })
    }

    /// In ns, of units of so many.
    fn ns(self, unit: u64) -> u64 {
        let fraction = u128::from(self.millionths) * u128::from(unit) / 1_000_000;
        let whole = self.whole.saturating_mul(unit);
        whole.saturating_add(u64::try_from(fraction).unwrap_or(u64::MAX))
    }
}

/// A line without its weight, and the weight. `None` when there is none.
pub(crate) fn split_weight(line: &str) -> Option<(&str, Weight)> {
    let (stack, weight) = line.trim_end().rsplit_once(' ')?;
    let weight = Weight::parse(weight)?;
    (!stack.trim().is_empty()).then_some((stack, weight))
}

/// A line of two weights without them, and the one in a column, 1 or 2.
fn split_column(line: &str, column: u8) -> Option<(&str, Weight)> {
    let (rest, second) = split_weight(line)?;
    let (stack, first) = split_weight(rest)?;
    Some((stack, if column == 1 { first } else { second }))
}

/// The thread that a first frame names.
fn thread_of(frame: &str) -> Option<(&str, i32)> {
    let (name, tid) = frame.rsplit_once('/')?;
    let is_number = !tid.is_empty() && tid.bytes().all(|b| b.is_ascii_digit());
    let tid = tid.parse().ok().filter(|tid| *tid > 0 && is_number)?;
    Some((name, tid))
}

/// The lines of a text that is read several times, so that it is never whole in memory.
struct FoldedLines<R> {
    source: BufReader<R>,
    /// `<`, `>` and `&` are written as HTML does.
    is_escaped: bool,
}

impl<R: Read + Seek> FoldedLines<R> {
    /// Calls `each` with every line that is neither blank nor a comment. Bytes that are not UTF-8 become replacement
    /// characters.
    fn for_each(&mut self, mut each: impl FnMut(&str) -> Result<()>) -> Result<()> {
        self.source.rewind().map_err(ImportError::Read)?;
        let mut text = (&mut self.source).take(limits::MAX_TEXT_BYTES as u64 + 1);
        let (mut bytes, mut n_bytes) = (Vec::new(), 0);
        loop {
            bytes.clear();
            let read = text.read_until(b'\n', &mut bytes);
            match read.map_err(ImportError::Read)? {
                0 => return Ok(()),
                n => n_bytes += n,
            }
            within(n_bytes, limits::MAX_TEXT_BYTES, "the text")?;
            let line = String::from_utf8_lossy(&bytes);
            let line = line.trim_end_matches(['\n', '\r']);
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            match self.is_escaped {
                true => each(&unescaped(line))?,
                false => each(line)?,
            }
        }
    }
}

/// What a line counts for.
#[derive(Copy, Clone)]
struct WeightReading {
    /// Which of two weights.
    column: Option<u8>,
    /// Nanoseconds that a unit of weight stands for.
    unit: u64,
}

impl WeightReading {
    /// A line without its weight, and that in ns; `None` for a line that is not understood.
    fn split(self, line: &str) -> Option<(&str, u64)> {
        let (stack, weight) = match self.column {
            Some(column) => split_column(line, column),
            None => split_weight(line),
        }?;
        Some((stack, weight.ns(self.unit)))
    }

    /// Units in a weight in ns, at least one.
    fn n_samples(self, weight: u64) -> u32 {
        let n = (weight / self.unit.max(1)).max(1);
        u32::try_from(n).unwrap_or(u32::MAX)
    }
}

/// What a text as a whole is.
#[derive(Default)]
struct Survey {
    n_bad: u64,
    n_weighted: u64,
    /// Of these, lines with one weight.
    n_single: u64,
    /// Lines with time, and those of them whose first frame is no thread.
    n_timed: u64,
    n_without_thread: u64,
    escapes: Escapes,
}

impl Survey {
    fn add(&mut self, line: &str, reading: WeightReading) {
        self.escapes.add(line);
        if split_weight(line).is_some() {
            self.n_weighted += 1;
            self.n_single += u64::from(split_column(line, 1).is_none());
        }
        match reading.split(line) {
            Some((stack, 1..)) => {
                let thread = stack
                    .split_once(';')
                    .and_then(|(first, _)| thread_of(first));
                self.n_timed += 1;
                self.n_without_thread += u64::from(thread.is_none());
            }
            Some(_) => {}
            None => self.n_bad += 1,
        }
    }
}

/// Looks at all lines.
///
/// # Errors
/// When the text is a differential of which no column was chosen, or has no time.
fn survey<R: Read + Seek>(lines: &mut FoldedLines<R>, reading: WeightReading) -> Result<Survey> {
    let mut survey = Survey::default();
    lines.for_each(|line| {
        survey.add(line, reading);
        Ok(())
    })?;
    if reading.column.is_none() && survey.n_weighted > 0 && survey.n_single == 0 {
        return Err(ImportError::Foreign {
            what: "a differential: two weights a line, as difffolded.pl and inferno-diff-folded write",
            advice: "import it with `--column 1` and with `--column 2`, and compare the two traces with `wcprof diff`",
        });
    }
    if survey.n_timed == 0 {
        return Err(ImportError::NoSamples(format!(
            " ({} lines are not `root;...;leaf WEIGHT`)",
            survey.n_bad
        )));
    }
    Ok(survey)
}

/// The threads of a text, by their first frames.
#[derive(Default)]
struct FoldedThreads {
    ids: HashMap<String, ThreadId>,
    /// Weights, ns, by id.
    totals: Vec<u64>,
}

impl FoldedThreads {
    fn add(&mut self, frame: &str, process: ProcessId, builder: &mut Builder) -> Result<ThreadId> {
        if let Some(known) = self.ids.get(frame) {
            return Ok(*known);
        }
        let (name, tid) = thread_of(frame).unwrap_or((frame, 1));
        let id = builder.thread(process, Tid(tid), name)?;
        self.ids.insert(frame.to_owned(), id);
        self.totals.push(0);
        Ok(id)
    }
}

/// A stack of a thread: what is kept of a line, of which there may be millions.
struct FoldedStack {
    thread: ThreadId,
    stack: StackId,
    n_samples: u32,
    /// In ns.
    weight: u64,
}

impl FoldedStack {
    /// Adds another one, if it is of the same stack and thread.
    fn take(&mut self, other: &Self) -> bool {
        if (self.thread, self.stack) != (other.thread, other.stack) {
            return false;
        }
        self.weight = self.weight.saturating_add(other.weight);
        self.n_samples = self.n_samples.saturating_add(other.n_samples);
        true
    }
}

/// Writes the trace of a text: its spans are never in memory with all that is known of them.
pub(crate) fn import<R: Read + Seek, W: Write>(source: R, options: &Options, out: W) -> Result<()> {
    let reading = WeightReading {
        column: options.column,
        unit: options.unit_ns.unwrap_or(UNIT_NS),
    };
    let mut lines = FoldedLines {
        source: BufReader::new(source),
        is_escaped: false,
    };
    let survey = survey(&mut lines, reading)?;
    lines.is_escaped = survey.escapes.are_escaped();
    let mut builder = Builder::new("folded stacks", options);
    let process = builder.process(Pid(0), "imported")?;
    let mut threads = FoldedThreads::default();
    let mut observed: Vec<FoldedStack> = Vec::new();
    lines.for_each(|line| {
        let Some((stack, weight @ 1..)) = reading.split(line) else {
            return Ok(());
        };
        let by_thread = stack
            .split_once(';')
            .filter(|_| survey.n_without_thread == 0);
        let (first, frames) = by_thread.unwrap_or((NO_THREAD, stack));
        let thread = threads.add(first, process, &mut builder)?;
        let frames = frames.split(';').map(|name| builder.named(name));
        let frames = frames.collect::<Result<Vec<_>, _>>()?;
        let stack = builder.stack(frames, StackEnd::Root)?;
        let total = &mut threads.totals[thread.0 as usize];
        *total = total.saturating_add(weight);
        let limit = limits::MAX_TIME_NS as usize;
        within(*total as usize, limit, "the sum of all weights, ns,")?;
        let n_samples = reading.n_samples(weight);
        builder.count_samples(thread, n_samples);
        observed.push(FoldedStack {
            thread,
            stack,
            n_samples,
            weight,
        });
        within(observed.len(), limits::MAX_SPANS, "the number of stacks")
    })?;
    let FoldedThreads { totals, .. } = threads;
    let duration = totals.iter().copied().max().unwrap_or_default();
    for (thread, total) in builder.trace.tables.threads.iter_mut().zip(&totals) {
        thread.end = TimeNs(*total);
    }
    builder.note(format!(
        "states and times are unknown; one unit of weight counts as {} us",
        reading.unit as f64 / 1000.0
    ));
    let bad = "lines were not understood and are left out";
    builder.note_counts([(survey.n_bad, bad)]);
    let tables = builder.finish(duration).tables;
    // A trace has whole microseconds: weights of a stack are added up before.
    observed.sort_unstable_by_key(|one| (one.thread, one.stack));
    observed.dedup_by(|next, kept| kept.take(next));
    // Its time is unknown: each weight lies somewhere in its thread's whole time.
    let spans = observed.into_iter().map(|one| Span {
        thread: one.thread,
        start: TimeNs(0),
        end: TimeNs(totals[one.thread.0 as usize]),
        weight: one.weight,
        n_samples: one.n_samples,
        state: ThreadState::Unknown,
        wait: None,
        stack: Some(one.stack),
    });
    write(&tables, spans, out)
}
