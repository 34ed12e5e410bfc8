//! A synthetic trace to each export, read back.

use std::collections::BTreeMap;
use std::iter;
use std::sync::LazyLock;

use serde_json::Value;
use wcprof_export::{CsvWriter, Timeline};
use wcprof_profile::model::{Detail, Profile};
use wcprof_profile::{GroupBy, ProfileBuilder, RowSpan, Rules, Trees, View};
use wcprof_types::TimeNs;

use crate::read::{Folded, Pprof, csv};
use crate::support::Maker;

static RULES: LazyLock<Rules> = LazyLock::new(|| Rules::builtin().unwrap());

/// What of a trace is exported.
#[derive(Debug)]
pub struct Exports {
    pub profile: Profile,
    spans: Vec<RowSpan>,
}

impl Exports {
    /// Of a trace, or of the time from one point to another, ns.
    pub fn of(maker: &Maker, window: Option<(u64, u64)>) -> Self {
        let mut builder = ProfileBuilder::new().with_detail(Detail::Frames);
        if let Some((from, to)) = window {
            builder = builder.with_window(TimeNs(from), TimeNs(to));
        }
        builder.add_spans(&maker.spans);
        let (profile, rows) = builder.finish_indexed(&maker.tables, None, &RULES, false);
        let spans = maker.spans.iter().filter_map(|s| rows.find(s)).collect();
        Self { profile, spans }
    }

    pub fn timeline(&self) -> Timeline {
        let mut timeline = Timeline::new(&self.profile);
        for span in &self.spans {
            timeline.add(&self.profile, *span);
        }
        timeline.sort();
        timeline
    }

    pub fn pprof(&self, view: &View) -> Pprof {
        let mut out = Vec::new();
        wcprof_export::pprof(&self.profile, view, &mut out).unwrap();
        Pprof::read(&out)
    }

    pub fn csv(&self, view: &View) -> Vec<BTreeMap<String, String>> {
        csv(&self.csv_bytes(view))
    }

    pub fn csv_bytes(&self, view: &View) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = CsvWriter::new(&self.profile, view, &mut out).unwrap();
        for span in &self.spans {
            writer.add(*span).unwrap();
        }
        writer.finish().unwrap();
        out
    }

    /// `None` when there is nothing to show.
    pub fn speedscope(&self, view: &View, title: &str) -> Option<Value> {
        let mut out = Vec::new();
        wcprof_export::speedscope(&self.profile, view, &self.timeline(), title, &mut out).ok()?;
        Some(serde_json::from_slice(&out).unwrap())
    }

    /// `None` when there is nothing to show.
    pub fn firefox(&self, view: &View, title: &str) -> Option<Value> {
        let mut out = Vec::new();
        wcprof_export::firefox(&self.profile, view, &self.timeline(), title, &mut out).ok()?;
        Some(serde_json::from_slice(&out).unwrap())
    }

    /// Time that a view shows by stack, ns.
    pub fn shown(&self, view: &View) -> Folded {
        let trees = Trees::new(&self.profile, view);
        let mut stacks = Folded::new();
        for group in &trees.groups {
            let name = wcprof_report::group_name(&self.profile, group);
            for node in group.nodes.iter().filter(|n| n.self_weight > 0) {
                let nodes = iter::successors(Some(node), |node| Some(&group.nodes[node.parent?]));
                let names = nodes.map(|node| match node.label.function(&self.profile) {
                    Some(function) => function.name.clone(),
                    None => node.label.text(&self.profile, trees.min_percent).into(),
                });
                let mut names: Vec<String> = names.chain(name.clone()).collect();
                names.reverse();
                *stacks.entry(names.join(";")).or_default() += node.self_weight;
            }
        }
        stacks
    }
}

/// Groups that no export adds by itself.
pub fn ungrouped() -> View {
    View {
        by: GroupBy::All,
        ..View::default()
    }
}
