//! A profile store on loopback: prints its URL, then a line of JSON for each profile that it gets, until its standard input
//! ends.
//!
//! `cargo xtask lab agent` runs it as `store PORT CLOCK_AHEAD RATE HANGS`: the port or 0, its clock less that of this machine in
//! seconds, the bytes a second that it takes or 0 for the limit that Pyroscope is delivered with, and whether it answers nobody.
//! Of a profile it prints its labels, its window in ns since 1970, its time in ns, and how many samples there are.

use std::error::Error;
use std::io::{Read, Write, stdin, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::json;
use wcprof_testkit::{Reply, StoreRequest, StoreRules, TestStore};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [port, clock_ahead, rate, hangs] = &words[..] else {
        return Err("usage: store PORT CLOCK_AHEAD RATE HANGS".into());
    };
    let mut rules = StoreRules {
        clock_ahead: clock_ahead.parse()?,
        ..StoreRules::default()
    };
    match rate.parse::<u32>()? {
        0 => {}
        rate => (rules.rate, rules.burst) = (rate.into(), rate.into()),
    }
    let reply = match hangs.parse()? {
        true => Reply::Hang,
        false => Reply::AsReal,
    };
    let store = TestStore::start_with(rules, port.parse()?, move |_| reply);
    println!("{}", json!({ "url": store.url }));
    let is_over = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&is_over);
    thread::spawn(move || {
        // What it says does not matter.
        let _ = stdin().read_to_end(&mut Vec::new());
        ended.store(true, Ordering::Relaxed);
    });
    while !is_over.load(Ordering::Relaxed) {
        if let Some(request) = store.next_within(Duration::from_millis(50)) {
            print(request)?;
        }
    }
    let (rest, _) = store.end();
    rest.into_iter().try_for_each(print)
}

/// A line for each profile of a request that is stored.
fn print(request: StoreRequest) -> Result<(), Box<dyn Error>> {
    let mut out = stdout().lock();
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
    Ok(out.flush()?)
}
