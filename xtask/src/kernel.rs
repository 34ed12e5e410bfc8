//! A Debian kernel package to an unpacked kernel and its modules. Nothing is installed.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fs_err as fs;

use crate::process::{command, execute};

/// Downloads a package by the command `apt_get`, and unpacks it into `folder`.
///
/// # Errors
/// When it cannot be downloaded or has no kernel.
pub fn unpack(apt_get: &str, package: &str, folder: &Path) -> Result<()> {
    let download = folder.join("download");
    fs::create_dir_all(&download)?;
    let line = format!("{apt_get} -qq download {package}");
    execute(command(&line).current_dir(&download))?;
    let deb = find_file(&download, "linux-")
        .with_context(|| format!("`apt-get download {package}` left no package"))?;
    execute(command("dpkg-deb -x").arg(deb).arg(folder))?;
    // Twenty-seven megabytes less.
    Ok(fs::remove_dir_all(&download)?)
}

/// The kernel's image in a folder with an unpacked package. Since Debian 14 it lies beside the modules.
pub fn image(folder: &Path) -> Option<PathBuf> {
    find_file(&folder.join("boot"), "vmlinuz-").or_else(|| {
        let modules = find_file(&folder.join("usr/lib/modules"), "")?;
        find_file(&modules, "vmlinuz")
    })
}

/// A module of a block device in a folder with unpacked packages.
pub fn module(folder: &Path, name: &str) -> Option<PathBuf> {
    // The package of an older kernel is from before /lib was a link.
    let mut folders = ["lib", "usr/lib"]
        .map(|lib| folder.join(lib).join("modules"))
        .into_iter();
    let version = folders.find_map(|modules| find_file(&modules, ""))?;
    find_file(&version.join("kernel/drivers/block"), name)
}

fn find_file(folder: &Path, prefix: &str) -> Option<PathBuf> {
    let mut entries = fs::read_dir(folder).ok()?.flatten();
    let entry = entries.find(|e| e.file_name().to_string_lossy().starts_with(prefix));
    Some(entry?.path())
}
