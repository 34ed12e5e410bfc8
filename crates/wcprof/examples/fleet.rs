//! A recorded trace to the profiles of a whole cluster, pushed into one store on this machine: what that costs a daemon
//! and interval, and whether everything that was made is accounted for when the store refuses, hangs or restarts.
//!
//! `fleet TRACE DAEMONS INTERVALS`; `cargo xtask fleet` runs it. The daemons are the trace's process under other names.

use std::collections::HashSet;
use std::error::Error;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use wcprof_export::{PushedProfile, StoreLimits, StoreProfiles, labels, pyroscope_request};
use wcprof_host::clock::thread_cpu_ns;
use wcprof_host::own_files::open_dir;
use wcprof_net::{Pusher, PusherOptions, Spool, SpoolOptions, Store, StoreKind, StoreOptions};
use wcprof_profile::model::Detail;
use wcprof_profile::{ProfileBuilder, Rules, rename_functions};
use wcprof_symbols::call_name;
use wcprof_testkit::{Reply, TestStore};
use wcprof_trace::TraceReader;
use wcprof_trace::model::Trace;

/// Daemons of a host.
const PER_HOST: usize = 12;
/// What is given to a store that fails for a while.
const PATIENCE: Duration = Duration::from_secs(240);

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [trace, n_daemons, n_intervals] = &words[..] else {
        return Err("usage: fleet TRACE DAEMONS INTERVALS".into());
    };
    let (n_daemons, n_intervals) = (n_daemons.parse()?, n_intervals.parse()?);
    let (trace, _) = TraceReader::open(Path::new(trace))?.read_all()?;
    let made = made(&trace, n_daemons, n_intervals)?;
    for fault in [Fault::None, Fault::Refuses, Fault::Hangs, Fault::Restarts] {
        push(&made, fault, 1 << 30)?;
    }
    // A store that is away for longer than the spools last.
    push(&made, Fault::Refuses, made.largest_host() / 2)
}

/// Requests by host.
struct Made(Vec<Vec<Vec<u8>>>);

impl Made {
    fn n_requests(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }

    fn bytes(&self) -> usize {
        self.0.iter().flatten().map(Vec::len).sum()
    }

    /// Bytes of the host with most of them.
    fn largest_host(&self) -> u64 {
        let hosts = self
            .0
            .iter()
            .map(|host| host.iter().map(Vec::len).sum::<usize>());
        hosts.max().unwrap_or(0) as u64
    }
}

/// Makes all requests, as the agents of the hosts would: from spans to compressed bytes.
fn made(trace: &Trace, n_daemons: usize, n_intervals: usize) -> Result<Made> {
    let rules = Rules::builtin()?;
    let mut hosts = Vec::new();
    let (mut plain, mut n_samples, mut n_folded) = (0, 0, 0);
    let cpu = thread_cpu_ns();
    for first in (0..n_daemons).step_by(PER_HOST) {
        let mut requests = Vec::new();
        for interval in 0..n_intervals {
            let mut profiles = Vec::new();
            for daemon in first..n_daemons.min(first + PER_HOST) {
                let mut tables = trace.tables.clone();
                tables.header.host = format!("node-{:03}", first / PER_HOST);
                tables.header.started_unix_ns += interval as u64 * 30_000_000_000;
                for process in &mut tables.processes {
                    process.cmdline = ["ceph-osd", "--id", &daemon.to_string()]
                        .map(str::to_owned)
                        .to_vec();
                    process.comm = "ceph-osd".to_owned();
                }
                let mut builder = ProfileBuilder::new().with_detail(Detail::Frames);
                trace.spans.iter().for_each(|span| builder.add_span(span));
                let mut profile = builder.finish(&tables, None, &rules);
                rename_functions(&mut profile, call_name);
                let of_processes = StoreProfiles::new(&profile, false);
                let of_daemon = of_processes.of(0, StoreLimits::PYROSCOPE);
                let of_daemon = of_daemon.ok_or("the trace has no time")?;
                n_folded += of_daemon.n_folded;
                n_samples += of_daemon.n_samples();
                plain += of_daemon.len_bytes();
                profiles.push(PushedProfile {
                    labels: labels(&tables.processes[0], &profile.processes[0], &[], &[]),
                    profile: of_daemon,
                    id: format!("{daemon}-{interval}"),
                });
            }
            for pushed in profiles {
                requests.push(StoreKind::Pyroscope.pack(pyroscope_request(&[pushed])));
            }
        }
        hosts.push(requests);
    }
    let cpu = (thread_cpu_ns() - cpu) as f64;
    let made = Made(hosts);
    let n = (n_daemons * n_intervals) as f64;
    println!(
        "{n_daemons} daemons of {} threads on {} hosts, {n_intervals} intervals; a daemon and interval:",
        trace.tables.threads.len(),
        made.0.len()
    );
    println!(
        "  {:.1} ms of CPU time, {:.0} samples, {:.1} KB pprof, {:.1} KB sent; {n_folded} stacks in all are [other]",
        cpu / n / 1e6,
        n_samples as f64 / n,
        plain as f64 / n / 1e3,
        made.bytes() as f64 / n / 1e3
    );
    Ok(made)
}

