//! Timers on a machine with many CPUs, some of them isolated, which come and go: run by `cargo xtask vmtest`, which
//! boots one.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_setaffinity};
use wcprof_host::Target;
use wcprof_host::procfs::read_file;
use wcprof_perf::{CpuPolicy, PerfOptions, PerfSampler, isolated_cpus, online_cpus};
use wcprof_types::{Pid, cpu_list, parse_cpus};

use crate::testing::skip;
use crate::{EngineKind, Sampler, SamplerLinks, SamplerOptions};

const SPARING: CpuPolicy = CpuPolicy {
    spare_isolated: true,
};

/// What does not happen within this does not happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether this is such a machine; prints the skip.
fn is_large() -> bool {
    let is_large = online_cpus().len() >= 32 && !isolated_cpus().is_empty();
    if !is_large {
        skip("needs 32 CPUs with isolated ones: `cargo xtask vmtest` boots them");
    }
    is_large
}

/// Lets a thread (0: the calling one) run on these CPUs alone.
pub(crate) fn pin(pid: i32, cpus: &[u32]) {
    let mut mask = CpuSet::new();
    for &cpu in cpus {
        mask.set(cpu as usize).unwrap();
    }
    sched_setaffinity(nix::unistd::Pid::from_raw(pid), &mask).unwrap();
}

fn set_online(cpu: u32, is_online: bool) {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/online");
    fs::write(path, if is_online { "1" } else { "0" }).unwrap();
}

/// A list of `/sys/devices/system/cpu`.
fn read_cpus(name: &str) -> BTreeSet<u32> {
    parse_cpus(&read_file(format!("/sys/devices/system/cpu/{name}")).unwrap())
}

fn target() -> (Child, Pid) {
    let child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let pid = Pid(child.id().cast_signed());
    (child, pid)
}

/// Samples of a thread of this process that spins on a CPU.
fn samples_on(cpu: u32, timers: &mut PerfSampler) -> u32 {
    static STOP: AtomicBool = AtomicBool::new(false);
    STOP.store(false, Ordering::Relaxed);
    let spinner = thread::spawn(move || {
        pin(0, &[cpu]);
        while !STOP.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    });
    let begin = Instant::now();
    let mut n = 0;
    while n == 0 && begin.elapsed() < PATIENCE {
        let own = Pid(std::process::id().cast_signed());
        timers.drain(|sample| n += u32::from(sample.pid == own));
        thread::yield_now();
    }
    STOP.store(true, Ordering::Relaxed);
    spinner.join().unwrap();
    n
}

/// Check which CPUs have timers: those where the target may run, isolated ones only if it may run there, and none of
/// them if that was declined; also after a CPU went away and came back.
#[test]
fn timers_follow_the_target() {
    if !is_large() {
        return;
    }
    let isolated = isolated_cpus();
    let taken = *isolated.first().unwrap();
    let (mut cat, pid) = target();
    let cpus = |policy: CpuPolicy| policy.of_processes([pid]);
    println!(
        "CPUs {}, isolated {}",
        cpu_list(&online_cpus()),
        cpu_list(&isolated)
    );
    let everywhere = cpus(CpuPolicy::default());
    println!(
        "a target that is not pinned: timers on {}",
        cpu_list(&everywhere)
    );
    assert_eq!(everywhere, &online_cpus() - &read_cpus("isolated"));

    let tickless = *read_cpus("nohz_full").first().unwrap();
    pin(pid.0, &[5, taken, tickless]);
    assert_eq!(cpus(SPARING), BTreeSet::from([5]));
    pin(pid.0, &[5, taken]);
    let pinned = cpus(CpuPolicy::default());
    println!("pinned to 5 and {taken}: timers on {}", cpu_list(&pinned));
    assert_eq!(pinned, BTreeSet::from([5, taken]));

    let options = PerfOptions {
        period_ns: 1_000_000,
        dump_bytes: 1024,
        kernel_stacks: false,
        filter: None,
        max_events: 0,
        policy: CpuPolicy::default(),
    };
    let mut timers = PerfSampler::per_cpu(&options, &pinned).unwrap();
    timers.start().unwrap();
    assert!(samples_on(5, &mut timers) > 0);
    set_online(5, false);
    let left = cpus(CpuPolicy::default());
    println!("CPU 5 offline: timers on {}", cpu_list(&left));
    assert_eq!(left, BTreeSet::from([taken]));
    timers.set_cpus(&left).unwrap();
    assert_eq!(timers.cpus(), left);
    set_online(5, true);
    let back = cpus(CpuPolicy::default());
    println!("CPU 5 online: timers on {}", cpu_list(&back));
    assert_eq!(back, pinned);
    timers.set_cpus(&back).unwrap();
    assert!(
        samples_on(5, &mut timers) > 0,
        "no timer since it came back"
    );
    set_online(5, false);
    set_online(5, true);
    println!("CPU 5 offline and online at once");
    // The first look can find that the timer ran since the look before.
    timers.set_cpus(&back).unwrap();
    timers.set_cpus(&back).unwrap();
    assert!(
        samples_on(5, &mut timers) > 0,
        "no timer since it was offline for a moment"
    );
    timers.drain(|_| ());
    timers.set_cpus(&back).unwrap();
    assert_eq!(timers.cpus(), back);
    cat.kill().unwrap();
    cat.wait().unwrap();
}

/// Check that a recording follows its target to isolated CPUs, and says which of them got a timer.
#[test]
fn follows_to_isolated_cpus() {
    if !is_large() {
        return;
    }
    let (mut cat, pid) = target();
    pin(pid.0, &[5]);
    let options = SamplerOptions {
        max_cpu_percent: 100,
        engine: Some(EngineKind::Procfs),
        ..SamplerOptions::default()
    };
    let sampler = Sampler::new(&[Arc::new(Target::open(pid).unwrap())], options).unwrap();
    let (pulse, stop) = (sampler.pulse(), AtomicBool::new(false));
    let (batches, received) = sync_channel(64);
    let (_requests, requests) = channel();
    let [isolated, tickless] =
        ["isolated", "nohz_full"].map(|name| *read_cpus(name).first().unwrap());
    let notes = thread::scope(|scope| {
        scope.spawn(|| {
            sampler.run(&SamplerLinks {
                stop: &stop,
                duration: None,
                batches,
                requests,
            })
        });
        let notes = [5, isolated, tickless].map(|cpu| {
            pin(pid.0, &[5, cpu]);
            let (before, begin) = (pulse.notes(), Instant::now());
            while cpu != 5 && pulse.notes() == before && begin.elapsed() < PATIENCE {
                received.recv().unwrap();
            }
            pulse.notes().join("; ")
        });
        stop.store(true, Ordering::Relaxed);
        received.iter().for_each(drop);
        notes
    });
    println!("pinned to 5, {isolated} and {tickless}: {notes:?}");
    let cpus = [isolated, tickless].map(|cpu| cpu_list(&BTreeSet::from([cpu])));
    assert_eq!(notes[0], "");
    assert!(notes[1].contains(&format!("CPUs {} are", cpus[0])));
    assert!(notes[2].contains(&format!("CPUs {} are", cpus.join(","))));
    cat.kill().unwrap();
    cat.wait().unwrap();
}
