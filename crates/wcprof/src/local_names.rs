//! Names that only the recorded machine can give, looked up when a recording has ended: of kernel
//! code, of code that a JIT compiler made, and of the vdso. They are part of the trace in any case,
//! since no other machine has them.

use std::fs::File;
use std::io::{BufReader, Read, Seek};

use anyhow::Context;
use wcprof_record::{Kept, Recorded, TargetFiles, UnmappedFrames};
use wcprof_symbols::{JitCode, SymbolReport, jitdump_names, kernel_names, perf_map_names};
use wcprof_trace::model::{
    Frame, FrameId, LaterName, LocalNames, Module, ProcessId, SymbolFrame, SymbolTable, Tables,
};
use wcprof_trace::ring::Cut;
use wcprof_types::{Avma, TimeNs};

/// The module of the vdso.
const VDSO: &str = "[vdso]";
const KALLSYMS: &str = "/proc/kallsyms";
const BUFFER: usize = 1 << 16;

/// What a recording knows that its trace does not hold.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Origin<'a> {
    /// By process.
    pub(crate) files: &'a [TargetFiles],
    pub(crate) unmapped: &'a UnmappedFrames,
    /// The trace's time 0, `CLOCK_MONOTONIC` ns.
    pub(crate) begin: u64,
    /// Its length, ns.
    pub(crate) duration: u64,
}

impl<'a> From<&'a Recorded> for Origin<'a> {
    fn from(recorded: &'a Recorded) -> Self {
        Self {
            files: &recorded.files,
            unmapped: &recorded.unmapped,
            begin: recorded.begin,
            duration: recorded.stats.duration.0,
        }
    }
}

/// The same of a part of a recording that goes on, with what it refers to.
#[derive(Debug)]
pub(crate) struct CutOrigin {
    files: Vec<TargetFiles>,
    unmapped: UnmappedFrames,
    begin: u64,
    duration: u64,
}

impl CutOrigin {
    pub(crate) fn of(kept: &Kept, cut: &Cut<'_>) -> Self {
        Self {
            files: kept.files(cut),
            unmapped: kept.unmapped(cut),
            begin: kept.begin(cut),
            duration: cut.tables().stats.duration.0,
        }
    }

    pub(crate) fn get(&self) -> Origin<'_> {
        Origin {
            files: &self.files,
            unmapped: &self.unmapped,
            begin: self.begin,
            duration: self.duration,
        }
    }
}

/// Local names of a trace that was just recorded, and what stood in their way. Those of the vdso are
/// taken out of `symbols`.
pub(crate) fn of_recording(
    tables: &Tables,
    recorded: Origin<'_>,
    symbols: &mut SymbolTable,
) -> (LocalNames, Vec<String>) {
    let mut names = LocalNames::default();
    let mut problems = Vec::new();
    for (id, frame) in frames(tables) {
        if let Frame::Native { module, .. } = frame
            && module_of(tables, module.0).is_some_and(|m| m.path == VDSO)
            && let Some(functions) = symbols.frames.remove(&id)
        {
            names.names.frames.insert(id, functions);
        }
    }
    name_kernel(tables, &mut names.names, &mut problems);
    name_jit(tables, recorded, symbols, &mut names, &mut problems);
    (names, problems)
}

/// The newest names of JIT code in a recording that goes on.
pub(crate) fn jit_names(tables: &Tables, recorded: Origin<'_>) -> SymbolTable {
    let mut names = LocalNames::default();
    let mut symbols = SymbolTable::default();
    // What stands in the way is said when a file is written.
    name_jit(tables, recorded, &mut symbols, &mut names, &mut Vec::new());
    for later in names.later {
        names.names.frames.insert(later.frame, later.functions);
    }
    names.names
}

/// Takes account of local names in what was found out before they were known.
pub(crate) fn count(tables: &Tables, report: &mut SymbolReport) {
    let named = &tables.local_names.names.frames;
    let n = frames(tables)
        .filter(|(id, frame)| matches!(frame, Frame::Unmapped(_)) && named.contains_key(id))
        .count();
    report.n_unresolved = report.n_unresolved.saturating_sub(n);
    for module in report.modules.iter_mut().filter(|m| m.path == "[anon]") {
        module.n_unresolved = module.n_unresolved.saturating_sub(n);
    }
}

fn frames(tables: &Tables) -> impl Iterator<Item = (FrameId, &Frame)> {
    (0..).map(FrameId).zip(&tables.frames)
}

