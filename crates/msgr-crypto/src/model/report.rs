//! Shapes and a calibration to what each frame takes, what would save time, and what that is worth.

use serde::Serialize;

use crate::calibration::{Calibration, Fit, LibraryFacts, Regime};
use crate::host::Host;
use crate::model::predict::{Cost, fits_cache, predict};
use crate::shapes::{Shape, Side};
use crate::strategy::{Arrangement, Plan, Strategy};

/// A smaller saved share is not noticeable.
pub const WORTHWHILE: f64 = 0.03;
/// The message that break-even sizes are computed for.
const BREAK_EVEN_MESSAGE: usize = 16384;

/// Threads at their limit, and what they did.
#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
pub struct Load {
    /// Messenger threads that are busy all the time.
    pub threads: u32,
    /// I/Os a second of all of them.
    pub iops: f64,
}

impl Load {
    /// Nanoseconds that a thread has for an I/O.
    pub fn budget_ns(&self) -> f64 {
        f64::from(self.threads) * 1e9 / self.iops
    }
}

/// What the model says of a list of shapes.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// The library that was calibrated.
    pub library: LibraryFacts,
    /// The machine that was calibrated.
    pub host: Host,
    /// Each shape.
    pub frames: Vec<FrameReport>,
    /// Each direction that shapes have.
    pub sides: Vec<SideReport>,
    /// What the threads do, if it was given.
    pub load: Option<Load>,
    /// All frames together.
    pub verdict: Verdict,
}

/// A shape.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FrameReport {
    /// Its name.
    pub name: String,
    /// Its side.
    pub side: Side,
    /// Its update calls, in the notation of shapes.
    pub calls: String,
    /// Bytes encrypted or decrypted.
    pub bytes: usize,
    /// Update calls.
    pub n_calls: usize,
    /// Frames for each I/O.
    pub per_io: f64,
    /// What Ceph does.
    pub now: Cost,
    /// Whether it fits L2; copies of larger frames are not predicted.
    pub fits_cache: bool,
    /// What could be done instead; those that can not be predicted are left out.
    pub alternatives: Vec<Alternative>,
    /// All its bytes at the peak rate, nothing else: no way to call can be faster.
    pub bulk_ns: f64,
    /// Share of `now` that is neither units nor bytes but calls: an upper limit of what batching saves.
    pub call_share: f64,
    /// For the load that was given.
    pub load: Option<FrameLoad>,
}

/// Another way to do a frame.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Alternative {
    /// Identifier of the strategy.
    pub strategy: &'static str,
    /// In words.
    pub description: String,
    /// What it takes.
    pub cost: Cost,
    /// Share of what Ceph's way takes that it saves; below 0 when it takes longer.
    pub saved_share: f64,
}

/// What a frame means to the threads.
#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
pub struct FrameLoad {
    /// Percent of each thread's time now.
    pub thread_percent: f64,
    /// Percent with the best alternative.
    pub best_thread_percent: f64,
    /// Percent at the peak rate.
    pub bulk_thread_percent: f64,
    /// Points of a thread that the best alternative gives back; 0 when none is better.
    pub gain_points: f64,
    /// I/Os a second that are possible at most when the best alternative's gain goes into more I/Os.
    pub iops_bound: f64,
    /// The same if all bytes went at the peak rate.
    pub bulk_iops_bound: f64,
}

/// A direction.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SideReport {
    /// Which one.
    pub side: Side,
    /// Lines through the table of update costs.
    pub fit: Fit,
    /// Chunk at which half the peak is reached.
    pub half_peak_bytes: Option<f64>,
    /// For a message of 16 KiB: largest fragment for which copying to one buffer and one call beat a
    /// call a fragment; `None` when it never does, or copies are not known.
    pub break_even_bytes: Option<usize>,
}

/// All frames together, weighed by their number for each I/O.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Verdict {
    /// Nanoseconds of all frames of an I/O now.
    pub now_ns: f64,
    /// Nanoseconds with the best way for each frame.
    pub best_ns: f64,
    /// Share saved.
    pub saved_share: f64,
    /// Whether that is worth it: at least 3 %.
    pub batching_helps: bool,
    /// Names of the frames for which it would be, with their side.
    pub helped: Vec<String>,
}

impl Report {
    /// What `calibration` predicts for `shapes`.
    pub fn new(shapes: &[Shape], calibration: &Calibration, load: Option<Load>) -> Self {
        // By the order of `Side`.
        let fits = [Side::Rx, Side::Tx].map(|side| Fit::new(calibration.direction(side)));
        let frame = |shape: &Shape| frame(shape, calibration, &fits[shape.side as usize], load);
        let frames: Vec<FrameReport> = shapes.iter().map(frame).collect();
        let sides = [Side::Rx, Side::Tx].into_iter().zip(&fits);
        let sides = sides
            .filter(|(side, _)| shapes.iter().any(|shape| shape.side == *side))
            .map(|(side, fit)| SideReport {
                side,
                half_peak_bytes: fit.bulk().map(Regime::half_peak_bytes),
                fit: fit.clone(),
                break_even_bytes: break_even(side, calibration),
            });
        Self {
            library: calibration.library.clone(),
            host: calibration.host.clone(),
            verdict: verdict(&frames),
            sides: sides.collect(),
            frames,
            load,
        }
    }
}

