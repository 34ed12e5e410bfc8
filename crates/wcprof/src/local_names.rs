//! Names that only the recorded machine can give, looked up when a recording has ended: of kernel
//! code, of code that a JIT compiler made, and of the vdso. They are part of the trace in any case,
//! since no other machine has them.

use std::borrow::Cow;
use std::io::{BufRead, BufReader, Seek};
use std::sync::Arc;

use anyhow::Context;
use wcprof_host::open::{OpenError, TargetFile, read_code_in_time};
use wcprof_host::procfs::open;
use wcprof_host::while_wanted;
use wcprof_profile::model::CODE_IN;
use wcprof_record::{NamedSnapshot, Recorded, TargetFiles, UnmappedFrames};
use wcprof_symbols::{
    Cancel, JitCode, JitNames, SymbolReport, jitdump_names, kernel_names, perf_map_names,
};
use wcprof_trace::model::{
    Frame, FrameId, LaterName, LocalNames, Module, ModuleId, ProcessId, SymbolFrame, SymbolTable,
    Tables,
};
use wcprof_trace::ring::Cut;
use wcprof_types::{Avma, TimeNs, VDSO};

const KALLSYMS: &str = "/proc/kallsyms";
const BUFFER: usize = 1 << 16;
/// A jitdump may have times of another clock; times this long after the end show it, ns.
const MAX_LATE_NS: u64 = 60_000_000_000;

/// What a recording, or a part of one that goes on, knows that its trace does not hold.
#[derive(Debug)]
pub(crate) struct Origin<'a> {
    pub(crate) files: Cow<'a, [TargetFiles]>,
    pub(crate) unmapped: Cow<'a, UnmappedFrames>,
    /// The trace's time 0, `CLOCK_MONOTONIC` ns.
    begin: u64,
    /// `CLOCK_MONOTONIC` ns.
    end: u64,
}

impl<'a> From<&'a Recorded> for Origin<'a> {
    fn from(recorded: &'a Recorded) -> Self {
        Self {
            files: Cow::Borrowed(&recorded.files),
            unmapped: Cow::Borrowed(&recorded.unmapped),
            begin: recorded.begin,
            end: recorded.begin + recorded.stats.duration.0,
        }
    }
}

impl Origin<'_> {
    pub(crate) fn of_cut(kept: &NamedSnapshot, cut: &Cut<'_>) -> Self {
        let begin = kept.begin(cut);
        Self {
            files: Cow::Owned(kept.files(cut)),
            unmapped: Cow::Owned(kept.unmapped(cut)),
            begin,
            end: begin + cut.tables().stats.duration.0,
        }
    }
}

/// Local names of a trace that was just recorded, and what stood in their way. The names are
/// taken out of `symbols`.
pub(crate) fn of_recording(
    tables: &Tables,
    recorded: &Origin<'_>,
    symbols: &mut SymbolTable,
    cancel: &Cancel,
) -> (LocalNames, Vec<String>) {
    let mut names = LocalNames::default();
    let mut problems = Vec::new();
    for (id, frame) in frames(tables) {
        if let Frame::Native { module, .. } = frame
            && module_of(tables, *module).is_some_and(|m| m.path == VDSO)
            && let Some(functions) = symbols.frames.remove(&id)
        {
            names.names.frames.insert(id, functions);
        }
    }
    match kernel_functions(tables, cancel) {
        Ok(found) => names.names.frames.extend(found),
        Err(error) => problems.push(format!("functions of the kernel have no names: {error}")),
    }
    for (id, codes) in jit_codes(tables, recorded, cancel, &mut problems) {
        symbols.frames.remove(&id);
        // What ran before the recording began is of no interest.
        let n_before = codes.partition_point(|code| code.since <= recorded.begin);
        let (before, later) = codes.split_at(n_before.max(1));
        let initial = before.last().map(|code| code.function.clone());
        names.names.frames.insert(id, initial.into_iter().collect());
        names.later.extend(later.iter().map(|code| LaterName {
            frame: id,
            since: TimeNs(code.since - recorded.begin),
            functions: vec![code.function.clone()],
        }));
    }
    for (id, frame) in frames(tables) {
        let is_named = names.names.frames.contains_key(&id);
        if let Some(place) = place_of_code(&recorded.unmapped, id, frame)
            && !is_named
        {
            symbols.frames.remove(&id);
            names.names.frames.insert(id, vec![place]);
        }
    }
    // Sorted by frame, then time, as the trace has them.
    names.later.sort_by_key(|later| (later.frame, later.since));
    (names, problems)
}

