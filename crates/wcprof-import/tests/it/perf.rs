//! Recorded `perf.data` files, whole and damaged.

use std::path::Path;

use proptest::prelude::*;
use wcprof_import::{CodeFiles, ImportError, Options, WantedFile};
use wcprof_symbols::{TargetFile, in_memory};
use wcprof_trace::model::{Frame, Trace};
use wcprof_types::{Avma, StackEnd, ThreadState};

use crate::{import, import_with};

const CPU: &str = "cpu-clock.data";
const SWITCH: &str = "sched-switch.data";
const BOTH: &str = "both.data";
const DWARF: &str = "dwarf.data";

fn fixture(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name);
    std::fs::read(path).expect("the fixture is there")
}

fn read(bytes: Vec<u8>) -> Result<Trace, ImportError> {
    import(bytes, &Options::default())
}

/// Time of the thread `name` in a state, ns.
fn time(trace: &Trace, name: &str, state: ThreadState) -> u64 {
    let is_named = |span: &&wcprof_trace::model::Span| {
        trace.tables.threads[span.thread.0 as usize].name() == name && span.state == state
    };
    trace.spans.iter().filter(is_named).map(|s| s.weight).sum()
}

/// Check that samples of a clock weigh their periods, and that the thread that computes has them.
#[test]
fn clock() {
    let trace = read(fixture(CPU)).expect("a trace");
    let burner = time(&trace, "burner", ThreadState::OnCpu);
    let all: u64 = trace.spans.iter().map(|s| s.weight).sum();
    assert!(
        burner > 200_000_000 && burner * 10 > all * 9,
        "{burner} of {all}"
    );
    assert!(!trace.tables.modules.is_empty());
    let notes = trace.tables.header.notes.join("\n");
    assert!(notes.contains("time off CPU was not recorded"), "{notes}");
}

/// Check that what another command of perf recorded is said to be that.
#[test]
fn of_other_commands() {
    let mut bytes = fixture(CPU);
    let at = bytes
        .windows(7)
        .rposition(|part| part == b"record\0")
        .expect("the command");
    bytes[at..at + 6].copy_from_slice(b"lock\0\0");
    let notes = |bytes| read(bytes).expect("a trace").tables.header.notes.join("\n");
    let said = notes(bytes);
    assert!(said.contains("it is of `perf lock record`"), "{said}");
    assert!(!notes(fixture(CPU)).contains("it is of"));
}

/// Check that user stacks that come later are said to be missing, and that what announces them is no frame.
#[test]
fn deferred_stacks() {
    let trace = read(fixture("made/deferred.data")).expect("a trace");
    let notes = trace.tables.header.notes.join("\n");
    assert!(
        notes.contains("100 samples have their user stacks in later records"),
        "{notes}"
    );
    assert_eq!(
        trace.tables.frames,
        [Frame::KernelCode(Avma(0xffff_ffff_8100_1000))]
    );
}

/// Check that a build-id that perf saved for a path is given to one of two files that have it.
#[test]
fn files_of_one_path() {
    let trace = read(fixture("made/namespaces.data")).expect("a trace");
    let build_ids = trace
        .tables
        .modules
        .iter()
        .map(|module| module.build_id.is_some());
    assert_eq!(build_ids.collect::<Vec<_>>(), [true, false]);
    let notes = trace.tables.header.notes.join("\n");
    assert!(notes.contains("1 mappings are of other files"), "{notes}");
}

/// A machine that has the perf map of `jit.c`'s process, and nothing else.
#[derive(Default)]
struct PerfMap {
    asked: Vec<String>,
}

impl CodeFiles for PerfMap {
    fn open(&mut self, wanted: &WantedFile) -> Option<TargetFile> {
        let WantedFile::Jit(path) = wanted else {
            return None;
        };
        self.asked.push(path.clone());
        in_memory(b"7f3ba20cd000 7 spin(int)\n").ok()
    }
}

