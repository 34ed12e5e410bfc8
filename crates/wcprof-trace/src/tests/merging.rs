//! Merged traces: what each source had, and what only they together have.

use wcprof_types::{
    Avma, FileOffset, LoadBias, Pid, RelativeAddress, StackEnd, Svma, ThreadState, Tid, TimeNs,
};

use super::{header, some_trace};
use crate::TraceSink;
use crate::model::*;
use crate::{Align, Ending, Joins, MergeLosses, TraceReader, TraceWriter, merge, merged_header};

fn read(bytes: &[u8]) -> Trace {
    let (trace, ending) = TraceReader::from_reader(bytes).unwrap().read_all().unwrap();
    assert_eq!(ending, Ending::Clean);
    trace
}

fn merged(files: &[&[u8]], align: Align) -> (Trace, MergeLosses) {
    let tables: Vec<Tables> = files.iter().map(|bytes| read(bytes).tables).collect();
    let header = merged_header(&tables, "9.9");
    let mut writer = TraceWriter::new(Vec::new(), &header).unwrap();
    let open = |i: usize| TraceReader::from_reader(files[i]);
    let joins = match align {
        Align::Clock => Joins::find(&tables).unwrap(),
        Align::Start => Joins::none(tables.len()),
    };
    let losses = merge(tables, align, &joins, open, &mut writer).unwrap();
    (read(&writer.into_inner()), losses)
}

fn function(name: &str) -> Vec<SymbolFrame> {
    vec![SymbolFrame {
        name: name.to_owned(),
        file: None,
        line: None,
        inlined: false,
        resolved: true,
    }]
}

/// A trace of one thread that spends a second in code outside of every file, which has this name.
fn small(host: &str, started_unix_ns: u64, name: Option<&str>) -> Vec<u8> {
    let header = Header {
        host: host.to_owned(),
        started_unix_ns,
        ..header()
    };
    let mut w = TraceWriter::new(Vec::new(), &header).unwrap();
    let process = w
        .add_process(Process {
            pid: Pid(7),
            comm: "p".to_owned(),
            cmdline: Vec::new(),
            cgroup: "/g".to_owned(),
            birth: String::new(),
        })
        .unwrap();
    let thread = w.add_thread(process, Tid(8), TimeNs(0), "t").unwrap();
    let code = w.intern_frame(Frame::Unmapped(Avma(0x1000))).unwrap();
    let kernel = w.intern_frame(Frame::KernelCode(Avma(0xffff))).unwrap();
    let stack = w.intern_stack([code, kernel], StackEnd::Root).unwrap();
    let second = TimeNs(1_000_000_000);
    w.span(&Span {
        thread,
        start: TimeNs(0),
        end: second,
        weight: second.0,
        n_samples: 1,
        state: ThreadState::OnCpu,
        wait: None,
        stack: Some(stack),
    })
    .unwrap();
    w.thread_seen(thread, TimeNs(0), second, 99).unwrap();
    let reason = "exited".to_owned();
    let end = ProcessEnd {
        time: second,
        reason,
    };
    w.process_ended(process, &end).unwrap();
    w.finish(&Stats {
        duration: second,
        n_ticks: 99,
        complete: true,
        end_reason: "duration".to_owned(),
        ..Stats::default()
    })
    .unwrap();
    let mut names = LocalNames::default();
    names.names.frames.insert(kernel, function("schedule"));
    if let Some(name) = name {
        names.names.frames.insert(code, function(name));
    }
    w.write_local_names(&names).unwrap();
    w.into_inner()
}