impl FrameReport {
    /// Side and name.
    pub(crate) fn full_name(&self) -> String {
        format!("{} {}", self.side, self.name)
    }

    /// The fastest alternative, if there is any.
    pub fn best(&self) -> Option<&Alternative> {
        let alternatives = self.alternatives.iter();
        alternatives.min_by(|a, b| a.cost.ns.total_cmp(&b.cost.ns))
    }

    /// Share that the best way saves; 0 when Ceph's is the best.
    pub fn best_saved_share(&self) -> f64 {
        self.best().map_or(0.0, |best| best.saved_share.max(0.0))
    }

    /// Whether the best way saves a share that is noticeable.
    pub(crate) fn is_helped(&self) -> bool {
        self.best_saved_share() >= WORTHWHILE
    }
}

/// Share of `now_ns` that is saved where something takes `ns`; 0 of nothing.
pub(crate) fn saved_share(ns: f64, now_ns: f64) -> f64 {
    if now_ns > 0.0 { 1.0 - ns / now_ns } else { 0.0 }
}

fn frame(shape: &Shape, calibration: &Calibration, fit: &Fit, load: Option<Load>) -> FrameReport {
    let ceph = Plan::new(shape, Strategy::ceph(shape.side));
    let now = predict(&ceph, calibration);
    let alternative = |strategy: Strategy| {
        let plan = Plan::new(shape, strategy);
        let has_copies = strategy.arrangement != Arrangement::Contiguous;
        let can_predict = calibration.has_copy_costs() && fits_cache(&plan, calibration);
        if has_copies && !can_predict {
            return None;
        }
        let cost = predict(&plan, calibration);
        Some(Alternative {
            strategy: strategy.id(),
            description: strategy.to_string(),
            cost,
            saved_share: saved_share(cost.ns, now.ns),
        })
    };
    let strategies = Strategy::alternatives(shape.side).into_iter();
    let bytes = shape.n_bytes();
    let bulk_ns = fit.bulk().map_or(0.0, |regime| regime.byte_ns) * bytes as f64;
    let mut frame = FrameReport {
        name: shape.name.clone(),
        side: shape.side,
        calls: shape.notation(),
        bytes,
        n_calls: shape.n_calls(),
        per_io: shape.per_io,
        now,
        fits_cache: fits_cache(&ceph, calibration),
        alternatives: strategies.filter_map(alternative).collect(),
        bulk_ns,
        call_share: ((now.updates_ns - bulk_ns) / now.ns).clamp(0.0, 1.0),
        load: None,
    };
    frame.load = load.map(|load| frame_load(&frame, load));
    frame
}

fn frame_load(frame: &FrameReport, load: Load) -> FrameLoad {
    let budget = load.budget_ns();
    let now_ns = frame.now.ns;
    let best_ns = frame.best().map_or(now_ns, |best| best.cost.ns.min(now_ns));
    let percent = |ns: f64| 100.0 * ns * frame.per_io / budget;
    let bound = |ns: f64| {
        let saved = (now_ns - ns).max(0.0) * frame.per_io;
        // More than the whole budget can not be saved; the load contradicts the calibration then.
        f64::from(load.threads) * 1e9 / (budget - saved).max(budget * 1e-3)
    };
    FrameLoad {
        thread_percent: percent(now_ns),
        best_thread_percent: percent(best_ns),
        bulk_thread_percent: percent(frame.bulk_ns),
        gain_points: percent(now_ns) - percent(best_ns),
        iops_bound: bound(best_ns),
        bulk_iops_bound: bound(frame.bulk_ns),
    }
}

/// Largest fragment, in powers of two, up to which copying pays.
fn break_even(side: Side, calibration: &Calibration) -> Option<usize> {
    if !calibration.has_copy_costs() {
        return None;
    }
    let arrangement = match side {
        Side::Rx => Arrangement::Coalesced,
        Side::Tx => Arrangement::Gathered,
    };
    let ceph = Strategy::ceph(side);
    let copying = Strategy {
        arrangement,
        ..ceph
    };
    let pays = |fragment: &usize| {
        let units = vec![vec![*fragment; BREAK_EVEN_MESSAGE / fragment]];
        let shape = Shape::unnamed(side, units);
        let ns = |strategy| predict(&Plan::new(&shape, strategy), calibration).ns;
        ns(copying) < ns(ceph)
    };
    let sizes = (4..=13).map(|power| 1 << power);
    sizes.take_while(pays).last()
}

fn verdict(frames: &[FrameReport]) -> Verdict {
    let now = frames.iter().map(|f| f.now.ns * f.per_io);
    let best = frames
        .iter()
        .map(|f| f.now.ns * (1.0 - f.best_saved_share()) * f.per_io);
    let (now_ns, best_ns) = (now.sum(), best.sum());
    let saved_share = saved_share(best_ns, now_ns);
    let helped = frames.iter().filter(|frame| frame.is_helped());
    Verdict {
        now_ns,
        best_ns,
        saved_share,
        batching_helps: saved_share >= WORTHWHILE,
        helped: helped.map(FrameReport::full_name).collect(),
    }
}
