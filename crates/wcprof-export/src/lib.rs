//! A profile to the formats of other viewers: pure functions from a
//! [`Profile`](wcprof_profile::model::Profile) to a writer.
//!
//! | Format | Function | For | Time axis |
//! |---|---|---|---|
//! | `pprof` | [`pprof`](fn@pprof) | `go tool pprof`, Pyroscope, Parca | no |
//! | `speedscope` | [`speedscope`](fn@speedscope) | speedscope.app | yes |
//! | `firefox` | [`firefox`](fn@firefox) | profiler.firefox.com | yes |
//! | `csv` | [`CsvWriter`] | spreadsheets, DuckDB | yes |
//!
//! Formats with a time axis need the spans once more ([`Timeline`]). The view's filters, groups and
//! pruning hold for all; its direction does not, since these viewers invert themselves.
//!
//! Names of functions, and the file, line, inline depth and module of each frame, are fields of their own where a format
//! has them: profiles should be built with [`Detail::Frames`](wcprof_profile::model::Detail::Frames).
//!
//! Names come from the target and are hostile: control, bidirectional and invisible characters become `?`, and each
//! format escapes the rest for its destination.
#![forbid(unsafe_code)]

mod cells;
mod csv;
mod firefox;
mod origin;
mod pprof;
mod speedscope;
mod stacks;
mod store;
mod strings;
mod timeline;

pub use cells::{Cells, RowCells};
pub use csv::CsvWriter;
pub use firefox::firefox;
pub use origin::recorded;
pub use pprof::pprof;
pub use speedscope::speedscope;
pub use stacks::ThreadText;
pub use store::{
    Labels, PushedProfile, StoreLimits, StoreProfile, StoreProfiles, is_label_name, label_value,
    labels, otlp_request, parca_request, pyroscope_request,
};
pub use strings::Strings;
pub use timeline::{Sample, Timeline};
