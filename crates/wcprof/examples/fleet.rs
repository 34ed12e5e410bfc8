//! A recorded trace to the profiles of a whole cluster, pushed into one store on this machine: what that costs a daemon
//! and interval, and whether everything that was made is accounted for when the store refuses, hangs or restarts.
//!
//! `fleet TRACE DAEMONS INTERVALS`; `cargo xtask fleet` runs it. The daemons are the trace's process under other names.

use std::collections::HashSet;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use wcprof_export::{PushedProfile, StoreLimits, StoreProfiles, labels, pyroscope_request};
use wcprof_host::clock::thread_cpu_ns;
use wcprof_host::own_files::open_dir;
use wcprof_net::{Pusher, PusherOptions, Spool, SpoolOptions, Store, StoreKind, StoreOptions};
use wcprof_profile::model::Detail;
use wcprof_profile::{ProfileBuilder, Rules, rename_functions};
use wcprof_symbols::call_name;
use wcprof_testkit::{Reply, StoreRequest, StoreRules, TestStore};
use wcprof_trace::TraceReader;
use wcprof_trace::model::Trace;

/// Daemons of a host.
const PER_HOST: usize = 12;
/// The length of an interval, and the time over which the agent spreads the requests of its hosts.
const INTERVAL: Duration = Duration::from_secs(30);
const SPREAD: Duration = Duration::from_secs(10);
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
    println!(
        "| The store | Taken a second | Refused at first | Of {} requests |\n|---|---|---|---|",
        made.n_requests()
    );
    let large = 1 << 30;
    // As the hosts would: an interval after the other.
    push(
        &made,
        ("has Pyroscope's default limits", Fault::None, limited()),
        large,
        INTERVAL,
    )?;
    let old = StoreRules {
        max_series: Some(5000),
        ..limited()
    };
    push(
        &made,
        (
            "has these, and the old storage's 5000 series",
            Fault::None,
            old,
        ),
        large,
        INTERVAL,
    )?;
    for (name, fault) in [
        ("takes all", Fault::None),
        ("refuses at first (429)", Fault::Refuses),
        ("hangs at first", Fault::Hangs),
        ("breaks connections at first", Fault::Restarts),
    ] {
        push(&made, (name, fault, unlimited()), large, Duration::ZERO)?;
    }
    let name = "refuses at first, spools of half an interval";
    let half = made.largest_host() / 2 / n_intervals as u64;
    push(
        &made,
        (name, Fault::Refuses, unlimited()),
        half,
        Duration::ZERO,
    )
}

fn limited() -> StoreRules {
    StoreRules::default()
}

fn unlimited() -> StoreRules {
    StoreRules {
        rate: 1e12,
        burst: 1e12,
        ..StoreRules::default()
    }
}

/// Requests by host and interval.
struct Made(Vec<Vec<Vec<Vec<u8>>>>);

impl Made {
    fn n_requests(&self) -> usize {
        self.0.iter().flatten().map(Vec::len).sum()
    }

    fn bytes(&self) -> usize {
        self.0.iter().flatten().flatten().map(Vec::len).sum()
    }

    /// Bytes of the host with most of them.
    fn largest_host(&self) -> u64 {
        let hosts = self.0.iter();
        let hosts = hosts.map(|host| host.iter().flatten().map(Vec::len).sum::<usize>());
        hosts.max().unwrap_or(0) as u64
    }
}

