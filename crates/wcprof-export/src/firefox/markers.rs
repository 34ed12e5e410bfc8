//! Samples of a thread to markers: its stretches in one state.

use std::cmp::Reverse;
use std::collections::HashMap;

use serde::Serialize;
use wcprof_profile::Label;

use super::shown::{MAX_GAP_NS, Shown, category, ms};
use crate::stacks::{Frame, Stacks};
use crate::strings::Strings;
use crate::timeline::Sample;

/// Stretches shorter than this are not marked, ns.
const MIN_MARKER_NS: u64 = 1_000_000;
/// Most markers of a thread; the longest are kept.
pub(super) const MAX_MARKERS: usize = 20_000;
/// The type of our markers, by which they refer to their schema.
pub(super) const MARKER: &str = "wcprof state";

/// A column a field. Times in ms.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Markers {
    data: Vec<MarkerData>,
    name: Vec<usize>,
    start_time: Vec<f64>,
    end_time: Vec<f64>,
    phase: Vec<u32>,
    category: Vec<usize>,
    length: usize,
}

#[derive(Serialize)]
struct MarkerData {
    r#type: &'static str,
    function: usize,
}

/// Marks stretches of one state. Returns how many are left out, too.
pub(super) fn markers(
    shown: &Shown<'_>,
    strings: &mut Strings,
    samples: &[Sample],
) -> (Markers, usize) {
    let mut markers = Markers::default();
    let (stretches, n_left_out) = stretches(shown, samples);
    for stretch in stretches {
        let (state, start) = (shown.state(&stretch[0]), stretch[0].start);
        let function = most_common_leaf(&shown.stacks, stretch);
        markers.data.push(MarkerData {
            r#type: MARKER,
            function: strings.number(&function),
        });
        markers.name.push(strings.number(state.name()));
        markers.start_time.push(ms(start));
        markers.end_time.push(ms(start + length_ns(stretch)));
        // An interval.
        markers.phase.push(1);
        markers.category.push(category(state));
        markers.length += 1;
    }
    (markers, n_left_out)
}

/// The stretches to mark, in order of time, and how many others there are.
fn stretches<'s>(shown: &Shown<'_>, samples: &'s [Sample]) -> (Vec<&'s [Sample]>, usize) {
    let mut stretches: Vec<&[Sample]> = samples
        .chunk_by(|a, b| {
            let is_next = a.end().saturating_add(MAX_GAP_NS) >= b.start;
            is_next && shown.state(a) == shown.state(b) && shown.shows(a) == shown.shows(b)
        })
        .filter(|stretch| shown.shows(&stretch[0]) && length_ns(stretch) >= MIN_MARKER_NS)
        .collect();
    let n_left_out = stretches.len().saturating_sub(MAX_MARKERS);
    if n_left_out > 0 {
        stretches.sort_by_key(|s| Reverse(length_ns(s)));
        stretches.truncate(MAX_MARKERS);
        stretches.sort_by_key(|s| s[0].start);
    }
    (stretches, n_left_out)
}

/// The innermost function that most of a stretch was in.
fn most_common_leaf(stacks: &Stacks<'_>, stretch: &[Sample]) -> String {
    let mut weights: HashMap<u32, u64> = HashMap::new();
    for sample in stretch {
        let weight = weights.entry(sample.row).or_default();
        *weight = weight.saturating_add(sample.weight);
    }
    let most = weights
        .into_iter()
        .max_by_key(|&(row, ns)| (ns, Reverse(row)));
    let labels = most.and_then(|(row, _)| stacks.labels(row as usize));
    let is_function = |frame: &Frame| !matches!(frame, Frame::Label(Label::State(_)));
    let leaf = labels.and_then(|labels| labels.into_iter().rfind(is_function));
    leaf.map_or_else(String::new, |leaf| stacks.text(leaf).into_owned())
}

/// The time from the start to the end of samples that follow each other, ns.
fn length_ns(samples: &[Sample]) -> u64 {
    let end = samples.last().map_or(0, Sample::end);
    samples.first().map_or(0, |s| end.saturating_sub(s.start))
}
