//! The steps, and what wcprof must and must not find at each.

use crate::lab::conf::{self, Mode};
use crate::lab::vm::{self, Cache};

/// Rules that the story is about; each tests one thing that a step changes.
pub const RULES: &[&str] = &["rbd-cache", "libc-malloc", "aes-gcm"];

/// Bytes of the guest's operations, as in the report that the story follows.
pub const BLOCK_SIZE: u32 = 16384;

/// A process that wcprof is attached to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    Qemu,
    Osd,
}

pub const TARGETS: &[Target] = &[Target::Qemu, Target::Osd];

impl Target {
    pub fn name(self) -> &'static str {
        match self {
            Self::Qemu => "qemu",
            Self::Osd => "osd",
        }
    }
}

/// How everything is set up while wcprof is attached.
#[derive(Debug)]
pub struct Step {
    pub name: &'static str,
    pub title: &'static str,
    cache: bool,
    tcmalloc: bool,
    secure: bool,
}

/// As a sysadmin would tune it; the last step shows what encryption costs.
pub const STEPS: &[Step] = &[
    Step {
        name: "1-cache",
        title: "rbd cache on, libc's malloc",
        cache: true,
        tcmalloc: false,
        secure: false,
    },
    Step {
        name: "2-no-cache",
        title: "rbd cache off",
        cache: false,
        tcmalloc: false,
        secure: false,
    },
    Step {
        name: "3-tcmalloc",
        title: "tcmalloc in QEMU and in the OSD",
        cache: false,
        tcmalloc: true,
        secure: false,
    },
    Step {
        name: "4-secure",
        title: "msgr v2 in secure mode",
        cache: false,
        tcmalloc: true,
        secure: true,
    },
];

impl Step {
    /// The cluster that it runs on; equal steps share one.
    pub fn cluster(&self) -> conf::Options {
        conf::Options {
            mode: match self.secure {
                true => Mode::Secure,
                false => Mode::Crc,
            },
            tcmalloc: self.tcmalloc,
            ..conf::Options::default()
        }
    }

    pub fn machine(&self) -> vm::Options {
        let mut options = vm::Options::sized(BLOCK_SIZE, 0);
        options.iothread = true;
        options.tcmalloc = self.tcmalloc;
        if self.cache {
            options.cache = Cache::Writeback;
        }
        options
    }

    /// `1-cache-qemu`
    pub fn file(&self, target: Target) -> String {
        format!("{}-{}", self.name, target.name())
    }

    /// Whether a rule must find something.
    pub fn is_expected(&self, rule: &str, target: Target) -> bool {
        match rule {
            "rbd-cache" => self.cache && target == Target::Qemu,
            "libc-malloc" => !self.tcmalloc,
            "aes-gcm" => self.secure,
            _ => false,
        }
    }

    /// Which settings doctor must find in the trace; of these it must find no other.
    pub fn settings(&self, target: Target) -> Vec<&'static str> {
        let all = [
            ("qemu-rbd-cache", self.cache && target == Target::Qemu),
            ("libc-malloc", !self.tcmalloc),
            ("msgr-secure", self.secure),
        ];
        let found = all.into_iter().filter(|(_, found)| *found);
        found.map(|(id, _)| id).collect()
    }
}
