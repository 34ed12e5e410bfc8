//! Calibrations made before, by library and CPU: to files of the cache, and back.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use httpdate::fmt_http_date;
use msgr_crypto::calibration::{Calibration, LibraryFacts, VERSION};
use msgr_crypto::host::Host;
use msgr_crypto_ffi::{Capabilities, Library};
use sha2::{Digest, Sha256};
use wcprof_host::cache::{CacheFile, CacheKind};
use wcprof_host::open::open_regular;
use wcprof_host::procfs::live_folder;
use wcprof_text::terminal_name;
use wcprof_types::Pid;

use wcprof_cli::cache_dir;
use wcprof_cli::crypto::CacheArgs;

static CALIBRATIONS: CacheKind = CacheKind {
    suffix: "wcprof-calibration",
    version: VERSION,
    max_file: 4 << 20,
    max_total: 16 << 20,
};
/// Larger than any libcrypto, and than a program that contains one.
const MAX_LIBRARY: u64 = 512 << 20;

/// Which kept calibrations are used.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Keeping {
    /// One that was made before will do; else what is measured is kept.
    Reuse,
    /// Measure, and keep the result in place of the one before.
    Renew,
    /// None is read or written.
    Off,
}

impl Keeping {
    /// What it becomes by the flags.
    pub(crate) fn by(self, flags: &CacheArgs) -> Self {
        match flags.no_cache {
            true => Self::Off,
            false => self,
        }
    }
}

/// Where the calibration of one library on this CPU is kept, and what it must say.
#[derive(Debug)]
pub(crate) struct Place {
    file: CacheFile,
    host: Host,
    /// What the library says of itself; `None` when it may not be asked, because it is not trusted.
    library: Option<LibraryFacts>,
    /// The command that makes it anew.
    renewal: String,
}

impl Place {
    /// Of a library that this process has loaded.
    pub(crate) fn of_loaded(library: &Library) -> Option<Self> {
        let path = match &library.path {
            Some(path) => path.clone(),
            None => std::env::current_exe().ok()?,
        };
        let caps = std::env::var_os("OPENSSL_ia32cap").unwrap_or_default();
        let made = format!("here ia32cap={}", caps.display());
        Some(Self {
            library: Some(LibraryFacts::from_library(library)),
            ..Self::new(
                &cache_dir()?,
                &open_regular(&path).ok()?,
                Host::detect(),
                &made,
            )?
        })
    }

    /// Of a library that is loaded only in the confinement of a process. It has a place of its own, also if
    /// its bytes are those of a library that is trusted: what else is in its container may lie.
    pub(crate) fn of_confined(file: &File, path: &str, pid: i32) -> Option<Self> {
        let root = std::fs::read_link(format!("{}/ns/mnt", live_folder(Pid(pid)))).ok()?;
        let made = format!("confined {} {path}", root.display());
        Some(Self {
            renewal: format!("wcprof crypto calibrate {pid}"),
            ..Self::new(&cache_dir()?, file, Host::detect(), &made)?
        })
    }

    /// For the library with the content of `file`, measured on `host` in the way that `made` names.
    fn new(dir: &Path, file: &File, host: Host, made: &str) -> Option<Self> {
        let identity = format!(
            "wcprof {}; library {}; {made}; CPU {}, L2 {}, {}",
            env!("CARGO_PKG_VERSION"),
            content_hash(file)?,
            host.cpu,
            host.l2_bytes,
            Capabilities::of_this_cpu().0.join(" ")
        );
        let name = hex(&Sha256::digest(identity.as_bytes())[..16]);
        Some(Self {
            file: CacheFile::new(&CALIBRATIONS, dir, &name, identity),
            host,
            library: None,
            renewal: "wcprof crypto calibrate".to_owned(),
        })
    }

    /// The calibration that is kept; `None` when there is none of this library and CPU that can be used.
    pub(crate) fn read(&self) -> Option<Calibration> {
        let text = String::from_utf8(self.file.read()?).ok()?;
        let kept = Calibration::from_json(&text).ok()?;
        let is_library = self.library.as_ref().is_none_or(|is| *is == kept.library);
        (is_library && kept.host == self.host).then_some(kept)
    }

    /// Keeps a calibration for the next time; a noisy one does not take the place of one that is not.
    pub(crate) fn write(&self, calibration: &Calibration) {
        if calibration.is_noisy() && self.read().is_some_and(|kept| !kept.is_noisy()) {
            return;
        }
        // Without it all is as right, and slower.
        if let Ok(json) = calibration.to_json() {
            let _ = self.file.write(json.as_bytes());
        }
    }

    /// Says that a kept calibration is used.
    pub(crate) fn announce(&self, kept: &Calibration) {
        wcprof_cli::message!("wcprof: {}", self.announcement(kept));
    }

