//! A profile to what people and programs read: pure functions from a
//! [`Profile`](wcprof_profile::model::Profile) to a writer.
//!
//! | Format | Function | For |
//! |---|---|---|
//! | `overview` | [`Overview`] | a terminal: the first screen |
//! | `text` | [`text`](fn@text) | a terminal: call trees |
//! | `functions` | [`functions`](fn@functions) | a terminal: self and total time of each function |
//! | `waits` | [`waits`](fn@waits) | a terminal: where threads wait, and why a wait is idle or not |
//! | `markdown` | [`markdown`](fn@markdown) | trackers: a block to paste |
//! | `uwpmp` | [`uwpmp`](fn@uwpmp) | trackers: uwpmp's own text format |
//! | `folded` | [`folded`](fn@folded) | flame graph tools |
//! | `json` | [`json`](fn@json) | programs |
//! | `svg`, `icicle` | [`svg`](fn@svg) | a browser |
//! | `html` | [`HtmlPage`] | a browser: all views in one file |
//!
//! A [`ProfileDiff`](wcprof_profile::diff::ProfileDiff) is written by [`diff_text`](fn@diff_text),
//! [`diff_json`](fn@diff_json) and [`diff_svg`](fn@diff_svg).
//!
//! Names come from the target and are hostile: each format escapes them for its destination.
#![forbid(unsafe_code)]

mod colors;
mod cores;
mod daemons;
mod diff_html;
mod diff_json;
mod diff_svg;
mod diff_text;
mod figures;
mod folded;
mod functions;
mod group;
mod headline;
mod html;
mod json;
mod locks_html;
mod markdown;
mod overview;
mod per_operation;
mod spans;
mod stopped;
mod svg;
mod text;
mod unnamed;
mod uwpmp;
mod waits;

pub use cores::cores_text;
pub use daemons::{daemons_json, daemons_text};
pub use diff_html::diff_html;
pub use diff_json::diff_json;
pub use diff_svg::diff_svg;
pub use diff_text::{DiffTextOptions, diff_text, diff_warning};
pub use figures::{COLUMNS, at_a_time, threads_text};
pub use folded::folded;
pub use functions::functions;
pub use group::group_name;
pub use headline::{Headline, recorded_by};
pub use html::{FirstScreen, HtmlOptions, HtmlPage, MAX_HTML_BYTES};
pub use json::{JSON_VERSION, json};
pub use locks_html::locks_html;
pub use markdown::markdown;
pub use overview::{Answers, Overview};
pub use per_operation::{counted_text, rate_text};
pub use svg::{SvgOptions, svg};
pub use text::{TextOptions, TextTrees, text};
pub use uwpmp::uwpmp;
pub use waits::waits;
