//! Runs wcprof on the lab's processes: pids to traces, traces to what it says of them.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::process::{build_release, capture, command, list, quoted, result_folder, root};

/// wcprof, and how it records.
#[derive(Debug)]
pub struct Wcprof {
    /// Quoted.
    program: String,
    /// For all that is written.
    pub folder: PathBuf,
    /// Length of a recording.
    pub seconds: u32,
    /// Ticks a second.
    rate: u32,
}

impl Wcprof {
    /// # Errors
    /// When it cannot be built, or the folder not be made.
    pub fn new(name: &str, seconds: u32, rate: u32) -> Result<Self> {
        Ok(Self {
            program: build_release()?,
            folder: result_folder(name)?,
            seconds,
            rate,
        })
    }

    /// Records processes, and returns what wcprof prints.
    ///
    /// # Errors
    /// When wcprof fails.
    pub fn attach(&self, name: &str, pids: &[i32], flags: &str) -> Result<String> {
        let (seconds, rate) = (self.seconds, self.rate);
        let mut attach = self.command(&format!("attach --force -d {seconds} -r {rate} {flags}"));
        attach.args(pids.iter().map(ToString::to_string));
        capture(attach.arg("--output").arg(self.trace(name)))
    }

    /// What a subcommand with these flags prints of a trace.
    ///
    /// # Errors
    /// When wcprof fails.
    pub fn text(&self, name: &str, words: &str) -> Result<String> {
        capture(self.command(words).arg(self.trace(name)))
    }

    /// The same as JSON.
    ///
    /// # Errors
    /// When wcprof fails, or prints something else.
    pub fn json(&self, name: &str, words: &str) -> Result<Value> {
        let text = self.text(name, &format!("{words} --json"))?;
        serde_json::from_str(&text).context("failed to parse JSON")
    }

    /// Copies a trace to the fixtures, without what is this host's own.
    ///
    /// # Errors
    /// When wcprof fails.
    pub fn copy_to_fixtures(&self, name: &str, fixture: &str) -> Result<()> {
        let to = root().join(format!("fixtures/traces/{fixture}.wct"));
        self.text(
            name,
            &format!("merge --force --anonymous --output {}", quoted(&to)),
        )?;
        println!("{}: {} bytes", to.display(), fs_err::metadata(&to)?.len());
        Ok(())
    }

    fn trace(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.wct"))
    }

    fn command(&self, words: &str) -> Command {
        let mut command = command(&format!("{} {words}", self.program));
        command.env("NO_COLOR", "1").env("COLUMNS", "110");
        command.env_remove("DEBUGINFOD_URLS");
        command
    }
}

/// Ids of the rules that found something.
pub fn rules(report: &Value, kind: &str) -> Vec<String> {
    let found = list(&report["findings"]);
    found
        .filter(|finding| finding["basis"]["kind"] == kind)
        .filter_map(|finding| Some(finding["rule"].as_str()?.to_owned()))
        .collect()
}
