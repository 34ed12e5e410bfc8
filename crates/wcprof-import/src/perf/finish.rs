//! All that was read of a `perf.data` to the spans and notes of a trace.

use wcprof_trace::model::{Span, Trace};
use wcprof_types::TimeNs;

use super::events::{Event, Kind};
use super::offcpu::UNTIMED;
use super::pieces::{Piece, count_once};
use super::threads::Recording;
use crate::error::{ImportError, Result, within};
use crate::limits;

/// Scales the time of threads, and counts it from the first moment on.
pub(super) fn finish(mut recording: Recording<'_>) -> Result<Trace> {
    recording.end_waits()?;
    let n_twice = count_once(&mut recording.pieces);
    let twice = "waits of switches are left out, since samples of --off-cpu have them";
    recording.builder.note_counts([(n_twice, twice)]);
    // Sums without a time lie before the end of the recording; without any time, before that of the longest.
    let untimed = |piece: &Piece| piece.end == UNTIMED;
    let longest = recording
        .pieces
        .iter()
        .filter(|p| untimed(p))
        .map(|p| p.weight)
        .max();
    if recording.last == 0 {
        recording.last = longest.unwrap_or_default();
    }
    let last = recording.last;
    let pieces = recording.pieces.iter_mut();
    pieces
        .filter(|p| untimed(p))
        .for_each(|piece| piece.end = last);
    let weight = |piece: &Piece| match piece.event {
        None => piece.weight,
        Some(event) => {
            let (n, periods) = recording.sums[event];
            let scale = recording.events[event].scale(n, periods);
            (piece.weight as f64 * scale).round() as u64
        }
    };
    let weights: Vec<u64> = recording.pieces.iter().map(weight).collect();
    let begin = |(piece, weight): (&Piece, &u64)| piece.end.saturating_sub(*weight);
    let Some(first) = recording.pieces.iter().zip(&weights).map(begin).min() else {
        let n = recording.counts.n_other + recording.counts.n_idle;
        let of_time = "record a clock, cycles or sched:sched_switch";
        let made_for = recording.made_for.map(|what| format!(" ({what})"));
        let made_for = made_for.unwrap_or_default();
        return Err(ImportError::NoSamples(match n {
            0 if made_for.is_empty() => made_for,
            0 => format!(" of time{made_for}; {of_time}"),
            n => format!(" of time: {n} are of other events or of no process{made_for}; {of_time}"),
        }));
    };
    let duration = recording.last.saturating_sub(first);
    if duration > limits::MAX_TIME_NS {
        return Err(ImportError::Perf("its times are too far apart".to_owned()));
    }
    let mut total = 0_u64;
    for (piece, weight) in std::mem::take(&mut recording.pieces).iter().zip(&weights) {
        let end = piece.end.saturating_sub(first);
        let weight = (*weight).min(end);
        total = total.saturating_add(weight);
        let start = end - weight;
        recording.builder.span(Span {
            thread: piece.thread,
            start: TimeNs(start),
            end: TimeNs(end),
            weight,
            n_samples: 1,
            state: piece.state,
            wait: None,
            stack: piece.stack,
        })?;
        let threads = &mut recording.builder.trace.tables.threads;
        let thread = &mut threads[piece.thread.0 as usize];
        thread.start = match thread.end.0 {
            0 => TimeNs(start),
            _ => thread.start.min(TimeNs(start)),
        };
        thread.end = thread.end.max(TimeNs(end));
    }
    let (total, limit) = (total as usize, limits::MAX_TIME_NS as usize);
    within(total, limit, "the sum of all weights, ns,")?;
    recording.processes.name_jit(&mut recording.builder);
    note_unknowns(&mut recording);
    let stats = &mut recording.builder.trace.tables.stats;
    stats.losses.n_lost = recording.counts.n_lost;
    stats.ends.clone_from(&recording.processes.copies.ends);
    Ok(recording.builder.finish(duration))
}

/// Notes what the source does not say.
fn note_unknowns(recording: &mut Recording<'_>) {
    let Recording {
        builder,
        counts,
        processes,
        events,
        made_for,
        ..
    } = recording;
    let is = |kind: fn(&Kind) -> bool| events.iter().any(|e| kind(&e.kind));
    let has_switches = is(|k| matches!(k, Kind::Switch | Kind::OffCpu)) || counts.has_switches;
    let hz = events.iter().find_map(|e| e.hz).unwrap_or_default();
    builder.trace.tables.header.rate_hz = u32::try_from(hz).unwrap_or_default();
    if let Some(made_for) = made_for {
        builder.note(format!(
            "{made_for}; what is not time on or off CPU is left out"
        ));
    }
    builder.note(match has_switches {
        false => "time off CPU was not recorded",
        true => {
            "what blocked threads waited for is guessed from the functions that they were in; time \
             on a run queue after a wait counts as wait"
        }
    });
    if !events.iter().any(Event::counts_cpu_time) {
        builder.note("time on CPU has no stacks: no clock or cycles were recorded");
    }
    if is(|k| matches!(k, Kind::Happened { .. }))
        && !is(|k| !matches!(k, Kind::Happened { .. } | Kind::Other))
    {
        builder.note(
            "samples count what happened, such as cache misses, and no time: shares are of these counts, and states are unknown \
             (for time record cpu-clock or cycles)",
        );
    }
    if events.iter().any(|event| event.has_branches) {
        builder.note(
            "call stacks in the processor's branch records (`--call-graph lbr`) are not read, so that only innermost functions are \
             known: record with `--call-graph fp` or `dwarf`",
        );
    }
    if is(|k| *k == Kind::Counted { hz: None }) {
        builder.note("one count of the event counts as 1 ns: perf recorded no times");
    }
    let modules = builder.trace.tables.modules.iter();
    let unknown = modules.filter(|m| m.build_id.is_none() && m.path.starts_with('/'));
    let n_unknown = unknown.count() as u64;
    for note in processes.copies.notes() {
        builder.note(note);
    }
    builder.note_counts([
        (
            counts.n_open,
            "waits have no recorded end (record with -a or --switch-events): each goes on until \
             the thread's next sample",
        ),
        (
            counts.n_untimed,
            "sums of waits have no times in the file: each is drawn before the end of the recording",
        ),
        (
            counts.n_deferred,
            "samples have their user stacks in later records (`--call-graph fp,defer`), which are not read: record with \
             `--call-graph fp` or `dwarf`",
        ),
        (
            processes.n_ambiguous,
            "mappings are of other files than the one of their path whose build-id perf saved (containers): they have none (record with \
             --buildid-all)",
        ),
        (counts.n_other, "samples of other events are left out"),
        (counts.n_idle, "samples of the idle CPUs are left out"),
        (
            n_unknown,
            "modules have no build-id, so that their functions have no names (record with \
             --buildid-all)",
        ),
    ]);
}
