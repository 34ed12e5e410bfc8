//! `cargo xtask vmtest`: the live tests of the BPF engine on other kernels, in a virtual machine.
//!
//! Debian's kernel packages come from the mirror that this machine's apt uses. The tests are
//! linked statically and run from an initramfs that holds nothing but them and `vm/init.rs`.
//! The machine is emulated (TCG), so that it works without /dev/kvm; nothing is installed.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

const QEMU: &str = "qemu-system-x86_64";
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The line that `vm/init.rs` prints when all tests passed.
const PASSED: &str = "VMTEST: PASS";

/// An emulated machine boots in about half a minute.
const PATIENCE: Duration = Duration::from_secs(600);

/// A kernel of Debian.
struct Kernel {
    /// As in `6.1`.
    version: &'static str,
    /// Release of the distribution that has it.
    release: &'static str,
}

const KERNELS: [Kernel; 2] = [
    Kernel {
        version: "6.1",
        release: "bookworm",
    },
    Kernel {
        version: "6.12",
        release: "bookworm-backports",
    },
];

/// Run the BPF engine's live tests on Debian's 6.1 and 6.12 kernels under emulation.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only this kernel, as in `6.1`
    #[arg(long)]
    kernel: Option<String>,
    /// Only tests whose name contains this
    #[arg(long, default_value = "bpf::")]
    tests: String,
}

/// Runs the command. Without QEMU it prints that it was skipped.
///
/// # Errors
/// When a kernel cannot be had, a build fails, or a test fails.
pub fn run(args: &Args) -> Result<()> {
    for tool in [QEMU, "apt-get", "dpkg-deb"] {
        if !is_installed(tool) {
            println!("SKIPPED: vmtest needs `{tool}`, which is not installed");
            return Ok(());
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let root = root
        .canonicalize()
        .with_context(|| format!("failed to find `{}`", root.display()))?;
    let folder = target_folder(&root).join("vmtest");
    fs::create_dir_all(&folder)
        .with_context(|| format!("failed to create `{}`", folder.display()))?;
    let kernels: Vec<&Kernel> = KERNELS
        .iter()
        .filter(|k| args.kernel.as_deref().is_none_or(|v| v == k.version))
        .collect();
    ensure!(
        !kernels.is_empty(),
        "no such kernel: {:?}; there are {}",
        args.kernel,
        KERNELS.map(|k| k.version).join(", ")
    );
    let initramfs = folder.join("initramfs.cpio");
    write_initramfs(
        &initramfs,
        &build_init(&folder)?,
        &build_tests(&root)?,
        &args.tests,
    )?;
    for kernel in kernels {
        let image = kernel_image(&folder, kernel)?;
        println!("booting {}", image.display());
        boot(&image, &initramfs).with_context(|| format!("Linux {} failed", kernel.version))?;
        println!("Linux {}: passed", kernel.version);
    }
    Ok(())
}

fn is_installed(tool: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(tool).is_file()))
}

fn target_folder(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// Builds `vm/init.rs`, which needs nothing but the standard library.
fn build_init(folder: &Path) -> Result<PathBuf> {
    let output = folder.join("init");
    execute(
        Command::new("rustc")
            .args([
                "--edition",
                "2024",
                "-O",
                "-C",
                "target-feature=+crt-static",
            ])
            .args(["--target", TARGET, "-o"])
            .arg(&output)
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("vm/init.rs")),
    )?;
    Ok(output)
}

/// Builds the unit tests of wcprof-capture, linked statically.
fn build_tests(root: &Path) -> Result<PathBuf> {
    let output = Command::new("cargo")
        .current_dir(root)
        .env("RUSTFLAGS", "-C target-feature=+crt-static -C debuginfo=0")
        // Unoptimized code is very slow when emulated.
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
        .args(["test", "--no-run", "--lib", "--package", "wcprof-capture"])
        .args(["--target", TARGET, "--message-format", "json"])
        .stderr(Stdio::inherit())
        .output()
        .context("failed to run `cargo`")?;
    ensure!(output.status.success(), "building the tests failed");
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == "wcprof_capture")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .context("cargo named no test executable")
}