fn module_of(tables: &Tables, id: u32) -> Option<&Module> {
    tables.modules.get(id as usize)
}

fn name_kernel(tables: &Tables, names: &mut SymbolTable, problems: &mut Vec<String>) {
    match kernel_functions(tables) {
        Ok(found) => names.frames.extend(found),
        Err(error) => problems.push(format!("functions of the kernel have no names: {error}")),
    }
}

/// Functions of the kernel that runs here, at the addresses that a trace has.
pub(crate) fn kernel_functions(
    tables: &Tables,
) -> anyhow::Result<Vec<(FrameId, Vec<SymbolFrame>)>> {
    let (ids, addresses): (Vec<FrameId>, Vec<Avma>) = frames(tables)
        .filter_map(|(id, frame)| match frame {
            Frame::KernelCode(address) => Some((id, *address)),
            _ => None,
        })
        .unzip();
    if addresses.is_empty() {
        return Ok(Vec::new());
    }
    let file = File::open(KALLSYMS).with_context(|| format!("failed to open {KALLSYMS}"))?;
    let found = kernel_names(BufReader::with_capacity(BUFFER, file), &addresses)?;
    let named = ids.into_iter().zip(found.names);
    let named = named.filter_map(|(id, name)| Some((id, vec![function(name?)])));
    Ok(named.collect())
}

/// Names code outside of files by the target's jitdumps, and by its perf maps what these do not know.
fn name_jit(
    tables: &Tables,
    recorded: Origin<'_>,
    symbols: &mut SymbolTable,
    names: &mut LocalNames,
    problems: &mut Vec<String>,
) {
    for (process, files) in (0..).map(ProcessId).zip(recorded.files) {
        let (ids, addresses): (Vec<FrameId>, Vec<Avma>) = frames(tables)
            .filter_map(|(id, frame)| {
                let (owner, address) = place_of_jit(tables, recorded.unmapped, id, frame)?;
                (owner == process).then_some((id, address))
            })
            .unzip();
        if addresses.is_empty() {
            continue;
        }
        let mut found: Vec<Vec<JitCode>> = vec![Vec::new(); addresses.len()];
        read_jitdumps(files, &addresses, &mut found, problems);
        if found.iter().any(Vec::is_empty) {
            read_perf_maps(files, &addresses, &mut found, problems);
        }
        put_jit(recorded, ids, found, symbols, names);
    }
    // Sorted by frame, then time, as the trace has them.
    names.later.sort_by_key(|later| (later.frame, later.since));
}

fn put_jit(
    recorded: Origin<'_>,
    ids: Vec<FrameId>,
    found: Vec<Vec<JitCode>>,
    symbols: &mut SymbolTable,
    names: &mut LocalNames,
) {
    let end = recorded.begin + recorded.duration;
    for (id, codes) in ids.into_iter().zip(found) {
        let mut codes = in_time(codes, end).into_iter();
        if let Some(first) = codes.next() {
            symbols.frames.remove(&id);
            let mut now = first;
            let mut initial = None;
            for next in codes {
                // What ran before the recording began is of no interest.
                let replaced = std::mem::replace(&mut now, next);
                if now.since <= recorded.begin {
                    continue;
                }
                initial.get_or_insert(replaced.function);
                names.later.push(LaterName {
                    frame: id,
                    since: TimeNs(now.since - recorded.begin),
                    functions: vec![now.function.clone()],
                });
            }
            let initial = initial.unwrap_or(now.function);
            names.names.frames.insert(id, vec![initial]);
        }
    }
}

/// The process and the address of code that is in no ELF file.
pub(crate) fn place_of_jit(
    tables: &Tables,
    unmapped: &UnmappedFrames,
    id: FrameId,
    frame: &Frame,
) -> Option<(ProcessId, Avma)> {
    let address = address_of_jit(tables, frame)?;
    let owner = match frame {
        Frame::Native { module, .. } => module_of(tables, module.0)?.process,
        _ => unmapped.owner(id)?,
    };
    Some((owner, address))
}

/// The address of code that is in no ELF file: anonymous memory, or a nameless file that a runtime
/// maps twice, to write and to run.
fn address_of_jit(tables: &Tables, frame: &Frame) -> Option<Avma> {
    match frame {
        Frame::Unmapped(address) => Some(*address),
        Frame::Native {
            module, address, ..
        } => {
            let module = module_of(tables, module.0)?;
            let nameless = [
                "/memfd:",
                "/dev/zero",
                "/dev/shm/",
                "/SYSV",
                "/anon_hugepage",
            ];
            nameless
                .iter()
                .any(|prefix| module.path.starts_with(prefix))
                .then(|| module.bias.to_avma(module.svma(*address)))
        }
        Frame::Kernel(_) | Frame::KernelCode(_) => None,
    }
}

