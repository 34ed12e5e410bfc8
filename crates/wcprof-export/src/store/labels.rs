//! A process as the trace has it to the labels that a profile store finds its profiles by.
//!
//! | Label | Of | From |
//! |---|---|---|
//! | `service_name` | all | its class by the rules: `ceph-osd`, `qemu`; else its program |
//! | `host` | all | the trace |
//! | `daemon` | Ceph | its arguments: `osd.3` |
//! | `fsid` | Ceph | its arguments (Rook) or control group (cephadm), else the caller |
//! | `version` | Ceph | the caller |
//! | `vm` | QEMU | its `-name` |
//! | `container_id`, `pod` | containers | its control group |
//!
//! Numbers of processes and threads are no labels: each value is a series of its own, for months.

use std::collections::BTreeMap;

use wcprof_profile::model::ProfileProcess;
use wcprof_text::terminal_name;
use wcprof_trace::model::Process;
use wcprof_types::{Container, ceph_daemon, vm_name};

/// Names and values: what a store finds a profile by, beside the name of the series. Sorted by name, each name once.
pub type Labels = Vec<(String, String)>;

/// Characters of a value.
const MAX_VALUE: usize = 200;

/// The labels of a process, of which `others` are the user's: these count more. What the caller knows of the process
/// (`looked_up`) counts less.
pub fn labels(
    process: &Process,
    shown: &ProfileProcess,
    looked_up: &[(&str, Option<String>)],
    others: &[(String, String)],
) -> Labels {
    let (comm, args) = (&process.comm, &process.cmdline);
    let container = Container::of_cgroup(&process.cgroup);
    let found = [
        ("service_name", Some(shown.class.clone())),
        ("host", Some(shown.host.clone())),
        ("daemon", ceph_daemon(comm, args)),
        ("fsid", Some(shown.fsid.clone())),
        ("vm", vm_name(comm, args)),
        ("container_id", container.id),
        ("pod", container.pod),
    ];
    let all = looked_up.iter().cloned().chain(found);
    let found = all.filter_map(|(name, value)| {
        let value = value.filter(|value| !value.is_empty())?;
        Some((name.to_owned(), label_value(&value)))
    });
    let mut labels: BTreeMap<String, String> = found.collect();
    labels.extend(others.iter().cloned());
    labels.into_iter().collect()
}

/// A name that a process may have chosen as the value of a label: harmless, and at most 200 characters of it.
pub fn label_value(name: &str) -> String {
    let cut: String = name.chars().take(MAX_VALUE).collect();
    terminal_name(&cut).into_owned()
}

/// Whether stores take this as the name of a label: letters, digits and `_`.
pub fn is_label_name(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.chars().all(is_part) && !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit())
}
