//! Calls that were seen to sums, frames and named shapes.

use std::collections::BTreeMap;

use serde::Serialize;

use super::name::{Role, frame_name};
use super::split::frames;
use crate::shapes::{Shape, Side};

/// Contexts that are kept apart; calls of others are counted, and make no frames.
const MAX_CONTEXTS: usize = 20_000;
/// Different lengths in the histogram of a side; others are counted together.
const MAX_LENGTHS: usize = 10_000;
/// Different shapes that are kept; frames of others are counted.
const MAX_SHAPES: usize = 2000;

/// Calls by context and direction; `None` is a gap.
type Streams = BTreeMap<(u64, Side), Vec<Option<usize>>>;

/// A call that was seen.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SeenCall {
    /// Address of the cipher context.
    pub context: u64,
    /// Decrypted or encrypted.
    pub side: Side,
    /// Bytes; below 0 is a mistake of the caller.
    pub len: i32,
    /// Additional authenticated data: no payload. The messenger has none.
    pub is_aad: bool,
    /// The thread.
    pub tid: i32,
    /// Nanoseconds of any clock.
    pub time_ns: u64,
}

/// What was seen, thread by thread in order.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Seen {
    /// A call.
    Call(SeenCall),
    /// Calls of a thread that were made here and not seen.
    Gap {
        /// The thread.
        tid: i32,
        /// How many.
        n: u64,
    },
}

/// Sums of all that was seen.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Observation {
    /// Calls, of all kinds.
    pub n_calls: u64,
    /// Calls that were made but not seen.
    pub n_lost: u64,
    /// Calls with additional authenticated data, which is no payload.
    pub n_aad: u64,
    /// Calls with a length below 0, or beyond what a frame can have.
    pub n_odd: u64,
    /// From the first call to the last, ns.
    pub span_ns: u64,
    /// Received.
    pub rx: SideSeen,
    /// Sent.
    pub tx: SideSeen,
    /// Calls of each thread, by its id.
    pub threads: BTreeMap<i32, ThreadSeen>,
    /// Shapes of frames, the most frequent first.
    pub shapes: Vec<ShapeSeen>,
    /// Frames whose shape was one too many.
    pub n_other_frames: u64,
}

/// A direction.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct SideSeen {
    /// Contexts with frames of the messenger: connections.
    pub n_connections: u64,
    /// Contexts without, such as those of cephx or TLS, and their calls.
    pub n_other_contexts: u64,
    /// Calls of those.
    pub n_other_calls: u64,
    /// Whole frames.
    pub n_frames: u64,
    /// Whole units.
    pub n_units: u64,
    /// Calls at an edge: before the first frame, after the last, or beside a gap.
    pub n_edge_calls: u64,
    /// Calls where a frame should be, but is none.
    pub n_torn_calls: u64,
    /// Bytes of all calls.
    pub n_bytes: u64,
    /// Number of calls by length in bytes.
    pub lengths: BTreeMap<u64, u64>,
    /// Calls of lengths that are not in the histogram, because it has too many.
    pub n_other_lengths: u64,
}

/// A thread.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ThreadSeen {
    /// Calls that decrypt.
    pub n_rx: u64,
    /// Calls that encrypt.
    pub n_tx: u64,
    /// Bytes of both.
    pub n_bytes: u64,
    /// Calls that were not seen.
    pub n_lost: u64,
}

/// Frames of one shape.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct ShapeSeen {
    /// Whole frames seen.
    pub count: u64,
    /// Direction.
    pub side: Side,
    /// What it is, as far as its lengths show.
    pub name: String,
    /// Its calls, in the notation of shapes: `80,0 | 192,16384,16,0`.
    pub calls: String,
}

impl Observation {
    /// Adds up what was seen. `role` decides between names that the same lengths can have.
    pub fn new(seen: &[Seen], role: Role) -> Self {
        let mut this = Self::default();
        let mut streams: Streams = BTreeMap::new();
        let mut of_thread: BTreeMap<i32, Vec<(u64, Side)>> = BTreeMap::new();
        let (mut first, mut last) = (u64::MAX, 0);
        for one in seen {
            let call = match one {
                Seen::Gap { tid, n } => {
                    this.n_lost = this.n_lost.saturating_add(*n);
                    let thread = this.threads.entry(*tid).or_default();
                    thread.n_lost = thread.n_lost.saturating_add(*n);
                    // Any connection of the thread may have lost calls.
                    for key in of_thread.get(tid).into_iter().flatten() {
                        let calls = streams.entry(*key).or_default();
                        if calls.last().is_some_and(Option::is_some) {
                            calls.push(None);
                        }
                    }
                    continue;
                }
                Seen::Call(call) => call,
            };
            this.n_calls += 1;
            first = first.min(call.time_ns);
            last = last.max(call.time_ns);
            let Some(len) = u64::try_from(call.len).ok().filter(|len| *len <= MAX_CALL) else {
                this.n_odd += 1;
                continue;
            };
            if call.is_aad {
                this.n_aad += 1;
                continue;
            }
            let thread = this.threads.entry(call.tid).or_default();
            thread.n_bytes += len;
            match call.side {
                Side::Rx => thread.n_rx += 1,
                Side::Tx => thread.n_tx += 1,
            }
            let side = this.side_mut(call.side);
            side.add_length(len);
            let key = (call.context, call.side);
            if !streams.contains_key(&key) && streams.len() >= MAX_CONTEXTS {
                side.n_other_calls += 1;
                continue;
            }
            let stream = streams.entry(key).or_insert_with(|| {
                of_thread.entry(call.tid).or_default().push(key);
                Vec::new()
            });
            stream.push(Some(len as usize));
        }
        this.span_ns = last.saturating_sub(first);
        this.split(streams, role);
        this
    }

