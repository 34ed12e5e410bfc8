//! What each export holds of a small trace.

use serde_json::json;
use wcprof_profile::model::State;
use wcprof_profile::{
    Around, FunctionFilter, FunctionName, GroupBy, Relation, ThreadFilter, View, globs,
};
use wcprof_types::{BuildId, StackEnd, ThreadState};

use crate::exports::{Exports, ungrouped};
use crate::read::firefox_frames;
use crate::support::{MS, Maker, syscall};

/// A worker that ran, waited for a mutex and ran again, a second thread that sleeps, and an idle one.
fn example() -> Maker {
    let mut maker = Maker::new();
    maker.tables.modules[1].build_id = BuildId::new(&[0xab; 20]);
    let at = |maker: &mut Maker, start: u64, end: u64| maker.move_last(start * MS, end * MS);
    let worker = maker.thread(101, "worker");
    let lock = [
        "main @ /src/main.cc:10",
        "work @ /src/work.cc:20",
        "libc:pthread_mutex_lock",
        "libc:__lll_lock_wait",
    ];
    let lock = maker.stack(&lock, StackEnd::Root);
    let futex = maker.wait(syscall("futex"));
    let compute = maker.stack(
        &[
            "main @ /src/main.cc:10",
            "work @ /src/work.cc:25",
            "step @ /src/work.h:7+run @ /src/work.cc:31",
        ],
        StackEnd::Root,
    );
    let (on_cpu, blocked) = (ThreadState::OnCpu, ThreadState::Blocked);
    maker.span(worker, on_cpu, None, Some(compute), 3 * MS);
    at(&mut maker, 0, 10);
    maker.span(worker, blocked, Some(futex), Some(lock), 7 * MS);
    at(&mut maker, 0, 10);
    maker.span(worker, blocked, Some(futex), Some(lock), 10 * MS);
    at(&mut maker, 10, 20);
    maker.span(worker, on_cpu, None, Some(compute), 10 * MS);
    at(&mut maker, 20, 30);
    let sleeper = maker.thread(102, "sleeper");
    maker.blocked(
        sleeper,
        syscall("clock_nanosleep"),
        &["main", "nap"],
        30 * MS,
    );
    let idle = maker.thread(103, "idler");
    maker.blocked(
        idle,
        syscall("epoll_wait"),
        &["main", "libc:epoll_wait"],
        30 * MS,
    );
    maker
}