/// What the store does before it takes what is sent.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Fault {
    None,
    Refuses,
    Hangs,
    Restarts,
}

const AWAY: u8 = 0;
const BACK: u8 = 1;

/// Pushes all requests from one pusher a host, and accounts for each.
fn push(made: &Made, fault: Fault, max_spool: u64) -> Result<()> {
    let state = Arc::new(AtomicU8::new(if fault == Fault::None {
        BACK
    } else {
        AWAY
    }));
    let is_away = Arc::clone(&state);
    let store = TestStore::start(move || match (is_away.load(Ordering::Relaxed), fault) {
        (BACK, _) | (_, Fault::None) => Reply::Status(200),
        (_, Fault::Refuses) => Reply::Status(429),
        (_, Fault::Hangs) => Reply::Hang,
        (_, Fault::Restarts) => Reply::Leave,
    });
    let folder = tempfile::tempdir()?;
    let begin = Instant::now();
    let cpu = Arc::new(Mutex::new(0));
    let hosts = made.0.iter().enumerate();
    let hosts: Vec<(Pusher, Arc<Spool>)> = hosts
        .map(|(at, requests)| {
            host(
                &folder.path().join(at.to_string()),
                &store.url,
                requests,
                (max_spool, Arc::clone(&cpu)),
            )
        })
        .collect::<Result<_>>()?;
    let mut taken = HashSet::new();
    let mut n_sent = 0;
    let dropped = || -> u64 {
        let spools = hosts.iter().map(|(_, spool)| spool.figures().n_dropped);
        spools.sum()
    };
    let unsure = || -> u64 {
        let pushers = hosts.iter();
        let counts = pushers.map(|(pusher, _)| pusher.figures.n_unsure.load(Ordering::Relaxed));
        counts.sum()
    };
    let n_made = made.n_requests() as u64;
    let failing = if fault == Fault::None {
        0
    } else {
        4 * hosts.len()
    };
    while taken.len() as u64 + dropped() + unsure() < n_made {
        if begin.elapsed() > PATIENCE {
            return Err(format!(
                "{fault:?}: {} of {} requests are missing",
                n_made - taken.len() as u64 - dropped() - unsure(),
                n_made
            )
            .into());
        }
        let Some(request) = store.next_within(Duration::from_secs(1)) else {
            state.store(BACK, Ordering::Relaxed);
            continue;
        };
        n_sent += 1;
        if n_sent >= failing {
            state.store(BACK, Ordering::Relaxed);
        }
        if request.status == 200 {
            let mut hasher = DefaultHasher::new();
            request.body.hash(&mut hasher);
            if !taken.insert(hasher.finish()) {
                return Err(format!("{fault:?}: a request was stored twice").into());
            }
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    let n_retries: u64 = hosts
        .iter()
        .map(|(pusher, _)| pusher.figures.n_retries.load(Ordering::Relaxed))
        .sum();
    let waiting: u64 = hosts
        .iter()
        .map(|(_, spool)| spool.figures().n_waiting)
        .sum();
    println!(
        "{fault:?}, spools of {:.1} MB: {n_made} requests made = {} taken + {} dropped for room + {} that the store may have; {n_retries} retries, {:.0} taken a second, {:.2} ms of CPU time each; {waiting} wait",
        max_spool as f64 / 1e6,
        taken.len(),
        dropped(),
        unsure(),
        taken.len() as f64 / seconds,
        *cpu.lock().map_err(|_| "a pusher panicked")? as f64 / 1e6 / n_sent.max(1) as f64,
    );
    for (pusher, _) in hosts {
        if !pusher.finish(PATIENCE, Duration::ZERO) {
            return Err(format!("{fault:?}: a pusher does not end").into());
        }
    }
    Ok(())
}

/// Begins to push the requests of a host.
fn host(
    folder: &Path,
    url: &str,
    requests: &[Vec<u8>],
    (max_bytes, cpu): (u64, Arc<Mutex<u64>>),
) -> Result<(Pusher, Arc<Spool>)> {
    let kind = StoreKind::Pyroscope;
    let spool = Arc::new(Spool::open(SpoolOptions {
        folder: Some(open_dir(folder)?),
        kind: kind.name(),
        max_bytes,
        max_age: None,
    })?);
    let mut options = StoreOptions::new(url, kind);
    options.limits.proxy = false;
    options.limits.step = Some(Duration::from_secs(2));
    let pusher = PusherOptions {
        spread: Duration::from_millis(500),
        first_wait: Some(Duration::from_millis(100)),
    };
    let mut before = 0;
    let event = move |_: &_, _| {
        let now = thread_cpu_ns();
        if let Ok(mut cpu) = cpu.lock() {
            *cpu += now - std::mem::replace(&mut before, now);
        }
    };
    let pusher = Pusher::start(
        Store::new(options)?,
        Arc::clone(&spool),
        pusher,
        || {},
        event,
    )?;
    for request in requests {
        spool.add(request.clone(), SystemTime::now())?;
    }
    Ok((pusher, spool))
}