    fn split(&mut self, streams: Streams, role: Role) {
        let mut counts: BTreeMap<(Side, Vec<Vec<usize>>), u64> = BTreeMap::new();
        for ((_, side), stream) in streams {
            let frames = frames(&stream, side);
            let seen = self.side_mut(side);
            if !frames.has_begin {
                seen.n_other_contexts += 1;
                seen.n_other_calls += stream.iter().flatten().count() as u64;
                continue;
            }
            seen.n_connections += 1;
            seen.n_edge_calls += frames.n_edge_calls;
            seen.n_torn_calls += frames.n_torn_calls;
            seen.n_frames += frames.frames.len() as u64;
            for units in frames.frames {
                self.side_mut(side).n_units += units.len() as u64;
                let key = (side, units);
                if !count(&mut counts, key, MAX_SHAPES) {
                    self.n_other_frames += 1;
                }
            }
        }
        let counts = counts.into_iter().map(|((side, units), count)| {
            let shape = Shape::unnamed(side, units);
            ShapeSeen {
                count,
                side,
                name: frame_name(&shape, role),
                calls: shape.notation(),
            }
        });
        self.shapes = counts.collect();
        self.shapes
            .sort_by(|a, b| (b.count, a.side, &a.calls).cmp(&(a.count, b.side, &b.calls)));
    }

    /// One direction.
    pub fn side(&self, side: Side) -> &SideSeen {
        match side {
            Side::Rx => &self.rx,
            Side::Tx => &self.tx,
        }
    }

    fn side_mut(&mut self, side: Side) -> &mut SideSeen {
        match side {
            Side::Rx => &mut self.rx,
            Side::Tx => &mut self.tx,
        }
    }

    /// Whole frames of both directions.
    pub fn n_frames(&self) -> u64 {
        self.rx.n_frames + self.tx.n_frames
    }

    /// The `max` most frequent shapes for the model, one for each name. `per_io` is how often each came,
    /// for one of the most frequent.
    pub fn model_shapes(&self, max: usize) -> Vec<Shape> {
        let mut by_name: BTreeMap<(Side, &str), (u64, &ShapeSeen)> = BTreeMap::new();
        // The first of a name is the most frequent one.
        for shape in &self.shapes {
            let key = (shape.side, shape.name.as_str());
            by_name.entry(key).or_insert((0, shape)).0 += shape.count;
        }
        let mut shapes: Vec<_> = by_name.into_values().collect();
        shapes.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        let most = shapes.first().map_or(1, |(count, _)| *count).max(1);
        shapes
            .into_iter()
            .take(max)
            .filter_map(|(count, seen)| {
                let mut shape = Shape::new(&seen.name, seen.side, &seen.calls).ok()?;
                shape.per_io = count as f64 / most as f64;
                shape.source = "observed".into();
                Some(shape)
            })
            .collect()
    }
}

/// No call of the messenger is longer: the most that a frame may have.
const MAX_CALL: u64 = crate::shapes::MAX_FRAME_BYTES as u64;

impl SideSeen {
    fn add_length(&mut self, len: u64) {
        self.n_bytes += len;
        if !count(&mut self.lengths, len, MAX_LENGTHS) {
            self.n_other_lengths += 1;
        }
    }

    /// All calls, also those of contexts without frames.
    pub fn n_calls(&self) -> u64 {
        self.lengths.values().sum::<u64>() + self.n_other_lengths
    }
}

/// Counts one more of a key. False when the key is new and there are `max` others.
fn count<K: Ord>(counts: &mut BTreeMap<K, u64>, key: K, max: usize) -> bool {
    if counts.len() >= max && !counts.contains_key(&key) {
        return false;
    }
    *counts.entry(key).or_default() += 1;
    true
}
