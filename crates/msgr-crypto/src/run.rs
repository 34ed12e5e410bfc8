//! A plan to calls that are really made, again and again, over memory that is hot or cold.

use msgr_crypto_ffi::{CAN_FLUSH, CallError, Context, Direction, Library, flush};

use crate::host::{Host, available_memory};
use crate::strategy::{Area, Op, Plan, Span};

const PAGE: usize = 4096;
const LINE: usize = 64;
const KEY: [u8; 16] = [0x5a; 16];
const NONCE: [u8; 12] = [0xa5; 12];
/// A ring for data in the last-level cache is so many times L2.
const RING_CACHES: u64 = 4;
/// A ring for data in memory: more pages than any translation buffer holds.
const RING_MEMORY: u64 = 64 << 20;

/// How far away the data of a frame is when its turn comes.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Residency {
    /// In the caches of the core: the same frame again.
    Hot,
    /// In the last-level cache: frames of a ring larger than L2, in no order.
    L2Cold,
    /// In memory: frames of a ring of many pages, in no order, dropped from all caches.
    MemoryCold,
}

impl Residency {
    /// As in JSON, ids and tables.
    pub fn id(self) -> &'static str {
        match self {
            Self::Hot => "hot",
            Self::L2Cold => "L2-cold",
            Self::MemoryCold => "memory-cold",
        }
    }

    /// How data is brought there; `None` when this machine has too little memory.
    pub fn distance(self, host: &Host) -> Option<Distance> {
        Some(match self {
            Self::Hot => Distance::HOT,
            Self::L2Cold => Distance {
                ring_bytes: usize::try_from(host.l2_bytes * RING_CACHES).ok()?,
                evict: Evict::Sweep(usize::try_from(host.l2_bytes * 2).ok()?),
            },
            Self::MemoryCold => {
                let evict = match CAN_FLUSH {
                    true => Evict::Flush,
                    false => Evict::Sweep(usize::try_from(host.l3_bytes.saturating_mul(2)).ok()?),
                };
                if available_memory() < 8 * RING_MEMORY {
                    return None;
                }
                Distance {
                    ring_bytes: RING_MEMORY as usize,
                    evict,
                }
            }
        })
    }
}

/// How the data of a runner is made distant.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Distance {
    /// Bytes that the frames of the ring touch together; 0 is one frame.
    ring_bytes: usize,
    evict: Evict,
}

impl Distance {
    /// One frame, again and again.
    pub const HOT: Self = Self {
        ring_bytes: 0,
        evict: Evict::Nothing,
    };
}

/// What brings data out of caches.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Evict {
    Nothing,
    /// So many other bytes are read before.
    Sweep(usize),
    /// What was touched is flushed after.
    Flush,
}

/// Memory for plans: rings of sources and destinations, and the scratch buffer.
#[derive(Debug, Default)]
pub struct Memory {
    source: Arena,
    destination: Arena,
    scratch: Arena,
    /// Read to push other data out of caches.
    sweep: Arena,
}

impl Memory {
    /// Room for `plan`, zeroed; `ring_bytes` 0 is one frame.
    fn prepare(&mut self, plan: &Plan, ring: &Ring) {
        self.source.reserve(ring.source_stride * ring.n_slots);
        self.destination
            .reserve(ring.destination_stride * ring.n_slots);
        self.scratch.reserve(plan.scratch_len);
    }

    fn clear(&mut self) {
        self.source.clear();
        self.destination.clear();
    }

    /// Brings everything out of all caches.
    pub(crate) fn flush_all(&self) {
        flush(&self.source.bytes);
        flush(&self.destination.bytes);
    }
}

/// Bytes that begin at a page, each page of them really there.
#[derive(Debug, Default)]
struct Arena {
    bytes: Vec<u8>,
    begin: usize,
}

impl Arena {
    fn reserve(&mut self, len: usize) {
        if self.bytes.len() >= self.begin + len && !self.bytes.is_empty() {
            return;
        }
        self.bytes = vec![0; len + PAGE];
        self.begin = self.bytes.as_ptr().align_offset(PAGE).min(PAGE);
        // Zeroed memory is one shared page until it is written.
        for page in self.bytes.chunks_mut(PAGE) {
            std::hint::black_box(&mut page[0..1]).fill(0);
        }
    }

