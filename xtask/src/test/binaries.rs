//! Compiles the tests and runs their programs: most of them in parallel, one alone.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::summary::Summary;
use crate::process::cargo;

/// Live tests whose targets need the CPUs.
const ALONE: &str = "running";
/// Live tests whose targets sleep, and so many of them at a time. The longest program.
const WAITING: &str = "waiting";
const WAITING_THREADS: &str = "12";

/// A compiled program of tests.
#[derive(Debug)]
struct Binary {
    /// Its target, as in `waiting`.
    name: String,
    program: PathBuf,
    /// Folder of its package, in which it runs.
    folder: PathBuf,
}

/// Compiles all tests.
///
/// # Errors
/// When they cannot be compiled.
pub fn build() -> Result<()> {
    binaries().map(|_| ())
}

fn binaries() -> Result<Vec<Binary>> {
    let mut build = cargo(
        "test --workspace --exclude wcprof-benches --lib --bins --tests --no-run --locked \
         --message-format=json-render-diagnostics",
    );
    let output = build.stderr(Stdio::inherit()).output()?;
    let status = output.status;
    ensure!(status.success(), "cargo test --no-run failed: {status}");
    let messages = String::from_utf8_lossy(&output.stdout);
    let lines = messages.lines().filter(|line| line.starts_with('{'));
    lines.filter_map(|line| binary(line).transpose()).collect()
}

/// The program that a line of cargo's output names, if it is one of tests.
fn binary(line: &str) -> Result<Option<Binary>> {
    let message: Value = serde_json::from_str(line).context("failed to parse cargo's output")?;
    let is_test = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
    let text = |value: &Value| value.as_str().filter(|_| is_test).map(str::to_owned);
    let found = || {
        Some(Binary {
            name: text(&message["target"]["name"])?,
            program: text(&message["executable"])?.into(),
            folder: PathBuf::from(text(&message["manifest_path"])?).with_file_name(""),
        })
    };
    Ok(found())
}

impl Binary {
    /// Runs tests that always run, or those that are marked `#[ignore]`.
    fn command(&self, is_long: bool) -> Command {
        // Under `nohup` the tests of SIGHUP would wait for ever.
        let mut command = Command::new("env");
        command.arg("--default-signal=HUP").arg(&self.program);
        command.current_dir(&self.folder).stdin(Stdio::null());
        // A test that passes because it was skipped says so.
        command.arg("--show-output");
        command.args(is_long.then_some("--ignored"));
        let n_threads = match &*self.name {
            ALONE => Some("1"),
            WAITING => Some(WAITING_THREADS),
            _ => None,
        };
        command.args(n_threads.iter().flat_map(|n| ["--test-threads", n]));
        command
    }
}

/// Runs all programs but one, as many at a time as there are CPUs. The output of each is shown when it ends.
///
/// # Errors
/// When one fails.
pub fn run_in_parallel(summary: &mut Summary, is_long: bool) -> Result<()> {
    let mut binaries = binaries()?;
    binaries.retain(|binary| binary.name != ALONE);
    // What takes longest comes first.
    binaries.sort_by_key(|binary| binary.name != WAITING);
    let queue = Mutex::new(binaries.into_iter());
    let done = Mutex::new((summary, Vec::new()));
    let next = || lock(&queue).next();
    let work = || {
        while let Some(binary) = next() {
            let program = binary.program.display();
            let output = binary.command(is_long).output();
            let mut done = lock(&done);
            println!("\n{program}");
            match output {
                Ok(output) => {
                    done.0.pass_on(&*output.stdout, std::io::stdout());
                    done.0.pass_on(&*output.stderr, std::io::stdout());
                    done.1
                        .extend((!output.status.success()).then(|| program.to_string()));
                }
                Err(error) => done.1.push(format!("{program}: {error}")),
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let failed = lock(&done).1.join(", ");
    ensure!(failed.is_empty(), "these failed: {failed}");
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the tests that need the CPUs.
///
/// # Errors
/// When one fails.
pub fn run_alone(summary: &mut Summary, is_long: bool) -> Result<()> {
    let mut binaries = binaries()?.into_iter();
    let binary = binaries.find(|binary| binary.name == ALONE);
    let binary = binary.with_context(|| format!("there are no tests {ALONE:?}"))?;
    summary.run(&mut binary.command(is_long))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that only lines of cargo that name a test's program give one.
    #[test]
    fn programs() {
        let line = r#"{"reason":"compiler-artifact","manifest_path":"/r/crates/a/Cargo.toml",
            "target":{"name":"it"},"profile":{"test":true},"executable":"/r/target/debug/deps/it-1"}"#;
        let found = binary(line).unwrap().unwrap();
        assert_eq!(found.name, "it");
        assert_eq!(found.folder, PathBuf::from("/r/crates/a/"));
        let program = line.replace("\"test\":true", "\"test\":false");
        assert!(binary(&program).unwrap().is_none());
        let library = line.replace("\"/r/target/debug/deps/it-1\"", "null");
        assert!(binary(&library).unwrap().is_none());
        assert!(
            binary(r#"{"reason":"build-finished","success":true}"#)
                .unwrap()
                .is_none()
        );
        assert!(binary("{").is_err());
    }
}
