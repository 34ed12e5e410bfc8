//! A report of the model to what could be done, each with what it saves.

use msgr_crypto_ffi::{Capabilities, GcmKernel, VersionNumber};
use serde::Serialize;

use crate::calibration::Calibration;
use crate::model::{FrameReport, Report, saved_share};
use crate::observed::{FrameSource, ProcessFrames};
use crate::shapes::Side;
use wcprof_text::terminal_name;

/// Time of a 16 KiB frame with the AVX-512 kernel of OpenSSL 3.5, as a share of that with the AES-NI
/// one of 3.0, measured on Zen 5 (0.84-0.88 of 3.17-3.33 us).
const AVX512_OVER_AESNI: f64 = 0.26;

/// A row of the table.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Choice {
    /// What is done.
    pub name: String,
    /// Mean nanoseconds of a frame.
    pub frame_ns: f64,
    /// Share of the time now that it saves; below 0 when it costs more.
    pub saved_share: f64,
    /// Percent of each observed thread, at the rate of the burst.
    pub thread_percent: Option<f64>,
    /// Can be done without changing Ceph.
    pub is_lever: bool,
    /// What the figure rests on.
    pub note: Option<String>,
}

/// How many frames threads had.
#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
pub struct FrameRate {
    /// Frames of both directions a second.
    pub frames_a_second: f64,
    /// Observed threads that had any.
    pub n_threads: usize,
}

impl FrameRate {
    /// `None` when frames were not seen.
    pub(super) fn new(process: &ProcessFrames) -> Option<Self> {
        let FrameSource::Live { burst, observation } = &process.source else {
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

/// Identifier of the kernel that OpenSSL since 3.1 uses on this CPU, if the calibrated library has
/// another one.
pub fn newer_kernel(calibration: &Calibration) -> Option<&'static str> {
    let newer = GcmKernel::pick(VersionNumber(3, 5, 0), &Capabilities::of_this_cpu()).id();
    (newer != calibration.library.kernel).then_some(newer)
}

pub(super) fn choices(
    report: &Report,
    other: Option<&Report>,
    newer_kernel: Option<&str>,
    load: Option<FrameRate>,
) -> Vec<Choice> {
    let now_ns = mean_ns(report, |frame| frame.now.ns);
    let choice = |name: &str, frame_ns: f64| Choice {
        name: name.to_owned(),
        frame_ns,
        saved_share: saved_share(frame_ns, now_ns),
        thread_percent: load.map(|load| load.thread_percent(frame_ns, load.n_threads)),
        is_lever: false,
        note: None,
    };
    let strategy_ns = |strategy: &str, sides: &[Side]| {
        mean_ns(report, |frame| match sides.contains(&frame.side) {
            true => best_ns(frame, strategy),
            false => frame.now.ns,
        })
    };
    let rx_ns = strategy_ns("contiguous", &[Side::Rx]);
    let tx_ns = strategy_ns("gathered", &[Side::Tx]);
    let both_ns = strategy_ns("contiguous", &[Side::Rx, Side::Tx]);
    let (name, library_ns, note) = library(now_ns, other, newer_kernel);
    let mut choices = vec![
        choice("now", now_ns),
        choice("RX in one allocation and call", rx_ns),
        choice("TX gathered where that pays", tx_ns),
        choice("both contiguous from the start", both_ns),
        Choice {
            is_lever: true,
            note: Some(note),
            ..choice(name, library_ns)
        },
    ];
    if let Some(load) = load {
        choices.push(Choice {
            thread_percent: Some(load.thread_percent(now_ns, load.n_threads + 1)),
            note: Some(format!(
                "Threads: {} had frames. A connection stays with its thread, so more threads help where there \
                 are more connections (ms_async_op_threads).",
                load.n_threads
            )),
            ..choice("one more busy messenger thread", now_ns)
        });
    }
    let bulk_ns = mean_ns(report, |frame| frame.bulk_ns);
    choices.push(choice("limit: all bytes at the peak rate", bulk_ns));
    choices
}

/// Another library: name, nanoseconds of a frame, and what they rest on.
fn library(
    now_ns: f64,
    other: Option<&Report>,
    newer_kernel: Option<&str>,
) -> (&'static str, f64, String) {
    const NEWER: &str = "OpenSSL 3.1 or later";
    const MEASURE: &str =
        "`wcprof crypto calibrate --lib PATH -o other.json`, then `--other other.json`";
    match (other, newer_kernel) {
        (Some(other), _) => (
            "the other library",
            mean_ns(other, |frame| frame.now.ns),
            format!(
                "The other library: {}, as calibrated.",
                terminal_name(&other.library.version)
            ),
        ),
        (None, Some("avx512")) => (
            NEWER,
            now_ns * AVX512_OVER_AESNI,
            format!(
                "OpenSSL 3.1 or later uses AVX-512 on this CPU. The figure is a published one for 16 KiB \
                 frames, not measured here.\n  To measure it: {MEASURE}."
            ),
        ),
        (None, _) => (
            NEWER,
            now_ns,
            format!(
                "OpenSSL 3.1 or later uses the same kernel on this CPU. To measure what its calls cost:\n  \
                 {MEASURE}."
            ),
        ),
    }
}

/// Mean nanoseconds of a frame.
fn mean_ns(report: &Report, frame_ns: impl Fn(&FrameReport) -> f64) -> f64 {
    let n_frames: f64 = report.frames.iter().map(|frame| frame.per_io).sum();
    let sum = |frame: &FrameReport| frame_ns(frame) * frame.per_io;
    report.frames.iter().map(sum).sum::<f64>() / n_frames.max(f64::MIN_POSITIVE)
}

/// Nanoseconds of a frame by the strategies whose identifier begins so, or as now where there is none or
/// they take longer.
fn best_ns(frame: &FrameReport, strategy: &str) -> f64 {
    let alternatives = frame.alternatives.iter();
    let alternatives = alternatives.filter(|a| a.strategy.starts_with(strategy));
    alternatives.map(|a| a.cost.ns).fold(frame.now.ns, f64::min)
}
