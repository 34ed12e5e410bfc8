//! Frames of distant data to what the distance adds, measured and looked up.
//!
//! What a cache miss costs depends on what is done around it: a prefetcher begins anew at a page, the
//! work of a unit hides a part of the next one's misses, and a copy reaches further ahead than
//! encryption. So distance is not put together from single accesses. It is measured in whole frames,
//! by way of working, and looked up by what of a frame matters: bytes of its small buffers,
//! bytes of its data, and pieces that these come in.

use msgr_crypto_ffi::Library;
use serde::{Deserialize, Serialize};

use super::{Calibration, Curve};
use crate::host::Host;
use crate::measure::{Case, MeasureError, median};
use crate::model::predict;
use crate::run::{Memory, Residency, Runner};
use crate::shapes::{Shape, Side};
use crate::strategy::{Area, Arrangement, Op, Placement, Plan, Span, Strategy};

const LINE: usize = 64;
/// Of AES.
const BLOCK: usize = 16;
/// A buffer of at least so many bytes is data; smaller ones are what surrounds it.
const DATA: usize = 512;
/// Bytes of data in the frames that are measured.
const SIZES: [usize; 10] = [
    512, 2048, 4096, 8192, 16384, 32768, 65536, 131_072, 524_288, 4_194_304,
];
/// Bytes of pieces in which data comes, and of all of it.
const PIECES: [(usize, &[usize]); 2] = [
    (1024, &[8192, 16384, 65536]),
    (4096, &[16384, 65536, 4_194_304]),
];
/// Bytes of the first buffer of the second unit in frames without data. Close to each other around 256,
/// from where on one more miss of memory is waited for.
const FRONTS: [usize; 6] = [64, 160, 240, 252, 320, 448];
/// The same in frames with data.
const FRONT: usize = 224;

/// What distant data costs more than hot data, by the way of working.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct ColdCosts {
    /// In place, buffer by buffer.
    pub in_place: ColdFrames,
    /// In place, all buffers of a unit lying together.
    pub in_place_together: ColdFrames,
    /// Out of place, buffer by buffer.
    pub out_of_place: ColdFrames,
    /// Out of place, all buffers of a unit lying together.
    pub out_of_place_together: ColdFrames,
    /// Copied to where the result belongs, decrypted there.
    pub gathered_rx: ColdFrames,
    /// Copied to where the result belongs, encrypted there.
    pub gathered_tx: ColdFrames,
    /// Copied to scratch, and left there.
    pub coalesced_in_scratch: ColdFrames,
    /// Copied to scratch, from there to the result.
    pub coalesced: ColdFrames,
}

/// What distance adds to a frame, in nanoseconds.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct ColdFrames {
    /// A frame without data, by bytes of its buffers, at least a cache line each.
    pub small: Curve,
    /// A frame with data in one buffer, by its bytes; small buffers as in `base`.
    pub data: Curve,
    /// Bytes of the small buffers in frames of `data`, counted as in `small`.
    pub base: u64,
    /// More when data comes in pieces, at growing sizes of these.
    pub pieces: Vec<ColdPieces>,
}

/// What distance adds for data in pieces of one size, in nanoseconds.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct ColdPieces {
    /// Bytes of a piece.
    pub bytes: u64,
    /// For each piece but the first, by the bytes of all.
    pub each: Curve,
}

/// Ways of working that differ in what distance costs.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Way {
    InPlace,
    InPlaceTogether,
    OutOfPlace,
    OutOfPlaceTogether,
    GatheredRx,
    GatheredTx,
    CoalescedInScratch,
    Coalesced,
}

impl Way {
    const ALL: [Self; 8] = [
        Self::InPlace,
        Self::InPlaceTogether,
        Self::OutOfPlace,
        Self::OutOfPlaceTogether,
        Self::GatheredRx,
        Self::GatheredTx,
        Self::CoalescedInScratch,
        Self::Coalesced,
    ];

