//! A burst on a live process: announced, made, and put together; or the reason why there was none.

use std::time::Duration;

use globset::{Glob, GlobSet, GlobSetBuilder};
use msgr_crypto::observed::{Observation, Role, Seen, SeenCall};
use msgr_crypto::shapes::Side;
use wcprof_capture::uprobe::{
    Burst, BurstEnd, BurstEvent, BurstOptions, BurstReport, Removal, TrapCost, UpdateFunction,
    UprobeError, UprobePmu, find_crypto_modules, measure_trap_cost,
};
use wcprof_capture::{Target, TargetError, procfs};
use wcprof_report::terminal_name;
use wcprof_types::Pid;

use super::{BurstArgs, BurstFacts, ProtocolShape, Source, Watched, shapes_by_protocol};
use crate::failure::{Exit, Failure};

/// Threads of Ceph's messenger, in daemons and in librados.
const WORKERS: &str = "msgr-worker-*";

/// Observes a process; without the privilege or the kernel for it, says what the protocol says.
pub(crate) fn watch(pid: i32, args: &BurstArgs) -> Result<Watched, Failure> {
    let target = match Target::open(Pid(pid)) {
        Ok(target) => target,
        Err(error @ (TargetError::NotPermitted { .. } | TargetError::Hidden(_))) => {
            let path = format!("/proc/{pid}/comm");
            let comm = std::fs::read_to_string(path).unwrap_or_default();
            return Ok(by_protocol(pid, comm.trim_end(), &error.to_string()));
        }
        Err(error) => return Err(error.into()),
    };
    let names = globs(&args.threads)?;
    match burst(&target, args, names.as_ref()) {
        Ok((facts, observation)) => Ok(Watched {
            pid,
            comm: target.comm().to_owned(),
            source: Source::Live {
                burst: Box::new(facts),
                observation: Box::new(observation),
            },
        }),
        Err(error) if is_circumstance(&error) => {
            Ok(by_protocol(pid, target.comm(), &error.to_string()))
        }
        Err(error) => Err(failure(error)),
    }
}

/// Not the target's fault: other means say something of it.
fn is_circumstance(error: &UprobeError) -> bool {
    error.is_privilege() || matches!(error, UprobeError::NoPmu(_) | UprobeError::Pmu { .. })
}

fn by_protocol(pid: i32, comm: &str, reason: &str) -> Watched {
    tell!("wcprof: update calls were not observed: {reason}");
    let shapes = shapes_by_protocol(Role::of_process(comm));
    Watched {
        pid,
        comm: comm.to_owned(),
        source: Source::Protocol {
            reason: reason.to_owned(),
            shapes: shapes
                .into_iter()
                .map(|shape| ProtocolShape {
                    calls: shape.notation(),
                    name: shape.name,
                    side: shape.side,
                    origin: shape.source,
                })
                .collect(),
        },
    }
}

fn failure(error: UprobeError) -> Failure {
    match error {
        UprobeError::Target(error) => error.into(),
        UprobeError::NoThreads(_) => {
            Failure::new(Exit::NoTarget, error).hint("`--threads '*'` observes all threads")
        }
        UprobeError::NoLibrary(_) => Failure::new(Exit::Failure, error).hint(
            "only a process in secure mode that links libcrypto can be observed; `grep libcrypto \
             /proc/PID/maps` shows it",
        ),
        error => Failure::new(Exit::Failure, error),
    }
}

/// `None`: those of the messenger, or else all.
fn globs(patterns: &[String]) -> Result<Option<GlobSet>, Failure> {
    if patterns.is_empty() {
        return Ok(None);
    }
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        set.add(Glob::new(pattern).map_err(|error| Failure::new(Exit::Usage, error))?);
    }
    let set = set.build();
    Ok(Some(set.map_err(|error| Failure::new(Exit::Usage, error))?))
}

