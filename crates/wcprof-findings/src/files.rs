//! Evidence by file: what the threads of a finding waited for.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use wcprof_profile::file_text;
use wcprof_profile::model::Profile;
use wcprof_types::{FdKind, FdTarget};

use crate::counted::Counted;
use crate::finding::{Evidence, EvidenceLine, FILES};

/// Files that are named.
const MAX_LINES: usize = 4;
/// Below this share of the base a file is not worth a line.
const MIN_PERCENT: f64 = 0.5;

/// `12.0 % fdatasync on /var/lib/ceph/osd/ceph-0/block`, percent of `base_ns`, which `of` names;
/// `None` when no wait of these is for a file.
pub(crate) fn files(
    profile: &Profile,
    counted: &[Counted<'_>],
    base_ns: u64,
    of: &str,
) -> Option<Evidence> {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for row in counted.iter().map(|c| c.row) {
        // Where threads wait for work says little.
        let wait = row.wait.map(|id| &profile.waits[id as usize]);
        if let Some(wait) = wait.filter(|_| row.state.is_active())
            && wait.fd.as_ref().is_some_and(is_shown)
        {
            let sum = sums.entry(file_text(wait, " on ")).or_default();
            *sum = sum.saturating_add(row.weight);
        }
    }
    let mut lines: Vec<EvidenceLine> = sums
        .into_iter()
        .map(|(name, weight_ns)| EvidenceLine::new(name, weight_ns, base_ns))
        .filter(|line| line.percent >= Some(MIN_PERCENT))
        .collect();
    lines.sort_by_key(|line| Reverse(line.weight_ns));
    let heading = format!("{FILES}, % of {of}");
    (!lines.is_empty()).then(|| Evidence::cut(heading, lines, MAX_LINES))
}

/// Files whose names could not be read in time have a line, too: so the lines add up. Recordings of
/// versions that did not read the names of sockets and the like have none for these.
fn is_shown(fd: &FdTarget) -> bool {
    use FdKind::{Block, Char, Directory, Regular};
    !fd.path.is_empty() || matches!(fd.kind, Regular | Block | Char | Directory)
}
