//! `cargo xtask bpf`: the C source of the BPF programs to the object that is checked in, or a
//! comparison of the two.
//!
//! The object is the same byte for byte wherever it is built, because paths are mapped away and
//! DWARF is stripped (BTF stays), as long as the compiler is clang 14.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

const CLANG: &str = "clang-14";
const STRIP: &str = "llvm-strip-14";
const SOURCE: &str = "wcprof.bpf.c";
const OBJECT: &str = "wcprof.bpf.o";

/// Rebuild the BPF object.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Build into a temporary folder and compare with the object that is checked in
    #[arg(long)]
    check: bool,
}

/// Runs the command.
///
/// # Errors
/// When clang or llvm-strip is missing or fails, or `--check` finds a difference.
pub fn run(args: &Args) -> Result<()> {
    let folder = source_folder();
    let object = folder.join(OBJECT);
    if !args.check {
        build(&folder, &object)?;
        println!("built {}", object.display());
        return Ok(());
    }
    let temporary = std::env::temp_dir().join(format!("wcprof-bpf-{}", std::process::id()));
    fs::create_dir(&temporary)
        .with_context(|| format!("failed to create `{}`", temporary.display()))?;
    let rebuilt = temporary.join(OBJECT);
    let result = build(&folder, &rebuilt).and_then(|()| compare(&object, &rebuilt));
    // The verdict matters more than a folder that stays behind in the temporary directory.
    let _ = fs::remove_dir_all(&temporary);
    result?;
    println!("{} is what {SOURCE} builds to", object.display());
    Ok(())
}

fn source_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/wcprof-capture/bpf")
}

fn build(folder: &Path, object: &Path) -> Result<()> {
    let folder = folder
        .canonicalize()
        .with_context(|| format!("failed to find `{}`", folder.display()))?;
    check_version()?;
    let map = |option: &str| format!("{option}={}=.", folder.display());
    execute(
        Command::new(CLANG)
            .current_dir(&folder)
            .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g"])
            .args(["-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror"])
            .args([map("-ffile-prefix-map"), map("-fdebug-prefix-map")])
            .args(["-c", SOURCE, "-o"])
            .arg(object),
    )?;
    execute(Command::new(STRIP).arg("-g").arg(object))
}

/// Another clang makes another object.
fn check_version() -> Result<()> {
    let output = Command::new(CLANG)
        .arg("--version")
        .output()
        .with_context(|| format!("failed to run `{CLANG}`: install clang-14 and llvm-14"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(
        text.contains("clang version 14."),
        "`{CLANG}` is not clang 14 but: {}",
        text.lines().next().unwrap_or_default()
    );
    Ok(())
}

fn execute(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command
        .status()
        .with_context(|| format!("failed to run `{program}`: install clang-14 and llvm-14"))?;
    ensure!(status.success(), "`{program}` failed: {status}");
    Ok(())
}

fn compare(object: &Path, rebuilt: &Path) -> Result<()> {
    let read = |path: &Path| {
        fs::read(path).with_context(|| format!("failed to read `{}`", path.display()))
    };
    let (old, new) = (read(object)?, read(rebuilt)?);
    match difference(&old, &new) {
        None => Ok(()),
        Some(what) => bail!(
            "`{}` is not what {SOURCE} builds to: {what}; run `cargo xtask bpf` and commit the \
             object with its source",
            object.display()
        ),
    }
}

/// How `new` differs from `old`, if it does.
fn difference(old: &[u8], new: &[u8]) -> Option<String> {
    let first = old.iter().zip(new).position(|(a, b)| a != b);
    match first {
        Some(at) => Some(format!("first different byte at {at:#x}")),
        None if old.len() != new.len() => Some(format!(
            "{} bytes checked in, {} bytes rebuilt",
            old.len(),
            new.len()
        )),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a changed byte and a changed length are both found.
    #[test]
    fn differences() {
        assert_eq!(difference(b"abc", b"abc"), None);
        assert!(difference(b"abc", b"abd").is_some_and(|d| d.contains("0x2")));
        assert!(difference(b"abc", b"ab").is_some_and(|d| d.contains("3 bytes")));
    }
}