/// Check that a merged trace has everything of both, and each thread its time.
#[test]
fn nothing_is_lost() {
    let (bytes, one) = some_trace();
    let (both, _) = merged(&[&bytes, &bytes], Align::Start);
    let (t, u) = (&both.tables, &one.tables);
    assert_eq!(t.processes.len(), 2 * u.processes.len());
    assert_eq!(t.modules.len(), 2 * u.modules.len());
    assert_eq!(t.threads.len(), 2 * u.threads.len());
    assert_eq!(t.origins.setups.len(), 2 * u.origins.setups.len());
    let n_sources = u.origins.sources.len() as u32;
    let accounts = u.origins.accounts.iter();
    let of_source = |source| {
        accounts.clone().map(move |r| AccountsReading {
            source,
            ..r.clone()
        })
    };
    let accounts: Vec<_> = of_source(0).chain(of_source(n_sources)).collect();
    assert!(!accounts.is_empty());
    assert_eq!(t.origins.accounts, accounts);
    assert_eq!(
        t.origins.process_ends.len(),
        2 * u.origins.process_ends.len()
    );
    assert_eq!(t.waits, u.waits);
    let counters = |t: &Tables| t.origins.counters.clone();
    assert_eq!(counters(t).names, counters(u).names);
    let n_readings = counters(u).readings.len();
    assert_eq!(counters(t).readings.len(), 2 * n_readings);
    let (of_first, of_second) = (&counters(t).readings[0], &counters(t).readings[n_readings]);
    assert_eq!(of_first.values, of_second.values);
    assert_ne!(of_first.process, of_second.process);
    let (locks, of_one) = (&t.locks, &u.locks);
    assert!(!of_one.looks.is_empty());
    assert_eq!(locks.own_tids.len(), 2 * of_one.own_tids.len());
    assert_eq!(locks.moved.len(), 2 * of_one.moved.len());
    assert_eq!(locks.n_skipped, 2 * of_one.n_skipped);
    let (first, second) = locks.looks.split_at(of_one.looks.len());
    assert_eq!(first, of_one.looks);
    for (twin, look) in second.iter().zip(first) {
        let n = u.processes.len() as u32;
        assert_eq!(twin.process.0, look.process.0 + n);
        assert_eq!((twin.address, twin.until), (look.address, look.until));
        for (twin, owner) in twin.owners.iter().zip(&look.owners) {
            assert_eq!(twin.thread.0, owner.thread.0 + u.threads.len() as u32);
        }
    }
    assert_eq!(t.stats.n_observations, 2 * u.stats.n_observations);
    assert_eq!(both.spans.len(), 2 * one.spans.len());
    let time_of = |trace: &Trace, thread: usize| -> u64 {
        let spans = trace.spans.iter();
        spans
            .filter(|s| s.thread.0 as usize == thread)
            .map(|s| s.weight)
            .sum()
    };
    let n = u.threads.len();
    for i in 0..n {
        assert_eq!(t.threads[i].names, u.threads[i].names);
        assert_eq!(t.threads[i + n].n_ticks, u.threads[i].n_ticks);
        for twin in [i, i + n] {
            assert!(time_of(&both, twin).abs_diff(time_of(&one, i)) < 1000);
        }
    }
}

/// Check hosts, times by clock and by begin, and that kernel code is named.
#[test]
fn hosts_and_times() {
    let begin = 1_700_000_000_000_000_000;
    let a = small("a", begin, None);
    let b = small("b", begin + 300_000_000, None);
    let tables = [read(&a).tables, read(&b).tables];
    assert_eq!(Align::fitting(&tables, &Joins::none(2)), Align::Clock);
    let (trace, losses) = merged(&[&a, &b], Align::Clock);
    let t = &trace.tables;
    assert_eq!(losses, MergeLosses::default());
    assert_eq!(
        (t.header.host.as_str(), t.header.engine.as_str()),
        ("a, b", "procfs")
    );
    assert_eq!(t.header.n_cpus, 16);
    assert_eq!(t.stats.duration.0, 1_300_000_000);
    assert_eq!(t.host_of(ProcessId(0)), "a");
    assert_eq!(t.host_of(ProcessId(1)), "b");
    assert_eq!(t.host_of(ProcessId(2)), "a, b");
    assert_eq!(t.origins.sources[1].start.0, 300_000_000);
    assert_eq!(t.threads[1].start.0, 300_000_000);
    assert_eq!(t.origins.process_ends[&ProcessId(1)].time.0, 1_300_000_000);
    assert_eq!(trace.spans[1].start.0, 300_000_000);
    assert!(t.frames.contains(&Frame::Kernel("schedule".to_owned())));
    // One after the other: they begin together.
    let late = small("b", begin + 9_000_000_000, None);
    let tables = [read(&a).tables, read(&late).tables];
    assert_eq!(Align::fitting(&tables, &Joins::none(2)), Align::Start);
    let (trace, _) = merged(&[&a, &late], Align::Start);
    assert_eq!(trace.tables.stats.duration.0, 1_000_000_000);
    // A merged trace can be merged again.
    let (again, _) = merged(&[&a, &b, &late], Align::Start);
    assert_eq!(again.tables.origins.sources.len(), 3);
}

/// Check that code in no file keeps its name only where no other source contradicts.
#[test]
fn names_at_one_address() {
    for (names, expected) in [
        ([Some("f"), Some("f")], (1, 0)),
        ([Some("f"), Some("g")], (0, 1)),
        ([Some("f"), None], (0, 1)),
        ([None, None], (0, 0)),
    ] {
        let [a, b] = names.map(|name| small("h", 5, name));
        let (trace, losses) = merged(&[&a, &b], Align::Start);
        let n_named = trace.tables.names.local.names.frames.len();
        assert_eq!((n_named, losses.n_unnamed), expected, "{names:?}");
    }
}

