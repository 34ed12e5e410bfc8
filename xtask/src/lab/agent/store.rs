//! The tests' profile store as a process: its URL, its limits, and what it got.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use fs_err as fs;
use serde_json::Value;

use crate::process::{
    Background, cargo, command, execute, log_to, quoted, target_folder, text, wait_until,
};

/// How the store behaves.
#[derive(Default, Clone, Copy, PartialEq, Debug)]
pub(super) struct StoreMode {
    /// Port; 0 is any that is free.
    pub(super) port: u16,
    /// Its clock less that of this machine, s.
    pub(super) clock_ahead: i64,
    /// Bytes a second that it takes; as it is delivered without.
    pub(super) rate: Option<u64>,
    /// It answers nobody.
    pub(super) hangs: bool,
}

/// A store that runs until it is ended.
pub(super) struct LoopbackStore {
    process: Background,
    pub(super) url: String,
}

impl LoopbackStore {
    /// Builds the store's program.
    pub(super) fn build() -> Result<()> {
        execute(cargo(
            "build --release --locked --package wcprof --example store",
        ))
    }

    /// Starts a store, which prints to a new file what it gets.
    pub(super) fn start(got: &Path, mode: &StoreMode) -> Result<Self> {
        let program = target_folder().join("release/examples/store");
        let StoreMode {
            port,
            clock_ahead,
            rate,
            hangs,
        } = mode;
        let rate = rate.unwrap_or_default();
        let line = format!("{} {port} {clock_ahead} {rate} {hangs}", quoted(program));
        let mut store = command(&line);
        let process = Background::start(log_to(&mut store, got)?.stdin(Stdio::piped()))?;
        wait_until("the store listens", 10, || {
            Ok(fs::read_to_string(got)?.contains('\n'))
        })?;
        let first = fs::read_to_string(got)?;
        let first = first.lines().next().unwrap_or_default();
        let first: Value = serde_json::from_str(first).context("the store prints no URL")?;
        Ok(Self {
            process,
            url: text(&first["url"]).to_owned(),
        })
    }

    /// Breaks its connections, lets it print the rest, and waits for its end.
    ///
    /// # Errors
    /// When it fails.
    pub(super) fn end(mut self) -> Result<()> {
        drop(self.process.child.stdin.take());
        let status = self.process.child.wait()?;
        ensure!(status.success(), "the store ended with {status}");
        Ok(())
    }
}

/// What a store printed of each profile that it got, after a line with its address.
pub(super) fn read(got: &Path) -> Result<Vec<Value>> {
    parse(&fs::read_to_string(got)?)
}

/// The same, of its lines.
pub(super) fn parse(lines: &str) -> Result<Vec<Value>> {
    let parse = |line| serde_json::from_str(line).context("failed to parse what the store got");
    lines.lines().skip(1).map(parse).collect()
}