    /// In the direction in which Ceph would do it.
    fn strategy(self) -> (Side, Strategy) {
        use Arrangement::{Coalesced, Contiguous, Gathered, PerBuffer};
        use Placement::{InPlace, OutOfPlace};
        match self {
            Self::InPlace => (Side::Rx, Strategy::new(PerBuffer, InPlace)),
            Self::InPlaceTogether => (Side::Rx, Strategy::new(Contiguous, InPlace)),
            Self::OutOfPlace => (Side::Tx, Strategy::new(PerBuffer, OutOfPlace)),
            Self::OutOfPlaceTogether => (Side::Tx, Strategy::new(Contiguous, OutOfPlace)),
            Self::GatheredRx => (Side::Rx, Strategy::new(Gathered, OutOfPlace)),
            Self::GatheredTx => (Side::Tx, Strategy::new(Gathered, OutOfPlace)),
            Self::CoalescedInScratch => (Side::Rx, Strategy::new(Coalesced, InPlace)),
            Self::Coalesced => (Side::Tx, Strategy::new(Coalesced, OutOfPlace)),
        }
    }

    fn is_together(self) -> bool {
        matches!(self, Self::InPlaceTogether | Self::OutOfPlaceTogether)
    }
}

impl ColdCosts {
    fn of(&self, way: Way) -> &ColdFrames {
        match way {
            Way::InPlace => &self.in_place,
            Way::InPlaceTogether => &self.in_place_together,
            Way::OutOfPlace => &self.out_of_place,
            Way::OutOfPlaceTogether => &self.out_of_place_together,
            Way::GatheredRx => &self.gathered_rx,
            Way::GatheredTx => &self.gathered_tx,
            Way::CoalescedInScratch => &self.coalesced_in_scratch,
            Way::Coalesced => &self.coalesced,
        }
    }

    fn of_mut(&mut self, way: Way) -> &mut ColdFrames {
        match way {
            Way::InPlace => &mut self.in_place,
            Way::InPlaceTogether => &mut self.in_place_together,
            Way::OutOfPlace => &mut self.out_of_place,
            Way::OutOfPlaceTogether => &mut self.out_of_place_together,
            Way::GatheredRx => &mut self.gathered_rx,
            Way::GatheredTx => &mut self.gathered_tx,
            Way::CoalescedInScratch => &mut self.coalesced_in_scratch,
            Way::Coalesced => &mut self.coalesced,
        }
    }

    /// Each way with its name.
    pub(super) fn ways(&self) -> [(&'static str, &ColdFrames); 8] {
        [
            ("in_place", &self.in_place),
            ("in_place_together", &self.in_place_together),
            ("out_of_place", &self.out_of_place),
            ("out_of_place_together", &self.out_of_place_together),
            ("gathered_rx", &self.gathered_rx),
            ("gathered_tx", &self.gathered_tx),
            ("coalesced_in_scratch", &self.coalesced_in_scratch),
            ("coalesced", &self.coalesced),
        ]
    }

    /// What distance adds to a frame of this plan, in nanoseconds.
    pub fn distance_ns(&self, plan: &Plan) -> f64 {
        let Some((way, load)) = Load::of(plan) else {
            return 0.0;
        };
        self.of(way).distance_ns(load)
    }
}

impl ColdFrames {
    fn distance_ns(&self, load: Load) -> f64 {
        let small = self.small.at(load.small);
        if load.data == 0 {
            return small;
        }
        self.data.at(load.data) + small - self.small.at(self.base)
            + load.n_more_pieces as f64 * self.piece_ns(load)
    }

