//! Processes that outlive the command that started them: their records, and how they are stopped.
//!
//! A record holds the process id and the start time, so that a process id that was used again is
//! never taken for the one that was started.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use fs_err as fs;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::process::{Background, log_tail, log_to, wait_until};

/// A process that was started here and still runs.
#[derive(Debug)]
pub struct Daemon {
    /// As in `osd.0`.
    pub name: String,
    /// Process id.
    pub pid: i32,
    /// With its record, `NAME.pid`, and its log, `log/NAME.out`.
    folder: PathBuf,
    /// Of the process, in clock ticks after boot.
    start: u64,
}

impl Daemon {
    /// Starts a program in the background and records it in `folder`.
    ///
    /// # Errors
    /// When the program does not start or the record cannot be written.
    pub fn start(folder: &Path, name: &str, command: &mut Command) -> Result<Self> {
        let log = folder.join(format!("log/{name}.out"));
        // Ctrl-C in the terminal is not for the daemon.
        log_to(command, &log)?.process_group(0);
        // Without a record nobody could stop it later: then it is killed.
        let process = Background::start(command)?;
        let pid = process.pid();
        let start = start_time(pid)
            .with_context(|| format!("{name} ended at once; see `{}`", log.display()))?;
        fs::write(
            folder.join(format!("{name}.pid")),
            format!("{pid} {start}\n"),
        )?;
        std::mem::forget(process);
        Ok(Self {
            name: name.to_owned(),
            pid,
            folder: folder.to_owned(),
            start,
        })
    }

    /// All recorded processes that still run, by name.
    ///
    /// # Errors
    /// When there is a record that cannot be read.
    pub fn all(folder: &Path) -> Result<Vec<Self>> {
        let mut daemons = Vec::new();
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str().and_then(|name| name.strip_suffix(".pid")) else {
                continue;
            };
            let (pid, start) = parse_record(&fs::read_to_string(entry.path())?)
                .with_context(|| format!("the record of {name} holds no process id"))?;
            daemons.push(Self {
                name: name.to_owned(),
                pid,
                folder: folder.to_owned(),
                start,
            });
        }
        daemons.retain(Self::is_running);
        daemons.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(daemons)
    }

    fn is_running(&self) -> bool {
        start_time(self.pid) == Some(self.start)
    }

    /// # Errors
    /// When it has ended; the error shows the end of its log.
    pub fn require_running(&self) -> Result<()> {
        let name = &self.name;
        let log = self.folder.join(format!("log/{name}.out"));
        ensure!(self.is_running(), "{name} ended:\n{}", log_tail(&log));
        Ok(())
    }

    /// Asks it to end, and kills it after `seconds`.
    ///
    /// # Errors
    /// When it cannot be signaled or does not even end then.
    pub fn stop(self, seconds: u64) -> Result<()> {
        let (name, pid) = (&self.name, self.pid);
        let end = |signal: Signal, seconds: u64| {
            if self.is_running() {
                kill(Pid::from_raw(pid), signal)?;
            }
            wait_until(&format!("{name} (pid {pid}) ends"), seconds, || {
                Ok(!self.is_running())
            })
        };
        if let Err(error) = end(Signal::SIGTERM, seconds) {
            println!("{error:#}; killing it");
            end(Signal::SIGKILL, 10)?;
        }
        println!("stopped {name} (pid {pid})");
        Ok(fs::remove_file(self.folder.join(format!("{name}.pid")))?)
    }
}

fn parse_record(text: &str) -> Option<(i32, u64)> {
    let (pid, start) = text.trim().split_once(' ')?;
    let pid = pid.parse().ok().filter(|pid| *pid > 1)?;
    Some((pid, start.parse().ok()?))
}

/// When a process started, in clock ticks after boot; none when it does not run.
fn start_time(pid: i32) -> Option<u64> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The name in parentheses may hold spaces and parentheses.
fn parse_stat(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?;
    // A zombie has ended; somebody just has not noticed.
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the start time is found behind a name with spaces, and not for a zombie.
    #[test]
    fn start_times() {
        let rest = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20 21";
        assert_eq!(parse_stat(&format!("7 (CPU 0) x) S {rest}")), Some(4242));
        assert_eq!(parse_stat(&format!("7 (a) Z {rest}")), None);
        assert_eq!(parse_stat("7 (a) S 1"), None);
    }

    /// Check that init, nonsense and an empty record name no process.
    #[test]
    fn records() {
        assert_eq!(parse_record("12 34\n"), Some((12, 34)));
        for text in ["", "1 34", "-5 34", "12", "a b"] {
            assert_eq!(parse_record(text), None, "{text}");
        }
    }

    /// Check that a process is stopped by its record, and that a record of another start is not.
    #[test]
    fn stops_only_what_was_started() {
        let folder = std::env::temp_dir().join(format!("wcprof-daemon-{}", std::process::id()));
        fs::create_dir_all(folder.join("log")).unwrap();
        let mut command = Command::new("sleep");
        let daemon = Daemon::start(&folder, "a", command.arg("600")).unwrap();
        let record = format!("{} {}", daemon.pid, daemon.start + 1);
        fs::write(folder.join("b.pid"), record).unwrap();
        let all = Daemon::all(&folder).unwrap();
        assert_eq!(all.iter().map(|d| &*d.name).collect::<Vec<_>>(), ["a"]);
        daemon.stop(5).unwrap();
        assert!(Daemon::all(&folder).unwrap().is_empty());
        fs::remove_dir_all(&folder).unwrap();
    }
}
