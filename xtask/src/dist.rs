//! `cargo xtask dist`: the sources to the programs that are given to others, and their checksums.
//!
//! `wcprof` is static (musl) and runs on any distribution; `wcprof-crypto` needs the C library and the libcrypto that it
//! was built with. Paths of this machine are replaced, so that the same commit gives the same bytes elsewhere.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use fs_err as fs;

use crate::process::{
    capture, cargo, command, execute, quoted, result_folder, root, target_folder,
};
use crate::setup::{self, install};

/// Build the static program and the one that needs libcrypto, with checksums.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Also build a clone of the last commit at another path, and compare the bytes
    #[arg(long)]
    compare: bool,
}

/// A program: its name, its platform, its features.
const PROGRAMS: [(&str, &str, &str); 2] = [
    (
        "wcprof",
        "x86_64-unknown-linux-musl",
        "--no-default-features",
    ),
    (
        "wcprof-crypto",
        "x86_64-unknown-linux-gnu",
        "--features crypto",
    ),
];
const SUMS: &str = "SHA256SUMS";

/// Runs the command.
///
/// # Errors
/// When a package or the compiler's library for musl cannot be installed, a build fails, or two builds differ.
pub fn run(args: &Args) -> Result<()> {
    install(&[setup::BUILD, setup::DIST])?;
    let targets = PROGRAMS.map(|(_, target, _)| target).join(" ");
    execute(command(&format!("rustup target add {targets}")))
        .context("wcprof is built for musl with a compiler of rustup")?;
    let folder = result_folder("dist-files")?;
    let sums = build(&root(), &target_folder(), &folder)?;
    print!("{sums}");
    for (program, ..) in PROGRAMS {
        let size = fs::metadata(folder.join(program))?.len();
        println!(
            "{:.1} MB {}",
            size as f64 / 1e6,
            folder.join(program).display()
        );
    }
    match args.compare {
        true => compare(&sums),
        false => Ok(()),
    }
}

/// Builds the programs of a checkout into a folder, and returns their checksums.
fn build(checkout: &Path, target: &Path, folder: &Path) -> Result<String> {
    let cargo_home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let cargo_home = cargo_home.or_else(|| Some(std::env::home_dir()?.join(".cargo")));
    let cargo_home = cargo_home.context("cargo's folder is not known: set CARGO_HOME")?;
    let replaced = |path: &Path, new: &str| {
        // Without the slash that a folder's path may end with.
        format!("{}={new}", path.components().as_path().display())
    };
    let (own, others) = (
        replaced(checkout, "/wcprof"),
        replaced(&cargo_home, "/cargo"),
    );
    let flag = "--remap-path-prefix";
    let rust_flags = [flag, &own, flag, &others].join("\x1f");
    for (program, platform, features) in PROGRAMS {
        let words = format!(
            "build --locked --profile dist --package wcprof --bin {program} --target {platform} {features}"
        );
        let mut build = cargo(&words);
        build.current_dir(checkout);
        build.env("CARGO_TARGET_DIR", target);
        build.env_remove("RUSTFLAGS");
        build.env("CARGO_ENCODED_RUSTFLAGS", &rust_flags);
        // All C code is of crates of others.
        build.env("CFLAGS", format!("-ffile-prefix-map={others}"));
        execute(build)?;
        let built = target.join(platform).join("dist").join(program);
        fs::copy(built, folder.join(program))?;
    }
    let mut sums = command("sha256sum");
    sums.args(PROGRAMS.map(|(program, ..)| program));
    let sums = capture(sums.current_dir(folder))?;
    fs::write(folder.join(SUMS), &sums)?;
    Ok(sums)
}

/// Builds the last commit at a path of another length. What is not committed makes a difference.
fn compare(sums: &str) -> Result<()> {
    let folder = tempfile::Builder::new()
        .prefix("wcprof-dist-elsewhere-")
        .tempdir_in(target_folder())?;
    let (clone, files) = (folder.path().join("clone"), folder.path().join("files"));
    let (from, to) = (quoted(root()), quoted(&clone));
    execute(command(&format!("git clone --quiet --local {from} {to}")))?;
    fs::create_dir(&files)?;
    let others = build(&clone, &folder.path().join("target"), &files)?;
    ensure!(
        others == sums,
        "a clone at another path gives other bytes:\n{others}"
    );
    println!("A clone at another path gives the same bytes.");
    Ok(())
}