/// Makes all requests, as the agents of the hosts would: from spans to compressed bytes.
fn made(trace: &Trace, n_daemons: usize, n_intervals: usize) -> Result<Made> {
    let rules = Rules::builtin()?;
    let mut hosts = Vec::new();
    let (mut plain, mut n_samples, mut n_folded) = (0, 0, 0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let cpu = thread_cpu_ns();
    for first in (0..n_daemons).step_by(PER_HOST) {
        let mut intervals = Vec::new();
        for interval in 0..n_intervals {
            let mut requests = Vec::new();
            let mut profiles = Vec::new();
            for daemon in first..n_daemons.min(first + PER_HOST) {
                let mut tables = trace.tables.clone();
                tables.header.host = format!("node-{:03}", first / PER_HOST);
                let begin = now + INTERVAL * u32::try_from(interval)?;
                tables.header.started_unix_ns = u64::try_from(begin.as_nanos())?;
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
            intervals.push(requests);
        }
        hosts.push(intervals);
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

/// Pushes all requests from one pusher a host, an interval's after each `pause`, and accounts for each.
fn push(
    made: &Made,
    (name, fault, rules): (&str, Fault, StoreRules),
    max_spool: u64,
    pause: Duration,
) -> Result<()> {
    let is_away = Arc::new(AtomicBool::new(fault != Fault::None));
    let asked = Arc::clone(&is_away);
    let store = TestStore::start_with(rules, 0, move |_| match fault {
        _ if !asked.load(Ordering::Relaxed) => Reply::AsReal,
        Fault::None => Reply::AsReal,
        Fault::Refuses => Reply::Status(429),
        Fault::Hangs => Reply::Hang,
        Fault::Restarts => Reply::Leave,
    });
    let folder = tempfile::tempdir()?;
    let begin = Instant::now();
    let hosts = (0..made.0.len()).map(|at| {
        let folder = folder.path().join(at.to_string());
        let spread = if pause.is_zero() { pause } else { SPREAD };
        HostAgent::start(&folder, &store.url, max_spool, spread)
    });
    let hosts: Vec<HostAgent> = hosts.collect::<Result<_>>()?;
    let mut ids = HashSet::new();
    let (mut n_sent, mut n_added) = (0, 0);
    let n_made = made.n_requests() as u64;
    let settled = || hosts.iter().map(HostAgent::n_settled).sum::<u64>();
    while settled() < n_made {
        if begin.elapsed() > PATIENCE {
            return Err(format!("{name}: {} of {n_made} are missing", n_made - settled()).into());
        }
        let is_next_due = begin.elapsed() >= pause * u32::try_from(n_added)?;
        if is_next_due && made.0.first().is_some_and(|host| n_added < host.len()) {
            for (host, of_host) in hosts.iter().zip(&made.0) {
                host.add(&of_host[n_added])?;
            }
            n_added += 1;
        }
        let Some(request) = store.next_within(Duration::from_millis(200)) else {
            if pause.is_zero() {
                is_away.store(false, Ordering::Relaxed);
            }
            continue;
        };
        n_sent += 1;
        if n_sent >= 4 * hosts.len() {
            is_away.store(false, Ordering::Relaxed);
        }
        note_stored(name, request, &mut ids)?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    for request in store.end().0 {
        note_stored(name, request, &mut ids)?;
    }
    let sum = |of: fn(&HostAgent) -> u64| hosts.iter().map(of).sum::<u64>();
    let [n_taken, n_unsure, n_refused, n_dropped] = [
        sum(HostAgent::n_taken),
        sum(HostAgent::n_unsure),
        sum(HostAgent::n_refused),
        sum(HostAgent::n_dropped),
    ];
    let n_stored = ids.len() as u64;
    if !(n_taken..=n_taken + n_unsure).contains(&n_stored) {
        return Err(format!("{name}: {n_taken} of {n_stored} that are stored are known").into());
    }
    let mut fates = vec![format!("{n_taken} taken")];
    for (n, fate) in [
        (n_unsure, "dropped and counted as stored perhaps or in part"),
        (n_refused, "refused and counted"),
        (n_dropped, "dropped for room and counted"),
    ] {
        if n > 0 {
            fates.push(format!("{n} {fate}"));
        }
    }
    println!(
        "| {name} | {:.0} | {} | {} |",
        n_taken as f64 / seconds,
        sum(HostAgent::n_retries),
        fates.join(", ")
    );
    for host in hosts {
        if !host.pusher.finish(PATIENCE, Duration::ZERO, || false) {
            return Err(format!("{name}: a pusher does not end").into());
        }
    }
    Ok(())
}

/// Notes the profiles that the store has of a request; an error if it had one before.
fn note_stored(name: &str, request: StoreRequest, ids: &mut HashSet<String>) -> Result<()> {
    for stored in request.stored {
        if !ids.insert(stored.id) {
            return Err(format!("{name}: a profile was stored twice").into());
        }
    }
    Ok(())
}

/// The part of a host's agent that pushes.
struct HostAgent {
    pusher: Pusher,
    spool: Arc<Spool>,
}

impl HostAgent {
    fn start(folder: &Path, url: &str, max_bytes: u64, spread: Duration) -> Result<Self> {
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
            spread,
            first_wait: spread.is_zero().then_some(Duration::from_millis(100)),
        };
        let store = Store::new(options)?;
        let pusher = Pusher::start(store, Arc::clone(&spool), pusher, || {}, |_, _| {})?;
        Ok(Self { pusher, spool })
    }

    fn add(&self, requests: &[Vec<u8>]) -> Result<()> {
        for request in requests {
            self.spool.add(request.clone(), SystemTime::now())?;
        }
        Ok(())
    }

    /// Requests of which it knows what became.
    fn n_settled(&self) -> u64 {
        self.n_taken() + self.n_unsure() + self.n_refused() + self.n_dropped()
    }

    fn n_taken(&self) -> u64 {
        load(&self.pusher.figures.n_taken)
    }

    fn n_unsure(&self) -> u64 {
        load(&self.pusher.figures.n_unsure)
    }

    fn n_refused(&self) -> u64 {
        load(&self.pusher.figures.n_refused)
    }

    fn n_retries(&self) -> u64 {
        load(&self.pusher.figures.n_retries)
    }

    fn n_dropped(&self) -> u64 {
        self.spool.figures().n_dropped
    }
}

fn load(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}
