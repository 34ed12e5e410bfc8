//! Where a profile comes from, as exports say it.

use wcprof_profile::model::Profile;

/// When the recording (or its window) began, ns since 1970.
pub(crate) fn started_unix_ns(profile: &Profile) -> u64 {
    let start = profile.time.start.0;
    profile.header.started_unix_ns.saturating_add(start)
}

/// What recorded it.
pub(crate) fn recorded_by(profile: &Profile) -> String {
    let header = &profile.header;
    let by = wcprof_report::recorded_by(&header.engine);
    format!("wcprof {}, {by}", header.wcprof_version)
}
