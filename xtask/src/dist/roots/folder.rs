//! A folder that programs run in as their root, with mounts that end with them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use fs_err as fs;
use tempfile::TempDir;

use super::release::Release;
use crate::process::{
    Background, capture, command, execute, quoted, result_folder, target_folder, wait_until,
};

/// In a mount namespace of its own; $0 is the root, $1 the user and the group, $2 further groups.
const ENTER: &str = r#"
    set -e
    mount -t proc proc "$0/proc"
    mount --rbind /sys "$0/sys"
    mount --rbind /dev "$0/dev"
    root=$0 user=$1 groups=$2
    shift 2
    exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot --userspec="$user" --groups="$groups" "$root" "$@"
"#;

/// A root folder that is removed when dropped.
pub struct Root(TempDir);

/// Who runs a program: numbers of the user and the group, and of further groups.
#[derive(Copy, Clone)]
pub struct User<'a>(pub &'a str, pub &'a str);

const ROOT: User<'_> = User("0:0", "");

impl Root {
    /// A folder with nothing in it.
    pub fn empty() -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("dist-root-")
            .tempdir_in(target_folder())?;
        // That of a root: users other than its owner enter it.
        execute(command("chmod 755").arg(folder.path()))?;
        Ok(Self(folder))
    }

    /// A copy, which the tests may change.
    pub fn copy_of(folder: &Path) -> Result<Self> {
        let root = Self::empty()?;
        let (from, to) = (quoted(folder.join(".")), quoted(root.folder()));
        execute(command(&format!("cp --archive {from} {to}")))?;
        for name in ["proc", "sys", "dev", "tmp"] {
            fs::create_dir_all(root.folder().join(name))?;
        }
        Ok(root)
    }

    /// The base system of a release. It is made once, and kept.
    pub fn of_release(release: &Release) -> Result<Self> {
        let kept = result_folder("dist-roots")?.join(release.name);
        if !kept.exists() {
            // Whole or not at all.
            let made = Self::empty()?;
            release.unpack(made.folder())?;
            fs::rename(made.0.keep(), &kept)?;
        }
        Self::copy_of(&kept)
    }

    /// Its path outside.
    pub fn folder(&self) -> &Path {
        self.0.path()
    }

    /// A command line in it, as root.
    pub fn command(&self, words: &str) -> Command {
        self.command_of(ROOT, words)
    }

    fn command_of(&self, User(user, groups): User<'_>, words: &str) -> Command {
        let mut entered = command("unshare --mount --propagation private sh -c");
        entered.arg(ENTER).arg(self.folder()).args([user, groups]);
        let inner = shlex::split(words).unwrap_or_default();
        entered.args(inner);
        entered
    }

    /// Runs it to its end and returns what it prints.
    pub fn run(&self, words: &str) -> Result<String> {
        capture(self.command(words))
    }

    /// As [`Root::run`], by a user.
    pub fn run_as(&self, user: User<'_>, words: &str) -> Result<String> {
        capture(self.command_of(user, words))
    }

    /// Starts a process that runs all the time and whose functions are known: `dd` calls `read` and `write` of the C library.
    /// Where the root has none, it is this machine's.
    pub fn start_target(&self) -> Result<Background> {
        let words = "dd if=/dev/zero of=/dev/null bs=512 status=none";
        let has_own: PathBuf = self.folder().join("bin/dd");
        let mut dd = match has_own.exists() {
            true => self.command(words),
            false => command(words),
        };
        let target = Background::start(&mut dd)?;
        let comm = format!("/proc/{}/comm", target.pid());
        wait_until("dd does not start", 30, || {
            Ok(fs::read_to_string(&comm)?.trim() == "dd")
        })?;
        Ok(target)
    }
}
