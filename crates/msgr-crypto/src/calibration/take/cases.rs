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

    /// Nanoseconds of each case, and whether other work disturbed its measurement.
    pub(super) fn measure(
        mut self,
        reference: &mut Reference<'_>,
        effort: Effort,
    ) -> Result<BTreeMap<Work, (f64, bool)>, MeasureError> {
        let measured = measure(&mut self.cases, reference, effort)?;
        Ok(self.works.into_iter().zip(measured).collect())
    }
}

fn plan(side: Side, ops: Vec<Op>) -> Plan {
    let end = |area: Area| {
        let spans = ops.iter().flat_map(|op| [op.from, op.to]);
        let of_area = spans.filter(|span| span.area == area);
        of_area.map(|s| s.offset + s.len).max().unwrap_or(0)
    };
    Plan {
        side,
        lengths: [Area::Source, Area::Destination, Area::Scratch].map(end),
        units: vec![ops],
    }
}

/// Calls in place, each over a buffer of its own, as those of a frame are.
pub(super) fn in_place(calls: &[usize]) -> Vec<Op> {
    let mut end: usize = 0;
    let op = |len: &usize| {
        let span = Span::new(Area::Source, end.next_multiple_of(64), *len);
        end = span.offset + len;
        Op::new(false, span, span)
    };
    calls.iter().map(op).collect()
}

pub(super) fn repeated(calls: &[usize], times: usize) -> Vec<Op> {
    in_place(&calls.repeat(times))
}

/// A copy, or an update out of place.
pub(super) fn out_of_place(len: usize, is_copy: bool) -> Op {
    let from = Span::new(Area::Source, 0, len);
    let to = Span::new(Area::Destination, 0, len);
    Op::new(is_copy, from, to)
}
