//! Calls to cases that are measured together.

use msgr_crypto_ffi::Library;

use crate::measure::{Case, Effort, MeasureError, Measured, Reference, measure};
use crate::run::Runner;
use crate::shapes::Side;
use crate::strategy::{Area, Op, Plan, Span};

/// Calls in a unit that measures one call: what the unit costs is divided by it.
pub(super) const REPEAT: usize = 8;

/// Cases of one direction, known by their index.
pub(super) struct CaseSet<'lib> {
    pub(super) library: &'lib Library,
    pub(super) side: Side,
    cases: Vec<Case<'lib>>,
}

impl<'lib> CaseSet<'lib> {
    pub(super) fn new(library: &'lib Library, side: Side) -> Self {
        Self {
            library,
            side,
            cases: Vec::new(),
        }
    }

    /// A frame of these units, in memory of its own.
    pub(super) fn add_plan(&mut self, units: Vec<Vec<Op>>) -> Result<usize, MeasureError> {
        let runner = Runner::new(self.library, &plan(self.side, units))?;
        Ok(self.add(Case::of_runner(runner)))
    }

    pub(super) fn add(&mut self, case: Case<'lib>) -> usize {
        self.cases.push(case);
        self.cases.len() - 1
    }

    pub(super) fn measure(
        mut self,
        reference: &mut Reference<'_>,
        effort: Effort,
    ) -> Result<Measured, MeasureError> {
        measure(&mut self.cases, reference, effort)
    }
}

fn plan(side: Side, units: Vec<Vec<Op>>) -> Plan {
    let end = |area: Area| {
        let spans = units.iter().flatten().flat_map(|op| match op {
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
        units,
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
