//! What the file holds of a small trace.

use std::collections::HashSet;
use std::time::Duration;

use parquet::file::reader::FileReader;
use wcprof_parquet::Options;
use wcprof_profile::model::State;
use wcprof_profile::{GroupBy, View};
use wcprof_types::{FdKind, FdTarget, StackEnd, ThreadState, Wait};

use crate::read::{lines, reader, sum, table, text};
use crate::support::{MS, Maker, syscall};

const SECOND: u64 = 1000 * MS;
/// When the traces here begin, us since 1970.
const BEGAN_US: u64 = 1_700_000_000_000_000;

fn view() -> View {
    View {
        by: GroupBy::All,
        ..View::default()
    }
}

/// An OSD that runs for 1.5 s and then waits for a mutex until 3 s, by two locks at the same place.
fn osd() -> Maker {
    let mut maker = Maker::new();
    let process = &mut maker.tables.processes[0];
    process.cmdline = ["ceph-osd", "-f", "--id", "7"].map(str::to_owned).to_vec();
    process.cgroup = "/system.slice/ceph-6d9cf4e2-1f0a-11ee-be56-0242ac120002@osd.7.service".into();
    maker.tables.stats.duration.0 = 3 * SECOND;
    let worker = maker.thread(101, "tp_osd_tp");
    let run = maker.stack(&["main", "OSD::dequeue_op", "libc:malloc"], StackEnd::Root);
    let lock = [
        "main",
        "PG::lock(bool) const",
        "libc:pthread_mutex_lock",
        "libc:__lll_lock_wait",
    ];
    let lock = maker.stack(&lock, StackEnd::Root);
    maker.span(worker, ThreadState::OnCpu, None, Some(run), 1500 * MS);
    maker.move_last(0, 1500 * MS);
    for at in 0..2 {
        let wait = maker.wait(Wait {
            futex: Some(wcprof_types::Avma(0x1000 + at)),
            ..syscall("futex")
        });
        let start = (1500 + at * 750) * MS;
        maker.span(
            worker,
            ThreadState::Blocked,
            Some(wait),
            Some(lock),
            750 * MS,
        );
        maker.move_last(start, start + 750 * MS);
    }
    maker
}

/// Check every column of a trace, that slices begin with whole seconds of the clock, and that waits that differ in nothing
/// that is shown are one line.
#[test]
fn columns() {
    let mut maker = osd();
    // Slices begin at whole seconds: the first is cut.
    maker.tables.header.started_unix_ns += 250 * MS;
    let file = reader(&maker, &view(), &Options::default(), None);
    let lines = lines(&file);
    let times = table(&lines, &["start", "slice_ns", "state", "weight_ns"]);
    let start = |second: u64| BEGAN_US + second * 1_000_000;
    let expected = [
        format!("{} | 750000000 | on-cpu | 750000000", start(0)),
        format!("{} | 1000000000 | on-cpu | 750000000", start(1)),
        format!("{} | 1000000000 | lock | 250000000", start(1)),
        format!("{} | 1000000000 | lock | 1000000000", start(2)),
        format!("{} | 250000000 | lock | 250000000", start(3)),
    ];
    assert_eq!(times, expected);
    let who = [
        "host", "fsid", "class", "daemon", "process", "pid", "cgroup", "pool", "thread", "tid",
    ];
    let fsid = "6d9cf4e2-1f0a-11ee-be56-0242ac120002";
    let cgroup = format!("/system.slice/ceph-{fsid}@osd.7.service");
    let expected = format!(
        "node1 | {fsid} | ceph-osd | osd.7 | ceph-osd | 100 | {cgroup} | tp_osd_tp | tp_osd_tp | 101"
    );
    assert!(table(&lines, &who).iter().all(|line| *line == expected));
    let what = [
        "work",
        "lock",
        "syscall",
        "file",
        "function",
        "module",
        "stack",
        "interval_ns",
    ];
    let what = table(&lines, &what);
    assert_eq!(
        what[0],
        "malloc, free |  |  |  | malloc | libc.so.6 | main;OSD::dequeue_op;malloc | 10000000"
    );
    assert_eq!(
        what[2],
        " | PG::lock | futex |  | __lll_lock_wait | libc.so.6 | \
         main;PG::lock(bool) const;pthread_mutex_lock;__lll_lock_wait | 10000000"
    );
    assert_eq!(sum(&lines, "samples"), 3);
    let names: HashSet<&String> = lines[0].keys().collect();
    assert_eq!(
        names.len(),
        file.metadata().file_metadata().schema_descr().num_columns()
    );
}

/// Check that the file names what made it, and what the recorder said.
#[test]
fn about() {
    let mut maker = osd();
    maker.tables.header.notes = vec!["bpf: not \u{1b}permitted".into()];
    let file = reader(&maker, &view(), &Options::default(), None);
    let about = file.metadata().file_metadata();
    assert!(about.created_by().unwrap().starts_with("wcprof "));
    let pairs = about.key_value_metadata().unwrap();
    let value = |key: &str| {
        let pair = pairs.iter().find(|pair| pair.key == key);
        pair.and_then(|pair| pair.value.clone()).unwrap()
    };
    assert_eq!(value("wcprof.schema"), "1");
    assert!(value("wcprof.recorded").ends_with("bpf: not ?permitted"));
}

