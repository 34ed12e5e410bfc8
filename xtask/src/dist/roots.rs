//! Packages and the image in clean root folders: installed, used on a live process, granted rights, upgraded, removed.

mod folder;
mod release;
mod rights;
mod used;

use std::path::Path;

use anyhow::{Context, Result, ensure};
use nix::unistd::geteuid;

use self::folder::Root;
use self::release::{Distribution, Release};
use super::build::{Dist, empty_folder, file_names};
use super::{image, packages};
use crate::process::result_folder;
use crate::setup::{self, install};

/// What a root installs, upgrades and removes packages with; `PACKAGE` is a file in its `/tmp`.
#[derive(Copy, Clone)]
struct Manager {
    ending: &'static str,
    install: &'static str,
    upgrade: &'static str,
    remove: &'static str,
}

const DPKG: Manager = Manager {
    ending: ".deb",
    install: "dpkg --install PACKAGE",
    upgrade: "dpkg --install PACKAGE",
    remove: "dpkg --purge wcprof",
};
const RPM: Manager = Manager {
    ending: ".rpm",
    install: "rpm --install PACKAGE",
    upgrade: "rpm --upgrade PACKAGE",
    remove: "rpm --erase wcprof",
};
/// In a root of another distribution, whose files no rpm owns.
const RPM_ALONE: Manager = Manager {
    install: "rpm --install --nodeps PACKAGE",
    upgrade: "rpm --upgrade --nodeps PACKAGE",
    ..RPM
};

const BOOKWORM: Release = Release {
    of: Distribution::Debian,
    name: "bookworm",
    includes: "libcap2-bin,libssl3",
    runs_crypto: true,
};
const BULLSEYE: Release = Release {
    name: "bullseye",
    includes: "libcap2-bin,rpm",
    runs_crypto: false,
    ..BOOKWORM
};
/// As old as EL8, whose packages are in no archive that all can reach: glibc 2.27 (2.28 there), rpm 4.14, no OpenSSL 3.
const BIONIC: Release = Release {
    of: Distribution::Ubuntu,
    name: "bionic",
    ..BULLSEYE
};

/// Tests everything in `dist.files`.
///
/// # Errors
/// When a root cannot be made, or a test fails.
pub fn test(dist: &Dist, rpm_root: Option<&Path>) -> Result<()> {
    if !geteuid().is_root() {
        println!("SKIPPED dist --test: only root can enter a root folder");
        return Ok(());
    }
    install(&[setup::ROOTS])?;
    let newer = empty_folder(result_folder("dist-newer")?)?;
    packages::deb(dist, "2", &newer)?;
    packages::rpm(dist, "2", &newer)?;

    named("image, in a root that holds nothing else", || {
        test_image(dist)
    })?;
    for (release, manager) in [
        (BOOKWORM, DPKG),
        (BULLSEYE, DPKG),
        (BULLSEYE, RPM_ALONE),
        (BIONIC, RPM_ALONE),
    ] {
        let name = format!("{} in {}", manager.ending, release.name);
        if !release.is_reachable() {
            println!("SKIPPED {name}: the archive of its distribution cannot be reached");
            continue;
        }
        named(&name, || {
            let root = Root::of_release(&release)?;
            test_package(dist, &newer, &root, manager, release.runs_crypto)
        })?;
    }
    let Some(folder) = rpm_root else {
        println!(
            "SKIPPED .rpm in EL8: give --rpm-root the unpacked base image of such a distribution"
        );
        return Ok(());
    };
    named(&format!("{} in {}", RPM.ending, folder.display()), || {
        let root = Root::copy_of(folder)?;
        let runs_crypto = root.run("sh -c 'ls /usr/lib64/libcrypto.so.3'").is_ok();
        test_package(dist, &newer, &root, RPM, runs_crypto)
    })
}

fn named(name: &str, test: impl FnOnce() -> Result<()>) -> Result<()> {
    test().with_context(|| format!("{name} failed"))?;
    println!("{name}: passed");
    Ok(())
}

fn test_image(dist: &Dist) -> Result<()> {
    let root = Root::empty()?;
    let work = result_folder("dist-layout")?;
    image::unpack(&dist.files.join(image::FILE), work, root.folder())?;
    used::profiles(&root)?;
    used::crypto_is_elsewhere(&root)
}

fn test_package(
    dist: &Dist,
    newer: &Path,
    root: &Root,
    manager: Manager,
    runs_crypto: bool,
) -> Result<()> {
    let (old, new) = (
        Package::copied(&dist.files, root, manager)?,
        Package::copied(newer, root, manager)?,
    );
    let before = root.run("find / -xdev -name *wcprof* -not -path /tmp/*")?;
    ensure!(before.is_empty(), "the root is not clean: {before}");
    root.run(&old.command(manager.install))?;
    used::profiles(root)?;
    used::documents_itself(root)?;
    used::unit_is_valid(root)?;
    match runs_crypto {
        true => used::crypto_works(root)?,
        false => used::crypto_needs_openssl(root)?,
    }
    rights::none(root)?;
    rights::granted(root)?;
    root.run(&new.command(manager.upgrade))?;
    rights::none(root).context("after an upgrade")?;
    rights::granted(root)?;
    rights::undone(root)?;
    rights::granted(root)?;
    root.run(manager.remove)?;
    let after = root.run("find / -xdev -name *wcprof* -not -path /tmp/*")?;
    ensure!(after.is_empty(), "removal left {after}");
    rights::nowhere(root).context("after the removal")
}

/// A package in a root's `/tmp`.
struct Package(String);

impl Package {
    fn copied(from: &Path, root: &Root, manager: Manager) -> Result<Self> {
        let names = file_names(from)?;
        let name = names
            .into_iter()
            .find(|name| name.ends_with(manager.ending));
        let name = name.with_context(|| format!("no {} in {}", manager.ending, from.display()))?;
        fs_err::copy(from.join(&name), root.folder().join("tmp").join(&name))?;
        Ok(Self(format!("/tmp/{name}")))
    }

    fn command(&self, words: &str) -> String {
        words.replace("PACKAGE", &self.0)
    }
}