    /// For each piece but the first; between sizes that were measured a straight line, beyond them as
    /// the nearest.
    fn piece_ns(&self, load: Load) -> f64 {
        let within = |at: u64, first: Option<u64>, last: Option<u64>| {
            at.max(first.unwrap_or(0)).min(last.unwrap_or(0))
        };
        let each = |pieces: &ColdPieces| {
            let ends = pieces.each.points();
            let at = within(
                load.data,
                ends.first().map(|p| p.0),
                ends.last().map(|p| p.0),
            );
            (pieces.bytes, pieces.each.at(at))
        };
        let by_size = Curve::new(self.pieces.iter().map(each).collect());
        let size = load.data / (1 + load.n_more_pieces);
        by_size.at(within(
            size,
            self.pieces.first().map(|p| p.bytes),
            self.pieces.last().map(|p| p.bytes),
        ))
    }
}

/// What of a frame matters to the cost of distance.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
struct Load {
    /// Bytes of small buffers, in whole blocks, at least a cache line each.
    small: u64,
    data: u64,
    /// Pieces of the data but the first.
    n_more_pieces: u64,
}

impl Load {
    /// `None` of a plan that does nothing.
    fn of(plan: &Plan) -> Option<(Way, Self)> {
        let mut load = Self::default();
        let mut way = None;
        let mut is_together = false;
        let mut most_calls = 0;
        for ops in &plan.units {
            let runs = runs(ops);
            most_calls = most_calls.max(runs.iter().map(|run| run.n_pieces).sum());
            for (index, run) in runs.into_iter().enumerate() {
                if run.len < DATA {
                    load.small += run.small;
                    continue;
                }
                is_together |= index == 0;
                if load.data > 0 {
                    load.n_more_pieces += 1;
                }
                load.data += run.len as u64;
                load.n_more_pieces += run.n_pieces - 1;
            }
            for op in ops {
                way = way.max(Some(class(op)));
            }
        }
        // Without data, each unit has to be one call.
        is_together |= load.data == 0 && most_calls <= 1;
        let way = match (way?, plan.side, is_together) {
            (Class::InPlace, _, false) => Way::InPlace,
            (Class::InPlace, _, true) => Way::InPlaceTogether,
            (Class::OutOfPlace, _, false) => Way::OutOfPlace,
            (Class::OutOfPlace, _, true) => Way::OutOfPlaceTogether,
            (Class::Gathered, Side::Rx, _) => Way::GatheredRx,
            (Class::Gathered, Side::Tx, _) => Way::GatheredTx,
            (Class::InScratch, ..) => Way::CoalescedInScratch,
            (Class::Coalesced, ..) => Way::Coalesced,
        };
        Some((way, load))
    }
}

/// What a step says of the way of its frame; the greatest of a frame counts.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Class {
    InPlace,
    OutOfPlace,
    Gathered,
    InScratch,
    Coalesced,
}

fn class(op: &Op) -> Class {
    match op {
        Op::InPlace(span) => match span.area {
            Area::Source => Class::InPlace,
            Area::Destination => Class::Gathered,
            Area::Scratch => Class::InScratch,
        },
        Op::Copy { to, .. } => match to.area {
            Area::Scratch => Class::InScratch,
            _ => Class::Gathered,
        },
        Op::Update { from, .. } => match from.area {
            Area::Scratch => Class::Coalesced,
            _ => Class::OutOfPlace,
        },
    }
}

/// Pieces of a frame's own memory that lie together and are alike.
struct Run {
    len: usize,
    end: usize,
    n_pieces: u64,
    /// Bytes of whole blocks, of each piece at least a cache line.
    small: u64,
    is_data: bool,
}

fn runs(ops: &[Op]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for op in ops {
        let (Op::InPlace(span) | Op::Copy { from: span, .. } | Op::Update { from: span, .. }) = op;
        let Span {
            area: Area::Source,
            offset,
            len: 1..,
        } = *span
        else {
            continue;
        };
        let is_data = span.len >= DATA;
        let small = span.len.next_multiple_of(BLOCK).max(LINE) as u64;
        match runs.last_mut() {
            Some(run) if run.end == offset && run.is_data == is_data => {
                run.len += span.len;
                run.end += span.len;
                run.n_pieces += 1;
                run.small += small;
            }
            _ => runs.push(Run {
                len: span.len,
                end: offset + span.len,
                n_pieces: 1,
                small,
                is_data,
            }),
        }
    }
    runs
}

/// Frames of which the costs of distance are told; not those that clusters send.
#[derive(Debug)]
pub(crate) struct Anchors {
    anchors: Vec<Anchor>,
}