    fn clear(&mut self) {
        self.bytes.fill(0);
    }

    fn get(&self, at: usize, len: usize) -> &[u8] {
        &self.bytes[self.begin + at..][..len]
    }

    fn get_mut(&mut self, at: usize, len: usize) -> &mut [u8] {
        &mut self.bytes[self.begin + at..][..len]
    }
}

/// Slots of frames, visited each once in an order that no prefetcher guesses.
#[derive(Copy, Clone, Debug)]
struct Ring {
    n_slots: usize,
    source_stride: usize,
    destination_stride: usize,
}

impl Ring {
    fn new(plan: &Plan, distance: Distance) -> Self {
        let bytes = distance.ring_bytes;
        let stride = |len: usize| match len {
            0..PAGE => len.next_multiple_of(LINE),
            _ => len.next_multiple_of(PAGE),
        };
        let source_stride = stride(plan.source_len);
        let destination_stride = stride(plan.destination_len);
        // Pages count in memory. In a cache only lines do: gaps would leave room for what is to be
        // distant.
        let each = match distance.evict {
            Evict::Flush => source_stride + destination_stride,
            _ => touched(plan),
        };
        let n = bytes.div_ceil(each.max(LINE));
        Self {
            n_slots: n.max(1).next_power_of_two(),
            source_stride,
            destination_stride,
        }
    }

    /// A linear congruential generator modulo a power of two visits all: multiplier 5 modulo 8, odd
    /// increment.
    fn next(&self, slot: usize) -> usize {
        slot.wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f)
            & (self.n_slots - 1)
    }
}

/// Bytes of cache lines of a frame's own memory.
fn touched(plan: &Plan) -> usize {
    let of_source = |op: &Op| match op {
        Op::InPlace(span) | Op::Copy { from: span, .. } | Op::Update { from: span, .. }
            if span.area == Area::Source =>
        {
            span.len.next_multiple_of(LINE)
        }
        _ => 0,
    };
    let source: usize = plan.units.iter().flatten().map(of_source).sum();
    source + plan.destination_len
}

/// A plan, ready to run.
#[derive(Debug)]
pub struct Runner<'lib> {
    context: Context<'lib>,
    direction: Direction,
    units: Vec<RunUnit>,
    ring: Ring,
    slot: usize,
    /// Whether the ring was gone through an odd number of times.
    is_odd_round: bool,
    plan: Plan,
    evict: Evict,
    /// First slot that was used since the last flush, and how many were.
    used: (usize, u64),
    verifies: bool,
}

#[derive(Debug)]
struct RunUnit {
    ops: Vec<Op>,
    /// Of the data as it is at first, and of the data after it was decrypted in place: a later round
    /// decrypts that.
    tags: [[u8; 16]; 2],
    /// Whether rounds change the input.
    flips: bool,
}

impl<'lib> Runner<'lib> {
    /// Makes `plan` ready; `memory` is made large enough, and is zeroed by [`Runner::begin`].
    ///
    /// # Errors
    /// When libcrypto fails.
    pub fn new(library: &'lib Library, plan: Plan, distance: Distance) -> Result<Self, CallError> {
        let direction = plan.side.direction();
        let ring = Ring::new(&plan, distance);
        let mut units = Vec::with_capacity(plan.units.len());
        for ops in &plan.units {
            let n_bytes = ops.iter().map(update_len).sum();
            let tags = match direction {
                Direction::Decrypt => tags_of_zeros(library, n_bytes)?,
                Direction::Encrypt => [[0; 16]; 2],
            };
            let flips = ops
                .iter()
                .any(|op| matches!(op, Op::InPlace(span) if span.area == Area::Source));
            units.push(RunUnit {
                ops: ops.clone(),
                tags,
                flips,
            });
        }
        Ok(Self {
            context: library.context(direction, &KEY)?,
            direction,
            units,
            ring,
            slot: 0,
            is_odd_round: false,
            plan,
            evict: distance.evict,
            used: (0, 0),
            verifies: true,
        })
    }

