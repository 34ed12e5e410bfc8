//! What runs beside the tests in a proof.

use std::fmt;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

use crate::process::{execute, root, target_folder};

/// What runs beside the tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beside {
    /// Nothing.
    Calm,
    /// A busy loop for each of two CPUs.
    Loops,
    /// All CPUs stop at times.
    Pauses,
}

impl fmt::Display for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Calm => "calm",
            Self::Loops => "two busy loops",
            Self::Pauses => "CPUs stop for 0.2 to 1.4 s",
        })
    }
}

/// Programs that end when this is dropped.
#[derive(Debug)]
pub struct Load {
    loops: Vec<Child>,
    /// Ends by itself when its standard input does, and restores what it has set.
    pauses: Option<Child>,
}

impl Load {
    /// Starts it.
    ///
    /// # Errors
    /// When a program cannot be compiled or started.
    pub fn start(what: Beside) -> Result<Self> {
        let mut load = Self {
            loops: Vec::new(),
            pauses: None,
        };
        match what {
            Beside::Calm => {}
            Beside::Loops => {
                for _ in 0..2 {
                    let mut command = Command::new("sh");
                    let child = spawn(command.args(["-c", "while :; do :; done"]))?;
                    load.loops.push(child);
                }
            }
            Beside::Pauses => {
                let program = target_folder()?.join("pauses");
                execute(
                    Command::new("gcc")
                        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
                        .arg(&program)
                        .arg(root()?.join("lab/pauses.c")),
                )?;
                load.pauses = Some(spawn(&mut Command::new(&program))?);
            }
        }
        Ok(load)
    }
}

fn spawn(command: &mut Command) -> Result<Child> {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .with_context(|| format!("failed to run {:?}", command.get_program()))
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.loops {
            // Fails only when it has ended.
            let _ = child.kill();
            let _ = child.wait();
        }
        if let Some(mut child) = self.pauses.take() {
            drop(child.stdin.take());
            let _ = child.wait();
        }
    }
}