#[derive(Debug)]
struct Anchor {
    way: Way,
    kind: Kind,
    plan: Plan,
    /// Index of its case.
    case: usize,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Kind {
    Small,
    Data,
    /// Data in pieces of so many bytes.
    Pieces(usize),
}

impl Anchors {
    /// Adds a case for each frame to `cases`; `None` when there is too little memory.
    pub(crate) fn add<'lib>(
        library: &'lib Library,
        host: &Host,
        residency: Residency,
        cases: &mut Vec<Case<'lib>>,
        memory: &mut Memory,
    ) -> Result<Option<Self>, MeasureError> {
        let Some(distance) = residency.distance(host) else {
            return Ok(None);
        };
        let mut anchors = Vec::new();
        for way in Way::ALL {
            let mut kinds = vec![(Kind::Small, Vec::new())];
            kinds.extend(FRONTS.map(|front| (Kind::Small, with_front(way, front, vec![]))));
            kinds.extend(SIZES.map(|size| (Kind::Data, with_front(way, FRONT, vec![size]))));
            if !way.is_together() {
                for (piece, sizes) in PIECES {
                    kinds.extend(sizes.iter().map(|size| {
                        let pieces = vec![piece; size / piece];
                        (Kind::Pieces(piece), with_front(way, FRONT, pieces))
                    }));
                }
            }
            for (kind, calls) in kinds {
                let plan = plan(way, calls);
                // In the last-level cache there is no frame that is larger.
                if residency == Residency::L2Cold && plan.footprint() as u64 > host.l3_bytes / 2 {
                    continue;
                }
                let mut runner = Runner::new(library, plan.clone(), distance)?.unverified();
                runner.join(memory);
                anchors.push(Anchor {
                    way,
                    kind,
                    plan,
                    case: cases.len(),
                });
                cases.push(Case::of_runner(runner));
            }
        }
        Ok(Some(Self { anchors }))
    }

    /// From the nanoseconds of all cases: what the model for hot data does not explain.
    pub(crate) fn costs(&self, calibration: &Calibration, ns: &[f64]) -> ColdCosts {
        let hot = Calibration {
            l2_cold: None,
            memory_cold: None,
            ..calibration.clone()
        };
        let mut costs = ColdCosts::default();
        for way in Way::ALL {
            let (mut small, mut data) = (Vec::new(), Vec::new());
            let (mut base, mut pieces) = (0, Vec::new());
            for anchor in self.anchors.iter().filter(|anchor| anchor.way == way) {
                let Some((_, load)) = Load::of(&anchor.plan) else {
                    continue;
                };
                let measured = ns.get(anchor.case).copied().unwrap_or(0.0);
                let more = measured - predict(&anchor.plan, &hot, Residency::Hot).ns();
                match anchor.kind {
                    Kind::Small => small.push((load.small, more)),
                    Kind::Data => {
                        base = load.small;
                        data.push((load.data, more));
                    }
                    Kind::Pieces(piece) => pieces.push((piece, load, more)),
                }
            }
            let data = Curve::new(without_spikes(&data));
            let of_size = |(bytes, _): (usize, _)| ColdPieces {
                bytes: bytes as u64,
                each: Curve::new(
                    pieces
                        .iter()
                        .filter(|(piece, ..)| *piece == bytes)
                        .map(|(_, load, more): &(usize, Load, f64)| {
                            let more = more - data.at(load.data);
                            (load.data, more / load.n_more_pieces.max(1) as f64)
                        })
                        .collect(),
                ),
            };
            let pieces = PIECES.map(of_size).into_iter();
            let pieces = pieces.filter(|pieces| !pieces.each.points().is_empty());
            *costs.of_mut(way) = ColdFrames {
                small: from_zero(&small),
                pieces: pieces.collect(),
                data,
                base,
            };
        }
        costs
    }
}

/// Each value, or a neighbor's if that lies between: time grows with bytes, and a single size that was
/// disturbed all the time does not. The first and the last have one neighbor, and stay.
fn without_spikes(points: &[(u64, f64)]) -> Vec<(u64, f64)> {
    let at = |index: usize| points.get(index).map(|(_, ns)| *ns);
    let of = |(index, (bytes, ns)): (usize, &(u64, f64))| {
        let before = index.checked_sub(1).and_then(at);
        match (before, at(index + 1)) {
            (Some(before), Some(after)) => (*bytes, median(&[before, *ns, after])),
            _ => (*bytes, *ns),
        }
    };
    points.iter().enumerate().map(of).collect()
}

/// From nothing for no bytes.
fn from_zero(points: &[(u64, f64)]) -> Curve {
    let points = without_spikes(points);
    Curve::new(std::iter::once((0, 0.0)).chain(points).collect())
}

/// Second unit of a frame with this first buffer and data. A sender pads the front to 16 bytes from
/// another buffer.
fn with_front(way: Way, front: usize, data: Vec<usize>) -> Vec<usize> {
    match way.strategy().0 {
        Side::Rx => [&[front], &data[..], &[16]].concat(),
        Side::Tx => [&[front.saturating_sub(7), 7], &data[..], &[16]].concat(),
    }
}

