//! Advice to the sentence and the tables of `wcprof crypto advise`.

use std::fmt::Write;

use super::calibration::heading;
use super::table::{Table, percent, signed_percent};
use crate::advice::{Advice, CalibrationSource, Choice, TraceShare};
use crate::calibration::Calibration;
use crate::observed::{FrameSource, ProcessFrames};
use wcprof_text::terminal_name;

/// The sentence, its table, and what both rest on; `calibration` as the advice was made from.
pub fn advice_text(advice: &Advice, calibration: &Calibration) -> String {
    let mut out = format!("{}\n\n{}", advice.verdict, choice_table(&advice.choices));
    for note in advice.choices.iter().filter_map(|c| c.note.as_deref()) {
        let _ = writeln!(out, "{note}");
    }
    out.push('\n');
    if let Some(process) = &advice.watched {
        out.push_str(&process_line(process, advice.report.frames.len()));
    }
    if let Some(trace) = &advice.mix {
        out.push_str(&trace_lines(trace));
    }
    out.push('\n');
    out.push_str(match advice.calibrated {
        CalibrationSource::Saved => "Costs as calibrated in the given file:\n",
        CalibrationSource::Process => "Costs of the process's own library:\n",
        CalibrationSource::System => {
            "Costs of this system's library on this machine, which may not be those of the trace. To measure \
             them there:\n`wcprof crypto calibrate PID -o FILE`, then `--calibration FILE` here.\n"
        }
    });
    out.push_str(&heading(calibration));
    out
}

fn choice_table(choices: &[Choice]) -> String {
    let mut table = Table::new(1, " | ns a frame | saved | of a thread");
    for choice in choices {
        table.row(&[
            &choice.name,
            &format!("{:.0}", choice.frame_ns),
            &match choice.saved_share {
                0.0 => "-".to_owned(),
                share => signed_percent(-share),
            },
            &match choice.thread_percent {
                Some(n) => format!("{n:.2} %"),
                None => "-".to_owned(),
            },
        ]);
    }
    table.render()
}

fn process_line(process: &ProcessFrames, n_kinds: usize) -> String {
    match &process.source {
        FrameSource::Live { burst, observation } => format!(
            "From {} frames of {n_kinds} kinds seen in {:.2} s; the burst itself slowed these threads.\n",
            observation.n_frames(),
            burst.seconds
        ),
        FrameSource::Protocol { reason, .. } => format!(
            "NOT OBSERVED ({}): one frame of each kind that such a process has by the protocol, up to 64 KiB.\n",
            terminal_name(reason)
        ),
    }
}

fn trace_lines(trace: &TraceShare) -> String {
    let mut out = format!(
        "From the trace of {}: {} of the messenger threads' CPU time is below EVP_*Update ({} \
         samples).\n",
        terminal_name(&trace.process),
        percent(trace.crypto_share),
        trace.n_samples
    );
    match (trace.kernel_share, trace.chunk_bytes) {
        (Some(share), Some(bytes)) => {
            let _ = writeln!(
                out,
                "{:.0} % of that is in _aesni_ctr32_ghash_6x, as with calls of about {bytes} bytes.",
                100.0 * share
            );
        }
        _ => out.push_str(
            "The size of calls is not known: the AES-NI kernel has no name (install debug symbols of \
             libcrypto), another kernel\nis used, or there are too few samples.\n",
        ),
    }
    out.push_str(
        "Frames: one of each kind that such a process has by the protocol, up to 64 KiB.\n",
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::{Costs, Subject, TraceSums};
    use crate::calibration::tests::example;

    fn advice(subject: Subject, calibration: &Calibration, newer: Option<&'static str>) -> String {
        let costs = Costs {
            calibration,
            source: CalibrationSource::System,
            other: None,
            newer_kernel: newer,
        };
        advice_text(&Advice::new(subject, costs), calibration)
    }

    /// Check the advice for a trace letter by letter.
    #[test]
    fn for_a_trace() {
        let sums = TraceSums {
            worker_ns: 1000,
            crypto_ns: 200,
            kernel_ns: 154,
            n_samples: 400,
        };
        let trace = TraceShare::new("ceph-osd\n", sums);
        let expected = include_str!("advice.golden.txt");
        assert_eq!(advice(Subject::Trace(trace), &example(), None), expected);
    }

    /// Check that a faster library is named in the sentence, and that what was not observed is marked.
    #[test]
    fn newer_library() {
        let process = ProcessFrames::by_protocol(
            1,
            "ceph-osd",
            crate::observed::Role::Osd,
            "no \u{1b} privilege",
        );
        let out = advice(Subject::Process(process), &example(), Some("avx512"));
        let sentence = out.lines().next().unwrap();
        assert!(sentence.starts_with("Batching "), "{out}");
        assert!(
            sentence.ends_with("; OpenSSL 3.1 or later would save 74 % of it."),
            "{out}"
        );
        assert!(
            out.contains("NOT OBSERVED (no ? privilege): one frame"),
            "{out}"
        );
    }
}