fn burst(
    target: &Target,
    args: &BurstArgs,
    names: Option<&GlobSet>,
) -> Result<(BurstFacts, Observation), UprobeError> {
    let pmu = UprobePmu::find()?;
    let modules = find_crypto_modules(target)?;
    // Also says early whether probes are permitted at all, before the target is touched.
    let Some(module) = modules.first() else {
        return Err(UprobeError::NoLibrary(target.pid().0));
    };
    let cost = measure_trap_cost(pmu, module)?;
    let pid = target.pid();
    let workers = Glob::new(WORKERS).map(|glob| glob.compile_matcher()).ok();
    let name_of = |tid| procfs::thread_name(pid, tid).unwrap_or_default();
    let has_workers = procfs::list_threads(pid)
        .unwrap_or_default()
        .into_iter()
        .any(|tid| {
            workers
                .as_ref()
                .is_some_and(|glob| glob.is_match(name_of(tid)))
        });
    let options = BurstOptions {
        length: Duration::from_secs_f64(args.duration),
        ..BurstOptions::default()
    };
    let burst = Burst::new(target, pmu, &modules, options, |tid| {
        let name = name_of(tid);
        match (names, &workers) {
            (Some(names), _) => names.is_match(name),
            (None, Some(workers)) if has_workers => workers.is_match(name),
            _ => true,
        }
    })?;
    let paths: Vec<String> = modules.iter().map(|module| module.path.clone()).collect();
    tell!(
        "wcprof: putting breakpoints on EVP_EncryptUpdate and EVP_DecryptUpdate of {} in process {pid} \
         for {} s, and the while it takes to put them in and out; each call takes about {:.1} us \
         longer meanwhile",
        paths
            .iter()
            .map(|path| terminal_name(path).into_owned())
            .collect::<Vec<_>>()
            .join(", "),
        args.duration,
        cost.sampled_ns / 1e3
    );
    let report = burst.run(|| tell!("wcprof: watching"))?;
    let observation = Observation::new(&seen(&report), Role::of_process(target.comm()));
    let facts = facts(&report, cost, paths);
    complain(&report);
    Ok((facts, observation))
}

fn seen(report: &BurstReport) -> Vec<Seen> {
    let seen = |event: &BurstEvent| match *event {
        BurstEvent::Lost(tid, n) => Seen::Gap { tid: tid.0, n },
        BurstEvent::Call(call) => Seen::Call(SeenCall {
            context: call.context,
            side: match call.function {
                UpdateFunction::Encrypt => Side::Tx,
                UpdateFunction::Decrypt => Side::Rx,
            },
            len: call.len,
            is_aad: call.is_aad,
            tid: call.tid.0,
            time_ns: call.time,
        }),
    };
    report.events.iter().map(seen).collect()
}

fn facts(report: &BurstReport, cost: TrapCost, libraries: Vec<String>) -> BurstFacts {
    let n_hits = report.n_hits();
    let enabled = report.end_ns.saturating_sub(report.begin_ns).max(1);
    // While probes are put in and out, calls trap at about the same rate and are not counted.
    let silent = report.trapped_ns.saturating_sub(enabled) as f64 / enabled as f64;
    BurstFacts {
        libraries,
        seconds: report.end_ns.saturating_sub(report.begin_ns) as f64 / 1e9,
        trapped_seconds: report.trapped_ns as f64 / 1e9,
        n_threads: report.threads.len(),
        n_threads_not_observed: report.n_not_observed,
        n_threads_born: report.n_born,
        n_hits,
        n_missing: report.n_missing(),
        n_malformed: report.n_malformed,
        end: match report.end {
            BurstEnd::Time => "time",
            BurstEnd::Full => "full",
            BurstEnd::Exited => "exited",
        },
        removal: match report.removal {
            Removal::Verified => "verified",
            Removal::Exited => "exited",
            Removal::Unknown => "unknown",
            Removal::Differs(_) => "differs",
        },
        ns_per_hit: cost.sampled_ns,
        ns_per_silent_hit: cost.trap_ns,
        cost_seconds: n_hits as f64 * (cost.sampled_ns + silent * cost.trap_ns) / 1e9,
    }
}

/// What the user must know of the burst.
fn complain(report: &BurstReport) {
    match report.removal {
        Removal::Verified | Removal::Exited => {}
        Removal::Unknown => tell!(
            "wcprof: the breakpoints are closed, but the target's memory can not be read to verify it"
        ),
        Removal::Differs(address) => tell!(
            "wcprof: the code at {:#x} is not what it was before: another tracer may have a probe there; \
             wcprof holds none any more",
            address.0
        ),
    }
    if report.end == BurstEnd::Exited {
        tell!("wcprof: the target exited during the burst");
    }
    if report.end == BurstEnd::Full {
        tell!(
            "wcprof: the burst ended early: more than {} calls",
            report.events.len()
        );
    }
    if report.n_born > 0 {
        tell!(
            "wcprof: {} threads were born during the burst; their calls are not seen",
            report.n_born
        );
    }
}
