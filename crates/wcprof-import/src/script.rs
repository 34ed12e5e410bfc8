//! What `perf script` prints: a line of the sample, and its frames, the leaf first.

use std::collections::HashMap;

use wcprof_trace::model::{ProcessId, Span, ThreadId, Trace};
use wcprof_types::{Pid, StackEnd, ThreadState, Tid, TimeNs};

use crate::builder::Builder;
use crate::error::{ImportError, Result, within};
use crate::limits;
use crate::options::Options;

/// What a sample of an event other than a clock stands for when nobody says: those of `perf record -F 99` are not far from it.
const UNIT_NS: u64 = 10_000_000;
/// Events whose samples say that a thread ran, beside those of clocks.
const COUNTED: &[&str] = &["cycles", "cpu-cycles", "ref-cycles"];

/// The line of a sample.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SampleLine<'a> {
    comm: &'a str,
    pid: Option<i32>,
    tid: i32,
    /// ns.
    time: u64,
    period: Option<u64>,
    event: &'a str,
    /// A frame in the line itself, of a recording without stacks.
    frame: &'a str,
}

/// `osd worker  31243/31245 [003] 5301.123456:  250000 cpu-clock:u: `.
pub(crate) fn sample_line(line: &str) -> Option<SampleLine<'_>> {
    if line.starts_with(['#', '\t']) {
        return None;
    }
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let time_of = |word: &str| {
        let (seconds, fraction) = word.strip_suffix(':')?.split_once('.')?;
        let is_time = is_number(seconds) && is_number(fraction) && fraction.len() <= 9;
        let digits = fraction.parse::<u64>().ok().filter(|_| is_time)?;
        let ns = digits * 10_u64.pow(9 - u32::try_from(fraction.len()).ok()?);
        seconds
            .parse::<u64>()
            .ok()?
            .checked_mul(1_000_000_000)?
            .checked_add(ns)
    };
    // The name may hold blanks, and even numbers: what is behind the first time is not part of it.
    let mut words = line.split_ascii_whitespace();
    let word = words.find(|word| time_of(word).is_some())?;
    let time = time_of(word)?;
    let at = word.as_ptr() as usize - line.as_ptr() as usize;
    let before = line[..at].trim();
    let before = match before.rsplit_once(' ') {
        Some((rest, cpu)) if cpu.starts_with('[') => rest.trim_end(),
        _ => before,
    };
    let (comm, ids) = before.rsplit_once(' ')?;
    let (pid, tid) = match ids.split_once('/') {
        Some((pid, tid)) => (Some(pid.parse().ok()?), tid),
        None => (None, ids),
    };
    let mut behind = line[at + word.len()..].trim();
    let mut period = None;
    if let Some((number, rest)) = behind.split_once(' ')
        && is_number(number)
    {
        (period, behind) = (number.parse().ok(), rest.trim_start());
    }
    let end = behind.find(char::is_whitespace).unwrap_or(behind.len());
    let event = behind[..end].strip_suffix(':')?;
    Some(SampleLine {
        comm: comm.trim(),
        pid,
        tid: tid.parse().ok()?,
        time,
        period,
        event,
        frame: behind[end..].trim(),
    })
}

/// The function of `7f52ad1c6e37 __GI___clock_nanosleep+0x67 (/usr/lib/libc.so.6)`.
fn frame(line: &str) -> Option<&str> {
    let (address, rest) = line.trim().split_once(' ')?;
    let is_address = address.len() <= 16 && address.bytes().all(|b| b.is_ascii_hexdigit());
    let name = match rest.strip_suffix(')').and_then(|rest| rest.rfind(" (")) {
        Some(end) => &rest[..end],
        None => rest,
    };
    let is_hex = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
    let name = match name.rsplit_once("+0x") {
        Some((name, offset)) if is_hex(offset) => name,
        _ => name,
    };
    (is_address && !name.trim().is_empty()).then(|| name.trim())
}

/// A sample and its frames, leaf first.
struct ScriptSample<'a> {
    line: SampleLine<'a>,
    leaf_first: Vec<&'a str>,
}

/// The samples of a text, and how many lines were not understood.
fn read(text: &str) -> (Vec<ScriptSample<'_>>, u64) {
    let mut samples: Vec<ScriptSample<'_>> = Vec::new();
    let mut n_bad = 0;
    for line in text.lines() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(line) = sample_line(line) {
            let leaf_first = frame(line.frame).into_iter().collect();
            samples.push(ScriptSample { line, leaf_first });
        } else if let (true, Some(name), Some(sample)) = (
            line.starts_with([' ', '\t']),
            frame(line),
            samples.last_mut(),
        ) {
            if sample.leaf_first.len() <= limits::MAX_FRAMES {
                sample.leaf_first.push(name);
            }
        } else {
            n_bad += 1;
        }
    }
    (samples, n_bad)
}

/// The name of an event without its PMU and modifiers: `cycles` of `cpu_core/cycles/u`.
fn base(event: &str) -> &str {
    let parts = event.split(['/', ':']);
    let mut parts = parts.filter(|p| !p.is_empty() && *p != "cpu" && !p.starts_with("cpu_"));
    parts.next().unwrap_or(event)
}

fn is_clock(event: &str) -> bool {
    matches!(event, "cpu-clock" | "task-clock")
}

/// The event whose samples are taken: a clock before a counter, since both of one recording would count one time twice.
fn wanted<'a>(samples: &[ScriptSample<'a>]) -> Option<&'a str> {
    let names = || samples.iter().map(|sample| base(sample.line.event));
    let clock = names().find(|event| is_clock(event));
    clock.or_else(|| names().find(|event| COUNTED.contains(event)))
}

