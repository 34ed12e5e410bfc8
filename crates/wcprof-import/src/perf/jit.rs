//! Names of code that a JIT compiler made, in no file that a program loads: by the perf map of its process, `/tmp/perf-PID.map`, as
//! `perf report` has them, and by the jitdump that the process had mapped.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufReader, Seek};

use wcprof_symbols::{JitNames, jitdump_names, perf_map_names};
use wcprof_trace::model::{FrameId, SymbolFrame};
use wcprof_types::Avma;
use wcprof_types::jit_files::{is_jitdump, perf_map};

use crate::builder::Builder;
use crate::code::{CodeFiles, WantedFile};

/// Processes whose files are asked for.
const MAX_PROCESSES: usize = 256;
/// Mappings without a file, as perf names them (`is_anon_memory` in `tools/perf/util/map.c`).
const ANONYMOUS: [&str; 3] = ["//anon", "/dev/zero", "/anon_hugepage"];

/// Whether a mapping of this path is of no file.
pub(super) fn is_anonymous(path: &str) -> bool {
    ANONYMOUS.iter().any(|begin| path.starts_with(begin)) || !path.starts_with('/')
}

/// Frames of code in no file, and files that may name them.
#[derive(Debug, Default)]
pub(super) struct JitFrames {
    /// Whose frames they are; `None` where several processes have one at the same address.
    owners: HashMap<FrameId, (Avma, Option<i32>)>,
    /// The jitdump that a process mapped last.
    dumps: BTreeMap<i32, String>,
}

impl JitFrames {
    /// Notes a mapping, which may be the mark that its process writes a jitdump (`tools/perf/Documentation/jitdump-specification.txt`).
    pub(super) fn mapped(&mut self, pid: i32, path: &str) {
        if is_jitdump(path) {
            self.dumps.insert(pid, path.to_owned());
        }
    }

    pub(super) fn met(&mut self, pid: i32, frame: FrameId, address: Avma) {
        let owner = self.owners.entry(frame).or_insert((address, Some(pid)));
        if owner.1 != Some(pid) {
            owner.1 = None;
        }
    }

    /// Gives frames the names that their processes' files have for them.
    pub(super) fn name(&self, code: &mut dyn CodeFiles, builder: &mut Builder) {
        let mut by_pid: BTreeMap<i32, Vec<(Avma, FrameId)>> = BTreeMap::new();
        for (&frame, &(address, owner)) in &self.owners {
            if let Some(pid) = owner {
                by_pid.entry(pid).or_default().push((address, frame));
            }
        }
        let n_shared = self.owners.values().filter(|(_, owner)| owner.is_none());
        let n_shared = n_shared.count() as u64;
        let n_left = by_pid.len().saturating_sub(MAX_PROCESSES) as u64;
        let (mut n_named, mut n_unnamed) = (0, 0);
        for (pid, mut frames) in by_pid.into_iter().take(MAX_PROCESSES) {
            frames.sort_unstable();
            let addresses: Vec<Avma> = frames.iter().map(|(address, _)| *address).collect();
            let mut open = |path: &str| {
                let file = code.open(&WantedFile::Jit(path.to_owned()))?;
                // Whoever opened it may have read it.
                (&*file).rewind().ok()?;
                Some(file)
            };
            let dump = self.dumps.get(&pid).and_then(|path| {
                let file = open(path)?;
                jitdump_names(BufReader::new(&*file), &addresses).ok()
            });
            let map = open(&perf_map(pid))
                .and_then(|file| perf_map_names(BufReader::new(&*file), &addresses).ok());
            let names = newest([dump, map], frames.len());
            for ((_, frame), name) in frames.into_iter().zip(names) {
                match name {
                    Some(name) => {
                        n_named += 1;
                        builder.name_locally(frame, name);
                    }
                    None => n_unnamed += 1,
                }
            }
        }
        builder.note_counts([
            (
                n_named,
                "addresses of code that was made at run time have names of this machine's perf maps and jitdumps",
            ),
            (
                n_unnamed,
                "addresses are in no file: code that was made at run time has names if /tmp/perf-PID.map of its process, or its jitdump, is \
                 here (see the runtime's option for perf)",
            ),
            (
                n_shared,
                "addresses in no file are in several processes, and have no names",
            ),
            (
                n_left,
                "more processes have code that was made at run time: their perf maps are not read",
            ),
        ]);
    }
}

/// For each address the newest name of the first file that has one.
fn newest(files: [Option<JitNames>; 2], n: usize) -> Vec<Option<SymbolFrame>> {
    let mut names = vec![None; n];
    for file in files.into_iter().flatten() {
        for (name, mut codes) in names.iter_mut().zip(file.codes) {
            let newest = || Some(codes.pop()?.function);
            *name = name.take().or_else(newest);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use wcprof_symbols::JitCode;

    use super::*;

    /// Check which mappings have no file.
    #[test]
    fn anonymous() {
        let anonymous = [
            "//anon",
            "/dev/zero (deleted)",
            "[heap]",
            "anon_inode:[x]",
            "",
        ];
        assert!(anonymous.into_iter().all(is_anonymous));
        assert!(!is_anonymous("/usr/lib/libc.so.6") && !is_anonymous("/memfd:x (deleted)"));
    }

    /// Check that a jitdump goes before a perf map, and that of several functions at an address the last one counts.
    #[test]
    fn order() {
        let names = |all: &[&[&str]]| JitNames {
            codes: all
                .iter()
                .map(|codes| codes.iter().map(|name| code(name)).collect())
                .collect(),
            ..JitNames::default()
        };
        let dump = names(&[&["old", "new"], &[], &[]]);
        let map = names(&[&["map"], &["of map"], &[]]);
        let found = newest([Some(dump), Some(map)], 3);
        let found: Vec<_> = found
            .iter()
            .map(|name| Some(name.as_ref()?.name.as_str()))
            .collect();
        assert_eq!(found, [Some("new"), Some("of map"), None]);
    }

    fn code(name: &str) -> JitCode {
        JitCode {
            since: 0,
            function: SymbolFrame {
                name: name.to_owned(),
                ..SymbolFrame::default()
            },
        }
    }
}
