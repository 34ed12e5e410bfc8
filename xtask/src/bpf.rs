//! `cargo xtask bpf`: the C source of the BPF programs to the object that is checked in, or a
//! comparison of the two.
//!
//! The object is the same byte for byte wherever it is built, because paths are mapped away and
//! DWARF is stripped (BTF stays), as long as the compiler is clang 14.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use fs_err as fs;

use crate::process::{capture, command, execute, quoted, result_folder, root};

const SOURCE: &str = "wcprof.bpf.c";
const OBJECT: &str = "wcprof.bpf.o";

/// Rebuild the BPF object.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Build elsewhere and compare with the object that is checked in
    #[arg(long)]
    check: bool,
}

/// Runs the command.
///
/// # Errors
/// When clang or llvm-strip is missing or fails, or `--check` finds a difference.
pub fn run(args: &Args) -> Result<()> {
    let folder = root().join("crates/wcprof-capture/bpf");
    let object = folder.join(OBJECT);
    if !args.check {
        build(&folder, &object)?;
        println!("built {}", object.display());
        return Ok(());
    }
    let rebuilt = result_folder("bpf")?.join(OBJECT);
    build(&folder, &rebuilt)?;
    if let Some(what) = difference(&fs::read(&object)?, &fs::read(rebuilt)?) {
        bail!(
            "`{}` is not what {SOURCE} builds to: {what}; run `cargo xtask bpf` and commit the \
             object with its source",
            object.display()
        );
    }
    println!("{} is what {SOURCE} builds to", object.display());
    Ok(())
}

fn build(folder: &Path, object: &Path) -> Result<()> {
    let missing = "install clang-14 and llvm-14";
    // Another clang makes another object.
    let version = capture(command("clang-14 --version")).context(missing)?;
    ensure!(
        version.contains("clang version 14."),
        "`clang-14` is not clang 14 but: {version}"
    );
    let (from, to) = (folder.display(), quoted(object));
    let clang = format!(
        "clang-14 -target bpf -mcpu=v3 -O2 -g -Wall -Wextra -Wno-unused-parameter -Werror \
         '-ffile-prefix-map={from}=.' '-fdebug-prefix-map={from}=.' -c -o {to} {SOURCE}"
    );
    execute(command(&clang).current_dir(folder))?;
    execute(command(&format!("llvm-strip-14 -g {to}"))).context(missing)
}

/// How `new` differs from `old`, if it does.
fn difference(old: &[u8], new: &[u8]) -> Option<String> {
    let first = old.iter().zip(new).position(|(a, b)| a != b);
    let (n_old, n_new) = (old.len(), new.len());
    match first {
        Some(at) => Some(format!("first different byte at {at:#x}")),
        None if n_old != n_new => Some(format!("{n_old} bytes checked in, {n_new} bytes rebuilt")),
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
