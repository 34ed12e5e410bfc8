//! Tables of one libcrypto on one machine to the nanoseconds of a call.

use serde::{Deserialize, Serialize};

use super::curve::Curve;
use crate::host::Host;
use crate::shapes::Side;

/// Bytes after which the pattern of both kernels repeats: 8 pieces of 96 bytes of the stitched one, 48
/// blocks of the AVX-512 one.
pub(crate) const PERIOD: u64 = 768;
/// Up to here every multiple of a block was measured.
pub(crate) const DENSE: u64 = 1024;
/// Where the period was measured.
pub(crate) const PERIOD_BEGIN: u64 = 1536;
pub(crate) const BLOCK: u64 = 16;
/// Above this share of disturbed measurements a calibration is noisy.
const MAX_DISTURBED: f64 = 0.2;

/// Costs of one libcrypto on one machine.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Calibration {
    /// Which library.
    pub library: LibraryFacts,
    /// Which machine.
    pub host: Host,
    /// When it was measured, seconds since 1970; 0 when unknown.
    pub made_unix: u64,
    /// CPU time the measurement took, in seconds.
    pub cpu_seconds: f64,
    /// What the reference took at its best: the difference to a new measurement is the change of the clock
    /// rate since; 0 when unknown.
    pub reference_ns: f64,
    /// Share of the measurements that had to be made while something else slowed the core, or that the time
    /// limit ended; figures are less exact then.
    pub disturbed_share: f64,
    /// Costs of a sender.
    pub encrypt: DirectionCosts,
    /// Costs of a receiver.
    pub decrypt: DirectionCosts,
    /// memcpy by size.
    pub copy: Curve,
}

/// The library that was measured.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LibraryFacts {
    /// What it says of itself.
    pub version: String,
    /// Its file, if it has one of its own.
    pub path: Option<String>,
    /// Identifier of the GCM kernel that it uses, as `aesni-stitched`.
    pub kernel: String,
    /// The CPU's features that matter to it, as in `/proc/cpuinfo`.
    pub cpu_features: Vec<String>,
}

/// Costs of one direction in nanoseconds.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct DirectionCosts {
    /// A unit without updates: nonce, tag and final.
    pub unit_ns: f64,
    /// Setting the nonce alone; part of `unit_ns`.
    pub nonce_ns: f64,
    /// Setting key and nonce.
    pub rekey_ns: f64,
    /// A new context with cipher and key, and its end.
    pub context_ns: f64,
    /// `f(n)`, in place; multiples of a block and 0.
    pub update: Curve,
    /// More than `f` of the whole blocks, by the bytes beyond them (0 to 15), for a call that begins
    /// at a block border and ends within a block.
    pub tail: Curve,
    /// A call of 0 to 15 bytes at a block border.
    pub small: Curve,
    /// A call of 1 to 15 bytes that ends a block.
    pub fill: Curve,
    /// More than `f` of what follows, by the bytes that end a block first, for a longer call.
    pub head: Curve,
    /// More than that, by size, because the blocks of such a call are not aligned in memory.
    pub shifted: Curve,
    /// More than in place, by size.
    pub out_of_place: Curve,
    /// More than another call, by size, for the first call of a unit: nothing before it overlaps with
    /// it.
    pub first: Curve,
}

impl Calibration {
    /// Costs of what this side does.
    pub fn direction(&self, side: Side) -> &DirectionCosts {
        match side {
            Side::Rx => &self.decrypt,
            Side::Tx => &self.encrypt,
        }
    }

    /// Whether so many measurements were disturbed that it should be made anew.
    pub fn is_noisy(&self) -> bool {
        self.disturbed_share > MAX_DISTURBED
    }

    /// Whether copies were measured; a table of `openssl speed` has none.
    pub fn has_copy_costs(&self) -> bool {
        self.copy.points().len() > 1
    }
}

impl DirectionCosts {
    /// Nanoseconds of an update in place that begins `phase` bytes (0 to 15) behind a block border.
    pub fn update_ns(&self, phase: u64, len: u64) -> f64 {
        // Bytes that end a block.
        let head = (BLOCK - phase % BLOCK) % BLOCK;
        match len {
            0 => self.small.at(0),
            _ if head == 0 => self.whole_call(len),
            // Neither begins nor ends a block: nothing but the call and a few bytes.
            _ if len < head => self.small.at(len).min(self.fill.at(len)),
            _ if len == head => self.fill.at(len),
            _ => self.head.at(head) + self.whole_call(len - head) + self.shifted.at(len),
        }
    }

    /// What the first call of a unit takes more than another one.
    pub fn first_ns(&self, len: u64) -> f64 {
        match len {
            // In the table of small calls already, each of which was measured as a unit.
            0..BLOCK => 0.0,
            _ => self.first.at(len),
        }
    }

    fn whole_call(&self, len: u64) -> f64 {
        let beyond = len % BLOCK;
        match len - beyond {
            0 => self.small.at(len),
            whole if beyond == 0 => self.blocks(whole),
            whole => self.blocks(whole) + self.tail.at(beyond),
        }
    }

    /// `f` at a multiple of a block, not 0.
    fn blocks(&self, len: u64) -> f64 {
        if len <= DENSE || !self.has_period() {
            return self.update.at(len);
        }
        let points = self.update.points();
        let after = points.partition_point(|(at, _)| *at < len);
        let high = after.clamp(1, points.len() - 1);
        let ((x0, y0), (x1, y1)) = (points[high - 1], points[high]);
        if x1 == len {
            return y1;
        }
        // Between points that are far apart the pattern of the kernel goes on: straight lines join
        // the points without it.
        let (y0, y1) = (y0 - self.pattern(x0), y1 - self.pattern(x1));
        let share = (len as f64 - x0 as f64) / (x1 as f64 - x0 as f64);
        y0 + (y1 - y0) * share + self.pattern(len)
    }

    /// By how much `f` is off the line through the ends of the period that was measured.
    fn pattern(&self, len: u64) -> f64 {
        let at = PERIOD_BEGIN + len % PERIOD;
        let begin = self.update.at(PERIOD_BEGIN);
        let end = self.update.at(PERIOD_BEGIN + PERIOD);
        let share = (at - PERIOD_BEGIN) as f64 / PERIOD as f64;
        self.update.at(at) - (begin + (end - begin) * share)
    }

    /// Whether the table holds a whole period, as those measured here do.
    fn has_period(&self) -> bool {
        let period = PERIOD_BEGIN..=PERIOD_BEGIN + PERIOD;
        let points = self.update.points().iter();
        let n = points.filter(|(at, _)| period.contains(at)).count();
        n as u64 == PERIOD / BLOCK + 1
    }
}
