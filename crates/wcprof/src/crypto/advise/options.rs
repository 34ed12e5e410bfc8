//! What could be done, each with what it saves.

use msgr_crypto::model::{FrameReport, Report};
use msgr_crypto::shapes::Side;
use msgr_crypto_ffi::GcmKernel;
use serde::Serialize;

use super::super::observe::{Source, Watched};

/// Time of a 16 KiB frame with the AVX-512 kernel of OpenSSL 3.5, as a share of that with the AES-NI
/// one of 3.0, measured on Zen 5 (0.84-0.88 of 3.17-3.33 us).
const AVX512_OVER_AESNI: f64 = 0.26;

/// A row of the table.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Choice {
    /// What is done.
    pub(super) name: String,
    /// Mean nanoseconds of a frame.
    pub(super) frame_ns: f64,
    /// Share of the time now that it saves; below 0 when it costs more.
    pub(super) saved_share: f64,
    /// Percent of each observed thread, at the rate of the burst.
    pub(super) thread_percent: Option<f64>,
    /// Can be done by whoever runs Ceph, without changing it.
    pub(super) is_lever: bool,
    /// What the figure rests on.
    pub(super) note: Option<String>,
}

/// How many frames threads had.
#[derive(Copy, Clone, Debug, Serialize)]
pub(super) struct Load {
    /// Frames of both directions a second.
    frames_a_second: f64,
    /// Observed threads that had any.
    n_threads: usize,
}

impl Load {
    pub(super) fn of(watched: &Watched) -> Option<Self> {
        let Source::Live { burst, observation } = &watched.source else {
            return None;
        };
        let n_threads = observation.threads.len();
        (burst.seconds > 0.0 && n_threads > 0).then(|| Self {
            frames_a_second: observation.n_frames() as f64 / burst.seconds,
            n_threads,
        })
    }

    fn thread_percent(self, frame_ns: f64, n_threads: usize) -> f64 {
        frame_ns * self.frames_a_second / 1e9 / n_threads.max(1) as f64 * 100.0
    }
}

/// Nanoseconds of a frame done by one of the strategies whose identifier begins so, or as now where
/// there is none or it takes longer.
fn by(frame: &FrameReport, strategy: &str) -> f64 {
    let costs = frame.alternatives.iter();
    let costs = costs.filter(|alternative| alternative.strategy.starts_with(strategy));
    costs.map(|a| a.cost.ns).fold(frame.now.ns, f64::min)
}

pub(super) fn choices(
    report: &Report,
    other: Option<&Report>,
    newer: Option<GcmKernel>,
    load: Option<Load>,
) -> Vec<Choice> {
    let n_frames: f64 = report.frames.iter().map(|frame| frame.per_io).sum();
    let mean = |report: &Report, ns: &dyn Fn(&FrameReport) -> f64| {
        let sum = |frame: &FrameReport| ns(frame) * frame.per_io;
        report.frames.iter().map(sum).sum::<f64>() / n_frames.max(f64::MIN_POSITIVE)
    };
    let now = mean(report, &|frame| frame.now.ns);
    let choice = |name: &str, frame_ns: f64, is_lever: bool, note: Option<String>| Choice {
        name: name.to_owned(),
        frame_ns,
        saved_share: match now > 0.0 {
            true => 1.0 - frame_ns / now,
            false => 0.0,
        },
        thread_percent: load.map(|load| load.thread_percent(frame_ns, load.n_threads)),
        is_lever,
        note,
    };
    let only = |side: Side, strategy: &'static str| {
        move |frame: &FrameReport| match frame.side == side {
            true => by(frame, strategy),
            false => frame.now.ns,
        }
    };
    let mut choices = vec![
        choice("now", now, false, None),
        choice(
            "RX in one allocation and call",
            mean(report, &only(Side::Rx, "contiguous")),
            false,
            None,
        ),
        choice(
            "TX gathered where that pays",
            mean(report, &only(Side::Tx, "gathered")),
            false,
            None,
        ),
        choice(
            "both contiguous from the start",
            mean(report, &|frame| by(frame, "contiguous")),
            false,
            None,
        ),
    ];
    match (other, newer) {
        (Some(other), _) => choices.push(choice(
            "the other library",
            mean(other, &|frame| frame.now.ns),
            true,
            Some(format!(
                "The other library: {}, as calibrated.",
                wcprof_report::terminal_name(&other.library.version)
            )),
        )),
        (None, Some(GcmKernel::Avx512)) => choices.push(choice(
            "OpenSSL 3.1 or later",
            now * AVX512_OVER_AESNI,
            true,
            Some(
                "OpenSSL 3.1 or later uses AVX-512 on this CPU: published figure for 16 KiB frames, not \
                 measured here\n  (wcprof crypto calibrate --lib PATH -o other.json, then --other \
                 other.json)."
                    .into(),
            ),
        )),
        (None, _) => choices.push(choice(
            "OpenSSL 3.1 or later",
            now,
            true,
            Some(
                "OpenSSL 3.1 or later uses the same kernel on this CPU; what its calls cost is measured by\n  \
                 wcprof crypto calibrate --lib PATH -o other.json, then --other other.json."
                    .into(),
            ),
        )),
    }
    if let Some(load) = load {
        let mut more = choice("one more busy messenger thread", now, false, None);
        more.thread_percent = Some(load.thread_percent(now, load.n_threads + 1));
        more.note = Some(format!(
            "Threads: {} had frames; a connection stays with its thread, so more threads help more \
             connections (ms_async_op_threads).",
            load.n_threads
        ));
        choices.push(more);
    }
    choices.push(choice(
        "limit: all bytes at the peak rate",
        mean(report, &|frame| frame.bulk_ns),
        false,
        None,
    ));
    choices
}
