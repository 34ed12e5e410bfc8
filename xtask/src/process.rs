//! Runs other programs, to their end or in the background. Errors show the command line and the end of its output.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

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

/// A command from words that are separated by one space each: program and arguments.
pub fn command(words: &str) -> Command {
    let mut words = words.split(' ');
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    command
}

/// The cargo that runs this program, with these arguments, in the root of the repository.
pub fn cargo(words: &str) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(words.split(' ')).current_dir(root());
    // What is built as a whole takes half of the time without the bookkeeping of incremental builds.
    command.env("CARGO_INCREMENTAL", "0");
    command
}

/// Cargo running an optimized example of a crate.
pub fn cargo_example(package: &str, example: &str) -> Command {
    cargo(&format!(
        "run --release --locked --quiet --package {package} --example {example} --"
    ))
}

/// Builds wcprof with optimization and returns the path of the program.
pub fn build_release() -> Result<PathBuf> {
    execute(&mut cargo("build --release --locked --package wcprof"))?;
    Ok(target_folder().join("release/wcprof"))
}

/// Compiles a C program of the repository with GCC.
pub fn compile_c(source: &str, flags: &str, program: &Path) -> Result<()> {
    let words = format!("gcc -O2 -g -Wall -Wextra -Werror {flags} -o");
    execute(command(&words).arg(program).arg(root().join(source)))
}

/// Runs a program to its end with our standard streams.
///
/// # Errors
/// When it does not start or does not succeed.
pub fn execute(command: &mut Command) -> Result<()> {
    let shown = show(command);
    let status = command
        .status()
        .with_context(|| format!("failed to run `{shown}`"))?;
    ensure!(status.success(), "`{shown}` failed: {status}");
    Ok(())
}

/// Runs a program to its end and returns its standard output.
///
/// # Errors
/// When it does not start or does not succeed; the error holds the end of its standard error.
pub fn capture(command: &mut Command) -> Result<String> {
    Ok(String::from_utf8_lossy(&capture_bytes(command)?).into_owned())
}

/// As [`capture`], for output that is no text.
pub fn capture_bytes(command: &mut Command) -> Result<Vec<u8>> {
    let shown = show(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("failed to run `{shown}`"))?;
    let status = output.status;
    ensure!(
        status.success(),
        "`{shown}` failed: {status}\n{}",
        tail(&output.stderr)
    );
    Ok(output.stdout)
}

/// Runs a program to its end and returns the JSON that it prints.
pub fn capture_json(command: &mut Command) -> Result<serde_json::Value> {
    let text = capture(command)?;
    serde_json::from_str(&text).with_context(|| format!("`{}` did not print JSON", show(command)))
}

/// Takes the program's standard streams away.
pub fn silence(command: &mut Command) -> &mut Command {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
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

/// Chromium or what is compatible with it.
pub fn find_chromium() -> Option<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    names.into_iter().find_map(find_program)
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

/// Program and arguments, as they are shown in messages.
fn show(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(OsStr::to_string_lossy)
        .collect::<Vec<_>>()
        .join(" ")
}

/// A program in the background. It is killed when dropped.
#[derive(Debug)]
pub struct Background {
    child: Child,
    name: String,
}

impl Background {
    /// Starts it, with the standard streams that the command has.
    pub fn start(command: &mut Command) -> Result<Self> {
        let name = show(command);
        let child = command
            .spawn()
            .with_context(|| format!("failed to run `{name}`"))?;
        Ok(Self { child, name })
    }

    /// Those of its standard streams that are pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// How it ended; none while it runs.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        self.child
            .try_wait()
            .with_context(|| format!("failed to wait for `{}`", self.name))
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> Result<bool> {
        Ok(self.try_wait()?.is_none())
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        self.child
            .wait()
            .with_context(|| format!("failed to wait for `{}`", self.name))
    }

    /// Interrupts it as Ctrl-C does, and calls `meanwhile` again and again until it ends.
    ///
    /// # Errors
    /// When it had ended before, or does not end within a minute.
    pub fn interrupt(&mut self, mut meanwhile: impl FnMut()) -> Result<ExitStatus> {
        ensure!(self.is_running()?, "`{}` ended too early", self.name);
        kill(Pid::from_raw(self.pid()), Signal::SIGINT)
            .with_context(|| format!("failed to interrupt `{}`", self.name))?;
        let end = Instant::now() + Duration::from_secs(60);
        while Instant::now() < end {
            meanwhile();
            if let Some(status) = self.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("`{}` does not end after SIGINT", self.name)
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
/// When it is still no after `patience`, with `what` as the error, or when asking fails.
pub fn wait_until(
    what: &str,
    patience: Duration,
    mut is_done: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let end = Instant::now() + patience;
    while !is_done()? {
        let seconds = patience.as_secs();
        ensure!(Instant::now() < end, "{what}: not within {seconds} s");
        std::thread::sleep(Duration::from_millis(200));
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
        assert!(text.contains("sh -c") && text.contains("why"), "{text}");
    }
}
