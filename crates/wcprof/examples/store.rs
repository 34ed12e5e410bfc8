//! A profile store on loopback: prints its URL, then a line of JSON for each profile that it gets, until it is ended.
//!
//! `cargo xtask lab agent` runs it. Of a profile it prints its labels, its window in ns since 1970, its time in ns, and
//! how many samples there are.

use std::error::Error;
use std::io::{Write, stdout};
use std::time::Duration;

use serde_json::json;
use wcprof_testkit::{Reply, TestStore};

fn main() -> Result<(), Box<dyn Error>> {
    let store = TestStore::start(|| Reply::AsReal);
    let mut out = stdout().lock();
    writeln!(out, "{}", json!({ "url": store.url }))?;
    out.flush()?;
    loop {
        let Some(request) = store.next_within(Duration::from_secs(3600)) else {
            return Ok(());
        };
        for stored in request.stored {
            let line = json!({
                "labels": stored.labels,
                "from": stored.pprof.time_nanos,
                "to": stored.end(),
                "time": stored.sums["wall"],
                "samples": stored.n_samples,
                "bytes": stored.n_bytes,
            });
            writeln!(out, "{line}")?;
        }
        out.flush()?;
    }
}
