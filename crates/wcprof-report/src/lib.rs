//! A profile to what people and programs read: pure functions from a
//! [`Profile`](wcprof_profile::model::Profile) to a writer.
//!
//! | Format | Function | For |
//! |---|---|---|
//! | `text` | [`text`](fn@text) | a terminal |
//! | `uwpmp` | [`uwpmp`](fn@uwpmp) | trackers: uwpmp's own text format |
//! | `folded` | [`folded`](fn@folded) | flame graph tools |
//! | `json` | [`json`](fn@json) | programs |
//! | `svg` | [`svg`](fn@svg) | a browser |
//!
//! Names come from the target and are hostile: each format escapes them for its destination.
#![forbid(unsafe_code)]

mod escape;
mod folded;
mod group;
mod headline;
mod json;
mod screen;
mod svg;
mod text;
mod units;
mod uwpmp;

pub use escape::{folded_name, terminal_name};
pub use folded::folded;
pub use group::group_name;
pub use headline::Headline;
pub use json::{JSON_VERSION, json};
pub use screen::{Screen, screen};
pub use svg::svg;
pub use text::{TextOptions, text};
pub use uwpmp::{UwpmpOptions, uwpmp};
