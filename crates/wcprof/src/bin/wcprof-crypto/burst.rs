//! A live process to its frames, by a burst of breakpoints; or the reason why there was none.

use globset::GlobSet;
use msgr_crypto::observed::{
    BurstFacts, FrameSource, Observation, ProcessFrames, Role, Seen, SeenCall,
};
use msgr_crypto::shapes::Side;
use wcprof_host::{Target, procfs};
use wcprof_perf::uprobe::{
    Burst, BurstEnd, BurstEvent, BurstReport, Removal, TrapCost, UpdateFunction, UprobeError,
    UprobePmu, find_crypto_modules, measure_trap_cost,
};
use wcprof_text::terminal_name;
use wcprof_types::{Avma, Pid, Tid};

use wcprof_cli::crypto::BurstArgs;
use wcprof_cli::{Exit, Failure, globs};

/// With what names of threads of Ceph's messenger begin, in daemons and in librados.
const WORKERS: &str = "msgr-worker-";

/// Observes a process; without the privilege or the kernel for it, the frames that it has by the protocol.
pub(crate) fn observe_process(pid: Pid, args: &BurstArgs) -> Result<ProcessFrames, Failure> {
    let names = globs(&args.threads)?;
    let target = Target::open(pid).map_err(UprobeError::Target);
    match target.and_then(|target| burst(&target, args, names.as_ref())) {
        Ok(process) => Ok(process),
        // Where probes are not allowed or supported, there is still the protocol.
        Err(error) if error.is_circumstance() => {
            wcprof_cli::message!("wcprof: update calls were not observed: {error}");
            let comm = procfs::read_text(pid, "comm").unwrap_or_default();
            let target = Target::open(pid);
            let title = target.as_ref().map_or(comm.trim_end(), Target::title);
            let role = Role::of_process(comm.trim_end());
            Ok(ProcessFrames::by_protocol(
                pid.0,
                title,
                role,
                &error.to_string(),
            ))
        }
        Err(error) => Err(failure(error)),
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

/// The threads that match `names`; without these, those of the messenger, or all if there are none.
fn burst(
    target: &Target,
    args: &BurstArgs,
    names: Option<&GlobSet>,
) -> Result<ProcessFrames, UprobeError> {
    let pmu = UprobePmu::find()?;
    let modules = find_crypto_modules(target)?;
    // Also says early whether probes are permitted at all, before the target is touched.
    let pid = target.pid();
    let module = modules.first().ok_or(UprobeError::NoLibrary(pid.0))?;
    let cost = measure_trap_cost(pmu, module)?;
    let name = |tid: &Tid| procfs::thread_name(pid, *tid).unwrap_or_default();
    let is_worker = |tid: &Tid| name(tid).starts_with(WORKERS);
    let has_workers = procfs::list_threads(pid).is_ok_and(|tids| tids.iter().any(is_worker));
    let length = args.duration;
    let burst = Burst::new(target, pmu, &modules, length, |tid| match names {
        Some(names) => names.is_match(name(tid)),
        None => !has_workers || is_worker(tid),
    })?;
    let paths: Vec<String> = modules.iter().map(|module| module.path.clone()).collect();
    wcprof_cli::message!(
        "wcprof: putting breakpoints on EVP_EncryptUpdate and EVP_DecryptUpdate of {} in {} (pid {pid}) \
         for {} s, plus the time to put them in and out; each call takes about {:.1} us longer meanwhile",
        terminal_name(&paths.join(", ")),
        terminal_name(target.title()),
        length.as_secs_f64(),
        cost.sampled_ns / 1e3
    );
    let report = burst.run(|| wcprof_cli::message!("wcprof: watching"))?;
    let role = Role::of_process(target.comm());
    let observation = Observation::new(&seen(&report), role);
    warn_about(&report);
    Ok(ProcessFrames {
        pid: pid.0,
        process: target.title().to_owned(),
        role,
        source: FrameSource::Live {
            burst: Box::new(facts(&report, cost, paths)),
            observation: Box::new(observation),
        },
    })
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
    let enabled = report.enabled_ns as f64;
    // While probes are put in and out, calls trap at about the same rate and are not counted.
    let silent = report.trapped_ns.saturating_sub(report.enabled_ns) as f64 / enabled.max(1.0);
    BurstFacts {
        libraries,
        seconds: enabled / 1e9,
        trapped_seconds: report.trapped_ns as f64 / 1e9,
        n_threads: report.n_threads,
        n_threads_not_observed: report.n_not_observed,
        n_threads_born: report.n_born,
        n_hits: report.n_hits,
        n_missing: report.n_missing,
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
        cost_seconds: report.n_hits as f64 * (cost.sampled_ns + silent * cost.trap_ns) / 1e9,
    }
}

/// Warns of what makes the observation incomplete, or the target other than before.
fn warn_about(report: &BurstReport) {
    match report.removal {
        Removal::Verified | Removal::Exited => {}
        Removal::Unknown => wcprof_cli::message!(
            "wcprof: the breakpoints are closed; not verified, because the target's memory can not be read"
        ),
        Removal::Differs(Avma(address)) => wcprof_cli::message!(
            "wcprof: the code at {address:#x} is not as before: perhaps another tracer has a probe there; wcprof \
             has none any more"
        ),
    }
    let n_calls = report.events.len();
    match report.end {
        BurstEnd::Time => {}
        BurstEnd::Exited => wcprof_cli::message!("wcprof: the target exited during the burst"),
        BurstEnd::Full => {
            wcprof_cli::message!("wcprof: the burst ended early: more than {n_calls} calls")
        }
    }
    if report.n_born > 0 {
        wcprof_cli::message!(
            "wcprof: {} threads started during the burst; their calls are not seen",
            report.n_born
        );
    }
}