/// A frame with this second unit, if it is not empty.
fn plan(way: Way, second: Vec<usize>) -> Plan {
    let (side, strategy) = way.strategy();
    let first = match side {
        Side::Rx => vec![80],
        Side::Tx => vec![32, 48],
    };
    let mut units = vec![first, second];
    units.retain(|calls| !calls.is_empty());
    let shape = Shape {
        name: String::new(),
        side,
        units,
        per_io: 1.0,
        source: String::new(),
    };
    Plan::new(&shape, strategy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(side: Side, calls: &str, strategy: Strategy) -> (Way, Load) {
        let shape = Shape::new("x", side, calls).unwrap();
        Load::of(&Plan::new(&shape, strategy)).unwrap()
    }

    /// Check what is taken for small, data and pieces, in each way of working.
    #[test]
    fn loads() {
        let [together, gathered, coalesced] = Strategy::alternatives(Side::Tx);
        let frame = "32,48 | 285,3,4096x4,16";
        let pieces = Load {
            small: 64 + 64 + 288 + 64 + 64,
            data: 16384,
            n_more_pieces: 3,
        };
        for (strategy, way) in [
            (Strategy::now(Side::Tx), Way::OutOfPlace),
            (gathered, Way::GatheredTx),
            (coalesced, Way::Coalesced),
        ] {
            assert_eq!(load(Side::Tx, frame, strategy), (way, pieces), "{way:?}");
        }
        let one = Load {
            small: 80,
            data: 285 + 3 + 16384 + 16,
            n_more_pieces: 0,
        };
        assert_eq!(
            load(Side::Tx, frame, together),
            (Way::OutOfPlaceTogether, one)
        );

        let [together, gathered, coalesced] = Strategy::alternatives(Side::Rx);
        let frame = "80,0 | 256,16,0";
        let small = |bytes| Load {
            small: bytes,
            ..Load::default()
        };
        let apart = small(80 + 256 + 64);
        for (strategy, way, expected) in [
            (Strategy::now(Side::Rx), Way::InPlace, apart),
            (together, Way::InPlaceTogether, small(80 + 272)),
            (gathered, Way::GatheredRx, apart),
            (coalesced, Way::CoalescedInScratch, apart),
        ] {
            assert_eq!(load(Side::Rx, frame, strategy), (way, expected), "{way:?}");
        }
        // Many small calls over one large buffer are pieces of data.
        let batch = Strategy::now(Side::Rx).with_batch(64);
        let (way, of_batch) = load(Side::Rx, "16384", batch);
        assert_eq!(
            (way, of_batch.data, of_batch.n_more_pieces),
            (Way::InPlaceTogether, 16384, 255)
        );
        let plan = Plan {
            side: Side::Rx,
            units: vec![vec![]],
            source_len: 0,
            destination_len: 0,
            scratch_len: 0,
        };
        assert_eq!(Load::of(&plan), None);
    }

    /// Check that one disturbed size vanishes, and no bytes cost nothing.
    #[test]
    fn smoothing() {
        let points = [(1, 10.0), (2, 20.0), (3, 90.0), (4, 40.0), (5, 50.0)];
        let smooth = without_spikes(&points);
        assert_eq!(smooth[2], (3, 40.0));
        assert_eq!((smooth[0], smooth[4]), (points[0], points[4]));
        let curve = from_zero(&[(100, 20.0), (200, 90.0), (400, 80.0)]);
        assert_eq!(
            (curve.at(0), curve.at(100), curve.at(200)),
            (0.0, 20.0, 80.0)
        );
    }

    /// Check that no frame that is measured is one of those that clusters send.
    #[test]
    fn anchors_are_no_shapes() {
        let shapes = crate::shapes::builtin();
        for way in Way::ALL {
            for size in SIZES {
                let (side, _) = way.strategy();
                let second = with_front(way, FRONT, vec![size]);
                assert!(shapes.iter().all(|shape| shape.side != side
                    || shape.units.last().is_none_or(|unit| {
                        let calls: Vec<_> = unit.iter().copied().filter(|n| *n > 0).collect();
                        calls != second
                    })));
            }
        }
    }
}
