//! pprof's messages, as stores are sent them.

#[path = "../../wcprof-export/src/pprof/proto.rs"]
#[allow(missing_docs, reason = "its fields are those of the format")]
mod proto;

pub use proto::{Function, Label, Line, Location, Mapping, Profile, Sample, ValueType};

impl Profile {
    /// A text by its number; empty if there is none.
    pub fn text(&self, at: i64) -> &str {
        let text = usize::try_from(at)
            .ok()
            .and_then(|at| self.string_table.get(at));
        text.map_or("", String::as_str)
    }
}
