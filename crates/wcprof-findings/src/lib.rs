//! Turns a profile into findings: the places a performance engineer would point at, each with
//! its share of wall-clock time, its evidence, advice and the source of the advice.
//!
//! What is worth attention is data: one TOML file a [`Rule`], built in or the user's
//! ([`RuleSet`]). [`hotspots`] tests every rule against a profile; [`render_text`] and
//! [`to_json`] print what it found. This crate reads no target and no trace: the same profile
//! and rules give the same bytes.
#![forbid(unsafe_code)]

mod check;
mod rule;
mod rule_set;

mod finding;
mod hotspots;

mod applied;
mod busy_threads;
mod counted;
mod counters;
mod deadlocked;
mod evidence;
mod files;
mod groups;
mod locks;
mod matching;
mod totals;
mod unlike;
mod verdict;

mod condition;
mod watch;

mod limits;
mod pressure;
mod program_text;
mod sessions;
mod starvation;
mod stopped;

mod json;
mod lock_text;
mod text;
mod to_do;

pub use condition::{Condition, ConditionError, bare_counter};
pub use finding::{
    Basis, Comparison, CountedGain, Evidence, EvidenceLine, ExpectedGain, Finding, Hotspots,
    Setting, SettingsFound, TimeShare, Undecided,
};
pub use hotspots::hotspots;
pub use json::{rules_to_json, to_json};
pub use limits::quota_text;
pub use lock_text::{held_text, lock_summary, render_locks, site_notes};
pub use locks::{Hold, LockReport, LockSite, Unknown, Waiters, lock_report, locks_to_json};
pub use rule::{
    Base, Cause, CauseText, FrameTest, GroupLimit, Kind, Match, Pattern, Remedy, Resource, Rule,
    Scope, Severity, Show, Source, StopText, Threshold,
};
pub use rule_set::{RuleError, RuleSet};
pub use text::{
    Detail, gain_sentence, render_brief, render_finding, render_paragraph, render_rules,
    render_text, share_sentence,
};
pub use to_do::{ToDo, ToDoList, to_do};
pub use unlike::{MIN_LIKE, Outlier, comparison_text, outliers};
pub use watch::Watch;

#[cfg(test)]
mod tests;