/// A second of one process in this code, which a symbol table names, as bytes.
fn with_symbols(started_s: u64, code: &Frame, name: &str) -> Vec<u8> {
    let mut tables = tables_of(started_s, |_| {});
    tables.names.local = LocalNames::default();
    tables.modules.push(Module {
        process: ProcessId(0),
        path: "/p".to_owned(),
        build_id: None,
        start: Avma(0),
        end: Avma(0x1000),
        offset: FileOffset(0),
        bias: LoadBias(0),
        base: Svma(0),
        deleted: false,
    });
    tables.frames[0] = code.clone();
    let mut symbols = SymbolTable::default();
    symbols.frames.insert(FrameId(0), function(name));
    let mut writer = TraceWriter::new(Vec::new(), &tables.header).unwrap();
    writer.add_tables(&tables).unwrap();
    writer.finish(&tables.stats).unwrap();
    writer.write_symbols(&symbols).unwrap();
    writer.into_inner()
}

/// Check that names of code in no file stay only where two symbol tables agree, and that of a file's code the
/// later one stays.
#[test]
fn names_of_two_symbol_tables() {
    let unmapped = Frame::Unmapped(Avma(0x1000));
    let native = Frame::Native {
        module: ModuleId(0),
        address: RelativeAddress(0x10),
        function: None,
    };
    for (code, names, expected) in [
        (&unmapped, ["f", "f"], (Some("f"), 0)),
        (&unmapped, ["f", "g"], (None, 1)),
        (&native, ["f", "g"], (Some("g"), 0)),
    ] {
        let [a, b] = [(0, names[0]), (10, names[1])].map(|(at, n)| with_symbols(at, code, n));
        let (trace, losses) = merged(&[&a, &b], Align::Clock);
        let symbols = trace.tables.names.symbols.unwrap();
        let of_code = symbols.frames.values().next();
        let name = of_code.map(|functions| functions[0].name.as_str());
        assert_eq!((name, losses.n_unnamed), expected, "{code:?} {names:?}");
    }
}

/// Tables of a second of some process.
fn tables_of(started_s: u64, change: impl FnOnce(&mut Tables)) -> Tables {
    let mut tables = read(&small("a", EPOCH + started_s * 1_000_000_000, None)).tables;
    tables.origins.process_ends.clear();
    tables.processes[0].birth = "boot 5".to_owned();
    tables.processes[0].cmdline = vec!["p".to_owned()];
    change(&mut tables);
    tables
}

const EPOCH: u64 = 1_700_000_000_000_000_000;

/// Check which recordings are of one process: not those of another process with its pid, of another host or
/// another program, nor one after its end; and that the birth is not needed where a recording lacks it.
#[test]
fn one_process_or_two() {
    let n_joined = |first: Tables, second: Tables| {
        let joins = Joins::find(&[first, second]).unwrap();
        assert_eq!(joins.n_continued(), joins.repeated.len());
        joins.n_continued()
    };
    let same = || tables_of(10, |_| {});
    assert_eq!(n_joined(tables_of(0, |_| {}), same()), 1);
    let no_birth = |t: &mut Tables| t.processes[0].birth.clear();
    assert_eq!(n_joined(tables_of(0, no_birth), same()), 1);
    assert_eq!(n_joined(tables_of(0, no_birth), tables_of(10, no_birth)), 1);
    let changes: [fn(&mut Tables); 7] = [
        |t| t.processes[0].birth = "boot 6".to_owned(),
        |t| t.processes[0].pid = Pid(9),
        |t| t.processes[0].comm = "q".to_owned(),
        |t| t.processes[0].cmdline.push("--more".to_owned()),
        |t| t.header.host = "b".to_owned(),
        |t| t.header.kernel = "7.0".to_owned(),
        |t| {
            let end = ProcessEnd::default();
            t.origins.process_ends.insert(ProcessId(0), end);
        },
    ];
    for (i, change) in changes.into_iter().enumerate() {
        assert_eq!(n_joined(tables_of(0, change), same()), 0, "change {i}");
    }
    // Of an imported recording too little is known.
    let unknown = |t: &mut Tables| {
        t.processes[0].birth.clear();
        t.processes[0].cmdline.clear();
    };
    assert_eq!(n_joined(tables_of(0, unknown), tables_of(10, unknown)), 0);
}