/// Check that code in no file has the name that the perf map of its process gives it, as `perf report` prints it, that no other
/// file is asked for, and that it is said where there is none.
#[test]
fn perf_map() {
    let mut code = PerfMap::default();
    let trace = import_with(fixture("jit.data"), &Options::default(), &mut code).expect("a trace");
    assert_eq!(code.asked, ["/tmp/perf-1000.map"]);
    let local = &trace.tables.names.local.names.frames;
    let names: Vec<_> = local
        .values()
        .flatten()
        .map(|frame| frame.name.as_str())
        .collect();
    assert_eq!(names, ["spin(int)"]);
    let (frame, _) = local.first_key_value().expect("a name");
    let leaves = trace.spans.iter().map(|span| {
        let stack = span.stack.expect("a stack");
        let leaf = trace.tables.stacks[stack.0 as usize].leaf.expect("a leaf");
        trace.tables.nodes[leaf.0 as usize].frame
    });
    assert_eq!(leaves.filter(|leaf| leaf == frame).count(), 19);

    let without = read(fixture("jit.data")).expect("a trace");
    assert!(without.tables.names.local.names.frames.is_empty());
    let notes = without.tables.header.notes.join("\n");
    assert!(notes.contains("1 addresses are in no file"), "{notes}");
}

/// Check that switches give the time that the sleeping thread slept, with stacks.
#[test]
fn switches() {
    let trace = read(fixture(SWITCH)).expect("a trace");
    let slept = time(&trace, "sleeper", ThreadState::Blocked);
    let duration = trace.tables.stats.duration.0;
    assert!(
        slept * 10 > duration * 8 && slept <= duration,
        "{slept} of {duration}"
    );
    assert!(
        trace
            .spans
            .iter()
            .any(|s| s.state == ThreadState::Blocked && s.stack.is_some())
    );
}

/// Check that with samples and switches a thread's time is on CPU, runnable or blocked, each as long as
/// the switches say.
#[test]
fn samples_and_switches() {
    let trace = read(fixture(BOTH)).expect("a trace");
    let duration = trace.tables.stats.duration.0;
    let ran = time(&trace, "burner", ThreadState::OnCpu);
    let waited = time(&trace, "burner", ThreadState::Runnable);
    assert!(ran > 100_000_000, "{ran}");
    // A sample stands for its period: the thread may have run shorter.
    let sum = ran + waited + time(&trace, "burner", ThreadState::Blocked);
    assert!(sum < duration + duration / 10, "{sum} of {duration}");
    assert!(time(&trace, "sleeper", ThreadState::Blocked) * 10 > duration * 8);
    assert!(trace.tables.threads.iter().all(|t| t.name() != "other"));
}

/// Check that copies of user stacks without their program have one frame each, where execution was, and
/// say why; each copy is counted.
#[test]
fn copies() {
    let trace = read(fixture(DWARF)).expect("a trace");
    let tables = &trace.tables;
    let stacks = trace.spans.iter().filter_map(|span| {
        let stack = tables.stacks.get(span.stack?.0 as usize)?;
        let leaf = tables.nodes.get(stack.leaf?.0 as usize)?;
        let Frame::Native { module, .. } = tables.frames.get(leaf.frame.0 as usize)? else {
            return None;
        };
        let path = &tables.modules.get(module.0 as usize)?.path;
        (path == "/opt/load/spin").then_some((stack.end, leaf.caller))
    });
    let stacks: Vec<_> = stacks.collect();
    assert!(stacks.len() > 20, "{}", stacks.len());
    for (end, caller) in stacks {
        assert_eq!((end, caller), (StackEnd::ModuleUnreadable, None));
    }
    let n_copies: u64 = tables.stats.ends.values().sum();
    assert!(n_copies > 20 && n_copies <= trace.spans.len() as u64);
    let notes = tables.header.notes.join("\n");
    let missing = "are not on this machine with the recorded build-id: /opt/load/spin";
    assert!(notes.contains(missing), "{notes}");
}

