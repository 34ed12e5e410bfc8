//! `cargo xtask vmtest`: the live tests of the BPF engine on other kernels, of the engine `procfs` on one that is too
//! old for it, of what a kernel accounts when told to, and of timers on a machine with 32 CPUs, in a virtual machine.
//!
//! Debian's kernel packages come from the mirror that this machine's apt uses. The tests are
//! linked statically and run from an initramfs that holds nothing but them, `vm/init.rs` and a module of the kernel.
//! The machine is emulated (TCG), so that it works without /dev/kvm; nothing is installed.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use fs_err as fs;
use serde_json::Value;

use crate::cpio::{FILE, FOLDER, PROGRAM, archive};
use crate::kernel;
use crate::process::{
    Background, capture, cargo, command, execute, is_installed, quoted, result_folder, root,
};
use crate::setup;

const TARGET: &str = "x86_64-unknown-linux-gnu";

const CAPTURE: &str = "wcprof-capture";
const HOST: &str = "wcprof-host";

/// The line that `vm/init.rs` prints when all tests passed.
const PASSED: &str = "VMTEST: PASS";

/// A version of Debian's kernels (the newest of it is taken), the packages that hold it and its modules, and the
/// release of the distribution that has these.
type Kernel = (&'static str, &'static [&'static str], &'static str);

const OLDEST: Kernel = ("5.10", &["linux-image-5.10."], "bullseye");
const RECENT: Kernel = ("6.12", &["linux-image-6.12."], "bookworm-backports");
const NEWEST: Kernel = (
    "7",
    &["linux-binary-7.", "linux-modules-7."],
    "trixie-backports",
);

/// Each kernel and the machine that it boots.
const MACHINES: [(Kernel, Machine); 7] = [
    (OLDEST, OLD),
    (("6.1", &["linux-image-6.1."], "bookworm"), WITHOUT_TASKS),
    (RECENT, SMALL),
    (RECENT, ACCOUNTING),
    (NEWEST, SMALL),
    (NEWEST, ACCOUNTING),
    (NEWEST, LARGE),
];

/// A machine and the tests that run in it.
#[derive(Copy, Clone)]
struct Machine {
    n_cpus: u32,
    accelerator: &'static str,
    /// For the kernel's command line.
    parameters: &'static str,
    /// The package whose unit tests run, and which of these.
    package: &'static str,
    filter: &'static str,
    /// What the first process loads: a compressed module of a block device, below the kernel's modules.
    module: Option<&'static str>,
    /// What it and its kernel lack: tests are skipped for these reasons alone.
    lacks: &'static [&'static str],
}

const SMALL: Machine = Machine {
    n_cpus: 2,
    accelerator: "tcg",
    parameters: "",
    package: CAPTURE,
    filter: "bpf::",
    module: None,
    lacks: &[FEW_THREADS],
};
const FEW_THREADS: &str = "needs 4 GiB of memory for 10 000 threads";
/// Where passes cannot be held.
const WITHOUT_TASKS: Machine = Machine {
    lacks: &[
        FEW_THREADS,
        "a function of the kernel that a BPF program calls: bpf_task_from_pid",
    ],
    ..SMALL
};
/// Where the engine `bpf` does not work.
const OLD: Machine = Machine {
    filter: "old_kernel::",
    ..SMALL
};
/// Where all groups are of version 2, and stall times and delays are accounted.
const ACCOUNTING: Machine = Machine {
    parameters: "delayacct psi=1 cgroup_no_v1=all",
    package: HOST,
    filter: "guest::",
    // RAM disks.
    module: Some("brd.ko.xz"),
    lacks: &[],
    ..SMALL
};
/// With a thread a CPU QEMU 7.2 stumbles over code that another CPU changes.
const LARGE: Machine = Machine {
    n_cpus: 32,
    accelerator: "tcg,thread=single",
    parameters: "isolcpus=28-29 nohz_full=30-31",
    filter: "many_cpus::",
    lacks: &[],
    ..SMALL
};

