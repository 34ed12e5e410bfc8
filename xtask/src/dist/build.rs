//! Where sources and results are, and cargo there: both programs, with paths of this machine replaced.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use fs_err as fs;

use crate::process::{capture, cargo, command, execute};

/// A program that is given to others.
pub struct Program {
    pub name: &'static str,
    pub platform: &'static str,
    /// Flags of cargo.
    pub features: &'static str,
}

/// All of them.
pub const PROGRAMS: [Program; 2] = [
    Program {
        name: "wcprof",
        platform: "x86_64-unknown-linux-musl",
        features: "--no-default-features --features parquet",
    },
    Program {
        name: "wcprof-crypto",
        platform: "x86_64-unknown-linux-gnu",
        features: "--features crypto",
    },
];
/// Cargo's profile of everything here.
pub const PROFILE: &str = "dist";

/// Where the sources are, where cargo builds, and where the files go.
pub struct Dist {
    pub checkout: PathBuf,
    pub target: PathBuf,
    pub files: PathBuf,
}

impl Dist {
    /// Builds a program and copies it to the files.
    pub fn build_program(&self, program: &Program) -> Result<()> {
        let Program {
            name,
            platform,
            features,
        } = program;
        let cargo_home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
        let cargo_home = cargo_home.or_else(|| Some(std::env::home_dir()?.join(".cargo")));
        let cargo_home = cargo_home.context("cargo's folder is not known: set CARGO_HOME")?;
        let replaced = |path: &Path, new: &str| {
            // Without the slash that a folder's path may end with.
            format!("{}={new}", path.components().as_path().display())
        };
        let (own, others, built) = (
            replaced(&self.checkout, "/wcprof"),
            replaced(&cargo_home, "/cargo"),
            replaced(&self.target, "/target"),
        );
        // The last that fits is used, and the target folder may be in the checkout.
        let flag = "--remap-path-prefix";
        let rust_flags = [flag, &own, flag, &others, flag, &built].join("\x1f");
        let mut build = self.command(cargo(&format!(
            "build --locked --profile {PROFILE} --package wcprof --bin {name} --target {platform} {features}"
        )));
        build.env_remove("RUSTFLAGS");
        build.env("CARGO_ENCODED_RUSTFLAGS", &rust_flags);
        // All C code is of crates of others, some of it generated in the target folder.
        let flag = "-ffile-prefix-map";
        build.env("CFLAGS", format!("{flag}={others} {flag}={built}"));
        execute(build)?;
        let program = self.target.join(platform).join(PROFILE).join(name);
        fs::copy(program, self.files.join(name))?;
        Ok(())
    }

    /// A command of cargo's family, in the checkout.
    pub fn command(&self, mut command: Command) -> Command {
        command.current_dir(&self.checkout);
        command.env("CARGO_TARGET_DIR", &self.target);
        command
    }

    /// When the last commit was made, in seconds since 1970: the time of everything in packages.
    pub fn time(&self) -> Result<String> {
        let time = capture(command("git log -1 --format=%ct").current_dir(&self.checkout))?;
        Ok(time.trim().to_owned())
    }
}

/// The folder, without what it held.
pub fn empty_folder(folder: PathBuf) -> Result<PathBuf> {
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Names of the files in a folder, in order.
pub fn file_names(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort_unstable();
    Ok(names)
}