/// Check what is said of a process that was recorded three times, in whatever order they come, and that
/// recordings that overlap are refused.
#[test]
fn repeated() {
    let tables = [30, 0, 10].map(|at| tables_of(at, |_| {}));
    let joins = Joins::find(&tables).unwrap();
    assert_eq!(joins.order, [1, 2, 0]);
    let [repeated] = joins.repeated.as_slice() else {
        panic!("{joins:?}");
    };
    assert_eq!((repeated.source, repeated.n_recordings), (1, 3));
    assert_eq!(repeated.recorded_ns, 3_000_000_000);
    assert_eq!(repeated.over_ns, 31_000_000_000);
    assert_eq!(Align::fitting(&tables, &joins), Align::Clock);
    let late = |t: &mut Tables| t.header.started_unix_ns += 600_000_000;
    let overlap = Joins::find(&[tables_of(0, |_| {}), tables_of(0, late)]).unwrap_err();
    assert_eq!((overlap.sources, overlap.ns), ([0, 1], 400_000_000));
    // One that begins when the other ends does not overlap.
    assert!(Joins::find(&[tables_of(0, |_| {}), tables_of(1, |_| {})]).is_ok());
}

/// A second of one process with these threads (tid, name), as bytes.
fn of_threads(started_s: u64, threads: &[(i32, &str)]) -> Vec<u8> {
    let mut tables = tables_of(started_s, |_| {});
    tables.threads.clear();
    tables.locks = LockFacts::default();
    for (tid, name) in threads {
        let thread = Thread::new(ProcessId(0), Tid(*tid), TimeNs(0), (*name).to_owned());
        tables.threads.push(Thread {
            end: TimeNs(1_000_000_000),
            n_ticks: 99,
            ..thread
        });
    }
    let mut writer = TraceWriter::new(Vec::new(), &tables.header).unwrap();
    writer.add_tables(&tables).unwrap();
    writer.finish(&tables.stats).unwrap();
    writer.into_inner()
}

/// Check that threads are joined by tid and name, that a tid that went to another thread is two threads, and
/// that a merged trace can be merged with a later recording of its process.
#[test]
fn threads_over_time() {
    let a = of_threads(0, &[(7, "p"), (8, "x"), (9, "old")]);
    let b = of_threads(10, &[(7, "p"), (9, "new"), (10, "y")]);
    let c = of_threads(20, &[(9, "new")]);
    let first_two = {
        let tables: Vec<Tables> = [&a, &b].map(|bytes| read(bytes).tables).into();
        let joins = Joins::find(&tables).unwrap();
        let mut writer = TraceWriter::new(Vec::new(), &merged_header(&tables, "9")).unwrap();
        let open = |i: usize| TraceReader::from_reader([a.as_slice(), b.as_slice()][i]);
        merge(tables, Align::Clock, &joins, open, &mut writer).unwrap();
        writer.into_inner()
    };
    let (at_once, _) = merged(&[&c, &a, &b], Align::Clock);
    let (again, _) = merged(&[&first_two, &c], Align::Clock);
    for trace in [at_once, again] {
        let t = &trace.tables;
        assert_eq!(t.processes.len(), 1);
        let threads: Vec<_> = t
            .threads
            .iter()
            .map(|t| (t.tid.0, t.name(), t.start.0 / 1_000_000_000, t.n_ticks))
            .collect();
        assert_eq!(
            threads,
            [
                (7, "p", 0, 198),
                (8, "x", 0, 99),
                (9, "old", 0, 99),
                (9, "new", 10, 198),
                (10, "y", 10, 99)
            ]
        );
        let second = |s: u64| TimeNs(s * 1_000_000_000);
        let parts = [0, 10, 20].map(|at| (second(at), second(at + 1)));
        assert_eq!(t.recorded_parts(), [parts.to_vec()]);
        assert_eq!(
            t.gaps(),
            [(second(1), second(10)), (second(11), second(20))]
        );
        assert_eq!(
            t.origins.sources.iter().map(|s| s.n_processes).sum::<u32>(),
            1
        );
        assert_eq!(t.host_of(ProcessId(0)), "a");
    }
}

/// Check that a merge of more recordings than a reader takes is refused.
#[test]
fn too_many_sources() {
    let bytes = small("a", EPOCH, None);
    let mut tables = read(&bytes).tables;
    let source = Source::default();
    tables.origins.sources = vec![source; crate::limits::MAX_SOURCES + 1];
    let header = merged_header(std::slice::from_ref(&tables), "9.9");
    let mut writer = TraceWriter::new(Vec::new(), &header).unwrap();
    let open = |_| TraceReader::from_reader(bytes.as_slice());
    let refused = merge(
        vec![tables],
        Align::Clock,
        &Joins::none(1),
        open,
        &mut writer,
    );
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("sources, the limit is"), "{refused}");
}
