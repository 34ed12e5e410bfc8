//! A profile store on loopback: prints its URL, then a line of JSON for each profile that it gets, until it is ended.
//!
//! `cargo xtask lab agent` runs it. Of a profile it prints its labels, its window in ns since 1970, its time in ns, and
//! how many samples there are.

use std::error::Error;
use std::io::{Write, stdout};
use std::time::Duration;

use prost::Message;
use serde_json::json;
use wcprof_testkit::{Reply, TestStore};

#[path = "../../wcprof-export/src/pprof/proto.rs"]
mod proto;

fn main() -> Result<(), Box<dyn Error>> {
    let store = TestStore::start(|| Reply::Status(200));
    let mut out = stdout().lock();
    writeln!(out, "{}", json!({ "url": store.url }))?;
    out.flush()?;
    loop {
        let Some(request) = store.next_within(Duration::from_secs(3600)) else {
            return Ok(());
        };
        for pushed in request.pushed() {
            let profile = proto::Profile::decode(&*pushed.pprof)?;
            let sum: i64 = profile.sample.iter().map(|sample| sample.value[1]).sum();
            let line = json!({
                "labels": pushed.labels,
                "from": profile.time_nanos,
                "to": profile.time_nanos + profile.duration_nanos,
                "time": sum,
                "samples": profile.sample.len(),
                "bytes": pushed.pprof.len(),
            });
            writeln!(out, "{line}")?;
        }
        out.flush()?;
    }
}