/// Runs the command. Without QEMU it prints that it was skipped.
///
/// # Errors
/// When a kernel cannot be had, a build fails, or a test fails.
pub fn run() -> Result<()> {
    for tool in ["qemu-system-x86_64", "apt-get", "dpkg-deb"] {
        if !is_installed(tool) {
            println!("SKIPPED vmtest: needs `{tool}`, which is not installed");
            return Ok(());
        }
    }
    let folder = result_folder("vmtest")?;
    let programs = build(&folder)?;
    for (kernel, machine) in MACHINES {
        let (version, ..) = kernel;
        let (image, module) = kernel_files(&folder, kernel, machine.module)?;
        let initramfs = folder.join("initramfs.cpio");
        fs::write(
            &initramfs,
            programs.initial_file_system(machine, module.as_deref())?,
        )?;
        let name = format!("Linux {version} with {} CPUs", machine.n_cpus);
        println!("booting {name}: {}", image.display());
        boot(&image, &initramfs, machine).with_context(|| format!("{name} failed"))?;
        println!("{name}: passed");
    }
    Ok(())
}

/// What runs in the machines.
struct Programs {
    init: Vec<u8>,
    /// By package.
    tests: HashMap<&'static str, Vec<u8>>,
}

fn build(folder: &Path) -> Result<Programs> {
    let (init, source) = (folder.join("init"), root().join("xtask/vm/init.rs"));
    let rustc = "rustc --edition 2024 -O -C target-feature=+crt-static --target";
    let line = format!("{rustc} {TARGET} -o {} {}", quoted(&init), quoted(source));
    execute(command(&line))?;
    let tests = build_tests(&[CAPTURE, HOST])?;
    let tests = tests
        .into_iter()
        .map(|(package, path)| Ok((package, fs::read(path)?)));
    Ok(Programs {
        init: fs::read(init)?,
        tests: tests.collect::<Result<_>>()?,
    })
}

impl Programs {
    /// The archive with the init program, the tests of a machine, their filter, a module, and empty mount points.
    fn initial_file_system(&self, machine: Machine, module: Option<&Path>) -> Result<Vec<u8>> {
        let tests = self
            .tests
            .get(machine.package)
            .context("these tests were not built")?;
        let module = module.map(fs::read).transpose()?;
        let folders = ["bin", "dev", "proc", "sys", "tmp"].map(|name| (name, FOLDER, &[][..]));
        // The tests start `cat` as a target, and the kernel `dump`; `init` plays both.
        let files = [
            ("init", PROGRAM, &*self.init),
            ("bin/cat", PROGRAM, &*self.init),
            ("bin/dump", PROGRAM, &*self.init),
            ("bin/tests", PROGRAM, &**tests),
            ("filter", FILE, machine.filter.as_bytes()),
        ];
        let module = module.iter().map(|bytes| ("module", FILE, &**bytes));
        let module: Vec<_> = module.collect();
        Ok(archive(&[&folders[..], &files, &module].concat()))
    }
}

/// Builds the unit tests of packages, linked statically.
fn build_tests(packages: &[&'static str]) -> Result<Vec<(&'static str, PathBuf)>> {
    let packages = packages.iter();
    let names: String = packages
        .clone()
        .map(|one| format!(" --package {one}"))
        .collect();
    let words = format!("test --no-run --lib{names} --target {TARGET} --message-format json");
    let mut build = cargo(&words);
    build.env("RUSTFLAGS", "-C target-feature=+crt-static -C debuginfo=0");
    // Unoptimized code is very slow when emulated.
    let messages = capture(build.env("CARGO_PROFILE_DEV_OPT_LEVEL", "1"))?;
    let messages = messages.lines();
    let messages: Vec<Value> = messages
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let of_package = |package: &&'static str| {
        let name = package.replace('-', "_");
        let mut own = messages.iter().filter(|one| one["target"]["name"] == name);
        let path = own.find_map(|one| one["executable"].as_str());
        let path = path.with_context(|| format!("cargo named no test executable of {package}"))?;
        Ok((*package, PathBuf::from(path)))
    };
    packages.map(of_package).collect()
}

