//! What was observed, as tables to read.

use std::fmt::Write;

use msgr_crypto::observed::{Observation, SideSeen};
use msgr_crypto::shapes::Side;
use wcprof_report::terminal_name;

use super::super::table::Table;
use super::{BurstFacts, Source, Watched};

/// Rows of a table that are shown; the rest is added up.
const MAX_ROWS: usize = 12;

pub(super) fn text(watched: &Watched) -> String {
    let mut out = format!(
        "{}, process {}\n",
        terminal_name(&watched.comm),
        watched.pid
    );
    match &watched.source {
        Source::Live { burst, observation } => {
            out.push_str(&burst_text(burst));
            for side in [Side::Rx, Side::Tx] {
                out.push_str(&side_text(side, observation));
            }
            out.push_str(&lengths(observation));
            out.push_str(&threads(observation));
            let _ = writeln!(
                out,
                "\nNext: wcprof crypto advise {} says what would save time.",
                watched.pid
            );
        }
        Source::Protocol { reason, shapes } => {
            let _ = writeln!(
                out,
                "NOT OBSERVED: {}\nFrames that such a process has by the protocol and on other \
                 clusters; lengths of fronts, and buffers of\ndata that is sent, may differ:\n",
                terminal_name(reason)
            );
            let mut table = Table::new(2, &["frame", "calls"]);
            for shape in shapes {
                table.row(&[&format!("{} {}", shape.side, shape.name), &shape.calls]);
            }
            out.push_str(&table.render());
            out.push_str(
                "\nA recording tells more without privileges: wcprof attach PID, then wcprof crypto \
                 advise TRACE.\n",
            );
        }
    }
    out
}

fn burst_text(burst: &BurstFacts) -> String {
    let mut out = String::new();
    for library in &burst.libraries {
        let _ = writeln!(out, "library {}", terminal_name(library));
    }
    let _ = writeln!(
        out,
        "{:.3} s, {} threads ({} not observed, {} born meanwhile): {} calls, {} of them not seen{}",
        burst.seconds,
        burst.n_threads,
        burst.n_threads_not_observed,
        burst.n_threads_born,
        burst.n_hits,
        burst.n_missing,
        match burst.n_malformed {
            0 => String::new(),
            n => format!(", {n} records not understood"),
        }
    );
    let _ = writeln!(
        out,
        "cost: {:.1} ms of CPU time, {:.1} % of these threads for the {:.2} s that breakpoints were in: \
         {} calls seen x {:.2} us,\n      and about as many a second not seen, while they were put in and out, \
         x {:.2} us (measured on wcprof itself)",
        burst.cost_seconds * 1e3,
        100.0 * burst.cost_seconds
            / (burst.trapped_seconds * burst.n_threads.max(1) as f64).max(1e-9),
        burst.trapped_seconds,
        burst.n_hits,
        burst.ns_per_hit / 1e3,
        burst.ns_per_silent_hit / 1e3,
    );
    out.push_str(match burst.removal {
        "verified" => "breakpoints: gone; the code is what it was before\n",
        "exited" => "breakpoints: gone with the process\n",
        "unknown" => "breakpoints: closed; the target's memory can not be read to verify it\n",
        _ => "breakpoints: closed, but the code differs from before: another tracer's?\n",
    });
    out
}

fn side_text(side: Side, observation: &Observation) -> String {
    let seen = observation.side(side);
    let name = match side {
        Side::Rx => "RX (decrypt)",
        Side::Tx => "TX (encrypt)",
    };
    let mut out = format!(
        "\n{name}: {} connections, {} frames, {} units, {} calls, {} bytes\n",
        seen.n_connections,
        seen.n_frames,
        seen.n_units,
        seen.n_calls(),
        seen.n_bytes
    );
    out.push_str(&not_frames(seen));
    let of_side: Vec<_> = observation
        .shapes
        .iter()
        .filter(|shape| shape.side == side)
        .collect();
    if of_side.is_empty() {
        return out;
    }
    let mut table = Table::new(0, &["frames", "share"]);
    let mut names = vec!["frame | units".to_owned()];
    for shape in of_side.iter().take(MAX_ROWS) {
        table.row(&[&shape.count.to_string(), &share(shape.count, seen.n_frames)]);
        names.push(format!("{}: {}", shape.name, shape.calls));
    }
    // Names stand last, as the longest column.
    for (line, name) in table.render().lines().zip(&names) {
        let _ = writeln!(out, "{line}  {}", terminal_name(name));
    }
    let rest: u64 = of_side.iter().skip(MAX_ROWS).map(|shape| shape.count).sum();
    if rest > 0 {
        let n = of_side.len() - MAX_ROWS;
        let _ = writeln!(out, "and {rest} frames of {n} other shapes");
    }
    out
}

fn not_frames(seen: &SideSeen) -> String {
    let mut parts = Vec::new();
    if seen.n_edge_calls > 0 {
        parts.push(format!("{} at the edges of the burst", seen.n_edge_calls));
    }
    if seen.n_torn_calls > 0 {
        parts.push(format!("{} not understood", seen.n_torn_calls));
    }
    if seen.n_other_calls > 0 {
        parts.push(format!(
            "{} of {} contexts without frames (cephx, TLS, idle connections)",
            seen.n_other_calls, seen.n_other_contexts
        ));
    }
    match parts.is_empty() {
        true => String::new(),
        false => format!("calls outside of whole frames: {}\n", parts.join(", ")),
    }
}

fn lengths(observation: &Observation) -> String {
    let mut rows: Vec<(u64, u64, u64)> = Vec::new();
    let sides = [&observation.rx, &observation.tx];
    let mut all: Vec<u64> = sides
        .iter()
        .flat_map(|s| s.lengths.keys().copied())
        .collect();
    all.sort_unstable();
    all.dedup();
    for len in all {
        let count = |side: &SideSeen| side.lengths.get(&len).copied().unwrap_or(0);
        rows.push((len, count(&observation.rx), count(&observation.tx)));
    }
    if rows.is_empty() {
        return String::new();
    }
    // The lengths that matter most by calls, then in order.
    rows.sort_by_key(|(_, rx, tx)| std::cmp::Reverse(rx + tx));
    let n_more = rows.len().saturating_sub(2 * MAX_ROWS);
    rows.truncate(2 * MAX_ROWS);
    rows.sort_unstable();
    let totals = sides.map(SideSeen::n_calls);
    let mut table = Table::new(0, &["bytes", "RX calls", "share", "TX calls", "share"]);
    for (len, rx, tx) in rows {
        table.row(&[
            &len.to_string(),
            &rx.to_string(),
            &share(rx, totals[0]),
            &tx.to_string(),
            &share(tx, totals[1]),
        ]);
    }
    let mut out = format!("\nLengths of calls\n{}", table.render());
    if n_more > 0 {
        let _ = writeln!(out, "and {n_more} rarer lengths (--json has them)");
    }
    out
}

fn threads(observation: &Observation) -> String {
    let mut table = Table::new(0, &["thread", "RX calls", "TX calls", "bytes", "lost"]);
    for (tid, seen) in observation.threads.iter().take(2 * MAX_ROWS) {
        table.row(&[
            &tid.to_string(),
            &seen.n_rx.to_string(),
            &seen.n_tx.to_string(),
            &seen.n_bytes.to_string(),
            &seen.n_lost.to_string(),
        ]);
    }
    match observation.threads.is_empty() {
        true => String::new(),
        false => format!("\n{}", table.render()),
    }
}

fn share(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".into(),
        _ => format!("{:.1} %", 100.0 * part as f64 / whole as f64),
    }
}
