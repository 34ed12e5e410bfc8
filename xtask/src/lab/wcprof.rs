//! Runs wcprof on the lab's processes: pids to traces, traces to what it says of them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::create_folder;
use crate::process::{build_release, capture, root, target_folder};

/// wcprof, and how it records.
#[derive(Debug)]
pub struct Wcprof {
    program: PathBuf,
    /// For all that is written.
    pub folder: PathBuf,
    pub seconds: u32,
    /// Ticks a second; wcprof's own default without.
    pub rate: Option<u32>,
}

impl Wcprof {
    /// `program` is built, and `folder` is `name` in cargo's target folder, when not given.
    ///
    /// # Errors
    /// When it cannot be built, or the folder not be made.
    pub fn new(
        program: Option<&Path>,
        folder: Option<&Path>,
        name: &str,
        seconds: u32,
    ) -> Result<Self> {
        let program = match program {
            Some(program) => program.to_owned(),
            None => build_release()?,
        };
        let folder = match folder {
            Some(folder) => folder.to_owned(),
            None => target_folder()?.join(name),
        };
        create_folder(&folder)?;
        Ok(Self {
            program,
            folder,
            seconds,
            rate: None,
        })
    }

    /// Where the trace of this name is.
    pub fn trace(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.wct"))
    }

    /// Records processes, and gives what wcprof prints.
    ///
    /// # Errors
    /// When wcprof fails.
    pub fn attach(&self, name: &str, pids: &[i32], arguments: &[&str]) -> Result<String> {
        let mut command = self.command(&["attach"]);
        command
            .args(pids.iter().map(ToString::to_string))
            .args(["--duration", &self.seconds.to_string()])
            .args(arguments);
        if let Some(rate) = self.rate {
            command.args(["--rate", &rate.to_string()]);
        }
        capture(command.arg("--output").arg(self.trace(name)))
    }

    /// What a subcommand says of a trace, as text.
    ///
    /// # Errors
    /// When wcprof fails.
    pub fn text(&self, name: &str, arguments: &[&str]) -> Result<String> {
        capture(self.command(arguments).arg(self.trace(name)))
    }

    /// What a subcommand says of a trace, as JSON.
    ///
    /// # Errors
    /// When wcprof fails, or prints something else.
    pub fn json(&self, name: &str, arguments: &[&str]) -> Result<Value> {
        let (command, flags) = arguments.split_first().context("no subcommand")?;
        let arguments = [&[command, "--json"], flags].concat();
        serde_json::from_str(&self.text(name, &arguments)?).context("failed to parse JSON")
    }

    /// Copies a trace to the fixtures, without what is this host's own.
    ///
    /// # Errors
    /// When wcprof fails.
    pub fn keep(&self, name: &str, fixture: &str) -> Result<()> {
        let kept = root()?.join(format!("fixtures/traces/{fixture}.wct"));
        let mut command = self.command(&["merge", "--anonymous"]);
        capture(command.arg(self.trace(name)).arg("--output").arg(&kept))?;
        let size = std::fs::metadata(&kept).map_or(0, |m| m.len());
        println!("{}: {size} bytes", kept.display());
        Ok(())
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .env("NO_COLOR", "1")
            .env("COLUMNS", "110")
            .env_remove("DEBUGINFOD_URLS");
        command
    }
}

/// Ids of the rules that found something.
pub fn rules(report: &Value) -> Vec<String> {
    let found = report["findings"].as_array().into_iter().flatten();
    found
        .filter_map(|f| Some(f["rule"].as_str()?.to_owned()))
        .collect()
}