/// Check that whatever the slices and however little is kept, weights and samples add up, and the lines of one slice say
/// it once as long as all is kept.
#[test]
fn sums() {
    let maker = osd();
    for (slice, max_sums, n_lines, n_groups) in [
        (Duration::from_secs(1), 100, 4, 1),
        (Duration::from_hours(1), 100, 2, 1),
        (Duration::from_millis(1), 10_000, 3000, 1),
        (Duration::from_millis(1), 100, 3000, 58),
        (Duration::from_millis(100), 1, 30, 15),
    ] {
        let options = Options { slice, max_sums };
        let file = reader(&maker, &view(), &options, None);
        let lines = lines(&file);
        let of = table(&lines, &["start", "state", "stack"]);
        assert_eq!(lines.len(), n_lines, "{options:?}");
        assert_eq!(
            of.iter().collect::<HashSet<_>>().len(),
            n_lines,
            "{options:?}"
        );
        assert_eq!(sum(&lines, "weight_ns"), 3 * SECOND, "{options:?}");
        assert_eq!(sum(&lines, "samples"), 3, "{options:?}");
        assert_eq!(file.num_row_groups(), n_groups, "{options:?}");
    }
}

/// Check that a span that ends long after it began is in the slices of that time, also if these have been written.
#[test]
fn late_span() {
    let mut maker = osd();
    let sleeper = maker.thread(102, "sleeper");
    let fd = FdTarget {
        kind: FdKind::Regular,
        path: "/var/\u{202e}x".into(),
    };
    let wait = Wait {
        fd: Some(fd),
        ..syscall("fdatasync")
    };
    maker.blocked(sleeper, wait, &["main", "flush"], 3 * SECOND);
    maker.move_last(0, 3 * SECOND);
    let options = Options {
        max_sums: 2,
        ..Options::default()
    };
    let file = reader(&maker, &view(), &options, None);
    let mut lines = lines(&file);
    lines.retain(|line| text(line, "thread") == "sleeper");
    let times = table(&lines, &["start", "weight_ns", "file", "syscall"]);
    let line = |second: u64| {
        let start = BEGAN_US + second * 1_000_000;
        format!("{start} | 1000000000 | /var/?x | fdatasync")
    };
    assert_eq!(times, [line(0), line(1), line(2)]);
}

/// Check that a window cuts spans and slices, and that filters and groups hold.
#[test]
fn parts() {
    let maker = osd();
    let window = Some((1250 * MS, 2500 * MS));
    let file = reader(&maker, &view(), &Options::default(), window);
    let columns = ["start", "slice_ns", "state", "weight_ns"];
    let start = |second: u64| BEGAN_US + second * 1_000_000;
    assert_eq!(
        table(&lines(&file), &columns),
        [
            format!("{} | 750000000 | on-cpu | 250000000", start(1)),
            format!("{} | 750000000 | lock | 500000000", start(1)),
            format!("{} | 500000000 | lock | 500000000", start(2)),
        ]
    );
    let only_cpu = View {
        by: GroupBy::Pool,
        states: Some(vec![State::OnCpu]),
        ..View::default()
    };
    let file = reader(&maker, &only_cpu, &Options::default(), None);
    let found = table(&lines(&file), &["state", "stack"]);
    assert_eq!(found, ["on-cpu | tp_osd_tp;main;OSD::dequeue_op;malloc"; 2]);
}

/// Check that idle time is left out unless it is shown, and that a file without lines is one.
#[test]
fn idle() {
    let mut maker = Maker::new();
    let idler = maker.thread(101, "idler");
    let leaf = ["main", "libc:epoll_wait"];
    maker.blocked(idler, syscall("epoll_wait"), &leaf, 30 * MS);
    let file = reader(&maker, &view(), &Options::default(), None);
    assert!(lines(&file).is_empty());
    assert_eq!(file.num_row_groups(), 0);
    let shown = View {
        idle: true,
        ..view()
    };
    let file = reader(&maker, &shown, &Options::default(), None);
    assert_eq!(sum(&lines(&file), "weight_ns"), 30 * MS);
}

/// Check that names of a target stay text that is harmless, whatever they are, and that a deep stack is whole.
#[test]
fn hostile_names() {
    let mut maker = Maker::new();
    maker.tables.processes[0].comm = "a\u{1b}[2J\0b".into();
    maker.tables.header.host = "h\nost".into();
    let thread = maker.thread(101, "\u{202e}t;hread");
    let names: Vec<String> = (0..2000).map(|n| format!("f{n}\u{7f}\n")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    maker.on_cpu(thread, &names, 10 * MS);
    let file = reader(&maker, &view(), &Options::default(), None);
    let lines = lines(&file);
    let found = table(&lines, &["process", "host", "thread", "function"]);
    assert_eq!(found, ["a?[2J?b | h?ost | ?t;hread | f1999??"]);
    let stack = text(&lines[0], "stack");
    assert_eq!(stack.split(';').count(), 2000);
    assert!(!stack.contains(char::is_control));
}
