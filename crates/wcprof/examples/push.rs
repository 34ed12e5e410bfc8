//! `push TRACE URL`: sends the profile of a saved trace's first process to an OpenTelemetry collector, once.
//!
//! `cargo xtask collector` runs it.

use std::error::Error;
use std::path::Path;

use wcprof_export::{PushedProfile, StoreLimits, StoreProfiles, otlp_request};
use wcprof_net::{Answer, Store, StoreKind, StoreOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [trace, url] = &words[..] else {
        return Err("usage: push TRACE URL".into());
    };
    let profile = wcprof_cli::profile_of(Path::new(trace), None, &wcprof_cli::defaults());
    let profile = profile.map_err(|failure| failure.to_string())?;
    let of_process = StoreProfiles::new(&profile, false).of(0, StoreLimits::PYROSCOPE);
    let pushed = PushedProfile {
        labels: vec![("service_name".to_owned(), "ceph-osd".to_owned())],
        profile: of_process.ok_or("the trace has no time")?,
        id: "0123456789abcdef".to_owned(),
    };
    let kind = StoreKind::Otlp;
    let mut options = StoreOptions::new(url, kind);
    options.limits.proxy = false;
    match Store::new(options)?.send(&kind.pack(otlp_request(&[pushed]))) {
        Answer::Taken => Ok(()),
        other => Err(format!("the collector did not take all of it: {other:?}").into()),
    }
}