/// Check that a file cut in its records or its header says so.
#[test]
fn cut() {
    let bytes = fixture(CPU);
    for len in [8, 60, 104, 300, bytes.len() / 2, bytes.len() - 1] {
        let error = read(bytes[..len].to_vec())
            .expect_err("an error")
            .to_string();
        assert!(
            error.contains("cut") || error.contains("end of the file"),
            "{len}: {error}"
        );
    }
}

/// Check that what is not read says why and how to come to a file that is: a recording through a pipe, a compressed one, and one of
/// several events without their ids, as `perf inject` makes of a pipe.
#[test]
fn refusals() {
    let refused = |name: &str, changes: &[(usize, u8)]| {
        let mut bytes = fixture(name);
        for (at, byte) in changes {
            bytes[*at] = *byte;
        }
        let error = read(bytes).unwrap_err().to_string();
        assert!(error.contains("`perf script -i FILE`"), "{error}");
        error
    };
    assert!(refused(CPU, &[(8, 16)]).contains("written to a pipe"));
    let records = u64::from_le_bytes(fixture(CPU)[40..48].try_into().unwrap()) as usize;
    for kind in [81, 83] {
        assert!(refused(CPU, &[(records, kind)]).contains("is compressed"));
    }
    // The descriptions of events become a list of CPUs.
    let features = fixture("off-cpu.data")[73];
    let without = refused("off-cpu.data", &[(73, features ^ 0x30)]);
    assert!(without.contains("which of its events"), "{without}");
}

