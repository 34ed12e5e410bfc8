//! Kernel and initial file system of the virtual machine.
//!
//! The kernel is the distribution's, unpacked from its package and not installed. The file system
//! holds one static program (`lab/guest/init.c`) and the modules that its disk needs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::{Lab, create_folder, write};
use crate::process::{capture, execute, root};

/// The modules of a virtio disk on PCI. What they depend on comes with them; a kernel may have some
/// built in.
const MODULES: &[&str] = &["virtio_pci", "virtio_blk"];

/// Builds both, replacing what is there.
///
/// # Errors
/// When the kernel's package can not be fetched or the program does not compile.
pub fn build(lab: &Lab) -> Result<()> {
    let folder = lab.guest();
    create_folder(&folder)?;
    let kernel = unpack_kernel(&folder)?;
    let image = only_file(&kernel.join("boot"), "vmlinuz-")?;
    fs::copy(&image, self::image(lab))
        .with_context(|| format!("failed to copy `{}`", image.display()))?;
    let init = folder.join("init");
    execute(
        Command::new("gcc")
            .args(["-O2", "-Wall", "-Wextra", "-Werror", "-static", "-o"])
            .arg(&init)
            .arg(root()?.join("lab/guest/init.c")),
    )?;
    let mut archive = Archive::default();
    for folder in ["dev", "proc", "sys", "modules"] {
        archive.append(folder, FOLDER, &[]);
    }
    let program =
        fs::read(&init).with_context(|| format!("failed to read `{}`", init.display()))?;
    archive.append("init", PROGRAM, &program);
    let mut order = String::new();
    for module in modules(&kernel)? {
        let name = format!("modules/{}.ko", module.name);
        archive.append(&name, FILE, &module.content);
        order.push_str(&format!("/{name}\n"));
    }
    archive.append("modules/order", FILE, order.as_bytes());
    write(&initial_file_system(lab), archive.finish())?;
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

fn unpack_kernel(folder: &Path) -> Result<PathBuf> {
    let kernel = folder.join("kernel");
    if kernel.join("boot").exists() {
        return Ok(kernel);
    }
    let depends = capture(Command::new("apt-cache").args(["depends", "linux-image-cloud-amd64"]))?;
    let package = depends
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .find(|name| name.starts_with("linux-image-"))
        .context("apt knows no kernel linux-image-cloud-amd64; run `apt-get update`")?;
    let download = folder.join("download");
    create_folder(&download)?;
    execute(
        Command::new("apt-get")
            .current_dir(&download)
            .args(["-qq", "download", package]),
    )?;
    let package = only_file(&download, "linux-image-")?;
    execute(
        Command::new("dpkg-deb")
            .arg("-x")
            .arg(&package)
            .arg(&kernel),
    )?;
    // It is unpacked; twenty-seven megabytes less.
    let _ = fs::remove_dir_all(&download);
    Ok(kernel)
}

/// A kernel module, not compressed.
#[derive(Debug)]
struct Module {
    name: String,
    content: Vec<u8>,
}

/// The modules that are needed, dependencies first.
fn modules(kernel: &Path) -> Result<Vec<Module>> {
    // Newer Debian releases have /lib below /usr.
    let folder = ["lib/modules", "usr/lib/modules"]
        .iter()
        .map(|folder| kernel.join(folder))
        .find(|folder| folder.exists())
        .context("the kernel's package has no modules")?;
    let mut files = Vec::new();
    walk(&folder, 0, &mut files)?;
    let mut found = Vec::new();
    for name in MODULES {
        add_module(name, &files, 0, &mut found)?;
    }
    Ok(found)
}

fn add_module(name: &str, files: &[PathBuf], depth: usize, found: &mut Vec<Module>) -> Result<()> {
    ensure!(depth < 16, "module {name} depends on itself");
    if found.iter().any(|module| module.name == name) {
        return Ok(());
    }
    let Some(content) = read_module(name, files)? else {
        return Ok(());
    };
    for other in dependencies(&content) {
        add_module(&other, files, depth + 1, found)?;
    }
    found.push(Module {
        name: name.to_owned(),
        content,
    });
    Ok(())
}

/// File names may have dashes where module names have underscores.
fn read_module(name: &str, files: &[PathBuf]) -> Result<Option<Vec<u8>>> {
    for file in files {
        let file_name = file.file_name().unwrap_or_default().to_string_lossy();
        let file_name = file_name.replace('-', "_");
        if file_name == format!("{name}.ko") {
            let content = fs::read(file);
            return content
                .map(Some)
                .with_context(|| format!("failed to read `{}`", file.display()));
        }
        if file_name == format!("{name}.ko.xz") {
            return unpack_xz(file).map(Some);
        }
    }
    Ok(None)
}

/// What a module says in its section `.modinfo`: strings that end with a zero byte.
fn dependencies(content: &[u8]) -> Vec<String> {
    let names = content
        .split(|byte| *byte == 0)
        .find_map(|text| text.strip_prefix(b"depends="))
        .unwrap_or_default();
    String::from_utf8_lossy(names)
        .split(',')
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

fn unpack_xz(file: &Path) -> Result<Vec<u8>> {
    let output = Command::new("xz")
        .arg("-dc")
        .arg(file)
        .output()
        .context("failed to run `xz`")?;
    ensure!(
        output.status.success(),
        "failed to unpack `{}`",
        file.display()
    );
    Ok(output.stdout)
}

fn walk(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<()> {
    ensure!(depth < 16, "`{}` is too deep", folder.display());
    let context = || format!("failed to list `{}`", folder.display());
    for entry in fs::read_dir(folder).with_context(context)? {
        let entry = entry.with_context(context)?;
        let kind = entry.file_type().with_context(context)?;
        if kind.is_dir() {
            walk(&entry.path(), depth + 1, files)?;
        } else if kind.is_file() {
            files.push(entry.path());
        }
    }
    Ok(())
}

fn only_file(folder: &Path, prefix: &str) -> Result<PathBuf> {
    let context = || format!("failed to list `{}`", folder.display());
    for entry in fs::read_dir(folder).with_context(context)? {
        let entry = entry.with_context(context)?;
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            return Ok(entry.path());
        }
    }
    bail!("no `{prefix}...` in `{}`", folder.display())
}

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const FILE: u32 = 0o100_644;

/// A cpio archive in the form that the kernel unpacks ("newc").
#[derive(Debug, Default)]
struct Archive {
    bytes: Vec<u8>,
    n_entries: u32,
}

impl Archive {
    fn append(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.n_entries += 1;
        let fields = [
            self.n_entries,
            mode,
            0,
            0,
            1,
            0,
            u32::try_from(content.len()).unwrap_or(u32::MAX),
            0,
            0,
            0,
            0,
            u32::try_from(name.len() + 1).unwrap_or(u32::MAX),
            0,
        ];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").bytes());
        }
        self.bytes.extend(name.bytes().chain([0]));
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        self.append("TRAILER!!!", 0, &[]);
        self.bytes
    }
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

    /// Check that header, name and content of an entry are each padded to four bytes.
    #[test]
    fn archive_entries() {
        let mut archive = Archive::default();
        archive.append("ab", FILE, b"xyz");
        assert_eq!(archive.bytes.len(), (110 + 3_usize).next_multiple_of(4) + 4);
        assert!(archive.bytes.starts_with(b"07070100000001000081a4"));
        assert!(archive.bytes.ends_with(b"xyz\0"));
        let all = archive.finish();
        assert_eq!(all.len() % 4, 0);
        assert!(all.windows(10).any(|w| w == b"TRAILER!!!"));
    }
}
