//! Runs other programs, to their end or in the background. Errors show the command line and the end of its output.

use std::borrow::BorrowMut;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// Root folder of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("")
}

/// Cargo's folder for build results.
pub fn target_folder() -> PathBuf {
    root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// A folder for results below cargo's; it is created.
pub fn result_folder(name: &str) -> Result<PathBuf> {
    let folder = target_folder().join(name);
    fs_err::create_dir_all(&folder)?;
    Ok(folder)
}

/// A command from a line of words, with quotes as in a shell: program and arguments.
pub fn command(line: &str) -> Command {
    let mut words = shlex::split(line).unwrap_or_default().into_iter();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    command
}

/// A path as a word of a line for [`command`].
pub fn quoted(path: impl AsRef<Path>) -> String {
    let path = path.as_ref().to_string_lossy();
    shlex::try_quote(&path).map_or_else(|_| path.to_string(), |word| word.to_string())
}

/// The cargo that runs this program, with these arguments, in the root of the repository.
pub fn cargo(words: &str) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = command(&format!("{} {words}", quoted(cargo)));
    // A full build takes half of the time without the bookkeeping of incremental builds.
    command.current_dir(root()).env("CARGO_INCREMENTAL", "0");
    command
}

/// Cargo running an optimized example of a crate, with these arguments.
pub fn cargo_example(package: &str, example_with_arguments: &str) -> Command {
    let (example, arguments) = example_with_arguments
        .split_once(' ')
        .unwrap_or((example_with_arguments, ""));
    cargo(&format!(
        "run --release --locked --quiet --package {package} --example {example} -- {arguments}"
    ))
}

/// Builds wcprof with optimization and returns the path of the program, [`quoted`].
pub fn build_release() -> Result<String> {
    build_wcprof("release")
}

/// As [`build_release`], with a profile of cargo.
pub fn build_wcprof(profile: &str) -> Result<String> {
    let words = format!("build --profile {profile} --locked --package wcprof");
    execute(cargo(&words))?;
    Ok(quoted(target_folder().join(profile).join("wcprof")))
}

/// Compiles a C program of the repository with GCC.
pub fn compile_c(source: &str, flags: &str, program: &Path) -> Result<()> {
    let words = format!("gcc -O2 -g -Wall -Wextra -Werror {flags} -o");
    execute(command(&words).arg(program).arg(root().join(source)))
}

/// Runs a program to its end with the standard streams of this one.
///
/// # Errors
/// When it does not start or does not succeed.
pub fn execute(mut command: impl BorrowMut<Command>) -> Result<()> {
    let command = command.borrow_mut();
    let status = command.status();
    let status = status.with_context(|| format!("failed to run `{command:?}`"))?;
    ensure!(status.success(), "`{command:?}` failed: {status}");
    Ok(())
}

/// Runs a program to its end and returns its standard output.
///
/// # Errors
/// When it does not start or does not succeed; the error holds the end of its standard error.
pub fn capture(command: impl BorrowMut<Command>) -> Result<String> {
    Ok(String::from_utf8_lossy(&capture_bytes(command)?).into_owned())
}

/// As [`capture`], for output that is no text.
pub fn capture_bytes(mut command: impl BorrowMut<Command>) -> Result<Vec<u8>> {
    let command = command.borrow_mut();
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("failed to run `{command:?}`"))?;
    let (status, errors) = (output.status, tail(&output.stderr));
    ensure!(status.success(), "`{command:?}` failed: {status}\n{errors}");
    Ok(output.stdout)
}

/// Runs a program to its end and returns the JSON that it prints.
pub fn capture_json(mut command: impl BorrowMut<Command>) -> Result<Value> {
    let command = command.borrow_mut();
    let text = capture(&mut *command)?;
    serde_json::from_str(&text).with_context(|| format!("`{command:?}` did not print JSON"))
}

