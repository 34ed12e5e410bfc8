//! A shape and a way to encrypt or decrypt it to the copies and update calls that are made.
//!
//! The same plan is measured ([`crate::run`]) and predicted ([`crate::model`]), so that both speak of
//! the same work. Where memory matters: buffers of their own begin at a cache line, those of a page or
//! more at a page, as Ceph's `create_aligned` places them.

use std::fmt;

use crate::shapes::{Shape, Side};

const LINE: usize = 64;
const PAGE: usize = 4096;

/// Where the result goes.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Placement {
    /// Over the input, as Ceph's receiver does.
    InPlace,
    /// Into one buffer a unit, as Ceph's sender does.
    OutOfPlace,
}

/// How the buffers of a unit meet the update calls.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Arrangement {
    /// A call a buffer, empty ones included: what Ceph does.
    PerBuffer,
    /// Buffers are copied into a scratch buffer, which is encrypted or decrypted at once.
    Coalesced,
    /// Buffers are copied to where the result belongs, which is encrypted or decrypted there at once.
    Gathered,
    /// The buffers lie one behind the other in one allocation, so that nothing is copied.
    Contiguous,
}

/// A way to encrypt or decrypt a frame.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Strategy {
    /// How buffers meet calls.
    pub arrangement: Arrangement,
    /// Where the result goes. [`Arrangement::Gathered`] is out of place whatever this says.
    pub placement: Placement,
    /// Most bytes in a call, at least 1: the batch size. Copies are as long as calls then.
    pub batch: Option<usize>,
}

impl Strategy {
    /// A way without limit to the batch.
    pub const fn new(arrangement: Arrangement, placement: Placement) -> Self {
        Self {
            arrangement,
            placement,
            batch: None,
        }
    }

    /// What Ceph does at this side: a call a buffer, in place when it receives.
    pub const fn ceph(side: Side) -> Self {
        match side {
            Side::Rx => Self::new(Arrangement::PerBuffer, Placement::InPlace),
            Side::Tx => Self::new(Arrangement::PerBuffer, Placement::OutOfPlace),
        }
    }

    /// What could be done instead: nothing copied, if the buffers could be allocated together; copied
    /// to the result; copied to scratch.
    pub const fn alternatives(side: Side) -> [Self; 3] {
        let placement = Self::ceph(side).placement;
        [
            Self::new(Arrangement::Contiguous, placement),
            Self::new(Arrangement::Gathered, Placement::OutOfPlace),
            Self::new(Arrangement::Coalesced, placement),
        ]
    }

    /// With at most `bytes` in a call; 0 counts as 1.
    pub fn with_batch(self, bytes: usize) -> Self {
        let batch = Some(bytes.max(1));
        Self { batch, ..self }
    }

    /// Its name in JSON and in benchmark ids.
    pub fn id(self) -> &'static str {
        self.names().0
    }

    /// Identifier, and description.
    fn names(self) -> (&'static str, &'static str) {
        use Arrangement::{Coalesced, Contiguous, Gathered, PerBuffer};
        use Placement::{InPlace, OutOfPlace};
        match (self.arrangement, self.placement) {
            (PerBuffer, InPlace) => ("per-buffer-in-place", "per buffer, in place"),
            (PerBuffer, OutOfPlace) => ("per-buffer", "per buffer"),
            (Coalesced, InPlace) => ("coalesced-in-scratch", "copied to scratch, one call there"),
            (Coalesced, OutOfPlace) => ("coalesced", "copied to scratch, one call"),
            (Gathered, _) => ("gathered", "gathered into the output, one call there"),
            (Contiguous, InPlace) => ("contiguous-in-place", "one allocation, one call, in place"),
            (Contiguous, OutOfPlace) => ("contiguous", "one allocation, one call"),
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.names().1)?;
        match self.batch {
            Some(batch) => write!(f, ", {batch} B a call"),
            None => Ok(()),
        }
    }
}

/// Memory that a plan works in.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Area {
    /// The frame's buffers as they came.
    Source,
    /// The result; unused in place.
    Destination,
    /// A buffer that all frames share.
    Scratch,
}

/// Bytes of an area.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Span {
    /// Which area.
    pub area: Area,
    /// Where in it.
    pub offset: usize,
    /// How many bytes.
    pub len: usize,
}

impl Span {
    pub(crate) fn new(area: Area, offset: usize, len: usize) -> Self {
        Self { area, offset, len }
    }
}

/// A step of a plan; both spans have the same length.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Op {
    /// memcpy to another area, not an update.
    pub is_copy: bool,
    /// Read.
    pub from: Span,
    /// Written: the same span for an update in place, else one in another area.
    pub to: Span,
}

