//! Runs wcprof on the lab's processes: pids to traces, traces to what it says of them.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use fs_err as fs;
use serde_json::Value;

use crate::process::{build_release, capture, root, target_folder};

/// What to run, and what to keep.
#[derive(Debug, clap::Args)]
pub struct WcprofOptions {
    /// Folder for traces and reports [default: one of this command's name, in cargo's target folder]
    #[arg(long)]
    folder: Option<PathBuf>,
    /// wcprof to run; built when not given
    #[arg(long)]
    program: Option<PathBuf>,
    /// Also keep the traces, without names of this host, as fixtures
    #[arg(long)]
    pub fixtures: bool,
    /// This is the process of the steps
    #[arg(long, hide = true)]
    pub steps_only: bool,
}

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
    /// # Errors
    /// When it cannot be built, or the folder not be made.
    pub fn new(options: &WcprofOptions, name: &str, seconds: u32) -> Result<Self> {
        let program = match &options.program {
            Some(program) => program.clone(),
            None => build_release()?,
        };
        let folder = options.folder.clone();
        let folder = folder.unwrap_or_else(|| target_folder().join(name));
        fs::create_dir_all(&folder)?;
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
        let kept = root().join(format!("fixtures/traces/{fixture}.wct"));
        let mut command = self.command(&["merge", "--anonymous"]);
        capture(command.arg(self.trace(name)).arg("--output").arg(&kept))?;
        let size = fs::metadata(&kept).map_or(0, |m| m.len());
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
