//! Running other programs: where the repository is, which cargo to use, and errors that name the
//! program.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};

/// Root folder of the repository.
///
/// # Errors
/// When the folder this program was built in is gone.
pub fn root() -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    root.canonicalize()
        .with_context(|| format!("failed to find `{}`", root.display()))
}

/// The cargo that runs this program, to be run in the root of the repository.
///
/// # Errors
/// As [`root`].
pub fn cargo() -> Result<Command> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()?);
    // What is built as a whole takes half of the time without the bookkeeping of incremental builds.
    command.env("CARGO_INCREMENTAL", "0");
    Ok(command)
}

/// Cargo's folder for build results.
///
/// # Errors
/// As [`root`].
pub fn target_folder() -> Result<PathBuf> {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => Ok(root()?.join(folder)),
        None => Ok(root()?.join("target")),
    }
}

/// Builds wcprof with optimization and returns the path of the program.
///
/// # Errors
/// When the build fails.
pub fn build_release() -> Result<PathBuf> {
    execute(cargo()?.args(["build", "--release", "--locked", "--package", "wcprof"]))?;
    Ok(target_folder()?.join("release/wcprof"))
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
    if !status.success() {
        bail!("`{shown}` failed: {status}");
    }
    Ok(())
}

/// Runs a program to its end and returns its standard output.
///
/// # Errors
/// When it does not start or does not succeed; the error holds the end of its standard error.
pub fn capture(command: &mut Command) -> Result<String> {
    let shown = show(command);
    let Output {
        status,
        stdout,
        stderr,
    } = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("failed to run `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed: {status}\n{}", tail(&stderr, 10));
    }
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}

/// Whether a program of this name is in `PATH`.
pub fn is_installed(program: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
    })
}

/// The last `n_lines` lines of what a program printed.
pub fn tail(bytes: &[u8], n_lines: usize) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(n_lines)..].join("\n")
}

fn show(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(OsStr::to_string_lossy)
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the end of a text is its last lines, and all of a short one.
    #[test]
    fn tails() {
        assert_eq!(tail(b"a\nb\nc\n", 2), "b\nc");
        assert_eq!(tail(b"a", 2), "a");
    }

    /// Check that a failure names the program with its arguments and holds what it said.
    #[test]
    fn failures_name_the_program() {
        let error = capture(Command::new("sh").args(["-c", "echo why >&2; exit 3"])).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("sh -c") && text.contains("why"), "{text}");
    }
}