    fn announcement(&self, kept: &Calibration) -> String {
        let made = UNIX_EPOCH.checked_add(Duration::from_secs(kept.made_unix));
        // Its year has four digits.
        let made = made.filter(|_| kept.made_unix < 253_402_300_800);
        let noise = match kept.is_noisy() {
            true => format!(
                ", disturbed by other work in {:.0} % of the measurements",
                100.0 * kept.disturbed_share
            ),
            false => String::new(),
        };
        format!(
            "{} was calibrated on {}{noise}; `{}` measures it anew",
            terminal_name(&kept.library.version),
            made.map_or_else(|| "an unknown day".to_owned(), fmt_http_date),
            self.renewal
        )
    }
}

/// SHA-256 of a file, hexadecimal; where it is read from now does not matter.
pub(crate) fn content_hash(file: &File) -> Option<String> {
    let mut hash = Sha256::new();
    let mut chunk = vec![0; 1 << 16];
    let mut at = 0;
    loop {
        let n = file.read_at(&mut chunk, at).ok()?;
        at += n as u64;
        match n {
            0 => return Some(hex(&hash.finalize())),
            _ if at > MAX_LIBRARY => return None,
            n => hash.update(&chunk[..n]),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use msgr_crypto::calibration::parse_speed_table;

    use super::*;

    const SPEED: &str = include_str!("../../../../msgr-crypto/data/report-2022.speed.txt");

    fn host() -> Host {
        Host {
            cpu: "a CPU".to_owned(),
            l2_bytes: 1 << 19,
        }
    }

    fn calibration() -> Calibration {
        let mut made = parse_speed_table(SPEED).unwrap();
        made.host = host();
        made.made_unix = 1_700_000_000;
        made
    }

    fn place(dir: &Path, content: &str, host: Host, made: &str) -> Place {
        let library = dir.join("library");
        fs::write(&library, content).unwrap();
        let file = File::open(library).unwrap();
        Place::new(&dir.join("cache"), &file, host, made).unwrap()
    }

    /// Check that a calibration is found again for the same library on the same CPU only, whatever was
    /// read of the library's file before, and not after its version or kernel became another.
    #[test]
    fn of_one_library_and_cpu() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        let written = place(dir, "code", host(), "here");
        assert_eq!(written.read(), None);
        written.write(&calibration());
        let mut same = place(dir, "code", host(), "here");
        assert_eq!(same.read(), Some(calibration()));
        for (content, cpu, l2_bytes, made) in [
            ("c0de", "a CPU", 1 << 19, "here"),
            ("code", "another CPU", 1 << 19, "here"),
            ("code", "a CPU", 1 << 20, "here"),
            ("code", "a CPU", 1 << 19, "here ia32cap=~0x2"),
        ] {
            let cpu = cpu.to_owned();
            let other = place(dir, content, Host { cpu, l2_bytes }, made);
            assert_eq!(other.read(), None, "{other:?}");
        }
        let is = calibration().library;
        same.library = Some(is.clone());
        assert!(same.read().is_some());
        same.library = Some(LibraryFacts {
            version: "OpenSSL 9.9".to_owned(),
            ..is
        });
        assert_eq!(same.read(), None);
    }

    /// Check that a file whose calibration is of another CPU than its name says is not used.
    #[test]
    fn of_another_host_inside() {
        let folder = tempfile::tempdir().unwrap();
        let place = place(folder.path(), "code", host(), "here");
        let mut strange = calibration();
        strange.host.cpu = "another CPU".to_owned();
        place.write(&strange);
        assert_eq!(place.read(), None);
        place.file.write(b"{}").unwrap();
        assert_eq!(place.read(), None);
    }

    /// Check that a noisy calibration does not take the place of a good one.
    #[test]
    fn noisy_ones_are_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let place = place(folder.path(), "code", host(), "here");
        place.write(&calibration());
        let mut noisy = calibration();
        noisy.disturbed_share = 0.5;
        noisy.made_unix += 1;
        place.write(&noisy);
        assert_eq!(place.read(), Some(calibration()));
    }

    /// Check that the message names the library, the date and the way to a new one.
    #[test]
    fn announcement() {
        let folder = tempfile::tempdir().unwrap();
        let place = place(folder.path(), "code", host(), "here");
        let mut kept = calibration();
        let text = place.announcement(&kept);
        let date = "was calibrated on Tue, 14 Nov 2023 22:13:20 GMT; `wcprof crypto calibrate`";
        assert!(
            text.starts_with("OpenSSL ") && text.contains(date),
            "{text}"
        );
        kept.made_unix = u64::MAX;
        assert!(place.announcement(&kept).contains("an unknown day"));
    }
}
