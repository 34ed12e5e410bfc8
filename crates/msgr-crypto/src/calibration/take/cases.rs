//! Calls of one direction to cases that are measured together.

use std::collections::BTreeMap;

use msgr_crypto_ffi::Library;

use crate::measure::{Case, Effort, MeasureError, Reference, measure};
use crate::run::Runner;
use crate::shapes::Side;
use crate::strategy::{Area, Op, Plan, Span};

/// Calls in a unit that measures one call: what the unit costs is divided by it.
pub(super) const REPEAT: usize = 8;

/// What a case measures. Numbers are bytes, but for the first.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Work {
    /// A unit without calls, several times.
    Unit(usize),
    /// Setting the nonce.
    Nonce,
    /// Setting key and nonce.
    Rekey,
    /// A new context.
    Context,
    /// [`REPEAT`] empty calls.
    Empty,
    /// Calls of whole blocks of this size.
    Update(usize),
    /// A call of less than a block.
    Small(usize),
    /// A call that ends this many bytes after the start of a block.
    Tail(usize),
    /// The same, with a call that ends the block.
    Fill(usize),
    /// The same, with a longer call that ends the block first.
    Head(usize),
    /// Calls that begin within a block, and one of this size between them.
    Shifted(usize),
    /// One call in place.
    InPlace(usize),
    /// One call out of place.
    OutOfPlace(usize),
    /// [`REPEAT`] copies.
    Copy(usize),
}

/// Nanoseconds of each case, and in how many of them other work disturbed the measurement.
pub(super) struct Times {
    pub(super) ns: BTreeMap<Work, f64>,
    pub(super) n_disturbed: usize,
}

/// Cases of one direction.
pub(super) struct CaseSet<'lib> {
    pub(super) library: &'lib Library,
    pub(super) side: Side,
    works: Vec<Work>,
    cases: Vec<Case<'lib>>,
}

impl<'lib> CaseSet<'lib> {
    pub(super) fn new(library: &'lib Library, side: Side) -> Self {
        Self {
            library,
            side,
            works: Vec::new(),
            cases: Vec::new(),
        }
    }

    /// A unit with these steps, in memory of its own.
    pub(super) fn add_unit(&mut self, work: Work, ops: Vec<Op>) -> Result<(), MeasureError> {
        let runner = Runner::new(self.library, &plan(self.side, ops))?;
        self.add(work, Case::of_runner(runner));
        Ok(())
    }

    pub(super) fn add(&mut self, work: Work, case: Case<'lib>) {
        self.works.push(work);
        self.cases.push(case);
    }

    pub(super) fn measure(
        mut self,
        reference: &mut Reference<'_>,
        effort: Effort,
    ) -> Result<Times, MeasureError> {
        let measured = measure(&mut self.cases, reference, effort)?;
        Ok(Times {
            ns: self.works.into_iter().zip(measured.ns).collect(),
            n_disturbed: measured.is_disturbed.iter().filter(|is| **is).count(),
        })
    }
}

fn plan(side: Side, ops: Vec<Op>) -> Plan {
    let end = |area: Area| {
        let spans = ops.iter().flat_map(|op| match op {
            Op::InPlace(span) => [Some(*span), None],
            Op::Copy { from, to } | Op::Update { from, to } => [Some(*from), Some(*to)],
        });
        let ends = spans
            .flatten()
            .filter(|span| span.area == area)
            .map(|span| span.offset + span.len);
        ends.max().unwrap_or(0)
    };
    Plan {
        side,
        source_len: end(Area::Source),
        destination_len: end(Area::Destination),
        scratch_len: end(Area::Scratch),
        units: vec![ops],
    }
}

pub(super) fn span(area: Area, offset: usize, len: usize) -> Span {
    Span { area, offset, len }
}

/// Calls in place, each over a buffer of its own, as those of a frame are.
pub(super) fn in_place(calls: &[usize]) -> Vec<Op> {
    let mut end: usize = 0;
    calls
        .iter()
        .map(|len| {
            let offset = end.next_multiple_of(64);
            end = offset + len;
            Op::InPlace(span(Area::Source, offset, *len))
        })
        .collect()
}

pub(super) fn repeated(calls: &[usize], times: usize) -> Vec<Op> {
    in_place(&calls.repeat(times))
}

pub(super) fn out_of_place(len: usize) -> Op {
    Op::Update {
        from: span(Area::Source, 0, len),
        to: span(Area::Destination, 0, len),
    }
}