/// Downloads and unpacks the newest cloud kernel of a version unless an earlier run did: its image and a module.
fn kernel_files(
    folder: &Path,
    (version, packages, release): Kernel,
    module: Option<&str>,
) -> Result<(PathBuf, Option<PathBuf>)> {
    let unpacked = folder.join(version);
    let files = || {
        let module = module.map(|name| kernel::module(&unpacked, name));
        let has_all = !matches!(module, Some(None));
        let image = kernel::image(&unpacked).filter(|_| has_all)?;
        Some((image, module.flatten()))
    };
    if files().is_none() {
        let options = apt_options(&folder.join("apt").join(release), release)?;
        for packages in packages {
            let names = format!("apt-cache {options} pkgnames {packages}");
            let package = newest(&capture(command(&names))?)
                .with_context(|| format!("the mirror has no cloud kernel {version}"))?;
            kernel::unpack(&format!("apt-get {options}"), &package, &unpacked)?;
        }
    }
    files().with_context(|| format!("Debian's packages of {version} lack the kernel or {module:?}"))
}

/// Options that give apt its own lists and sources, so that the machine's own are neither used nor changed.
fn apt_options(folder: &Path, release: &str) -> Result<String> {
    for name in ["state/lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(folder.join(name))?;
    }
    let sources = format!("deb {} {release} main\n", setup::mirror()?);
    fs::write(folder.join("sources.list"), sources)?;
    let folder = quoted(folder);
    // The download is no installation: it needs no user `_apt` that may write here.
    let options = format!(
        "-o Dir::State={folder}/state -o Dir::Cache={folder}/cache -o APT::Sandbox::User=root \
         -o Dir::Etc::sourcelist={folder}/sources.list -o Dir::Etc::sourceparts=/dev/null"
    );
    execute(command(&format!("apt-get {options} --quiet update")))?;
    Ok(options)
}

/// The package with the greatest numbers in its name.
fn newest(names: &str) -> Option<String> {
    let numbers = |name: &&str| -> Vec<u64> {
        let parts = name.split(|c: char| !c.is_ascii_digit());
        parts.filter_map(|part| part.parse().ok()).collect()
    };
    let names = names.lines().filter(|name| name.ends_with("-cloud-amd64"));
    names.max_by_key(numbers).map(str::to_owned)
}

/// Boots and reads the console until the machine is off, for ten minutes at most: an emulated machine boots in
/// about half a minute.
fn boot(image: &Path, initramfs: &Path, machine: Machine) -> Result<()> {
    let Machine {
        n_cpus,
        accelerator,
        parameters,
        lacks,
        ..
    } = machine;
    // QEMU 7.2 emulates cmpxchg16b so that Linux 6.12 crashes. A kernel that tests its timer gives up where the machine
    // stands still meanwhile.
    let mut qemu = command(&format!(
        "timeout --foreground 600 qemu-system-x86_64 -accel {accelerator} -cpu max,cx16=off -smp {n_cpus} -m 1024 -nodefaults \
         -no-reboot -nographic -serial stdio -append 'console=ttyS0 panic=-1 quiet no_timer_check {parameters}' -kernel {} -initrd {}",
        quoted(image),
        quoted(initramfs)
    ));
    let mut running = Background::start(qemu.stdin(Stdio::null()).stdout(Stdio::piped()))?;
    let console = running.child.stdout.take().context("no console")?;
    let (mut passed, mut skipped) = (false, false);
    for line in BufReader::new(console).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        println!("  {}", line.trim_end().escape_debug());
        passed |= line.trim_end() == PASSED;
        skipped |= line.contains("SKIPPED ") && !lacks.iter().any(|what| line.contains(what));
    }
    ensure!(
        passed,
        "a test failed, or the machine crashed or was too slow: see above"
    );
    ensure!(
        !skipped,
        "a test was skipped, though the machine permits all: see above"
    );
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
}
