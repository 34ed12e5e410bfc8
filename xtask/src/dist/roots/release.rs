//! Releases of distributions, and where their packages come from.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use fs_err as fs;
use tempfile::TempDir;

use crate::dist::image::digest;
use crate::process::{capture, command, execute, quoted, result_folder};
use crate::setup;

/// A release of a distribution, as a root.
#[derive(Copy, Clone)]
pub struct Release {
    pub of: Distribution,
    pub name: &'static str,
    /// Packages beside its base system.
    pub includes: &'static str,
    /// It has OpenSSL 3.
    pub runs_crypto: bool,
}

/// Whose archive of packages.
#[derive(Copy, Clone, PartialEq, Eq)]
pub enum Distribution {
    Debian,
    Ubuntu,
}

const UBUNTU: &str = "http://archive.ubuntu.com/ubuntu";
/// Its package of the keys that it is signed with, and the checksum of that: Debian has none.
const UBUNTU_KEYS: (&str, &str) = (
    "pool/main/u/ubuntu-keyring/ubuntu-keyring_2018.02.28_all.deb",
    "c0763889cec4196839354d99b71f3c369dfa51ff17f59cabea87d1c7d55fe5e0",
);

impl Release {
    /// Whether its archive can be reached from here. Debian's must be.
    pub fn is_reachable(&self) -> bool {
        let path = format!("dists/{}/InRelease", self.name);
        let words = format!("curl --silent --fail --head --max-time 20 {UBUNTU}/{path}");
        self.of == Distribution::Debian || capture(command(&words)).is_ok()
    }

    /// Unpacks its base system.
    ///
    /// # Errors
    /// When the archive cannot be reached, or is not what it was.
    pub fn unpack(&self, folder: &Path) -> Result<()> {
        let (flags, mirror) = match self.of {
            Distribution::Debian => (String::new(), setup::mirror()?),
            Distribution::Ubuntu => {
                let keys = quoted(ubuntu_keys()?);
                let flags = format!("--keyring={keys} --components=main,universe");
                (flags, UBUNTU.to_owned())
            }
        };
        let Self { name, includes, .. } = self;
        let to = quoted(folder);
        capture(command(&format!(
            "debootstrap --variant=minbase {flags} --include={includes} {name} {to} {mirror}"
        )))?;
        Ok(())
    }
}

/// The file of the keys that Ubuntu's archive is signed with.
fn ubuntu_keys() -> Result<PathBuf> {
    let (path, checksum) = UBUNTU_KEYS;
    let folder = TempDir::new()?;
    let package = folder.path().join("keys.deb");
    let (from, to) = (quoted(&package), quoted(folder.path()));
    execute(command(&format!(
        "curl --silent --show-error --fail --output {from} {UBUNTU}/{path}"
    )))?;
    let found = digest(&package)?;
    ensure!(
        found == checksum,
        "{UBUNTU}/{path} has the checksum {found}, not {checksum}"
    );
    execute(command(&format!("dpkg-deb --extract {from} {to}")))?;
    let kept = result_folder("dist-roots")?.join("ubuntu-archive-keyring.gpg");
    let keys = "usr/share/keyrings/ubuntu-archive-keyring.gpg";
    fs::copy(folder.path().join(keys), &kept)?;
    Ok(kept)
}
