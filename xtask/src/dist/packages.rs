//! Programs to packages: `.deb` by cargo-deb, `.rpm` by cargo-generate-rpm. What is in them is in `crates/wcprof/Cargo.toml`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use fs_err as fs;

use super::build::{Dist, PROFILE, PROGRAMS, empty_folder, file_names};
use super::notices;
use crate::process::{capture_bytes, cargo, command, execute, quoted, result_folder};

/// Versions are fixed: another one may write other bytes.
const CARGO_DEB: (&str, &str) = ("cargo-deb", "3.8.0");
const CARGO_GENERATE_RPM: (&str, &str) = ("cargo-generate-rpm", "0.21.1");

/// Files of the checkout.
const OWN_FILES: [&str; 4] = [
    "crates/wcprof/packaging/grant",
    "crates/wcprof/packaging/wcprof-agent.service",
    "LICENSE-APACHE",
    "LICENSE-MIT",
];
const COMPLETIONS: [&str; 3] = ["bash", "zsh", "fish"];

/// Collects what is packaged where the packagers look for it: both programs, their bills of materials and licenses, manual
/// pages and completions.
pub fn stage(dist: &Dist) -> Result<()> {
    let stage = empty_folder(stage_folder(dist))?;
    let documents = empty_folder(stage.join("documents"))?;
    for program in &PROGRAMS {
        let name = program.name;
        fs::copy(dist.files.join(name), stage.join(name))?;
        let bill = format!("{name}.cdx.json");
        fs::copy(dist.files.join(&bill), documents.join(&bill))?;
    }
    fs::copy(
        dist.files.join(notices::FILE),
        documents.join(notices::FILE),
    )?;
    for file in OWN_FILES {
        let name = Path::new(file).file_name().unwrap_or_default();
        fs::copy(dist.checkout.join(file), stage.join(name))?;
    }
    let wcprof = quoted(stage.join("wcprof"));
    let man = empty_folder(stage.join("man"))?;
    execute(command(&format!("{wcprof} man --dir {}", quoted(&man))))?;
    let pages = file_names(&man)?;
    execute(
        command("gzip --no-name --best")
            .args(pages)
            .current_dir(&man),
    )?;
    let completions = empty_folder(stage.join("completions"))?;
    for shell in COMPLETIONS {
        let text = capture_bytes(command(&format!("{wcprof} completions {shell}")))?;
        fs::write(completions.join(format!("wcprof.{shell}")), text)?;
    }
    // The packagers keep times before SOURCE_DATE_EPOCH.
    let time = dist.time()?;
    let stage = quoted(stage);
    execute(command(&format!(
        "find {stage} -exec touch --date=@{time} {{}} +"
    )))
}

fn stage_folder(dist: &Dist) -> PathBuf {
    dist.target.join(PROFILE).join("stage")
}

/// Writes the `.deb` of this revision into a folder.
pub fn deb(dist: &Dist, revision: &str, folder: &Path) -> Result<()> {
    let words = format!("--no-build --no-strip --quiet --package wcprof --deb-revision {revision}");
    run(dist, CARGO_DEB, &words, folder)
}

/// Writes the `.rpm` of this release into a folder.
pub fn rpm(dist: &Dist, release: &str, folder: &Path) -> Result<()> {
    // Every rpm since EL7 unpacks xz.
    let words = format!(
        "--package crates/wcprof --payload-compress xz --set-metadata 'release = \"{release}\"'"
    );
    run(dist, CARGO_GENERATE_RPM, &words, folder)
}

fn run(dist: &Dist, tool: (&str, &str), words: &str, folder: &Path) -> Result<()> {
    let tool = quoted(installed(tool)?);
    let words = format!(
        "{tool} --profile {PROFILE} {words} --output {}",
        quoted(folder)
    );
    let mut packager: Command = dist.command(command(&words));
    execute(packager.env("SOURCE_DATE_EPOCH", dist.time()?))
}

/// The path of a program that cargo installs below its own folder when it is missing.
fn installed((name, version): (&str, &str)) -> Result<PathBuf> {
    let folder = result_folder("dist-tools")?.join(version);
    let program = folder.join("bin").join(name);
    if !program.is_file() {
        let words = format!("install --quiet --locked {name}@{version} --root");
        execute(cargo(&words).arg(&folder))?;
    }
    Ok(program)
}
