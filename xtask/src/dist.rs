//! `cargo xtask dist`: the sources to what is given to others: programs, bills of materials, packages, an image, checksums.
//!
//! `wcprof` is static (musl) and runs on any distribution; `wcprof-crypto` needs the C library and the libcrypto that it
//! was built with. Paths of this machine are replaced and times are those of the commit, so that the same commit gives the
//! same bytes elsewhere.

mod build;
mod image;
mod notices;
mod packages;
mod roots;
mod sbom;

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use fs_err as fs;

use self::build::{Dist, PROGRAMS, empty_folder, file_names};
use crate::process::{capture, command, execute, quoted, root, target_folder};
use crate::setup::{self, install};

/// Build the programs, packages and the image for others, with checksums.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Also build a clone of the last commit at another path, and compare the bytes
    #[arg(long)]
    compare: bool,
    /// Also install the packages in clean root folders, use them there and remove them (needs root)
    #[arg(long)]
    test: bool,
    /// With --test: also install the .rpm in this root folder, such as the unpacked base image of EL8
    #[arg(long, value_name = "FOLDER", requires = "test")]
    rpm_root: Option<PathBuf>,
}

const SUMS: &str = "SHA256SUMS";

/// Runs the command.
///
/// # Errors
/// When a package or the compiler's library for musl cannot be installed, a build fails, two builds differ, or a test fails.
pub fn run(args: &Args) -> Result<()> {
    install(&[setup::BUILD, setup::DIST])?;
    let platforms = PROGRAMS.map(|program| program.platform).join(" ");
    execute(command(&format!("rustup target add {platforms}")))
        .context("wcprof is built for musl with a compiler of rustup")?;
    let dist = Dist {
        checkout: root(),
        target: target_folder(),
        files: empty_folder(target_folder().join("dist-files"))?,
    };
    let sums = build(&dist)?;
    print!("{sums}");
    for file in file_names(&dist.files)? {
        let size = fs::metadata(dist.files.join(&file))?.len() as f64 / 1e6;
        println!("{size:7.2} MB {}", dist.files.join(&file).display());
    }
    if args.compare {
        compare(&sums)?;
    }
    match args.test {
        true => roots::test(&dist, args.rpm_root.as_deref()),
        false => Ok(()),
    }
}

/// Builds all files, and returns their checksums.
fn build(dist: &Dist) -> Result<String> {
    let mut bills = Vec::new();
    for program in &PROGRAMS {
        dist.build_program(program)?;
        bills.push(sbom::write(dist, program)?);
    }
    notices::write(dist, &bills)?;
    packages::stage(dist)?;
    packages::deb(dist, "1", &dist.files)?;
    packages::rpm(dist, "1", &dist.files)?;
    image::write(dist)?;
    let mut sums = command("sha256sum");
    sums.args(file_names(&dist.files)?);
    let sums = capture(sums.current_dir(&dist.files))?;
    fs::write(dist.files.join(SUMS), &sums)?;
    Ok(sums)
}

/// Builds the last commit at a path of another length. What is not committed makes a difference.
fn compare(sums: &str) -> Result<()> {
    let folder = tempfile::Builder::new()
        .prefix("wcprof-dist-elsewhere-")
        .tempdir_in(target_folder())?;
    let other = Dist {
        checkout: folder.path().join("clone"),
        target: folder.path().join("target"),
        files: empty_folder(folder.path().join("files"))?,
    };
    let (from, to) = (quoted(root()), quoted(&other.checkout));
    execute(command(&format!("git clone --quiet --local {from} {to}")))?;
    let others = build(&other)?;
    let differing: Vec<&str> = others.lines().filter(|line| !sums.contains(line)).collect();
    ensure!(
        others == sums,
        "a clone of the last commit at another path gives other bytes:\n{}",
        differing.join("\n")
    );
    println!("A clone at another path gives the same bytes.");
    Ok(())
}