/// Code by the time it came to its address, without repetitions. Where times are none, or of another
/// clock, the last code holds for the whole recording.
fn in_time(mut codes: Vec<JitCode>, end: u64) -> Vec<JitCode> {
    let usable = codes
        .iter()
        .all(|code| code.since != 0 && code.since <= end + 60_000_000_000);
    if !usable {
        return codes.pop().into_iter().collect();
    }
    // Stable: of two at the same time the later one in the file wins.
    codes.sort_by_key(|code| code.since);
    // Code that came after the end was never seen.
    let n = codes.partition_point(|code| code.since <= end).max(1);
    codes.truncate(n);
    codes.dedup_by(|next, code| {
        let same = next.function == code.function;
        if !same && next.since == code.since {
            *code = next.clone();
            return true;
        }
        same
    });
    codes
}

fn read_jitdumps(
    files: &TargetFiles,
    addresses: &[Avma],
    found: &mut [Vec<JitCode>],
    problems: &mut Vec<String>,
) {
    for file in files.jitdumps() {
        let read = file.map_err(|e| e.to_string()).and_then(|mut file| {
            // A copy of a descriptor has the same position.
            file.rewind().map_err(|e| e.to_string())?;
            let input = BufReader::with_capacity(BUFFER, file.take(u64::MAX));
            jitdump_names(input, addresses).map_err(|e| e.to_string())
        });
        match read {
            Ok(dump) => {
                for (all, codes) in found.iter_mut().zip(dump.codes) {
                    all.extend(codes);
                }
                if dump.n_malformed > 0 {
                    problems.push(format!(
                        "{} records of the target's jitdump make no sense and were passed over",
                        dump.n_malformed
                    ));
                }
            }
            Err(error) => problems.push(format!("the target's jitdump is not used: {error}")),
        }
    }
}

fn read_perf_maps(
    files: &TargetFiles,
    addresses: &[Avma],
    found: &mut [Vec<JitCode>],
    problems: &mut Vec<String>,
) {
    for map in files.perf_maps() {
        let read = map.map_err(|e| e.to_string()).and_then(|file| {
            let input = BufReader::with_capacity(BUFFER, file);
            perf_map_names(input, addresses).map_err(|e| e.to_string())
        });
        match read {
            Ok(map) => {
                for (codes, name) in found.iter_mut().zip(map.names) {
                    if let Some(name) = name.filter(|_| codes.is_empty()) {
                        let function = function(name);
                        codes.push(JitCode { since: 0, function });
                    }
                }
                if map.n_malformed > 0 {
                    problems.push(format!(
                        "{} lines of the target's perf map name no code and were passed over",
                        map.n_malformed
                    ));
                }
                if map.cut {
                    problems
                        .push("the target's perf map is too large: only a part was read".into());
                }
            }
            Err(error) => problems.push(format!("the target's perf map is not used: {error}")),
        }
    }
}

fn function(name: String) -> SymbolFrame {
    SymbolFrame {
        name,
        file: None,
        line: None,
        inlined: false,
        resolved: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(list: &[(u64, &str)]) -> Vec<JitCode> {
        let code = |&(since, name): &(u64, &str)| JitCode {
            since,
            function: function(name.to_owned()),
        };
        list.iter().map(code).collect()
    }

    /// Check the order in time, repetitions, code that came after the end, and clocks that are none.
    #[test]
    fn times() {
        for (list, expected) in [
            (&[(10, "a"), (20, "b")][..], &[(10, "a"), (20, "b")][..]),
            (&[(20, "b"), (10, "a")], &[(10, "a"), (20, "b")]),
            (&[(10, "a"), (20, "a"), (30, "b")], &[(10, "a"), (30, "b")]),
            (&[(10, "a"), (10, "b")], &[(10, "b")]),
            (&[(10, "a"), (101, "b")], &[(10, "a")]),
            (&[(101, "b")], &[(101, "b")]),
            (&[(0, "a"), (0, "b")], &[(0, "b")]),
            (&[(10, "a"), (1 << 60, "b")], &[(1 << 60, "b")]),
            (&[], &[]),
        ] {
            assert_eq!(in_time(codes(list), 100), codes(expected), "{list:?}");
        }
    }
}
