//! A running target with many waiting threads, compiled on the spot.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::process::{Background, compile_c, target_folder};

/// A running target. It is killed when dropped.
#[derive(Debug)]
pub struct Target {
    process: Background,
    /// Threads, the main thread included.
    pub n_threads: u32,
}

impl Target {
    /// Compiles and starts a target of `n_threads` threads, `n_waking` of which run now and then,
    /// and waits until all are there.
    ///
    /// # Errors
    /// When gcc is missing or the target does not start.
    pub fn start(n_threads: u32, n_waking: u32) -> Result<Self> {
        let program = target_folder().join("bench-threads");
        compile_c("lab/threads.c", "-pthread", &program)?;
        // The main thread is one of them.
        let n_blocked = n_threads.saturating_sub(n_waking + 1);
        let mut command = Command::new(&program);
        command.args([n_blocked.to_string(), n_waking.to_string()]);
        // It ends when its standard input does.
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Background::start(&mut command)?;
        let output = process.child().stdout.take();
        let mut line = String::new();
        BufReader::new(output.context("the target has no output")?).read_line(&mut line)?;
        ensure!(line == "ready\n", "the target says: {line}");
        Ok(Self {
            process,
            n_threads: n_blocked + n_waking + 1,
        })
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.process.pid()
    }
}