/// The newest names of JIT code in a recording that goes on.
pub(crate) fn jit_names(tables: &Tables, recorded: &Origin<'_>, cancel: &Cancel) -> SymbolTable {
    // What stands in the way is said when a file is written.
    let codes = jit_codes(tables, recorded, cancel, &mut Vec::new()).into_iter();
    let newest = codes.filter_map(|(id, mut codes)| Some((id, vec![codes.pop()?.function])));
    SymbolTable {
        frames: newest.collect(),
    }
}

/// Takes account of local names in what was found out before they were known.
pub(crate) fn count(tables: &Tables, report: &mut SymbolReport) {
    let named = &tables.names.local.names.frames;
    for (id, frame) in frames(tables) {
        let place = match frame {
            Frame::Unmapped(_) => "[anon]",
            Frame::KernelCode(_) => "[kernel]",
            Frame::Native { .. } | Frame::Kernel(_) | Frame::Unknown(_) => continue,
        };
        let has_name = |functions: &Vec<SymbolFrame>| functions.iter().any(|f| f.resolved);
        if named.get(&id).is_some_and(has_name) {
            report.n_unresolved = report.n_unresolved.saturating_sub(1);
            for module in report.modules.iter_mut().filter(|m| m.path == place) {
                module.n_unresolved = module.n_unresolved.saturating_sub(1);
            }
        }
    }
}

fn frames(tables: &Tables) -> impl Iterator<Item = (FrameId, &Frame)> {
    (0..).map(FrameId).zip(&tables.frames)
}

fn module_of(tables: &Tables, id: ModuleId) -> Option<&Module> {
    tables.modules.get(id.0 as usize)
}

/// Functions of the kernel that runs here, at the addresses that a trace has.
pub(crate) fn kernel_functions(
    tables: &Tables,
    cancel: &Cancel,
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
    let file = open(KALLSYMS).with_context(|| format!("failed to open {KALLSYMS}"))?;
    let found = kernel_names(
        BufReader::with_capacity(BUFFER, cancel.reader(file)),
        &addresses,
    )?;
    let named = ids.into_iter().zip(found);
    let named = named.filter_map(|(id, name)| Some((id, vec![function(name?)])));
    Ok(named.collect())
}

/// Code outside of files by frame, in the order of time, at least one for each, until the user does not want it any more.
fn jit_codes(
    tables: &Tables,
    recorded: &Origin<'_>,
    cancel: &Cancel,
    problems: &mut Vec<String>,
) -> Vec<(FrameId, Vec<JitCode>)> {
    let wanted = cancel.clone();
    while_wanted(
        move || wanted.is_cancelled(),
        || {
            let all = recorded.files.iter();
            let all = all.take_while(|_| !cancel.is_cancelled());
            all.flat_map(|files| jit_codes_of(files, tables, recorded, cancel, problems))
                .collect()
        },
    )
}

/// The same of a process: by its jitdumps, and by its perf maps where these know nothing.
fn jit_codes_of(
    files: &TargetFiles,
    tables: &Tables,
    recorded: &Origin<'_>,
    cancel: &Cancel,
    problems: &mut Vec<String>,
) -> Vec<(FrameId, Vec<JitCode>)> {
    let (ids, addresses): (Vec<FrameId>, Vec<Avma>) = frames(tables)
        .filter_map(|(id, frame)| {
            let (owner, address) = place_of_jit(&recorded.unmapped, id, frame)?;
            (owner == files.process).then_some((id, address))
        })
        .unzip();
    if addresses.is_empty() {
        return Vec::new();
    }
    let addresses = addresses.into();
    let mut found: Vec<Vec<JitCode>> = vec![Vec::new(); ids.len()];
    let mut add = |kind: CodeFile, file, found: &mut [Vec<JitCode>]| match kind
        .read(file, &addresses, cancel)
    {
        Ok(read) => kind.add(read, found, problems),
        Err(error) => {
            let name = kind.name();
            problems.push(format!("the target's {name} is not used: {error}"));
        }
    };
    let mut has_dump = false;
    for file in files.jitdumps() {
        has_dump = true;
        add(CodeFile::Jitdump, file, &mut found);
    }
    if found.iter().any(Vec::is_empty) {
        for file in files.perf_maps() {
            add(CodeFile::PerfMap, file, &mut found);
        }
    }
    let n_unnamed = found.iter().filter(|codes| codes.is_empty()).count();
    if has_dump && n_unnamed > 0 {
        problems.push(late_text(n_unnamed, found.len()));
    }
    let found = found.into_iter().map(|codes| in_time(codes, recorded.end));
    let found = ids.into_iter().zip(found);
    found.filter(|(_, codes)| !codes.is_empty()).collect()
}