/// Check that sizes which nothing bounds are refused: in a list of events as old versions of perf wrote it, and in one whose
/// attributes are of a size that no version has.
#[test]
fn sizes_of_events() {
    let refused = |at: usize, byte: u8| {
        let mut bytes = fixture(CPU);
        bytes[at] = byte;
        read(bytes).unwrap_err().to_string()
    };
    assert!(refused(64, 16).contains("before 2014"));
    let attributes = u64::from_le_bytes(fixture(CPU)[24..32].try_into().unwrap()) as usize;
    assert!(refused(attributes + 4, 88).contains("no valid size"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Check that changed bytes, most of them in the header and what it points at, give a trace or
    /// an error.
    #[test]
    fn damaged(which in 0..4_usize, changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 1..8)) {
        let mut bytes = fixture([CPU, SWITCH, BOTH, DWARF][which]);
        let n = bytes.len();
        for (at, byte, early) in changes {
            let at = if early { at.index(1024.min(n)) } else { at.index(n) };
            bytes[at] = byte;
        }
        if let Ok(trace) = read(bytes) {
            for span in &trace.spans {
                prop_assert!(span.start <= span.end && span.weight <= span.end.0 - span.start.0);
            }
        }
    }
}

/// Check `perf record --off-cpu`: sums that perf writes without a time at its end, and samples whose raw data have the sleeper. No time
/// is the one's whom a sample interrupted.
#[test]
fn off_cpu_of_sums_and_raw_data() {
    for (name, app_waits) in [("offcpu", 50_000_000), ("offcpu2", 0), ("offcpu2-timed", 0)] {
        let trace = read(fixture(&format!("made/{name}.data"))).expect("a trace");
        let waits = |thread| time(&trace, thread, ThreadState::Blocked);
        assert_eq!(waits("worker"), 900_000_000, "{name}");
        assert_eq!(waits("app"), app_waits, "{name}");
        assert_eq!(
            time(&trace, "app", ThreadState::OnCpu),
            1_000_000_000,
            "{name}"
        );
        for state in [ThreadState::Blocked, ThreadState::OnCpu] {
            assert_eq!(time(&trace, "stranger", state), 0, "{name}");
        }
        let seconds = trace.tables.stats.duration.0 as f64 / 1e9;
        assert!((0.95..=1.05).contains(&seconds), "{name}: {seconds}");
    }
    // The stack is the sleeper's: leaf first, a return address looked up inside its call.
    let trace = read(fixture("made/offcpu2-timed.data")).expect("a trace");
    let waits = callers(&trace, "worker", "/opt/app");
    assert_eq!(waits, [[0x1200, 0x10ff], [0x1200, 0x10ff]]);
}

/// Check recordings of perf 7.2 with `--off-cpu`, in which sums and single waits have the pid and tid of the sleeper in different orders:
/// each thread waited as long as its own clock said, in its own process, and with its own callers. Waits that switches say, too, are counted
/// once.
#[test]
fn off_cpu_of_known_waits() {
    for name in ["off-cpu", "off-cpu-each", "off-cpu-switches"] {
        let trace = read(fixture(&format!("{name}.data"))).expect("a trace");
        let said = String::from_utf8(fixture(&format!("{name}.txt"))).expect("text");
        let said: Vec<Vec<&str>> = said.lines().map(|l| l.split(' ').collect()).collect();
        assert_eq!(trace.tables.processes.len(), 1, "{name}");
        assert_eq!(trace.tables.threads.len(), said.len(), "{name}");
        for line in said {
            let [thread, waited, ran] = line[..] else {
                panic!("{line:?}");
            };
            for (said, state, bound) in [
                (waited, ThreadState::Blocked, 500_000),
                // 99 samples a second, of which a few can be missing.
                (ran, ThreadState::OnCpu, 30_000_000),
            ] {
                let said: u64 = said.parse().expect("a number");
                let got = time(&trace, thread, state);
                assert!(
                    got.abs_diff(said) < bound,
                    "{name}: {thread} {state:?}: {got}, and not {said}"
                );
            }
        }
        // The offsets of `nap` and `sleep_long` in the program, and of their ends.
        for (thread, function) in [("napper", 0x122e..0x1254), ("sleeper", 0x1254..0x1276)] {
            let callers = callers(&trace, thread, "/srv/w/waits");
            assert!(!callers.is_empty(), "{name}: {thread}");
            for addresses in callers {
                let is_there = addresses.iter().any(|a| function.contains(a));
                assert!(is_there, "{name}: {thread}: {addresses:x?}");
            }
        }
    }
}

/// The addresses in one file of each of a thread's waits that have stacks.
fn callers(trace: &Trace, thread: &str, path: &str) -> Vec<Vec<u64>> {
    let tables = &trace.tables;
    let is_wait = |span: &&wcprof_trace::model::Span| {
        let name = tables.threads[span.thread.0 as usize].name();
        span.state == ThreadState::Blocked && name == thread
    };
    let addresses = |span: &wcprof_trace::model::Span| {
        let mut next = tables.stacks[span.stack?.0 as usize].leaf;
        let mut addresses = Vec::new();
        while let Some(node) = next.map(|id| tables.nodes[id.0 as usize]) {
            if let Frame::Native {
                module, address, ..
            } = &tables.frames[node.frame.0 as usize]
                && tables.modules[module.0 as usize].path == path
            {
                addresses.push(address.0);
            }
            next = node.caller;
        }
        Some(addresses)
    };
    let waits = trace.spans.iter().filter(is_wait);
    waits.filter_map(addresses).collect()
}

/// Check that time is taken from cycles though cache misses come first, that misses alone are no time on a CPU, and that what is not
/// read of branch records is said.
#[test]
fn events_that_are_no_time() {
    let trace = read(fixture("made/misses.data")).expect("a trace");
    assert!(trace.spans.iter().all(|s| s.state == ThreadState::OnCpu));
    assert_eq!(trace.spans.len(), 200);
    assert_eq!(trace.tables.frames.len(), 1);
    let alone = read(fixture("made/misses-alone.data")).expect("a trace");
    assert_eq!(alone.spans.len(), 100);
    assert!(alone.spans.iter().all(|s| s.state == ThreadState::Unknown));
    let notes = |trace: &Trace| trace.tables.header.notes.join("\n");
    assert!(notes(&alone).contains("and no time"), "{}", notes(&alone));
    let lbr = read(fixture("made/lbr.data")).expect("a trace");
    assert!(notes(&lbr).contains("--call-graph lbr"), "{}", notes(&lbr));
}
