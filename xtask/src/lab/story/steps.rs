//! The steps, and what wcprof must and must not find at each.

use crate::lab::conf::{self, Mode};
use crate::lab::vm::{self, Cache};

/// A rule that the story is about, and the setting that doctor finds with it. Each is about one thing that a step
/// changes.
pub const RULES: [(&str, &str); 3] = [
    ("rbd-cache", "qemu-rbd-cache"),
    ("libc-malloc", "libc-malloc"),
    ("aes-gcm", "msgr-secure"),
];

/// Bytes of the guest's operations, as in the report that the story follows.
pub const BLOCK_SIZE: u64 = 16384;

/// A process that wcprof is attached to.
pub type Target = &'static str;
pub const QEMU: Target = "qemu";
pub const OSD: Target = "osd";
pub const TARGETS: [Target; 2] = [QEMU, OSD];

/// How everything is set up while wcprof is attached.
#[derive(Debug)]
pub struct Step {
    pub name: &'static str,
    pub title: &'static str,
    /// The rbd cache is on.
    cache: bool,
    /// QEMU and the OSD use tcmalloc.
    tcmalloc: bool,
    mode: Mode,
}

/// As a sysadmin would tune it; the last step shows what encryption costs.
pub const STEPS: [Step; 4] = [
    Step {
        name: "1-cache",
        title: "rbd cache on, libc's malloc",
        cache: true,
        tcmalloc: false,
        mode: Mode::Crc,
    },
    Step {
        name: "2-no-cache",
        title: "rbd cache off",
        cache: false,
        tcmalloc: false,
        mode: Mode::Crc,
    },
    Step {
        name: "3-tcmalloc",
        title: "tcmalloc in QEMU and in the OSD",
        cache: false,
        tcmalloc: true,
        mode: Mode::Crc,
    },
    Step {
        name: "4-secure",
        title: "msgr v2 in secure mode",
        cache: false,
        tcmalloc: true,
        mode: Mode::Secure,
    },
];

impl Step {
    /// The cluster that it runs on; equal steps share one.
    pub fn cluster(&self) -> conf::Options {
        conf::Options::one_osd(self.mode, self.tcmalloc)
    }

    pub fn machine(&self) -> vm::Options {
        vm::Options {
            cache: if self.cache {
                Cache::Writeback
            } else {
                Cache::None
            },
            iothread: true,
            tcmalloc: self.tcmalloc,
            ..vm::Options::uncached(BLOCK_SIZE, 0)
        }
    }

    /// `1-cache-qemu`
    pub fn file(&self, target: Target) -> String {
        format!("{}-{target}", self.name)
    }

    /// Whether a rule must find something, and doctor its setting.
    pub fn is_expected(&self, rule: &str, target: Target) -> bool {
        match rule {
            "rbd-cache" => self.cache && target == QEMU,
            "libc-malloc" => !self.tcmalloc,
            _ => self.mode == Mode::Secure,
        }
    }
}