/// The threads of a trace by pid and tid.
#[derive(Default)]
struct ScriptThreads {
    processes: HashMap<i32, ProcessId>,
    threads: HashMap<(i32, i32), ThreadId>,
}

impl ScriptThreads {
    /// The thread of a sample, which is added if it is new. Without pids all threads are of one process.
    fn id(&mut self, line: &SampleLine<'_>, builder: &mut Builder) -> Result<ThreadId> {
        let pid = line.pid.unwrap_or(0).max(0);
        if let Some(&known) = self.threads.get(&(pid, line.tid)) {
            return Ok(known);
        }
        let process = match self.processes.get(&pid) {
            Some(&known) => known,
            None => {
                let comm = line.pid.map_or("imported", |_| line.comm);
                let new = builder.process(Pid(pid), comm)?;
                self.processes.insert(pid, new);
                new
            }
        };
        let new = builder.thread(process, Tid(line.tid), line.comm)?;
        self.threads.insert((pid, line.tid), new);
        Ok(new)
    }
}

pub(crate) fn import(text: &str, options: &Options) -> Result<Trace> {
    let (samples, n_bad) = read(text);
    within(samples.len(), limits::MAX_SPANS, "the number of samples")?;
    let Some(wanted) = wanted(&samples) else {
        return Err(ImportError::NoSamples(format!(
            " of CPU time: of {} samples none is of a clock or of cycles; import perf.data itself",
            samples.len()
        )));
    };
    let unit = options.unit_ns.unwrap_or(UNIT_NS);
    let weight = |line: &SampleLine<'_>| line.period.filter(|_| is_clock(wanted)).unwrap_or(unit);
    // Thread 0 is the idle one of each CPU.
    let taken = samples.iter();
    let taken = taken.filter(|read| base(read.line.event) == wanted && read.line.tid > 0);
    let lines = || taken.clone().map(|read| &read.line);
    let first = lines().map(|line| line.time.saturating_sub(weight(line)));
    let first = first.min().unwrap_or_default();
    let last = lines().map(|line| line.time).max().unwrap_or_default();
    let duration = last.saturating_sub(first);
    let limit = limits::MAX_TIME_NS as usize;
    within(duration as usize, limit, "the time between samples, ns,")?;
    let mut builder = Builder::new("perf script", options);
    let mut threads = ScriptThreads::default();
    let (mut n_taken, mut total) = (0, 0_u64);
    for ScriptSample { line, leaf_first } in taken.clone() {
        n_taken += 1;
        let thread = threads.id(line, &mut builder)?;
        let frames = leaf_first.iter().rev().map(|name| builder.named(name));
        let frames = frames.collect::<Result<Vec<_>, _>>()?;
        let stack = builder.stack(frames, StackEnd::Root)?;
        let end = line.time - first;
        let weight = weight(line).min(end);
        total = total.saturating_add(weight);
        let known = &mut builder.trace.tables.threads[thread.0 as usize];
        known.start = match known.end.0 {
            0 => TimeNs(end - weight),
            _ => known.start.min(TimeNs(end - weight)),
        };
        known.end = known.end.max(TimeNs(end));
        builder.span(Span {
            thread,
            start: TimeNs(end - weight),
            end: TimeNs(end),
            weight,
            n_samples: 1,
            state: ThreadState::OnCpu,
            wait: None,
            stack: Some(stack),
        })?;
    }
    within(total as usize, limit, "the sum of all weights, ns,")?;
    if n_taken == 0 {
        let of = " of threads: all are of the idle CPUs".to_owned();
        return Err(ImportError::NoSamples(of));
    }
    builder.note("time off CPU is not in the text: import perf.data itself for that");
    if !is_clock(wanted) {
        builder.note(format!(
            "a sample of {wanted} counts as {} ms (`--unit`): the text has counts of the event, and no time on CPU",
            unit as f64 / 1e6
        ));
    }
    let n_other = (samples.len() - n_taken) as u64;
    let other = "samples of other events and of the idle CPUs are left out";
    let bad = "lines were not understood and are left out";
    builder.note_counts([(n_other, other), (n_bad, bad)]);
    Ok(builder.finish(duration))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check lines with and without a CPU, a pid and a period, and of a name with blanks.
    #[test]
    fn lines() {
        let line = "osd 7 worker  31243/31245 [003]  5301.123456:     250000 cpu-clock:u: ";
        let found = sample_line(line).expect("a sample");
        assert_eq!(
            (found.comm, found.pid, found.tid),
            ("osd 7 worker", Some(31243), 31245)
        );
        assert_eq!(
            (found.time, found.period),
            (5_301_123_456_000, Some(250_000))
        );
        assert_eq!(found.event, "cpu-clock:u");
        let found = sample_line("a 1 [0] 1.5: cycles:").expect("a sample");
        assert_eq!((found.pid, found.tid, found.period), (None, 1, None));
        let one =
            "perf 12 1.500000: 1 cycles:P:  ffffffff81 native_write_msr+0x4 ([kernel.kallsyms])";
        let found = sample_line(one).expect("a sample");
        assert_eq!(frame(found.frame), Some("native_write_msr"));
        assert_eq!(
            frame("\t 7f52 f(int) const+0x1f (/x y)"),
            Some("f(int) const")
        );
        assert_eq!(frame("\t 7f52 [unknown] (/x)"), Some("[unknown]"));
        assert_eq!(sample_line("hello 1.5 world"), None);
        assert_eq!(base("cpu_core/cycles/u"), "cycles");
        assert_eq!(base("cpu-cycles:P"), "cpu-cycles");
    }
}
