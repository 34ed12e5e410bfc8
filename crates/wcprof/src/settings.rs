//! How recorded processes were set up: what a trace keeps of it, and what is worth changing.

use std::path::Path;

use wcprof_doctor::{Observed, diagnose, from_saved, to_saved};
use wcprof_findings::Finding;
use wcprof_host::{Walk, read_setup};
use wcprof_profile::{AccountsChange, accounts_changes};
use wcprof_trace::model::Tables;
use wcprof_types::Pid;

/// What a recording keeps of its target: JSON, or nothing where it cannot be read.
pub(crate) fn setup_of(pid: Pid) -> Option<String> {
    let snapshot = read_setup(Path::new("/"), pid, Walk::Nothing).ok()?;
    to_saved(&snapshot).ok()
}

/// What is worth changing in the settings that a trace holds; those that cannot be read are
/// left out.
pub(crate) fn findings_of(tables: &Tables) -> Vec<Finding> {
    let setups = &tables.origins.setups;
    let snapshots = setups.iter().filter_map(|text| from_saved(text).ok());
    let observed = observed(tables);
    let reports = snapshots.map(|snapshot| diagnose(&snapshot, &observed));
    reports.flat_map(|report| report.findings).collect()
}

/// What a recording shows. Names are those of all processes: of several it is not known whose they are.
pub(crate) fn observed(tables: &Tables) -> Observed {
    let encrypting = match tables.origins.setups.len() {
        1 => encrypting(tables),
        _ => None,
    };
    let changes = accounts_changes(tables);
    Observed {
        encrypting,
        is_recording: true,
        has_accounts: !changes.is_empty(),
        limit_changes: changes
            .iter()
            .flat_map(AccountsChange::limit_changes)
            .collect(),
    }
}

/// A function of the messenger's secure mode among the names that the trace holds.
fn encrypting(tables: &Tables) -> Option<String> {
    let names = tables.names.symbols.iter().flat_map(|s| s.frames.values());
    let mut functions = names.flatten().map(|frame| frame.name.as_str());
    functions
        .find(|name| name.contains("AES128GCM_OnWire"))
        .map(str::to_owned)
}
