//! A report of the model to the tables and the verdict of `wcprof crypto model`.

use std::fmt::Write;

use super::calibration::heading;
use super::table::{Table, format_bytes, format_ns, percent, signed_percent};
use crate::calibration::Calibration;
use crate::model::{Report, SideReport, WORTHWHILE};
use wcprof_text::terminal_name;

/// Frames and what other strategies would save, load, and the verdict as the last line.
pub fn model_text(report: &Report, calibration: &Calibration) -> String {
    let mut out = format!("{}\n{}", heading(calibration), frame_table(report));
    let n_larger = report.frames.iter().filter(|f| !f.fits_cache).count();
    if n_larger > 0 {
        let _ = writeln!(
            out,
            "{n_larger} frames do not fit L2: what copying would save there is not predicted."
        );
    }
    for side in &report.sides {
        out.push_str(&side_line(side, calibration.has_copy_costs()));
    }
    out + "\n" + &load_table(report) + "\n" + &verdict(report)
}

fn frame_table(report: &Report) -> String {
    let mut table = Table::new(
        2,
        "frame | calls | now ns | one allocation | gathered | scratch | bulk | calls are",
    );
    for frame in &report.frames {
        let saved = |start: &str| {
            let mut alternatives = frame.alternatives.iter();
            let found = alternatives.find(|a| a.strategy.starts_with(start));
            found.map_or("-".to_owned(), |a| signed_percent(-a.saved_share))
        };
        table.row(&[
            &frame.full_name(),
            &frame.calls,
            &format_ns(frame.now.ns),
            &saved("contiguous"),
            &saved("gathered"),
            &saved("coalesced"),
            &signed_percent(frame.bulk_ns / frame.now.ns - 1.0),
            &percent(frame.call_share),
        ]);
    }
    table.render()
}

fn side_line(side: &SideReport, has_copy_costs: bool) -> String {
    let half_peak = match side.half_peak_bytes {
        Some(half) => format!("half of the peak rate at {half:.0} B a call"),
        None => "no line fits the costs of calls".to_owned(),
    };
    let break_even = match (side.break_even_bytes, has_copy_costs) {
        (_, false) => "cost of copies not known".to_owned(),
        (None, true) => "copying the fragments of 16 KiB together never pays".to_owned(),
        (Some(size), true) => format!(
            "copying the fragments of 16 KiB together pays up to {} each",
            format_bytes(size as u64)
        ),
    };
    format!("\n{}: {half_peak}; {break_even}", side.side)
}

fn load_table(report: &Report) -> String {
    let Some(load) = report.load else {
        return String::new();
    };
    let mut out = format!(
        "\n{} threads at {:.0} I/Os a second: each has {:.2} us for an I/O. If an I/O has one such \
         frame:\n",
        load.threads,
        load.iops,
        load.budget_ns() / 1e3
    );
    let mut table = Table::new(
        1,
        "frame | of a thread | best | gain, points | I/Os at most | bulk | I/Os at most",
    );
    let mut n_left_out = 0;
    for frame in &report.frames {
        let Some(load) = frame.load else { continue };
        if load.thread_percent > 100.0 {
            n_left_out += 1;
            continue;
        }
        table.row(&[
            &frame.full_name(),
            &format!("{:.1} %", load.thread_percent),
            &format!("{:.1} %", load.best_thread_percent),
            &format!("{:.1}", load.gain_points),
            &format!("{:.0}", load.iops_bound),
            &format!("{:.1} %", load.bulk_thread_percent),
            &format!("{:.0}", load.bulk_iops_bound),
        ]);
    }
    out.push_str(&table.render());
    if n_left_out > 0 {
        let _ = writeln!(
            out,
            "{n_left_out} frames left out: these threads could not do so many I/Os of them."
        );
    }
    out
}

fn verdict(report: &Report) -> String {
    let n_all = report.frames.len();
    let least = 100.0 * WORTHWHILE;
    let helped = report.frames.iter().filter(|frame| frame.is_helped());
    let n_helped = helped.clone().count();
    let most = helped.max_by(|a, b| a.best_saved_share().total_cmp(&b.best_saved_share()));
    match most {
        None => format!(
            "Batching cannot help: it saves less than {least:.0} % of the encryption of each \
             frame. A faster library or more messenger threads can.\n"
        ),
        Some(_) if n_helped == n_all => format!(
            "Batching saves at least {least:.0} % of the encryption of each frame; {} of all \
             together.\n",
            percent(report.verdict.saved_share)
        ),
        Some(most) => format!(
            "Batching saves {least:.0} % or more of the encryption of {n_helped} of {n_all} frames, at \
             most {} ({}); for the others it cannot help.\n",
            percent(most.best_saved_share()),
            terminal_name(&most.full_name())
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibration::tests::example;
    use crate::model::Load;
    use crate::shapes::{Shape, Side};

    fn text(shapes: &[Shape], load: Option<Load>) -> String {
        let calibration = example();
        model_text(&Report::new(shapes, &calibration, load), &calibration)
    }

    fn shape(name: &str, side: Side, calls: &str) -> Shape {
        Shape::new(name, side, calls).unwrap()
    }

    /// Check the row of a frame, and each of the three verdicts.
    #[test]
    fn verdicts() {
        let few = shape("few", Side::Rx, "80,0 | 192,16384,16,0");
        let many = shape("many", Side::Tx, "32,48 | 64x256,16");
        let out = text(std::slice::from_ref(&few), None);
        assert!(
            out.contains("RX few  80,0 | 192,16384,16,0    2028"),
            "{out}"
        );
        assert!(out.contains("Batching cannot help: it saves less than 3 %"));
        assert!(!out.contains("threads at") && !out.contains("do not fit"));
        let out = text(std::slice::from_ref(&many), None);
        assert!(
            out.contains("Batching saves at least 3 % of the encryption of each frame; "),
            "{out}"
        );
        let out = text(&[few, many], None);
        let verdict = out.lines().last().unwrap();
        assert!(verdict.contains("of 1 of 2 frames, at most "), "{out}");
        assert!(
            verdict.ends_with("% (TX many); for the others it cannot help."),
            "{out}"
        );
    }

    /// Check the notes on frames larger than the cache, and on those that a load can not have.
    #[test]
    fn limits() {
        let large = shape("large", Side::Rx, "4194304");
        let load = Load {
            threads: 1,
            iops: 100_000.0,
        };
        let out = text(&[large, shape("small", Side::Rx, "4096")], Some(load));
        assert!(out.contains("1 frames do not fit L2"), "{out}");
        assert!(out.contains("1 threads at 100000 I/Os a second: each has 10.00 us for an I/O."));
        assert!(out.contains("1 frames left out"), "{out}");
    }
}