/// Check values, labels, units and frame order of pprof.
#[test]
fn pprof_of_example() {
    let pprof = Exports::of(&example(), None).pprof(&ungrouped());
    let types = pprof.0.sample_type.iter();
    let types: Vec<_> = types
        .map(|t| (pprof.text(t.r#type), pprof.text(t.unit)))
        .collect();
    assert_eq!(types, [("samples", "count"), ("wall", "nanoseconds")]);
    assert_eq!(pprof.text(pprof.0.default_sample_type), "wall");
    assert_eq!(pprof.0.time_nanos, 1_700_000_000_000_000_000);
    let mut samples = pprof.0.sample.iter();
    assert!(samples.clone().all(|s| pprof.label(s, "state") != "idle"));
    let lock = samples.find(|s| pprof.label(s, "state") == "lock").unwrap();
    assert_eq!(lock.value, [2, 17 * MS as i64]);
    for (key, value) in [
        ("thread", "worker"),
        ("process", "ceph-osd"),
        ("tid", "101"),
        ("pid", "100"),
    ] {
        assert_eq!(pprof.label(lock, key), value);
    }
}

/// Check that a location of pprof holds its inline functions with their lines, and its module.
#[test]
fn pprof_locations() {
    let pprof = Exports::of(&example(), None).pprof(&ungrouped());
    let mut samples = pprof.0.sample.iter();
    let running = samples
        .clone()
        .find(|s| pprof.label(s, "state") == "on-cpu")
        .unwrap();
    let locations = pprof.locations(running);
    let lines: Vec<_> = locations.iter().map(|l| pprof.lines(l)).collect();
    assert_eq!(
        lines,
        [
            vec!["step /src/work.h:7", "run /src/work.cc:31"],
            vec!["work /src/work.cc:25"],
            vec!["main /src/main.cc:10"],
        ]
    );
    let lock = samples.find(|s| pprof.label(s, "state") == "lock").unwrap();
    let modules: Vec<_> = pprof
        .locations(lock)
        .iter()
        .map(|l| pprof.mapping(l))
        .collect();
    let (libc, osd) = (
        ("/lib/libc.so.6", &*"ab".repeat(20)),
        ("/usr/bin/ceph-osd", ""),
    );
    assert_eq!(modules, [libc, libc, osd, osd]);
    // The program comes first, and says what viewers find in it.
    let [osd, libc] = &pprof.0.mapping[..] else {
        panic!()
    };
    let has = |m: &crate::proto::Mapping| {
        [
            m.has_functions,
            m.has_filenames,
            m.has_line_numbers,
            m.has_inline_frames,
        ]
    };
    assert_eq!(
        (has(osd), has(libc)),
        ([true; 4], [true, false, false, false])
    );
}

/// Check that an inline function whose caller a view hides is no part of another module's frame.
#[test]
fn hidden_caller_of_inline_function() {
    let mut maker = Maker::new();
    let thread = maker.thread(101, "worker");
    maker.on_cpu(thread, &["main", "libc:call", "inner+outer"], MS);
    let view = View {
        hide: Some(FunctionFilter::new("^outer$").unwrap()),
        ..ungrouped()
    };
    let pprof = Exports::of(&maker, None).pprof(&view);
    let locations = pprof.locations(&pprof.0.sample[0]);
    let lines: Vec<_> = locations.iter().map(|l| pprof.lines(l)).collect();
    assert_eq!(lines, [["inner :0"], ["call :0"], ["main :0"]]);
}

/// Check that two builds of a module are two mappings.
#[test]
fn builds_of_a_module() {
    let mut maker = Maker::new();
    let other = maker.tables.modules[1].clone();
    maker.tables.modules[0] = wcprof_trace::model::Module {
        build_id: BuildId::new(&[1; 20]),
        path: "/snap/libc.so.6".to_owned(),
        ..other
    };
    let thread = maker.thread(101, "worker");
    maker.on_cpu(thread, &["libc:read", "read"], MS);
    let pprof = Exports::of(&maker, None).pprof(&ungrouped());
    let locations = pprof.locations(&pprof.0.sample[0]);
    let modules: Vec<_> = locations.iter().map(|l| pprof.mapping(l)).collect();
    assert_eq!(
        modules,
        [
            ("/snap/libc.so.6", &*"01".repeat(20)),
            ("/lib/libc.so.6", "")
        ]
    );
}

/// Check a thread's time line in speedscope: what ran and waited in one interval is laid one after
/// the other. Frames are functions, with the first of their lines, or else name their modules.
#[test]
fn speedscope_of_example() {
    let file = Exports::of(&example(), None)
        .speedscope(&View::default(), "title")
        .unwrap();
    let profiles = file["profiles"].as_array().unwrap();
    let names: Vec<_> = profiles.iter().map(|p| &p["name"]).collect();
    assert_eq!(names, ["worker/101", "sleeper/102"]);
    let worker = &profiles[0];
    assert_eq!(worker["weights"], json!([3 * MS, 17 * MS, 10 * MS]));
    assert_eq!(
        (&worker["startValue"], &worker["endValue"]),
        (&json!(0), &json!(30 * MS))
    );
    assert_eq!(
        (&worker["type"], &worker["unit"]),
        (&json!("sampled"), &json!("nanoseconds"))
    );
    assert_eq!(
        worker["samples"],
        json!([[0, 1, 4, 5], [0, 1, 2, 3], [0, 1, 4, 5]])
    );
    let frames = json!([
        {"name": "main", "file": "/src/main.cc", "line": 10},
        {"name": "work", "file": "/src/work.cc", "line": 20},
        {"name": "pthread_mutex_lock", "file": "libc.so.6"},
        {"name": "__lll_lock_wait", "file": "libc.so.6"},
        {"name": "run", "file": "/src/work.cc", "line": 31},
        {"name": "step", "file": "/src/work.h", "line": 7},
    ]);
    assert_eq!(
        file["shared"]["frames"].as_array().unwrap()[..6],
        frames.as_array().unwrap()[..]
    );
}

/// Check tracks, times, categories, CPU time and markers of a Firefox profile.
#[test]
fn firefox_of_example() {
    let document = Exports::of(&example(), None)
        .firefox(&ungrouped(), "title")
        .unwrap();
    assert_eq!(document["meta"]["preprocessedProfileVersion"], 61);
    assert_eq!(document["meta"]["startTime"], 1.7e12);
    let [worker, sleeper] = &document["threads"].as_array().unwrap()[..] else {
        panic!()
    };
    assert_eq!(
        (&worker["name"], &sleeper["name"]),
        (&json!("worker"), &json!("sleeper"))
    );
    assert_eq!(worker["pid"], "100");
    let samples = &worker["samples"];
    assert_eq!(samples["weightType"], "tracing-ms");
    assert_eq!(samples["time"], json!([0.0, 3.0, 20.0, 30.0]));
    assert_eq!(samples["weight"], json!([3.0, 17.0, 10.0, 0.0]));
    // CPU time is that before a sample.
    assert_eq!(samples["threadCPUDelta"], json!([0, 3 * MS, 0, 10 * MS]));
    assert_eq!(samples["stack"][3], json!(null));
    let lock = firefox_frames(&document, &samples["stack"][1], "category");
    assert_eq!(
        (&lock[0]["name"], &lock[0]["color"]),
        (&json!("lock"), &json!("red"))
    );
    let markers = &worker["markers"];
    let text =
        |n: &serde_json::Value| &document["shared"]["stringArray"][n.as_u64().unwrap() as usize];
    let marked: Vec<_> = (0..3)
        .map(|at| {
            (
                text(&markers["name"][at]),
                &markers["startTime"][at],
                text(&markers["data"][at]["function"]),
            )
        })
        .map(|(name, start, function)| json!([name, start, function]))
        .collect();
    let expected = json!([
        ["on-cpu", 0.0, "step"],
        ["lock", 3.0, "__lll_lock_wait"],
        ["on-cpu", 20.0, "step"]
    ]);
    assert_eq!(json!(marked), expected);
    assert_eq!(markers["endTime"], json!([3.0, 20.0, 30.0]));
}

/// Check file, line, inline depth and module of a Firefox profile's frames.
#[test]
fn firefox_frames_of_example() {
    let document = Exports::of(&example(), None)
        .firefox(&ungrouped(), "")
        .unwrap();
    let stacks = &document["threads"][0]["samples"]["stack"];
    let of = |at: usize, column: &str| json!(firefox_frames(&document, &stacks[at], column));
    assert_eq!(of(0, "name"), json!(["main", "work", "run", "step"]));
    assert_eq!(
        of(0, "file"),
        json!([
            "/src/main.cc",
            "/src/work.cc",
            "/src/work.cc",
            "/src/work.h"
        ])
    );
    assert_eq!(of(0, "line"), json!([10, 25, 31, 7]));
    assert_eq!(of(0, "inlineDepth"), json!([0, 0, 0, 1]));
    assert_eq!(of(1, "line"), json!([10, 20, null, null]));
    let libs = of(1, "lib");
    assert_eq!(libs[0]["path"], "/usr/bin/ceph-osd");
    assert_eq!(
        (&libs[3]["name"], &libs[3]["codeId"]),
        (&json!("libc.so.6"), &json!("ab".repeat(20)))
    );
    assert_eq!(libs[3]["breakpadId"], "AB".repeat(16) + "0");
}

/// Check columns and numbers of CSV, and that idle time is there when it is asked for.
#[test]
fn csv_of_example() {
    let view = View {
        idle: true,
        ..ungrouped()
    };
    let rows = Exports::of(&example(), None).csv(&view);
    assert_eq!(rows.len(), 6);
    for (row, column, value) in [
        (2, "start_ns", "10000000"),
        (2, "end_ns", "20000000"),
        (2, "weight_ns", "10000000"),
        (2, "thread", "worker"),
        (2, "state", "lock"),
        (2, "syscall", "futex"),
        (2, "function", "__lll_lock_wait"),
        (2, "module", "libc.so.6"),
        (2, "stack", "main;work;pthread_mutex_lock;__lll_lock_wait"),
        (2, "file", ""),
        (3, "file", "/src/work.h"),
        (3, "line", "7"),
        (5, "state", "place-unknown"),
    ] {
        assert_eq!(rows[row][column], value, "{column}");
    }
}

/// Check that time that hides in a view leaves a gap on time axes and does not shift the rest.
#[test]
fn hidden_time_is_a_gap() {
    let read = Exports::of(&example(), None);
    let view = View {
        states: Some(vec![State::OnCpu]),
        ..ungrouped()
    };
    let by_thread = View {
        by: GroupBy::Thread,
        ..view.clone()
    };
    let file = read.speedscope(&by_thread, "").unwrap();
    let profile = &file["profiles"][0];
    assert_eq!(profile["weights"], json!([3 * MS, 17 * MS, 10 * MS]));
    assert_eq!(profile["samples"][1], json!([]));
    let document = read.firefox(&view, "").unwrap();
    let samples = &document["threads"][0]["samples"];
    assert_eq!(samples["time"], json!([0.0, 3.0, 20.0, 30.0]));
    assert_eq!(samples["weight"], json!([3.0, 0.0, 10.0, 0.0]));
    assert_eq!(
        (&samples["stack"][1], &samples["stack"][3]),
        (&json!(null), &json!(null))
    );
}

/// Check that nothing to show is an error in formats that can not be empty, and no rows in others.
#[test]
fn nothing_shown() {
    let read = Exports::of(&example(), None);
    let view = View {
        states: Some(vec![State::Disk]),
        ..ungrouped()
    };
    let mut out = Vec::new();
    let timeline = read.timeline();
    for error in [
        wcprof_export::speedscope(&read.profile, &view, &timeline, "", &mut out),
        wcprof_export::firefox(&read.profile, &view, &timeline, "", &mut out),
    ] {
        assert_eq!(error.unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    }
    assert!(out.is_empty());
    assert!(read.pprof(&view).0.sample.is_empty());
    assert!(read.csv(&view).is_empty());
}

/// Check that a time window cuts spans and that times count from its begin.
#[test]
fn window() {
    let read = Exports::of(&example(), Some((15 * MS, 25 * MS)));
    let document = read.firefox(&ungrouped(), "").unwrap();
    assert_eq!(document["meta"]["startTime"], 1.7e12 + 15.0);
    let mut threads = document["threads"].as_array().unwrap().iter();
    let worker = threads.find(|t| t["name"] == "worker").unwrap();
    assert_eq!(worker["samples"]["time"], json!([0.0, 5.0, 10.0]));
    assert_eq!(worker["samples"]["weight"], json!([5.0, 5.0, 0.0]));
    let file = read.speedscope(&View::default(), "").unwrap();
    let mut profiles = file["profiles"].as_array().unwrap().iter();
    assert!(profiles.all(|p| p["endValue"] == 10 * MS));
    assert_eq!(
        read.pprof(&ungrouped()).0.time_nanos,
        1_700_000_000_015_000_000
    );
}

/// Check filters by function and thread, relations and groups.
#[test]
fn filters_and_groups() {
    let read = Exports::of(&example(), None);
    let stacks = |view: &View| {
        let stacks = read.pprof(view).folded().into_keys();
        stacks.collect::<Vec<_>>()
    };
    let focus = |name| FunctionFilter::new(name).expect("a regex");
    let view = View {
        focus: Some(focus("run")),
        hide: Some(focus("^work$")),
        ..ungrouped()
    };
    assert_eq!(stacks(&view), ["main;run;step"]);
    let view = View {
        around: Some(Around {
            relation: Relation::CallersOf,
            function: FunctionName("work".into()),
        }),
        ..ungrouped()
    };
    // Root first, whatever the tree's direction.
    assert_eq!(stacks(&view), ["main;work"]);
    let view = View {
        around: Some(Around {
            relation: Relation::CalleesOf,
            function: FunctionName("work".into()),
        }),
        ..ungrouped()
    };
    assert_eq!(
        stacks(&view),
        ["work;pthread_mutex_lock;__lll_lock_wait", "work;run;step"]
    );
    let view = View {
        by: GroupBy::Pool,
        threads: ThreadFilter {
            threads: globs(&["sleep*"]).expect("a glob"),
            ..ThreadFilter::default()
        },
        ..View::default()
    };
    assert_eq!(stacks(&view), ["sleeper;main;nap"]);
    let view = View {
        min_percent: 25.0,
        ..ungrouped()
    };
    // Lines of a function are pruned apart.
    let lock = "main;work;pthread_mutex_lock;__lll_lock_wait";
    assert_eq!(stacks(&view), ["main;[below 25%]", "main;nap", lock]);
    let by_process = View {
        by: GroupBy::Process,
        ..View::default()
    };
    let file = read.speedscope(&by_process, "").unwrap();
    assert_eq!(file["profiles"].as_array().unwrap().len(), 1);
    assert_eq!(file["profiles"][0]["name"], "ceph-osd (pid 100)");
}
