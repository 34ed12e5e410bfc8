//! Kernel and initial file system of the virtual machine.
//!
//! The kernel is the distribution's, unpacked from its package and not installed. The file system
//! holds one static program (`lab/guest/init.c`) and the modules that its disk needs.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fs_err as fs;

use super::place::Lab;
use crate::cpio::Archive;
use crate::kernel;
use crate::process::{capture, capture_bytes, command, compile_c};

/// The modules of a virtio disk on PCI. What they depend on comes with them; a kernel may have some
/// built in.
const MODULES: &[&str] = &["virtio_pci", "virtio_blk"];

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
    let mut archive = Archive::default();
    for folder in ["dev", "proc", "sys", "modules"] {
        archive.folder(folder);
    }
    archive.program("init", &fs::read(&init)?);
    let mut order = String::new();
    for (name, content) in modules(&unpacked)? {
        let name = format!("modules/{name}.ko");
        archive.file(&name, &content);
        order += &format!("/{name}\n");
    }
    archive.file("modules/order", order.as_bytes());
    fs::write(initial_file_system(lab), archive.finish())?;
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

/// Name and content of the modules that are needed, dependencies first.
fn modules(unpacked: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let files = capture(command("find").arg(unpacked).args(["-name", "*.ko*"]))?;
    let files: Vec<&str> = files.lines().collect();
    let mut found = Vec::new();
    for name in MODULES {
        add_module(name, &files, &mut found)?;
    }
    Ok(found)
}

fn add_module(name: &str, files: &[&str], found: &mut Vec<(String, Vec<u8>)>) -> Result<()> {
    // File names may have dashes where module names have underscores.
    let is_named = |file: &&&str| {
        let file = file.rsplit('/').next().unwrap_or_default();
        file.split('.').next().unwrap_or_default().replace('-', "_") == name
    };
    let Some(file) = files.iter().find(is_named) else {
        return Ok(());
    };
    if found.iter().any(|(other, _)| other == name) {
        return Ok(());
    }
    let content = match file.ends_with(".xz") {
        true => capture_bytes(command("xz -dc").arg(file))?,
        false => fs::read(file)?,
    };
    for other in dependencies(&content) {
        add_module(&other, files, found)?;
    }
    found.push((name.to_owned(), content));
    Ok(())
}

/// What a module says in its section `.modinfo`: strings that end with a zero byte.
fn dependencies(content: &[u8]) -> Vec<String> {
    let mut texts = content.split(|byte| *byte == 0);
    let names = texts.find_map(|text| text.strip_prefix(b"depends="));
    let names = String::from_utf8_lossy(names.unwrap_or_default());
    let names = names.split(',').filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that dependencies are read, also none.
    #[test]
    fn module_dependencies() {
        let content = b"\x7fELF\0license=GPL\0depends=virtio,virtio_ring\0name=x\0";
        assert_eq!(dependencies(content), ["virtio", "virtio_ring"]);
        assert!(dependencies(b"depends=\0name=x\0").is_empty());
        assert!(dependencies(b"").is_empty());
    }
}