impl Op {
    pub(crate) fn new(is_copy: bool, from: Span, to: Span) -> Self {
        Self { is_copy, from, to }
    }

    /// Bytes that it encrypts or decrypts.
    pub fn update_len(&self) -> usize {
        if self.is_copy { 0 } else { self.from.len }
    }
}

/// What is done for a frame, unit by unit. Each unit begins with its nonce and ends with its tag.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Whether it decrypts or encrypts.
    pub side: Side,
    /// The steps of each unit.
    pub units: Vec<Vec<Op>>,
    /// Bytes of each [`Area`], in their order.
    pub lengths: [usize; 3],
}

impl Plan {
    /// What `strategy` does for `shape`.
    pub fn new(shape: &Shape, strategy: Strategy) -> Self {
        let mut plan = Self {
            side: shape.side,
            units: Vec::with_capacity(shape.units.len()),
            lengths: [0; 3],
        };
        for calls in &shape.units {
            let unit = plan.unit(calls, strategy);
            plan.units.push(unit);
        }
        plan
    }

    /// Bytes that one frame touches.
    pub fn footprint(&self) -> usize {
        self.lengths.iter().sum()
    }

    /// Bytes that are encrypted or decrypted.
    pub fn n_bytes(&self) -> usize {
        self.units.iter().flatten().map(Op::update_len).sum()
    }

    fn unit(&mut self, calls: &[usize], strategy: Strategy) -> Vec<Op> {
        use Arrangement::{Coalesced, Contiguous, Gathered, PerBuffer};
        let arrangement = strategy.arrangement;
        let total = calls.iter().sum::<usize>();
        let batch = strategy.batch.unwrap_or(usize::MAX).max(1);
        let source: Vec<Span> = match arrangement {
            Contiguous => vec![self.place_source(total)],
            _ => calls.iter().map(|len| self.place_source(*len)).collect(),
        };
        let out_of_place = strategy.placement == Placement::OutOfPlace || arrangement == Gathered;
        let [_, destination_len, scratch_len] = &mut self.lengths;
        let destination = destination_len.next_multiple_of(LINE);
        if out_of_place {
            *destination_len = destination + total;
        }
        if arrangement == Coalesced {
            *scratch_len = total.min(batch).max(*scratch_len);
        }
        let chunks: Vec<Vec<Span>> = match arrangement {
            Coalesced | Gathered => chunks(&source, batch),
            PerBuffer | Contiguous => source.iter().flat_map(|b| pieces(*b, batch)).collect(),
        };
        let mut ops = Vec::new();
        let mut done = 0;
        for chunk in chunks {
            let len = chunk.iter().map(|from| from.len).sum();
            let result = Span::new(Area::Destination, destination + done, len);
            let from = match arrangement {
                PerBuffer | Contiguous => chunk[0],
                Gathered => result,
                Coalesced => Span::new(Area::Scratch, 0, len),
            };
            if matches!(arrangement, Coalesced | Gathered) {
                let mut at = from.offset;
                for buffer in chunk {
                    let to = Span::new(from.area, at, buffer.len);
                    ops.push(Op::new(true, buffer, to));
                    at += buffer.len;
                }
            }
            let to = if out_of_place { result } else { from };
            ops.push(Op::new(false, from, to));
            done += len;
        }
        ops
    }

    fn place_source(&mut self, len: usize) -> Span {
        let align = if len >= PAGE { PAGE } else { LINE };
        let source_len = &mut self.lengths[Area::Source as usize];
        let offset = source_len.next_multiple_of(align);
        *source_len = offset + len;
        Span::new(Area::Source, offset, len)
    }
}

/// A buffer cut into calls; an empty buffer is one empty call.
fn pieces(buffer: Span, batch: usize) -> Vec<Vec<Span>> {
    match buffer.len {
        0 => vec![vec![buffer]],
        _ => chunks(&[buffer], batch),
    }
}

/// Buffers cut and joined to chunks of `batch` bytes; empty ones vanish.
fn chunks(buffers: &[Span], batch: usize) -> Vec<Vec<Span>> {
    let mut chunks: Vec<Vec<Span>> = Vec::new();
    let mut room = 0;
    for buffer in buffers {
        let mut rest = *buffer;
        while rest.len > 0 {
            if room == 0 {
                chunks.push(Vec::new());
                room = batch;
            }
            let len = rest.len.min(room);
            if let Some(chunk) = chunks.last_mut() {
                chunk.push(Span { len, ..rest });
            }
            rest.offset += len;
            rest.len -= len;
            room -= len;
        }
    }
    chunks
}
