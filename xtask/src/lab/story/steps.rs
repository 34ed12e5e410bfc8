//! The steps, and what wcprof must and must not find at each.

use super::measure::Measured;
use crate::lab::ceph::{self, Mode, Store};
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

/// What is recorded.
pub fn all() -> impl Iterator<Item = (&'static Step, Target)> {
    STEPS
        .iter()
        .flat_map(|step| TARGETS.iter().map(move |target| (step, *target)))
}

impl Step {
    /// What a cluster is made by; steps that agree in it share one.
    pub fn cluster(&self) -> (bool, bool) {
        (self.secure, self.tcmalloc)
    }

    pub fn cluster_options(&self) -> ceph::Options {
        ceph::Options {
            mode: match self.secure {
                true => Mode::Secure,
                false => Mode::Crc,
            },
            store: Store::Bluestore,
            tcmalloc: self.tcmalloc,
            osds: 1,
            threads_per_shard: 2,
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

    /// What is not as it must be, a line each.
    pub fn wrong(&self, measured: &Measured) -> Vec<String> {
        let mut wrong = Vec::new();
        for (target, seen) in &measured.seen {
            for rule in RULES {
                let expected = self.is_expected(rule, *target);
                let found = seen.findings.iter().any(|f| f == rule);
                let share = seen.share(rule);
                let place = format!("{}, {}: {rule}", self.name, target.name());
                if expected && !found {
                    wrong.push(format!("{place} is not found ({share})"));
                }
                if !expected && found {
                    wrong.push(format!("{place} is found ({share})"));
                }
                // Below a threshold is not gone.
                if !expected && share.percent > residue(rule) {
                    wrong.push(format!("{place} is not gone ({share})"));
                }
            }
            let settings = self.settings(*target);
            for id in ["qemu-rbd-cache", "libc-malloc", "msgr-secure"] {
                let found = seen.settings.iter().any(|s| s == id);
                if found != settings.contains(&id) {
                    let what = if found { "finds" } else { "does not find" };
                    let name = target.name();
                    wrong.push(format!("{}, {name}: doctor {what} {id}", self.name));
                }
            }
        }
        wrong
    }
}

/// Percent of a process's time that may be left where a rule must find nothing.
fn residue(rule: &str) -> f64 {
    match rule {
        // Libraries that were loaded before may hold on to libc's.
        "libc-malloc" => 0.5,
        // No frame at all.
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::story::measure::{Seen, Share};

    fn measured(step: &Step, change: impl Fn(&mut Seen)) -> Measured {
        let seen = |target: Target| {
            let found = RULES.iter().filter(|r| step.is_expected(r, target));
            let mut seen = Seen {
                findings: found.map(|r| (*r).to_owned()).collect(),
                settings: step
                    .settings(target)
                    .iter()
                    .map(|s| (*s).to_owned())
                    .collect(),
                ..Seen::default()
            };
            change(&mut seen);
            (target, seen)
        };
        Measured {
            iops: 1.0,
            seen: TARGETS.iter().map(|t| seen(*t)).collect(),
        }
    }

    /// Check that each step passes with what it must show, and that all of it changes along the way.
    #[test]
    fn expected() {
        for step in STEPS {
            assert!(step.wrong(&measured(step, |_| ())).is_empty());
        }
        for rule in RULES {
            let seen: Vec<bool> = STEPS
                .iter()
                .map(|step| step.is_expected(rule, Target::Qemu))
                .collect();
            assert!(seen.contains(&true) && seen.contains(&false), "{rule}");
        }
    }

    /// Check that a finding too many, one that lacks, and time that is left are told.
    #[test]
    fn deviations() {
        let step = &STEPS[1];
        let wrong = |change: &dyn Fn(&mut Seen)| step.wrong(&measured(step, change)).len();
        assert_eq!(wrong(&|seen| seen.findings.clear()), 2);
        assert_eq!(wrong(&|seen| seen.findings.push("rbd-cache".to_owned())), 2);
        assert_eq!(wrong(&|seen| seen.settings.clear()), 2);
        let some = Share {
            percent: 0.01,
            n_samples: 1,
        };
        let left = |seen: &mut Seen| {
            seen.shares.insert("aes-gcm".to_owned(), some);
        };
        assert_eq!(wrong(&left), 2);
    }
}