    /// Takes a wrong tag for a right one: for memory that other runners write, too. It costs the same.
    pub fn unverified(mut self) -> Self {
        self.verifies = false;
        self
    }

    /// Makes memory large enough, and leaves what is in it. For runners that do not verify.
    pub fn join(&mut self, memory: &mut Memory) {
        memory.prepare(&self.plan, &self.ring);
        self.used = (self.slot, 0);
    }

    /// Before a stretch of `n` frames that is timed: what could be here or there is brought to where
    /// it has to be. Without this it would be where other cases, and other machines on this host, left
    /// it. Frames for the last-level cache are brought to all caches and pushed out of the nearer ones;
    /// of frames in memory the addresses are translated.
    pub fn approach(&mut self, n: u64, memory: &mut Memory) {
        if self.evict == Evict::Nothing {
            return;
        }
        let mut slot = self.slot;
        for _ in 0..n.min(self.ring.n_slots as u64) {
            let (source, destination) = self.begins(slot);
            let source = memory.source.get_mut(source, self.plan.source_len);
            let destination = memory
                .destination
                .get_mut(destination, self.plan.destination_len);
            for bytes in [source, destination] {
                match self.evict {
                    Evict::Flush => translate(bytes),
                    _ => touch(bytes),
                }
            }
            slot = self.ring.next(slot);
        }
        if let Evict::Sweep(bytes) = self.evict {
            memory.sweep.reserve(bytes);
            touch(memory.sweep.get_mut(0, bytes));
        }
    }

    /// After a stretch of frames: what was touched goes back to where it has to be next time.
    pub fn leave(&mut self, memory: &mut Memory) {
        let (mut slot, n) = std::mem::take(&mut self.used);
        if self.evict == Evict::Flush {
            for _ in 0..n.min(self.ring.n_slots as u64) {
                let (source, destination) = self.begins(slot);
                flush(memory.source.get(source, self.plan.source_len));
                flush(
                    memory
                        .destination
                        .get(destination, self.plan.destination_len),
                );
                slot = self.ring.next(slot);
            }
        }
        self.used = (self.slot, 0);
    }

    /// Whether frames are brought far away.
    pub(crate) fn is_distant(&self) -> bool {
        self.evict != Evict::Nothing
    }

    fn begins(&self, slot: usize) -> (usize, usize) {
        (
            slot * self.ring.source_stride,
            slot * self.ring.destination_stride,
        )
    }

    /// Zeroes the memory and starts over. Needed before the first [`Runner::run`], and whenever
    /// another runner used the same memory.
    pub fn begin(&mut self, memory: &mut Memory) {
        memory.prepare(&self.plan, &self.ring);
        memory.clear();
        if self.evict == Evict::Flush {
            memory.flush_all();
        }
        self.slot = 0;
        self.is_odd_round = false;
        self.used = (0, 0);
    }

    /// Encrypts, or decrypts and verifies, `n` frames.
    ///
    /// # Errors
    /// When libcrypto fails or a tag does not match.
    pub fn run(&mut self, n: u64, memory: &mut Memory) -> Result<(), CallError> {
        self.used.1 += n;
        let Self {
            context,
            direction,
            units,
            ring,
            slot,
            is_odd_round,
            verifies,
            ..
        } = self;
        for _ in 0..n {
            let source = *slot * ring.source_stride;
            let destination = *slot * ring.destination_stride;
            for unit in units.iter() {
                context.restart(&NONCE)?;
                for op in &unit.ops {
                    step(context, op, memory, source, destination)?;
                }
                match direction {
                    Direction::Decrypt => {
                        context.set_tag(&unit.tags[usize::from(*is_odd_round && unit.flips)])?;
                        match context.finish() {
                            Err(CallError::TagMismatch) if !*verifies => {}
                            result => result?,
                        }
                    }
                    Direction::Encrypt => {
                        context.finish()?;
                        std::hint::black_box(context.tag()?);
                    }
                }
            }
            *slot = ring.next(*slot);
            *is_odd_round ^= *slot == 0;
        }
        Ok(())
    }
}

