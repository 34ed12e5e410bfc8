//! `cargo xtask setup`: which Debian packages are missing, and their installation.
//!
//! Only missing packages are installed and each is printed with its purpose first. Elsewhere than
//! on Debian and its derivatives the list is printed and left to the reader.

use anyhow::{Context, Result};
use nix::unistd::geteuid;

use crate::process::{capture, command, execute, is_installed};

/// A Debian package and what it is for.
pub type Package = (&'static str, &'static str);

/// Install the packages that building and testing wcprof need.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Also what the lab needs: Ceph, QEMU, fio (about 350 MB)
    #[arg(long)]
    lab: bool,
    /// Also what `cargo xtask viewers` needs: Go, Chromium, Node
    #[arg(long)]
    viewers: bool,
}

/// A set of packages for one purpose.
pub type Group = &'static [Package];

/// To build wcprof.
pub const BUILD: Group = &[
    ("gcc", "links Rust programs and compiles zstd"),
    ("libc6-dev", "C library to link with"),
    ("pkg-config", "finds libssl"),
    ("libssl-dev", "libcrypto, which the demo encrypts with"),
];
/// To build the static program.
pub const DIST: Group = &[("musl-tools", "C library of the static program")];
/// To test packages in clean root folders.
pub const ROOTS: Group = &[
    ("debootstrap", "makes root folders of Debian"),
    ("debian-archive-keyring", "verifies what they are made of"),
    ("rpm", "reads packages"),
    ("curl", "downloads the keys of another archive"),
];
/// To run the tests.
pub const TEST: Group = &[
    ("g++", "compiles the targets of the live tests"),
    ("musl-tools", "compiles targets with another C library"),
    ("clang-14", "compiles the BPF object for comparison"),
    ("llvm-14", "strips the BPF object"),
    ("libbpf-dev", "headers of BPF programs"),
    ("binutils", "builds ELF files with separate debug files"),
    ("xz-utils", "builds mini debug info"),
    ("dwz", "builds debug files that share their DWARF"),
    ("elfutils", "compresses debug files"),
    ("debuginfod", "serves debug files on loopback"),
    ("openssl", "serves them over TLS"),
    ("rpm", "builds packages, and has a database of them"),
    ("tmux", "a terminal for `wcprof top`"),
    ("python3", "runs the reader of traces in docs/examples"),
    ("zstd", "unpacks blocks of traces for it"),
    ("linux-perf", "records what `wcprof import` reads"),
    ("git", "lists the files that `tidy` checks"),
];
/// To run the lab.
pub const LAB: Group = &[
    ("ceph-mon", "monitor of the cluster"),
    ("ceph-osd", "the target"),
    ("ceph-common", "rbd, rados and ceph tools"),
    ("radosgw", "gateway in front of the cluster"),
    ("curl", "load on the gateway"),
    ("qemu-system-x86", "the other target"),
    ("qemu-block-extra", "QEMU's librbd driver"),
    ("fio", "load"),
    ("librbd1", "fio's and QEMU's client"),
    ("libgoogle-perftools4", "tcmalloc, to compare allocators"),
    ("gcc", "compiles the guest's only program"),
    ("libc6-dev", "static C library of that program"),
    ("xz-utils", "unpacks the guest's kernel modules"),
];
/// Debug symbols of the lab's programs.
pub const LAB_SYMBOLS: Group = &[
    ("ceph-osd-dbg", "symbols (500 MB on disk)"),
    ("librados2-dbg", "symbols"),
    ("librbd1-dbg", "symbols"),
    ("libc6-dbg", "symbols"),
];
/// To open exports in their viewers.
pub const VIEWERS: Group = &[
    ("golang-go", "`go tool pprof`"),
    ("chromium", "opens speedscope and SVG files"),
    ("nodejs", "drives Chromium and the Firefox Profiler"),
    ("npm", "fetches both from its registry"),
];

/// Packages whose program many machines have from elsewhere, which Debian's package may conflict with.
const PROGRAMS: &[(&str, &str)] = &[("golang-go", "go"), ("nodejs", "node"), ("npm", "npm")];

/// Runs the command.
///
/// # Errors
/// As [`install`].
pub fn run(args: &Args) -> Result<()> {
    let mut groups = vec![BUILD, TEST];
    groups.extend(args.lab.then_some(LAB));
    groups.extend(args.viewers.then_some(VIEWERS));
    install(&groups)
}

/// Another apt, such as a fresh machine's own update, holds the lock for a while: it is waited for so many seconds.
const WAIT_FOR_LOCK: &str = "-o DPkg::Lock::Timeout=600";

