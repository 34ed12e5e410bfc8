//! Compiles the tests and runs their programs: most of them in parallel, live ones alone.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::summary::Summary;
use crate::process::cargo;

/// Live tests whose targets sleep leave the CPUs to each other.
const WAITING_THREADS: &str = "12";

/// Which tests of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// Those that always run.
    Quick,
    /// Those that are marked `#[ignore]`.
    Long,
}

/// A compiled program of tests.
#[derive(Debug, Clone)]
pub struct Binary {
    /// Its target, as in `waiting`.
    name: String,
    program: PathBuf,
    /// Folder of its package, in which it runs.
    folder: PathBuf,
}

/// Compiles all tests; returns their programs.
///
/// # Errors
/// When they cannot be compiled.
pub fn build() -> Result<Vec<Binary>> {
    let output = cargo(
        "test --workspace --exclude wcprof-benches --lib --bins --tests --no-run --locked \
         --message-format=json-render-diagnostics",
    )
    .stdin(Stdio::null())
    .stderr(Stdio::inherit())
    .output()?;
    ensure!(
        output.status.success(),
        "cargo test --no-run failed: {}",
        output.status
    );
    let messages = String::from_utf8_lossy(&output.stdout);
    let lines = messages.lines().filter(|line| line.starts_with('{'));
    let binaries = lines.filter_map(|line| binary(line).transpose());
    binaries.collect()
}

/// The program that a line of cargo's output names, if it is one of tests.
fn binary(line: &str) -> Result<Option<Binary>> {
    let message: Value = serde_json::from_str(line).context("failed to parse cargo's output")?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let is_test = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
    let (true, Some(program), Some(manifest), Some(name)) = (
        is_test,
        text(&message["executable"]),
        text(&message["manifest_path"]),
        text(&message["target"]["name"]),
    ) else {
        return Ok(None);
    };
    Ok(Some(Binary {
        name,
        program: program.into(),
        folder: PathBuf::from(manifest).with_file_name(""),
    }))
}

impl Binary {
    fn command(&self, which: Which) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(&self.folder).stdin(Stdio::null());
        if which == Which::Long {
            command.arg("--ignored");
        }
        command
    }

    fn is_live(&self) -> bool {
        ["waiting", "running"].contains(&self.name.as_str())
    }
}

/// Runs all programs but the live ones, as many at a time as there are CPUs. The output of each is shown
/// when it ends.
///
/// # Errors
/// When one fails.
pub fn run_beside_each_other(summary: &mut Summary, which: Which) -> Result<()> {
    let programs = build()?.into_iter().filter(|binary| !binary.is_live());
    let queue: Mutex<VecDeque<Binary>> = Mutex::new(programs.collect());
    let next = || {
        let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.pop_front()
    };
    let n_workers = thread::available_parallelism().map_or(1, usize::from);
    let (sender, results) = mpsc::channel();
    let mut failed = Vec::new();
    thread::scope(|scope| {
        for _ in 0..n_workers {
            let sender = sender.clone();
            scope.spawn(move || {
                while let Some(binary) = next() {
                    let output = binary.command(which).output();
                    // Nobody listens only when all is over.
                    let _ = sender.send((binary, output));
                }
            });
        }
        drop(sender);
        for (binary, output) in results {
            if !show(summary, &binary, output) {
                failed.push(binary.program.display().to_string());
            }
        }
    });
    if failed.is_empty() {
        return Ok(());
    }
    bail!("these failed: {}", failed.join(", "))
}

fn show(summary: &mut Summary, binary: &Binary, output: std::io::Result<Output>) -> bool {
    println!("\n{}", binary.program.display());
    match output {
        Ok(output) => {
            summary.keep_output(&output.stdout);
            summary.keep_output(&output.stderr);
            output.status.success()
        }
        Err(error) => {
            println!("failed to run: {error}");
            false
        }
    }
}

/// Runs the program of this name by itself.
///
/// # Errors
/// When it fails.
pub fn run_live(summary: &mut Summary, name: &str, which: Which) -> Result<()> {
    let all = build()?;
    let binary = all
        .iter()
        .find(|binary| binary.name == name)
        .with_context(|| format!("there are no tests {name:?}"))?;
    let n_threads = match name {
        "running" => "1",
        _ => WAITING_THREADS,
    };
    let mut command = binary.command(which);
    summary.pass_on(command.args(["--test-threads", n_threads]))
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