/// The elements of a list in JSON; none if it is no list.
pub fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// A text in JSON; empty if it is none.
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A number in JSON; 0 if it is none.
pub fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_default()
}

/// Sends what the program prints to a new file, and gives it no input.
pub fn log_to<'a>(command: &'a mut Command, log: &Path) -> Result<&'a mut Command> {
    let (file, _) = fs_err::File::create(log)?.into_parts();
    let errors = file.try_clone()?;
    Ok(command.stdin(Stdio::null()).stdout(file).stderr(errors))
}

/// Whether a program of this name is in `PATH`.
pub fn is_installed(program: &str) -> bool {
    find_program(program).is_some()
}

/// The path of a program in `PATH`.
pub fn find_program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut files = std::env::split_paths(&path).map(|folder| folder.join(program));
    files.find(|file| file.is_file())
}

/// Chromium or what is compatible with it, [`quoted`].
pub fn find_chromium() -> Option<String> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    names.into_iter().find_map(find_program).map(quoted)
}

/// An address of loopback that nobody listens at.
pub fn free_address() -> Result<String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.to_string())
}

/// The last ten lines of what a program printed.
pub fn tail(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}

/// The last ten lines of a log file; nothing if it cannot be read.
pub fn log_tail(log: &Path) -> String {
    tail(&fs_err::read(log).unwrap_or_default())
}

/// A program in the background. It is killed when dropped.
#[derive(Debug)]
pub struct Background {
    /// Those of its standard streams that are pipes.
    pub child: Child,
    command: String,
}

impl Background {
    /// Starts it, with the standard streams that the command has.
    pub fn start(command: &mut Command) -> Result<Self> {
        let child = command.spawn();
        let command = format!("{command:?}");
        Ok(Self {
            child: child.with_context(|| format!("failed to run `{command}`"))?,
            command,
        })
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// # Errors
    /// When it has ended.
    pub fn require_running(&mut self) -> Result<()> {
        let status = self.child.try_wait()?;
        ensure!(status.is_none(), "`{}` ended: {status:?}", self.command);
        Ok(())
    }

    /// Interrupts it as Ctrl-C does, and calls `meanwhile` repeatedly until it ends.
    ///
    /// # Errors
    /// When it had ended before, or does not end within a minute.
    pub fn interrupt(&mut self, mut meanwhile: impl FnMut()) -> Result<ExitStatus> {
        self.require_running()?;
        kill(Pid::from_raw(self.pid()), Signal::SIGINT)?;
        let end = Instant::now() + Duration::from_secs(60);
        while Instant::now() < end {
            meanwhile();
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("`{}` does not end after SIGINT", self.command)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // Fails only when it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks until the answer is yes, five times a second.
///
/// # Errors
/// When it is still no after `seconds`, with `what` as the error, or when asking fails.
pub fn wait_until(what: &str, seconds: u64, is_done: impl FnMut() -> Result<bool>) -> Result<()> {
    poll_until(what, seconds, Duration::from_millis(200), is_done)
}

/// The same, looking so often.
pub fn poll_until(
    what: &str,
    seconds: u64,
    interval: Duration,
    mut is_done: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(seconds);
    while !is_done()? {
        ensure!(Instant::now() < end, "{what}: not within {seconds} s");
        std::thread::sleep(interval);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the end of a text is its last lines, and all of a short one.
    #[test]
    fn tails() {
        let text: String = (1..=12).map(|n| format!("{n}\n")).collect();
        assert_eq!(tail(text.as_bytes()), "3\n4\n5\n6\n7\n8\n9\n10\n11\n12");
        assert_eq!(tail(b"a"), "a");
    }

    /// Check that a failure names the program with its arguments and holds what it said.
    #[test]
    fn failures_name_the_program() {
        let error = capture(Command::new("sh").args(["-c", "echo why >&2; exit 3"])).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains(r#""sh" "-c""#) && text.contains("why"),
            "{text}"
        );
    }
}