/// What is said of addresses that a process with a jitdump does not name.
fn late_text(n_unnamed: usize, n: usize) -> String {
    format!(
        "the target's jitdump does not name {n_unnamed} of {n} addresses of the code that it made: a runtime writes it \
         through a buffer, so the newest code may come late. A perf map beside it, or a recording that ends later, names more"
    )
}

/// The process and the address of code that is in no ELF file.
pub(crate) fn place_of_jit(
    unmapped: &UnmappedFrames,
    id: FrameId,
    frame: &Frame,
) -> Option<(ProcessId, Avma)> {
    match frame {
        Frame::Unmapped(address) => Some((unmapped.owner(id)?, *address)),
        _ => None,
    }
}

/// What stands for code that is in no ELF file where nothing names it: where it is, so that the code of one mapping or
/// file is one function.
pub(crate) fn place_of_code(
    unmapped: &UnmappedFrames,
    id: FrameId,
    frame: &Frame,
) -> Option<SymbolFrame> {
    place_of_jit(unmapped, id, frame)?;
    Some(SymbolFrame {
        name: format!("{CODE_IN}{}]", unmapped.code(id)?),
        ..SymbolFrame::default()
    })
}

/// Code by the time it came to its address, without repetitions. Where times are none, or of another
/// clock, the last code holds for the whole recording.
fn in_time(mut codes: Vec<JitCode>, end: u64) -> Vec<JitCode> {
    let is_usable = |code: &JitCode| code.since != 0 && code.since <= end + MAX_LATE_NS;
    if !codes.iter().all(is_usable) {
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

/// A file in which a runtime says what code it made.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum CodeFile {
    Jitdump,
    PerfMap,
}

impl CodeFile {
    fn name(self) -> &'static str {
        match self {
            Self::Jitdump => "jitdump",
            Self::PerfMap => "perf map",
        }
    }

    fn parse(self, input: impl BufRead, addresses: &[Avma]) -> anyhow::Result<JitNames> {
        Ok(match self {
            Self::Jitdump => jitdump_names(input, addresses)?,
            Self::PerfMap => perf_map_names(input, addresses)?,
        })
    }

    /// Reads a file of a target, which may be on a server.
    fn read(
        self,
        file: Result<TargetFile, OpenError>,
        addresses: &Arc<[Avma]>,
        cancel: &Cancel,
    ) -> anyhow::Result<JitNames> {
        let (addresses, cancel) = (Arc::clone(addresses), cancel.clone());
        let parse = move |file: TargetFile| {
            // A copy of a descriptor has the same position.
            (&*file).rewind()?;
            let input = BufReader::with_capacity(BUFFER, cancel.reader(&*file));
            self.parse(input, &addresses)
        };
        read_code_in_time(&file?, parse)?
    }

    /// Adds what a file has; a perf map's where nothing is known yet.
    fn add(self, read: JitNames, found: &mut [Vec<JitCode>], problems: &mut Vec<String>) {
        for (all, codes) in found.iter_mut().zip(read.codes) {
            if self == Self::Jitdump || all.is_empty() {
                all.extend(codes);
            }
        }
        let name = self.name();
        if read.cut {
            problems.push(format!(
                "the target's {name} is too large or malformed: only a part was read"
            ));
        }
        if read.n_malformed > 0 {
            let n = read.n_malformed;
            problems.push(format!(
                "skipped {n} malformed parts of the target's {name}"
            ));
        }
    }
}

fn function(name: String) -> SymbolFrame {
    SymbolFrame {
        name,
        resolved: true,
        ..SymbolFrame::default()
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

    /// Check that it is said where only a part of a jitdump was read.
    #[test]
    fn part_of_jitdump() {
        let header = [0x4a69_5444_u32, 1, 40, 62, 0, 7, 0, 0, 0, 0];
        let huge = [0, u32::MAX, 0, 0];
        for (records, n_problems) in [(&[][..], 0), (&huge[..2], 0), (&huge[..], 2)] {
            let words = header.iter().chain(records);
            let dump: Vec<u8> = words.flat_map(|word| word.to_ne_bytes()).collect();
            let (mut found, mut problems) = (vec![Vec::new()], Vec::new());
            let read = CodeFile::Jitdump.parse(&dump[..], &[Avma(1)]).unwrap();
            CodeFile::Jitdump.add(read, &mut found, &mut problems);
            assert_eq!(problems.len(), n_problems, "{problems:?}");
        }
    }
}
