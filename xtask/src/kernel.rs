//! A Debian kernel package to an unpacked kernel and its modules. Nothing is installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use fs_err as fs;

use crate::process::{command, execute};

/// Downloads a package by `apt_get`, and unpacks it into `folder`.
///
/// # Errors
/// When it cannot be downloaded or has no kernel.
pub fn unpack(mut apt_get: Command, package: &str, folder: &Path) -> Result<()> {
    let download = folder.join("download");
    fs::create_dir_all(&download)?;
    execute(
        apt_get
            .current_dir(&download)
            .args(["-qq", "download", package]),
    )?;
    let deb = find_file(&download, "linux-image-")
        .with_context(|| format!("`apt-get download {package}` left no package"))?;
    execute(command("dpkg-deb -x").arg(deb).arg(folder))?;
    // Twenty-seven megabytes less.
    Ok(fs::remove_dir_all(&download)?)
}

/// The kernel's image in a folder with an unpacked package.
pub fn image(folder: &Path) -> Option<PathBuf> {
    find_file(&folder.join("boot"), "vmlinuz-")
}

fn find_file(folder: &Path, prefix: &str) -> Option<PathBuf> {
    let mut entries = fs::read_dir(folder).ok()?.flatten();
    let entry = entries.find(|e| e.file_name().to_string_lossy().starts_with(prefix));
    Some(entry?.path())
}
