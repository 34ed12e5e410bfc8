//! Kernel and initial file system of the virtual machine.
//!
//! The kernel is the distribution's, unpacked from its package and not installed. The file system
//! holds one static program (`lab/guest/init.c`) and the modules that its disk needs.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fs_err as fs;

use super::place::Lab;
use crate::cpio::{FILE, FOLDER, PROGRAM, archive};
use crate::kernel;
use crate::process::{capture, capture_bytes, command, compile_c};

/// The modules of a virtio disk on PCI, dependencies first. A kernel may have some built in.
const MODULES: &[&str] = &[
    "virtio_ring",
    "virtio",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_pci",
    "virtio_blk",
];

/// Builds both, replacing what is there.
///
/// # Errors
/// When the kernel's package cannot be fetched or the program does not compile.
pub fn build(lab: &Lab) -> Result<()> {
    let folder = lab.guest();
    let unpacked = folder.join("kernel");
    if kernel::image(&unpacked).is_none() {
        let depends = capture(command("apt-cache depends linux-image-cloud-amd64"))?;
        let mut words = depends.lines().flat_map(str::split_whitespace).skip(1);
        let package = words
            .find(|name| name.starts_with("linux-image-"))
            .context("apt knows no kernel linux-image-cloud-amd64; run `apt-get update`")?;
        kernel::unpack("apt-get", package, &unpacked)?;
    }
    let kernel = kernel::image(&unpacked).context("the package has no kernel")?;
    fs::copy(kernel, image(lab))?;
    let init = folder.join("init");
    compile_c("lab/guest/init.c", "-static", &init)?;
    let init = fs::read(&init)?;
    let modules = modules(&unpacked)?;
    let order: String = modules
        .iter()
        .map(|(name, _)| format!("/{name}\n"))
        .collect();
    let mut files = ["dev", "proc", "sys", "modules"]
        .map(|name| (name, FOLDER, &[][..]))
        .to_vec();
    files.push(("init", PROGRAM, &init));
    files.push(("modules/order", FILE, order.as_bytes()));
    files.extend(
        modules
            .iter()
            .map(|(name, content)| (name.as_str(), FILE, &**content)),
    );
    fs::write(initial_file_system(lab), archive(&files))?;
    println!("built `{}`", folder.display());
    Ok(())
}

/// The kernel, if built.
pub fn image(lab: &Lab) -> PathBuf {
    lab.guest().join("vmlinuz")
}

/// The initial file system, if built.
pub fn initial_file_system(lab: &Lab) -> PathBuf {
    lab.guest().join("initramfs.cpio")
}

/// Path in the initial file system and content of each module that the kernel does not have built in.
fn modules(unpacked: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let files = capture(command("find").arg(unpacked).args(["-name", "*.ko*"]))?;
    let mut found = Vec::new();
    for name in MODULES {
        // File names may have dashes where module names have underscores.
        let is_named = |file: &&str| file.replace('-', "_").contains(&format!("/{name}.ko"));
        if let Some(file) = files.lines().find(is_named) {
            let content = match file.ends_with(".xz") {
                true => capture_bytes(command("xz -dc").arg(file))?,
                false => fs::read(file)?,
            };
            found.push((format!("modules/{name}.ko"), content));
        }
    }
    Ok(found)
}
