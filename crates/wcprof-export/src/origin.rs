//! Where a profile comes from, as exports say it.

use wcprof_profile::model::Profile;
use wcprof_text::terminal_name;

/// What recorded it, then the recorder's notes; harmless.
pub fn recorded(profile: &Profile) -> Vec<String> {
    let header = &profile.header;
    let by = wcprof_report::recorded_by(&header.engine);
    let by = format!("wcprof {}, {by}", header.wcprof_version);
    let texts = [&by].into_iter().chain(&header.notes);
    texts.map(|text| terminal_name(text).into_owned()).collect()
}
