//! A profile to what is said where much CPU time is in functions without a name: where these are, and what would give them
//! names.

use std::collections::BTreeMap;

use wcprof_profile::model::{CODE_IN, KERNEL, Profile, Row, State};
use wcprof_text::{percent, terminal_name};

/// Least share of the sampled CPU time that is said, percent.
pub(crate) const MUCH: f64 = 20.0;

/// What a runtime that compiles at run time is known by, and how it tells the names of what it made.
struct Runtime {
    /// Begins of the names of files that it maps.
    files: &'static [&'static str],
    cure: &'static str,
}

const RUNTIMES: [Runtime; 7] = [
    Runtime {
        files: &["libjvm.so"],
        cure: "jcmd PID Compiler.perfmap while it is recorded (JDK 17 and later), and java -XX:+PreserveFramePointer for whole stacks",
    },
    Runtime {
        files: &["node", "libnode.so"],
        cure: "node --perf-basic-prof",
    },
    Runtime {
        files: &["deno"],
        cure: "deno run --v8-flags=--perf-basic-prof",
    },
    Runtime {
        files: &["beam."],
        cure: "erl +JPperf true",
    },
    Runtime {
        files: &["python", "libpython"],
        cure: "python -X perf (Python 3.12 and later)",
    },
    Runtime {
        files: &["php"],
        cure: "php -d opcache.jit_debug=0x10",
    },
    Runtime {
        files: &["ruby", "libruby"],
        cure: "ruby --yjit-perf",
    },
];

/// CPU time in functions without a name.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct UnnamedCpu {
    /// On-CPU time with a stack, ns.
    sampled_ns: u64,
    /// That in which the function that ran has no name, ns.
    unnamed_ns: u64,
    /// That by the file that the function is in, ns; an empty name for code that is in none.
    by_file: BTreeMap<String, u64>,
    /// How the runtime that most of the code in no file belongs to tells names.
    cure: Option<&'static str>,
}

/// Whether a module is memory that a runtime writes code to.
fn is_no_file(module: &str) -> bool {
    module.is_empty() || module.starts_with("memfd:") || module == "zero"
}

fn cure_by(file: &str) -> Option<&'static str> {
    let mut runtimes = RUNTIMES.iter();
    let runtime = runtimes.find(|one| one.files.iter().any(|start| file.starts_with(start)));
    runtime.map(|runtime| runtime.cure)
}

impl UnnamedCpu {
    pub(crate) fn new(profile: &Profile) -> Self {
        let mut own = Self::default();
        let mut cures: BTreeMap<&'static str, u64> = BTreeMap::new();
        let on_cpu = profile.rows.iter().filter(|r| r.state == State::OnCpu);
        for row in on_cpu {
            own.add(profile, row, &mut cures);
        }
        let of_stacks = cures.into_iter().max_by_key(|(_, weight)| *weight);
        let of_files = || profile.modules.iter().find_map(|m| cure_by(&m.name));
        own.cure = of_stacks.map(|(cure, _)| cure).or_else(of_files);
        own
    }

    fn add(&mut self, profile: &Profile, row: &Row, cures: &mut BTreeMap<&'static str, u64>) {
        let mut functions = profile.leaf_first(row);
        // What the program itself did, also where it was in the kernel; what the kernel did in a thread of its own.
        let mut own = functions.clone().filter(|f| f.module != KERNEL);
        let Some(leaf) = own.next().or_else(|| functions.next()) else {
            return;
        };
        // A stand-in for what is not known, as `[on-cpu, not sampled]`.
        let is_place = leaf.name.starts_with(CODE_IN);
        if leaf.module.is_empty() && leaf.name.starts_with('[') && !is_place {
            return;
        }
        self.sampled_ns = self.sampled_ns.saturating_add(row.weight);
        if leaf.resolved {
            return;
        }
        self.unnamed_ns = self.unnamed_ns.saturating_add(row.weight);
        let file = match is_no_file(&leaf.module) {
            true => "",
            false => &leaf.module,
        };
        let known = self.by_file.entry(file.to_owned()).or_default();
        *known = known.saturating_add(row.weight);
        if let Some(cure) = own
            .find_map(|f| cure_by(&f.module))
            .filter(|_| file.is_empty())
        {
            let known = cures.entry(cure).or_default();
            *known = known.saturating_add(row.weight);
        }
    }

    /// Share of the sampled CPU time, percent.
    pub(crate) fn share(&self) -> f64 {
        percent(self.unnamed_ns, self.sampled_ns)
    }

    /// Where the functions are and what gives them names, where it is much; a sentence, escaped for a terminal.
    pub(crate) fn text(&self) -> Option<String> {
        let most = self.by_file.iter().max_by_key(|(_, weight)| **weight);
        let (file, _) = most.filter(|_| self.share() >= MUCH)?;
        let share = self.share();
        let begin = format!("{share:.0} % of the CPU time is in functions without a name");
        Some(match (file.as_str(), self.cure) {
            ("", Some(cure)) => {
                format!("{begin}, most in code that its runtime made; names come from {cure}")
            }
            ("", None) => {
                format!(
                    "{begin}, most in code that is in no file; names come from a perf map or jitdump of the runtime that made it"
                )
            }
            (file, _) => {
                let file = terminal_name(file);
                format!("{begin}, most in {file}; names come from its debug package (wcprof check)")
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check what is said of code in no file, of a stripped file, and that little is not said.
    #[test]
    fn said() {
        let text = |unnamed_ns, file: &str, cure| {
            let unnamed = UnnamedCpu {
                sampled_ns: 100,
                unnamed_ns,
                by_file: BTreeMap::from([(file.to_owned(), unnamed_ns), ("b".to_owned(), 1)]),
                cure,
            };
            unnamed.text().unwrap_or_default()
        };
        assert_eq!(text(19, "", None), "");
        let node = text(80, "", cure_by("node"));
        assert!(node.starts_with("80 % of the CPU time"), "{node}");
        assert!(node.ends_with("its runtime made; names come from node --perf-basic-prof"));
        assert!(text(80, "", None).contains("a perf map or jitdump"));
        let stripped = text(30, "ceph-osd\u{1b}", cure_by("node"));
        assert!(stripped.contains("most in ceph-osd") && !stripped.contains('\u{1b}'));
        for (file, cure) in [
            ("libjvm.so", Some("jcmd")),
            ("beam.smp", Some("erl")),
            ("python3.12", Some("python")),
            ("libpython3.12.so.1.0", Some("python")),
            ("php8.2", Some("php")),
            ("ruby3.1", Some("ruby")),
            ("libruby-3.1.so.3.1", Some("ruby")),
            ("ceph-osd", None),
        ] {
            let found = cure_by(file).map(|cure| cure.split(' ').next().unwrap_or_default());
            assert_eq!(found, cure, "{file}");
        }
    }
}