#[inline(always)]
fn step(
    context: &mut Context<'_>,
    op: &Op,
    memory: &mut Memory,
    source: usize,
    destination: usize,
) -> Result<(), CallError> {
    let Memory {
        source: from_source,
        destination: to_destination,
        scratch,
        ..
    } = memory;
    let (from, to) = match op {
        Op::InPlace(Span { area, offset, len }) => {
            let data = match area {
                Area::Source => from_source.get_mut(source + offset, *len),
                Area::Destination => to_destination.get_mut(destination + offset, *len),
                Area::Scratch => scratch.get_mut(*offset, *len),
            };
            return context.update_in_place(data);
        }
        Op::Copy { from, to } | Op::Update { from, to } => (from, to),
    };
    let (input, output) = match (from.area, to.area) {
        (Area::Source, Area::Scratch) => (
            from_source.get(source + from.offset, from.len),
            scratch.get_mut(to.offset, to.len),
        ),
        (Area::Scratch, _) => (
            scratch.get(from.offset, from.len),
            to_destination.get_mut(destination + to.offset, to.len),
        ),
        _ => (
            from_source.get(source + from.offset, from.len),
            to_destination.get_mut(destination + to.offset, to.len),
        ),
    };
    match op {
        Op::Copy { .. } => {
            output.copy_from_slice(input);
            Ok(())
        }
        _ => context.update(input, output),
    }
}

/// Writes every line, as who made the data did: a cache may drop a line that was only read instead of
/// handing it to the next one.
fn touch(bytes: &mut [u8]) {
    for line in bytes.chunks_mut(LINE) {
        if let Some(byte) = line.first_mut() {
            *byte = std::hint::black_box(*byte);
        }
    }
}

/// Reads a byte of each page, so that its address is known to the core, and drops its line again.
fn translate(bytes: &[u8]) {
    let first = bytes.as_ptr().align_offset(PAGE);
    let pages = (first..bytes.len()).step_by(PAGE);
    for at in std::iter::once(0).chain(pages) {
        if let Some(byte) = bytes.get(at..=at) {
            std::hint::black_box(byte.first());
            flush(byte);
        }
    }
}

fn update_len(op: &Op) -> usize {
    match op {
        Op::Copy { .. } => 0,
        Op::InPlace(span) | Op::Update { from: span, .. } => span.len,
    }
}