/// Writes a cpio archive (newc) with the init program, the tests and empty mount points.
fn write_initramfs(path: &Path, init: &Path, tests: &Path, filter: &str) -> Result<()> {
    let read = |path: &Path| {
        fs::read(path).with_context(|| format!("failed to read `{}`", path.display()))
    };
    let init = read(init)?;
    let mut archive = Vec::new();
    for folder in ["bin", "dev", "proc", "sys", "tmp"] {
        append(&mut archive, folder, 0o040_755, &[]);
    }
    append(&mut archive, "init", 0o100_755, &init);
    // The tests start `cat` as a target; `init` plays it.
    append(&mut archive, "bin/cat", 0o100_755, &init);
    append(&mut archive, "bin/tests", 0o100_755, &read(tests)?);
    append(&mut archive, "filter", 0o100_644, filter.as_bytes());
    append(&mut archive, "TRAILER!!!", 0, &[]);
    fs::write(path, archive).with_context(|| format!("failed to write `{}`", path.display()))
}

/// One entry; `mode` holds the file type too. Name and data are padded to 4 bytes.
fn append(archive: &mut Vec<u8>, name: &str, mode: u32, data: &[u8]) {
    let inode = archive.len();
    let (size, name_size) = (data.len(), name.len() + 1);
    let zero = 0;
    archive.extend_from_slice(
        format!(
            "070701{inode:08x}{mode:08x}{zero:08x}{zero:08x}{:08x}{zero:08x}{size:08x}{zero:08x}\
             {zero:08x}{zero:08x}{zero:08x}{name_size:08x}{zero:08x}{name}\0",
            1
        )
        .as_bytes(),
    );
    pad(archive);
    archive.extend_from_slice(data);
    pad(archive);
}

fn pad(archive: &mut Vec<u8>) {
    archive.resize(archive.len().next_multiple_of(4), 0);
}

/// Downloads and unpacks a kernel unless an earlier run did.
fn kernel_image(folder: &Path, kernel: &Kernel) -> Result<PathBuf> {
    let unpacked = folder.join(kernel.version);
    if let Some(image) = find_image(&unpacked.join("boot")) {
        return Ok(image);
    }
    let apt = Apt::new(&folder.join("apt"), kernel.release)?;
    let package = apt.kernel_package(kernel.version)?;
    fs::create_dir_all(&unpacked)
        .with_context(|| format!("failed to create `{}`", unpacked.display()))?;
    execute(
        apt.command("apt-get")
            .current_dir(&unpacked)
            .args(["download", &package]),
    )?;
    let deb = files(&unpacked)
        .find(|path| path.extension() == Some(OsStr::new("deb")))
        .with_context(|| format!("`apt-get download {package}` left no package"))?;
    execute(Command::new("dpkg-deb").arg("-x").arg(&deb).arg(&unpacked))?;
    find_image(&unpacked.join("boot")).with_context(|| format!("{package} has no kernel image"))
}

fn files(folder: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
}

fn find_image(boot: &Path) -> Option<PathBuf> {
    files(boot).find(|path| {
        path.file_name()
            .and_then(OsStr::to_str)
            .is_some_and(|name| name.starts_with("vmlinuz-"))
    })
}

/// apt with its own lists and sources, so that the machine's own are neither used nor changed.
struct Apt {
    folder: PathBuf,
}

impl Apt {
    fn new(parent: &Path, release: &str) -> Result<Self> {
        let apt = Self {
            folder: parent.join(release),
        };
        for name in ["state/lists/partial", "cache/archives/partial"] {
            let path = apt.folder.join(name);
            fs::create_dir_all(&path)
                .with_context(|| format!("failed to create `{}`", path.display()))?;
        }
        let sources = apt.folder.join("sources.list");
        let line = format!("deb {} {release} main\n", mirror()?);
        fs::write(&sources, line)
            .with_context(|| format!("failed to write `{}`", sources.display()))?;
        execute(apt.command("apt-get").args(["--quiet", "update"]))?;
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for (option, name) in [
            ("Dir::State", "state"),
            ("Dir::Cache", "cache"),
            ("Dir::Etc::sourcelist", "sources.list"),
        ] {
            let path = self.folder.join(name);
            command
                .arg("-o")
                .arg(format!("{option}={}", path.display()));
        }
        command
            .args(["-o", "Dir::Etc::sourceparts=/dev/null"])
            // The download is no installation: it needs no user `_apt` that may write here.
            .args(["-o", "APT::Sandbox::User=root"]);
        command
    }

