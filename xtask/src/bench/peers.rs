//! Installed other profilers, run on the same target.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::target::Target;
use crate::cpu_time::children_cpu_time;
use crate::process::{command, is_installed, silence};

/// Runs each installed profiler for about `seconds`. Gives rows: command, CPU time for one sample of one
/// thread in microseconds, what the figure leaves out.
///
/// # Errors
/// When one cannot be run.
pub fn measure(target: &Target, seconds: u32, folder: &Path) -> Result<Vec<[String; 3]>> {
    let mut rows = Vec::new();
    let mut add = |name: String, cpu: Duration, n_samples: u32, note: &str| {
        let micros = cpu.as_secs_f64() * 1e6 / f64::from(n_samples * target.n_threads);
        rows.push([name, format!("{micros:.1}"), note.to_owned()]);
    };
    let pid = target.pid().to_string();
    if is_installed("perf") {
        let name = "perf record -F 99 --call-graph dwarf";
        let mut perf = command(&format!("{name} -q -e cpu-clock -p {pid} -o"));
        perf.arg(folder.join("perf.data"));
        let cpu = cpu_of(perf.args(["--", "sleep", &seconds.to_string()]))?;
        let note = "running threads only, not unwound yet";
        add(name.to_owned(), cpu, 99 * seconds, note);
    }
    for (program, arguments, n_runs) in [
        ("eu-stack", vec!["-p", &pid], seconds.max(3)),
        (
            "gdb",
            vec!["-nx", "-batch", "-ex", "thread apply all bt", "-p", &pid],
            3,
        ),
    ] {
        if is_installed(program) {
            let mut cpu = Duration::ZERO;
            for _ in 0..n_runs {
                cpu += cpu_of(Command::new(program).args(&arguments))?;
            }
            let name = format!("{program} in a loop");
            add(name, cpu, n_runs, "stops the target");
        }
    }
    Ok(rows)
}

/// CPU time of a program from start to end. Its exit code does not matter: eu-stack fails when a
/// single frame is missing.
fn cpu_of(command: &mut Command) -> Result<Duration> {
    let before = children_cpu_time()?;
    let status = silence(command).status();
    status.with_context(|| format!("failed to run `{:?}`", command.get_program()))?;
    Ok(children_cpu_time()?.saturating_sub(before))
}