/// Installs the packages of these groups that are missing, after printing them.
///
/// # Errors
/// When `apt-get install` fails. A package that the distribution does not have, missing rights and
/// another distribution are reported, not errors: what is needed may be there in another form, and
/// what follows says what is not.
pub fn install(groups: &[Group]) -> Result<()> {
    let is_debian = is_installed("dpkg-query") && is_installed("apt-get");
    let mut missing: Vec<Package> = Vec::new();
    for package in groups.iter().copied().flatten() {
        let program = PROGRAMS.iter().find(|(name, _)| *name == package.0);
        let is_there = program.is_some_and(|(_, program)| is_installed(program))
            || is_debian && has_package(package.0);
        if !is_there && !missing.contains(package) {
            missing.push(*package);
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    print_packages("Missing Debian packages:", &missing);
    let apt_get = match (is_debian, geteuid().is_root(), is_installed("sudo")) {
        (true, true, _) => "env DEBIAN_FRONTEND=noninteractive apt-get",
        (true, _, true) => "sudo DEBIAN_FRONTEND=noninteractive apt-get",
        _ => {
            println!(
                "No Debian, or neither root nor sudo: install what they hold. Going on without."
            );
            return Ok(());
        }
    };
    println!(
        "Installing them with apt-get, which waits up to ten minutes for another package manager."
    );
    if let Err(error) = execute(command(&format!("{apt_get} update -qq"))) {
        println!("{error:#}; going on with the package lists that are here");
    }
    let (available, absent): (Vec<Package>, Vec<Package>) = missing
        .into_iter()
        .partition(|(name, _)| succeeds(&format!("apt-cache show --no-all-versions {name}")));
    if !absent.is_empty() {
        print_packages(
            "This release has no such packages; going on without:",
            &absent,
        );
    }
    if available.is_empty() {
        return Ok(());
    }
    let words = format!("{apt_get} {WAIT_FOR_LOCK} install -y -qq --no-install-recommends");
    execute(command(&words).args(available.iter().map(|(name, _)| name)))
}

/// Rustup installs these with its default profile, but not with its minimal one.
///
/// # Errors
/// When a component is missing and rustup cannot add it.
pub fn add_rust_components() -> Result<()> {
    for (program, component) in [("cargo-clippy", "clippy"), ("rustfmt", "rustfmt")] {
        if !succeeds(&format!("{program} --version")) {
            println!("Adding the rustup component {component}.");
            execute(command(&format!("rustup component add {component}")))?;
        }
    }
    Ok(())
}

/// Where this machine gets Debian's main packages from.
///
/// # Errors
/// When apt does not know.
pub fn mirror() -> Result<String> {
    let format = "--format '$(REPO_URI) $(CODENAME)' 'Created-By: Packages' 'Origin: Debian'";
    let text = capture(command(&format!("apt-get indextargets {format}")))?;
    // Security and updates live below other names, the former on another path.
    let mut repositories = text.lines().filter_map(|line| line.split_once(' '));
    repositories
        .find(|(_, codename)| !codename.contains('-'))
        .map(|(uri, _)| uri.to_owned())
        .context("this machine's apt has no Debian release configured; run `apt-get update`")
}

fn print_packages(title: &str, packages: &[Package]) {
    println!("{title}");
    for (name, purpose) in packages {
        println!("  {name:<22} {purpose}");
    }
}

fn has_package(name: &str) -> bool {
    let words = format!("dpkg-query --show '--showformat=${{db:Status-Status}}' {name}");
    capture(command(&words)).is_ok_and(|status| status == "installed")
}

/// Whether a program runs and does not fail. What it prints is not shown.
fn succeeds(words: &str) -> bool {
    capture(command(words)).is_ok()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    use fs_err as fs;
    use nix::fcntl::{FcntlArg, fcntl};
    use nix::libc;

    use super::*;
    use crate::process::{Background, quoted};

    /// Check with a package manager of its own lock that apt-get waits while somebody else has that, and installs then.
    #[test]
    fn waits_for_a_lock() {
        let status = std::path::Path::new("/var/lib/dpkg/status");
        if !is_installed("apt-get") || !status.exists() || !geteuid().is_root() {
            println!("SKIPPED test: no apt-get, or no root, for whom alone it installs");
            return;
        }
        let folder = std::env::temp_dir().join(format!("wcprof-apt-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::copy(status, folder.join("status")).unwrap();
        let lock = fs::File::create(folder.join("lock-frontend")).unwrap();
        let change = |kind: i32| {
            let whole = libc::flock {
                l_type: kind as i16,
                l_whence: libc::SEEK_SET as i16,
                l_start: 0,
                l_len: 0,
                l_pid: 0,
            };
            fcntl(lock.file(), FcntlArg::F_SETLK(&whole)).unwrap();
        };
        change(libc::F_WRLCK);
        let state = quoted(folder.join("status"));
        let words = format!(
            "env LC_ALL=C apt-get -o Dir::State::status={state} {WAIT_FOR_LOCK} install -y --no-upgrade dpkg"
        );
        let mut apt_get = command(&words);
        let apt_get = apt_get.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut apt_get = Background::start(apt_get).unwrap();
        let mut lines = BufReader::new(apt_get.child.stdout.take().unwrap()).lines();
        let first = lines.next().and_then(Result::ok).unwrap_or_default();
        assert!(first.contains("Waiting for cache lock"), "{first}");
        change(libc::F_UNLCK);
        let rest: Vec<String> = lines.map_while(Result::ok).collect();
        assert!(apt_get.child.wait().unwrap().success(), "{rest:?}");
        fs::remove_dir_all(&folder).unwrap();
    }

    /// Check that every package has a purpose and appears once in its group.
    #[test]
    fn packages_are_explained_once() {
        for group in [BUILD, ROOTS, TEST, LAB, LAB_SYMBOLS] {
            let mut names: Vec<_> = group.iter().map(|(name, _)| name).collect();
            assert!(group.iter().all(|(_, why)| !why.is_empty()));
            names.sort_unstable();
            let n_all = names.len();
            names.dedup();
            assert_eq!(names.len(), n_all, "{group:?}");
        }
    }
}