    /// The newest cloud kernel of a version, for example `linux-image-6.1.0-13-cloud-amd64`.
    fn kernel_package(&self, version: &str) -> Result<String> {
        let output = self
            .command("apt-cache")
            .args(["pkgnames", &format!("linux-image-{version}.")])
            .output()
            .context("failed to run `apt-cache`")?;
        newest(&String::from_utf8_lossy(&output.stdout))
            .with_context(|| format!("the mirror has no cloud kernel {version}"))
    }
}

/// The package with the greatest numbers in its name.
fn newest(names: &str) -> Option<String> {
    let numbers = |name: &str| -> Vec<u64> {
        name.split(|c: char| !c.is_ascii_digit())
            .filter_map(|part| part.parse().ok())
            .collect()
    };
    names
        .lines()
        .filter(|name| name.ends_with("-cloud-amd64"))
        .max_by_key(|name| numbers(name))
        .map(str::to_owned)
}

/// Where this machine gets Debian's main packages from.
fn mirror() -> Result<String> {
    let output = Command::new("apt-get")
        .args(["indextargets", "--format", "$(REPO_URI) $(CODENAME)"])
        .args(["Created-By: Packages", "Origin: Debian"])
        .output()
        .context("failed to run `apt-get indextargets`")?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines()
        .filter_map(|line| line.split_once(' '))
        // Security and updates live below other names, the former on another path.
        .find(|(_, codename)| !codename.contains('-'))
        .map(|(uri, _)| uri.to_owned())
        .context("this machine's apt has no Debian release configured; run `apt-get update`")
}

/// Boots and reads the console until the machine is off.
fn boot(image: &Path, initramfs: &Path) -> Result<()> {
    let child = Command::new(QEMU)
        // QEMU 7.2 emulates cmpxchg16b so that Linux 6.12 crashes.
        .args(["-accel", "tcg", "-cpu", "max,cx16=off"])
        .args(["-smp", "2", "-m", "1024"])
        .args([
            "-nodefaults",
            "-no-reboot",
            "-nographic",
            "-serial",
            "stdio",
        ])
        .args(["-append", "console=ttyS0 panic=-1 quiet"])
        .arg("-kernel")
        .arg(image)
        .arg("-initrd")
        .arg(initramfs)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("failed to run `{QEMU}`"))?;
    let mut machine = Machine(child);
    let console = machine.0.stdout.take().context("no console")?;
    let start = Instant::now();
    let (mut passed, mut skipped) = (false, false);
    let (sender, lines) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(console).split(b'\n').map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    loop {
        let left = PATIENCE.saturating_sub(start.elapsed());
        match lines.recv_timeout(left) {
            Ok(line) => {
                let line = String::from_utf8_lossy(&line);
                println!("  {}", line.trim_end().escape_debug());
                passed |= line.trim_end() == PASSED;
                skipped |= line.contains("SKIPPED: ");
            }
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                bail!("the machine was not done after {} s", PATIENCE.as_secs())
            }
        }
    }
    drop(lines);
    // It has nothing more to send, so it is at its end.
    let _ = reader.join();
    ensure!(passed, "a test failed, or the machine crashed: see above");
    ensure!(
        !skipped,
        "a test was skipped, though the machine permits all: see above"
    );
    Ok(())
}

/// Ends the machine when dropped.
struct Machine(Child);

impl Drop for Machine {
    fn drop(&mut self) {
        // It has usually ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn execute(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command
        .status()
        .with_context(|| format!("failed to run `{program}`"))?;
    ensure!(status.success(), "`{program}` failed: {status}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that versions are compared as numbers and other flavors are left out.
    #[test]
    fn newest_package() {
        let names = "linux-image-6.1.0-9-cloud-amd64\nlinux-image-6.1.0-31-cloud-amd64\n\
                     linux-image-6.1.0-40-amd64\nlinux-image-6.1.0-32-cloud-amd64-dbg\n";
        assert_eq!(
            newest(names).as_deref(),
            Some("linux-image-6.1.0-31-cloud-amd64")
        );
        assert_eq!(newest(""), None);
    }

    /// Check the archive's header fields and padding.
    #[test]
    fn cpio_entry() {
        let mut archive = Vec::new();
        append(&mut archive, "ab", 0o100_644, b"12345");
        assert_eq!(archive.len() % 4, 0);
        assert_eq!(archive.len(), (110 + 3usize).next_multiple_of(4) + 8);
        assert_eq!(&archive[54..62], b"00000005");
        assert_eq!(&archive[94..102], b"00000003");
        assert_eq!(&archive[110..113], b"ab\0");
    }
}
