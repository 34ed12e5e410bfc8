//! The target with many waiting threads, compiled on the spot.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::process::{execute, root, target_folder};

/// A running target. It ends when dropped, because its standard input does.
#[derive(Debug)]
pub struct Target {
    child: Child,
    input: Option<ChildStdin>,
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
        let program = target_folder()?.join("bench-threads");
        execute(
            Command::new("gcc")
                .args(["-O2", "-g", "-pthread", "-o"])
                .arg(&program)
                .arg(root()?.join("lab/threads.c")),
        )?;
        // The main thread is one of them.
        let n_blocked = n_threads.saturating_sub(n_waking + 1);
        let mut child = Command::new(&program)
            .args([n_blocked.to_string(), n_waking.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("failed to run `{}`", program.display()))?;
        let input = child.stdin.take();
        let output = child.stdout.take().context("the target has no output")?;
        let target = Self {
            child,
            input,
            n_threads: n_blocked + n_waking + 1,
        };
        let mut line = String::new();
        BufReader::new(output)
            .read_line(&mut line)
            .context("failed to read from the target")?;
        ensure!(line == "ready\n", "the target says: {line}");
        Ok(target)
    }

    /// Its process id.
    ///
    /// # Errors
    /// Never on Linux.
    pub fn pid(&self) -> Result<i32> {
        i32::try_from(self.child.id()).context("process id out of range")
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}