/// Tags of `len` zeros taken as ciphertext, and of what they decrypt to taken as ciphertext.
fn tags_of_zeros(library: &Library, len: usize) -> Result<[[u8; 16]; 2], CallError> {
    let mut context = library.context(Direction::Encrypt, &KEY)?;
    let mut data = vec![0; len];
    let mut seal = |data: &mut [u8]| {
        context.restart(&NONCE)?;
        context.update_in_place(data)?;
        context.finish()?;
        context.tag()
    };
    // Zeros encrypt to the key stream, and the key stream to zeros.
    let of_key_stream = seal(&mut data)?;
    let of_zeros = seal(&mut data)?;
    Ok([of_zeros, of_key_stream])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shapes::{Shape, Side};
    use crate::strategy::{Arrangement, Placement, Strategy};

    const ARRANGEMENTS: [Arrangement; 4] = [
        Arrangement::PerBuffer,
        Arrangement::Coalesced,
        Arrangement::Gathered,
        Arrangement::Contiguous,
    ];

    /// Check that every strategy, batch and side decrypts with a right tag, over several rounds of a
    /// ring with more than one frame.
    #[test]
    fn every_strategy_verifies() {
        let library = Library::system().unwrap();
        for side in [Side::Rx, Side::Tx] {
            let shape = Shape::new("x", side, "80,0 | 192,5000,1,7,16,0").unwrap();
            for arrangement in ARRANGEMENTS {
                for placement in [Placement::InPlace, Placement::OutOfPlace] {
                    for batch in [
                        None,
                        Some(1),
                        Some(16),
                        Some(100),
                        Some(4096),
                        Some(1 << 20),
                    ] {
                        let mut strategy = Strategy::new(arrangement, placement);
                        strategy.batch = batch;
                        for (ring_bytes, evict) in [
                            (0, Evict::Nothing),
                            (100_000, Evict::Sweep(1000)),
                            (100_000, Evict::Flush),
                        ] {
                            let plan = Plan::new(&shape, strategy);
                            let distance = Distance { ring_bytes, evict };
                            let mut runner = Runner::new(&library, plan, distance).unwrap();
                            let mut memory = Memory::default();
                            runner.begin(&mut memory);
                            for _ in 0..4 {
                                runner.approach(25, &mut memory);
                                let result = runner.run(25, &mut memory);
                                assert_eq!(result, Ok(()), "{strategy} {side} {distance:?}");
                                runner.leave(&mut memory);
                            }
                        }
                    }
                }
            }
        }
    }

    /// Check that all strategies encrypt to the same bytes.
    #[test]
    fn every_strategy_agrees() {
        let library = Library::system().unwrap();
        let shape = Shape::new("x", Side::Tx, "100,28,4096,300,16").unwrap();
        let mut results = Vec::new();
        for arrangement in ARRANGEMENTS {
            for batch in [None, Some(64)] {
                let mut strategy = Strategy::new(arrangement, Placement::OutOfPlace);
                strategy.batch = batch;
                let mut runner =
                    Runner::new(&library, Plan::new(&shape, strategy), Distance::HOT).unwrap();
                let mut memory = Memory::default();
                runner.begin(&mut memory);
                runner.run(1, &mut memory).unwrap();
                results.push(memory.destination.get(0, shape.n_bytes()).to_vec());
            }
        }
        assert!(results.iter().all(|result| result == &results[0]));
        assert!(results[0].iter().any(|byte| *byte != 0));
    }

    /// Check that in a cache the lines that a frame touches count, not the pages between them.
    #[test]
    fn ring_of_lines() {
        let shape = Shape::new("x", Side::Rx, "80 | 192,4096,16").unwrap();
        let plan = Plan::new(&shape, Strategy::now(Side::Rx));
        assert_eq!(touched(&plan), 128 + 192 + 4096 + 64);
        let n_slots = |evict| {
            let distance = Distance {
                ring_bytes: 1 << 20,
                evict,
            };
            Ring::new(&plan, distance).n_slots
        };
        assert_eq!(
            (n_slots(Evict::Sweep(1)), n_slots(Evict::Flush)),
            (256, 128)
        );
    }

    /// Check that runners which do not verify can share memory, and others see what they did.
    #[test]
    fn shared_memory() {
        let library = Library::system().unwrap();
        let new = |calls| {
            let shape = Shape::new("x", Side::Rx, calls).unwrap();
            let plan = Plan::new(&shape, Strategy::now(Side::Rx));
            Runner::new(&library, plan, Distance::HOT).unwrap()
        };
        let mut memory = Memory::default();
        let mut first = new("100").unverified();
        let mut second = new("300").unverified();
        first.join(&mut memory);
        second.join(&mut memory);
        for _ in 0..3 {
            assert_eq!(first.run(1, &mut memory), Ok(()));
            assert_eq!(second.run(1, &mut memory), Ok(()));
        }
        let mut verifying = new("100");
        verifying.join(&mut memory);
        first.run(1, &mut memory).unwrap();
        assert_eq!(verifying.run(1, &mut memory), Err(CallError::TagMismatch));
    }

    /// Check that a ring visits every slot once before it repeats.
    #[test]
    fn ring() {
        let shape = Shape::new("x", Side::Tx, "16").unwrap();
        let plan = Plan::new(&shape, Strategy::now(Side::Tx));
        let distance = Distance {
            ring_bytes: 100 * 128,
            evict: Evict::Flush,
        };
        let ring = Ring::new(&plan, distance);
        assert_eq!(ring.n_slots, 128);
        let mut seen = vec![false; ring.n_slots];
        let mut slot = 0;
        for _ in 0..ring.n_slots {
            assert!(!std::mem::replace(&mut seen[slot], true));
            slot = ring.next(slot);
        }
        assert_eq!(slot, 0);
    }
}
