//! `cargo xtask bpf`: the C source of the BPF programs to the object that is checked in, or a
//! comparison of the two.
//!
//! The object is the same byte for byte wherever it is built, because paths are mapped away and
//! DWARF is stripped (BTF stays), as long as the compiler is clang 14.

use std::path::Path;

use anyhow::{Context, Result, ensure};
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
    ensure!(
        fs::read(&object)? == fs::read(rebuilt)?,
        "`{}` is not what {SOURCE} builds to; run `cargo xtask bpf` and commit the object with its source",
        object.display()
    );
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
