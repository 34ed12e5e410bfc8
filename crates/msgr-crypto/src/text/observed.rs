//! The frames of a process to the tables of `wcprof crypto observe`.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt::Write;

use super::table::Table;
use crate::observed::{BurstFacts, FrameSource, Observation, ProcessFrames, SideSeen};
use crate::shapes::Side;
use wcprof_text::{percent, terminal_name};

/// Rows of a table that are shown; the rest is added up.
const MAX_ROWS: usize = 12;

/// Cost of the burst, frames, lengths of calls and threads of a process.
pub fn observed_text(process: &ProcessFrames) -> String {
    let mut out = format!(
        "{} (pid {})\n",
        terminal_name(&process.process),
        process.pid
    );
    match &process.source {
        FrameSource::Live { burst, observation } => {
            out += &burst_text(burst);
            out += &side_text(Side::Rx, observation);
            out += &side_text(Side::Tx, observation);
            out += &length_table(observation);
            out += &thread_table(observation);
            let _ = writeln!(
                out,
                "\nNext: `wcprof crypto advise {}` says what would save time.",
                process.pid
            );
        }
        FrameSource::Protocol { reason, shapes } => {
            let _ = writeln!(
                out,
                "NOT OBSERVED: {}\nFrames that such a process has by the protocol and on other clusters. \
                 Lengths of fronts, and buffers of data\nthat is sent, may differ:\n",
                terminal_name(reason)
            );
            let mut table = Table::new(2, "frame | calls");
            for shape in shapes {
                table.row(&[&format!("{} {}", shape.side, shape.name), &shape.calls]);
            }
            out.push_str(&table.render());
            out.push_str(
                "\nA recording needs fewer privileges: `wcprof attach PID`, then `wcprof crypto advise \
                 TRACE`.\n",
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
        "{:.3} s, {} threads ({} not observed, {} started meanwhile): {} calls, {} of them not seen{}",
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
    let thread_seconds = burst.trapped_seconds * burst.n_threads.max(1) as f64;
    let _ = writeln!(
        out,
        "cost: {:.1} ms of CPU time, {:.1} % of these threads for the {:.2} s that breakpoints were in: \
         {:.2} us for each of the {} calls\n      seen, and {:.2} us for each call while breakpoints were \
         put in and out, at the same rate (measured on wcprof itself)",
        burst.cost_seconds * 1e3,
        100.0 * burst.cost_seconds / thread_seconds.max(1e-9),
        burst.trapped_seconds,
        burst.ns_per_hit / 1e3,
        burst.n_hits,
        burst.ns_per_silent_hit / 1e3,
    );
    out.push_str(match burst.removal {
        "verified" => "breakpoints: removed; the code is as before\n",
        "exited" => "breakpoints: gone with the process\n",
        "unknown" => {
            "breakpoints: closed; not verified, because the target's memory can not be read\n"
        }
        _ => "breakpoints: closed, but the code is not as before: perhaps another tracer's probe\n",
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
    out.push_str(&calls_without_frame(seen));
    let shapes = observation.shapes.iter();
    let shapes: Vec<_> = shapes.filter(|shape| shape.side == side).collect();
    if shapes.is_empty() {
        return out;
    }
    let mut table = Table::new(0, "frames | share");
    let mut names = vec!["frame | units".to_owned()];
    for shape in shapes.iter().take(MAX_ROWS) {
        table.row(&[&shape.count, &share(shape.count, seen.n_frames)]);
        names.push(format!("{}: {}", shape.name, shape.calls));
    }
    // Names stand last, as the longest column.
    for (line, name) in table.render().lines().zip(&names) {
        let _ = writeln!(out, "{line}  {}", terminal_name(name));
    }
    let rest: u64 = shapes.iter().skip(MAX_ROWS).map(|shape| shape.count).sum();
    if rest > 0 {
        let n = shapes.len() - MAX_ROWS;
        let _ = writeln!(out, "and {rest} frames of {n} other shapes");
    }
    out
}

fn calls_without_frame(seen: &SideSeen) -> String {
    let other = format!(
        "of {} contexts without frames (cephx, TLS, idle connections)",
        seen.n_other_contexts
    );
    let parts = [
        (seen.n_edge_calls, "at the edges of the burst"),
        (seen.n_torn_calls, "not understood"),
        (seen.n_other_calls, &other),
    ];
    let parts = parts.iter().filter(|(n, _)| *n > 0);
    let parts: Vec<_> = parts.map(|(n, what)| format!("{n} {what}")).collect();
    match parts.is_empty() {
        true => String::new(),
        false => format!("calls outside whole frames: {}\n", parts.join(", ")),
    }
}

fn length_table(observation: &Observation) -> String {
    let sides = [&observation.rx, &observation.tx];
    let lengths: BTreeSet<&u64> = sides.iter().flat_map(|s| s.lengths.keys()).collect();
    if lengths.is_empty() {
        return String::new();
    }
    let count = |len| sides.map(|side| side.lengths.get(len).copied().unwrap_or(0));
    let mut rows: Vec<_> = lengths.into_iter().map(|len| (len, count(len))).collect();
    // The lengths that matter most by calls, then in order.
    rows.sort_by_key(|(_, [rx, tx])| Reverse(rx + tx));
    let n_more = rows.len().saturating_sub(2 * MAX_ROWS);
    rows.truncate(2 * MAX_ROWS);
    rows.sort_unstable();
    let totals = sides.map(SideSeen::n_calls);
    let mut table = Table::new(0, "bytes | RX calls | share | TX calls | share");
    for (len, [rx, tx]) in rows {
        table.row(&[len, &rx, &share(rx, totals[0]), &tx, &share(tx, totals[1])]);
    }
    let mut out = format!("\nLengths of calls\n{}", table.render());
    if n_more > 0 {
        let _ = writeln!(out, "and {n_more} rarer lengths (--json has them)");
    }
    out
}

fn thread_table(observation: &Observation) -> String {
    let mut table = Table::new(0, "thread | RX calls | TX calls | bytes | lost");
    for (tid, seen) in observation.threads.iter().take(2 * MAX_ROWS) {
        table.row(&[tid, &seen.n_rx, &seen.n_tx, &seen.n_bytes, &seen.n_lost]);
    }
    match observation.threads.is_empty() {
        true => String::new(),
        false => format!("\n{}", table.render()),
    }
}

fn share(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".into(),
        _ => format!("{:.1} %", percent(part, whole)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observed::{Role, Seen, SeenCall};

    fn calls(lens: &[i32]) -> Vec<Seen> {
        let call = |len: &i32| {
            Seen::Call(SeenCall {
                context: 1,
                side: Side::Rx,
                len: *len,
                is_aad: false,
                tid: 7,
                time_ns: 0,
            })
        };
        lens.iter().map(call).collect()
    }

    /// Check the tables of a burst that saw two frames and the beginning of a third, letter by letter.
    #[test]
    fn live() {
        let seen = calls(&[80, 0, 192, 4096, 16, 0, 80, 0, 192, 4096, 16, 0, 80, 0]);
        let process = ProcessFrames {
            pid: 42,
            process: "fio\u{1b}".into(),
            role: Role::Client,
            source: FrameSource::Live {
                burst: Box::new(BurstFacts {
                    libraries: vec!["/lib/libcrypto.so.3".into()],
                    seconds: 0.2,
                    trapped_seconds: 0.5,
                    n_threads: 1,
                    n_hits: 14,
                    removal: "verified",
                    ns_per_hit: 1900.0,
                    ns_per_silent_hit: 900.0,
                    cost_seconds: 0.005,
                    ..BurstFacts::default()
                }),
                observation: Box::new(Observation::new(&seen, Role::Client)),
            },
        };
        let expected = "\
fio? (pid 42)
library /lib/libcrypto.so.3
0.200 s, 1 threads (0 not observed, 0 started meanwhile): 14 calls, 0 of them not seen
cost: 5.0 ms of CPU time, 1.0 % of these threads for the 0.50 s that breakpoints were in: 1.90 us for each of \
the 14 calls
      seen, and 0.90 us for each call while breakpoints were put in and out, at the same rate (measured on \
wcprof itself)
breakpoints: removed; the code is as before

RX (decrypt): 1 connections, 2 frames, 4 units, 14 calls, 8848 bytes
calls outside whole frames: 2 at the edges of the burst
frames    share  frame | units
     2  100.0 %  4 KiB read reply: 80,0 | 192,4096,16,0

TX (encrypt): 0 connections, 0 frames, 0 units, 0 calls, 0 bytes

Lengths of calls
bytes  RX calls   share  TX calls  share
    0         5  35.7 %         0      -
   16         2  14.3 %         0      -
   80         3  21.4 %         0      -
  192         2  14.3 %         0      -
 4096         2  14.3 %         0      -

thread  RX calls  TX calls  bytes  lost
     7        14         0   8848     0

Next: `wcprof crypto advise 42` says what would save time.
";
        assert_eq!(observed_text(&process), expected);
    }

    /// Check that frames by the protocol are marked as such, with the reason.
    #[test]
    fn by_protocol() {
        let text = observed_text(&ProcessFrames::by_protocol(
            42,
            "qemu",
            Role::Client,
            "no\nprivilege",
        ));
        assert!(text.starts_with("qemu (pid 42)\nNOT OBSERVED: no?privilege\n"));
        assert!(text.contains("RX 16K read reply"), "{text}");
        assert!(!text.contains("TX 16K read reply"), "{text}");
    }
}
