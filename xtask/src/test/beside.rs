//! Load that runs at the same time as the tests of a proof.

use std::fmt;
use std::process::{Command, Stdio};

use anyhow::Result;

use crate::process::{Background, command, compile_c, target_folder};

/// What runs at the same time as the tests.
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
    _loops: Vec<Background>,
    pauses: Option<Background>,
}

impl Load {
    /// Starts it.
    ///
    /// # Errors
    /// When a program cannot be compiled or started.
    pub fn start(what: Beside) -> Result<Self> {
        let mut load = Self {
            _loops: Vec::new(),
            pauses: None,
        };
        match what {
            Beside::Calm => {}
            Beside::Loops => {
                for _ in 0..2 {
                    let mut shell = command("sh -c");
                    let script = shell.arg("while :; do :; done");
                    load._loops.push(Background::start(script)?);
                }
            }
            Beside::Pauses => {
                let program = target_folder().join("pauses");
                compile_c("lab/pauses.c", "-pthread", &program)?;
                let mut pauses = Command::new(&program);
                pauses.stdin(Stdio::piped()).stdout(Stdio::null());
                load.pauses = Some(Background::start(&mut pauses)?);
            }
        }
        Ok(load)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // It ends by itself when its standard input does, and restores what it has set.
        if let Some(pauses) = &mut self.pauses {
            drop(pauses.child().stdin.take());
            let _ = pauses.wait();
        }
    }
}
