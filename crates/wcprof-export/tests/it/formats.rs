//! Every export, read back: what it holds is what the profile holds.

use crate::support;

use crate::read;

use std::collections::BTreeMap;

use proptest::prelude::*;
use read::{csv, firefox, pprof, speedscope};
use support::{MS, Maker, kernel, syscall};
use wcprof_export::{CsvWriter, Timeline};
use wcprof_profile::model::{Profile, State};
use wcprof_profile::{
    Around, FunctionFilter, FunctionName, GroupBy, ProfileBuilder, Relation, RowSpan, Rules,
    ThreadFilter, Trees, View, globs,
};
use wcprof_trace::model::Span;
use wcprof_types::{StackEnd, ThreadState, TimeNs};

/// What of a trace is read, and how it is looked at.
#[derive(Debug)]
struct Read {
    profile: Profile,
    spans: Vec<RowSpan>,
}

impl Read {
    fn of(maker: &Maker, window: Option<(u64, u64)>) -> Self {
        let rules = Rules::builtin().expect("the built-in rules are valid");
        let mut builder = ProfileBuilder::new();
        if let Some((from, to)) = window {
            builder = builder.with_window(TimeNs(from), TimeNs(to));
        }
        for span in &maker.spans {
            builder.add_span(span);
        }
        let (profile, rows) = builder.finish_indexed(&maker.tables, None, &rules, false);
        let spans = maker.spans.iter().filter_map(|s| rows.find(s)).collect();
        Self { profile, spans }
    }

    fn timeline(&self) -> Timeline {
        let mut timeline = Timeline::new(&self.profile);
        for span in &self.spans {
            timeline.add(&self.profile, *span);
        }
        timeline.sort();
        timeline
    }

    fn pprof(&self, view: &View) -> pprof::Profile {
        let mut out = Vec::new();
        wcprof_export::pprof(&self.profile, view, &mut out).expect("pprof is written");
        pprof::read(&out)
    }

    fn csv(&self, view: &View) -> Vec<BTreeMap<String, String>> {
        let mut out = Vec::new();
        let mut writer = CsvWriter::new(&self.profile, view, &mut out).expect("CSV is written");
        for span in &self.spans {
            writer.add(*span).expect("CSV is written");
        }
        writer.finish().expect("CSV is written");
        csv::read(&String::from_utf8(out).expect("CSV is text"))
    }

    /// `None` when there is nothing to show.
    fn speedscope(&self, view: &View) -> Option<speedscope::File> {
        let mut out = Vec::new();
        wcprof_export::speedscope(&self.profile, view, &self.timeline(), "title", &mut out).ok()?;
        Some(speedscope::read(&out))
    }

    fn firefox(&self, view: &View) -> Option<firefox::Document> {
        let mut out = Vec::new();
        wcprof_export::firefox(&self.profile, view, &self.timeline(), "title", &mut out).ok()?;
        Some(firefox::read(&out))
    }

    /// Time that a view shows by its folded stack, ns.
    fn shown(&self, view: &View) -> BTreeMap<String, u64> {
        let trees = Trees::new(&self.profile, view);
        let mut stacks = BTreeMap::new();
        for group in &trees.groups {
            let name = wcprof_report::group_name(&self.profile, group);
            for node in group.nodes.iter().filter(|n| n.self_weight > 0) {
                let mut frames = vec![];
                let mut next = Some(node);
                while let Some(node) = next {
                    let text = node.label.text(&self.profile, trees.min_percent);
                    frames.push(text.into_owned());
                    next = node.parent.map(|p| &group.nodes[p]);
                }
                frames.extend(name.clone());
                frames.reverse();
                *stacks.entry(frames.join(";")).or_default() += node.self_weight;
            }
        }
        stacks
    }
}

/// A worker that ran, waited for a mutex and ran again, a second thread that sleeps, and an idle one.
fn example() -> Maker {
    let mut maker = Maker::new();
    let at = |maker: &mut Maker, start: u64, end: u64| maker.move_last(start * MS, end * MS);
    let worker = maker.thread(101, "worker");
    let lock = [
        "main",
        "work",
        "libc:pthread_mutex_lock",
        "libc:__lll_lock_wait",
    ];
    let lock = maker.stack(&lock, StackEnd::Root);
    let futex = maker.wait(syscall("futex"));
    let compute = maker.stack(&["main", "work", "compute"], StackEnd::Root);
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

/// Groups that no export adds by itself.
fn ungrouped() -> View {
    View {
        by: GroupBy::All,
        ..View::default()
    }
}

/// Check values, labels, units and frame order of pprof.
#[test]
fn pprof_of_example() {
    let read = Read::of(&example(), None);
    let pprof = read.pprof(&ungrouped());
    assert_eq!(
        pprof.types,
        [
            ("samples".to_owned(), "count".to_owned()),
            ("wall".to_owned(), "nanoseconds".to_owned())
        ]
    );
    assert_eq!(pprof.default_type, "wall");
    let lock = pprof
        .samples
        .iter()
        .find(|s| s.labels["state"] == "lock")
        .expect("a sample in a lock");
    // pprof has the leaf first.
    assert_eq!(
        lock.functions,
        ["__lll_lock_wait", "pthread_mutex_lock", "work", "main"]
    );
    assert_eq!(lock.values, [2, 17 * MS]);
    assert_eq!(
        lock.files,
        ["libc.so.6", "libc.so.6", "ceph-osd", "ceph-osd"]
    );
    assert_eq!(lock.labels["thread"], "worker");
    assert_eq!(lock.labels["process"], "ceph-osd");
    assert_eq!((lock.numbers["tid"], lock.numbers["pid"]), (101, 100));
    assert!(pprof.samples.iter().all(|s| s.labels["state"] != "idle"));
    assert_eq!(pprof.time_ns, 1_700_000_000_000_000_000);
}

/// Check a thread's time line in speedscope: what ran and waited in one interval is laid one after
/// the other, and frames name their modules.
#[test]
fn speedscope_of_example() {
    let read = Read::of(&example(), None);
    let file = read.speedscope(&View::default()).expect("a file");
    let names: Vec<&str> = file.profiles.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names, ["worker/101", "sleeper/102"]);
    let worker = &file.profiles[0];
    assert_eq!(worker.weights, [3 * MS, 17 * MS, 10 * MS]);
    assert_eq!((worker.start_value, worker.end_value), (0, 30 * MS));
    assert_eq!(file.stack(0, 0), ["main", "work", "compute"]);
    let leaf = worker.samples[1].last().copied().expect("a frame");
    assert_eq!(file.shared.frames[leaf].name, "__lll_lock_wait");
    assert_eq!(file.shared.frames[leaf].file.as_deref(), Some("libc.so.6"));
}

/// Check tracks, times, categories, CPU time and markers of a Firefox profile.
#[test]
fn firefox_of_example() {
    let read = Read::of(&example(), None);
    let document = read.firefox(&ungrouped()).expect("a document");
    assert_eq!(document.meta.preprocessed_profile_version, 61);
    assert_eq!(document.meta.start_time, 1.7e12);
    let names: Vec<&str> = document.threads.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["worker", "sleeper"]);
    let worker = &document.threads[0];
    assert_eq!(worker.pid, "100");
    assert_eq!(worker.samples.time, [0.0, 3.0, 20.0, 30.0]);
    assert_eq!(worker.samples.weight, [3.0, 17.0, 10.0, 0.0]);
    // CPU time is that before a sample.
    assert_eq!(worker.samples.cpu, [0, 3 * MS, 0, 10 * MS]);
    assert_eq!(
        document.stack(worker.samples.stack[0]),
        ["main", "work", "compute"]
    );
    assert_eq!(worker.samples.stack[3], None);
    assert_eq!(document.category(worker.samples.stack[1]), ("lock", "red"));
    let markers: Vec<_> = document.markers(worker).collect();
    assert_eq!(
        markers,
        [
            ("on-cpu", 0.0, 3.0, "compute"),
            ("lock", 3.0, 20.0, "__lll_lock_wait"),
            ("on-cpu", 20.0, 30.0, "compute"),
        ]
    );
    assert_eq!(document.module(worker.samples.stack[0]), "ceph-osd");
}

/// Check columns and numbers of CSV, and that idle time is there when it is asked for.
#[test]
fn csv_of_example() {
    let read = Read::of(&example(), None);
    let view = View {
        idle: true,
        ..ungrouped()
    };
    let rows = read.csv(&view);
    assert_eq!(rows.len(), 6);
    let lock = &rows[2];
    for (column, value) in [
        ("start_ns", "10000000"),
        ("end_ns", "20000000"),
        ("weight_ns", "10000000"),
        ("thread", "worker"),
        ("state", "lock"),
        ("syscall", "futex"),
        ("function", "__lll_lock_wait"),
        ("module", "libc.so.6"),
        ("stack", "main;work;pthread_mutex_lock;__lll_lock_wait"),
    ] {
        assert_eq!(lock[column], value, "{column}");
    }
    assert_eq!(rows[5]["state"], "place-unknown");
}

/// Check that time that hides in a view leaves a gap on time axes and does not shift the rest.
#[test]
fn hidden_time_is_a_gap() {
    let read = Read::of(&example(), None);
    let view = View {
        states: Some(vec![State::OnCpu]),
        ..ungrouped()
    };
    let by_thread = View {
        by: GroupBy::Thread,
        ..view.clone()
    };
    let file = read.speedscope(&by_thread).expect("a file");
    assert_eq!(file.profiles[0].weights, [3 * MS, 17 * MS, 10 * MS]);
    assert!(file.profiles[0].samples[1].is_empty());
    let document = read.firefox(&view).expect("a document");
    let samples = &document.threads[0].samples;
    assert_eq!(samples.time, [0.0, 3.0, 20.0, 30.0]);
    assert_eq!(samples.weight, [3.0, 0.0, 10.0, 0.0]);
    assert_eq!((samples.stack[1], samples.stack[3]), (None, None));
}

/// Check that nothing to show is an error in formats that can not be empty, and no rows in others.
#[test]
fn nothing_shown() {
    let read = Read::of(&example(), None);
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
        assert_eq!(
            error.expect_err("an error").kind(),
            std::io::ErrorKind::InvalidInput
        );
    }
    assert!(out.is_empty());
    assert!(read.pprof(&view).samples.is_empty());
    assert!(read.csv(&view).is_empty());
}

/// Check that a time window cuts spans and that times count from its begin.
#[test]
fn window() {
    let read = Read::of(&example(), Some((15 * MS, 25 * MS)));
    let document = read.firefox(&ungrouped()).expect("a document");
    assert_eq!(document.meta.start_time, 1.7e12 + 15.0);
    let worker = document
        .threads
        .iter()
        .find(|t| t.name == "worker")
        .expect("the worker");
    assert_eq!(worker.samples.time, [0.0, 5.0, 10.0]);
    assert_eq!(worker.samples.weight, [5.0, 5.0, 0.0]);
    let file = read.speedscope(&View::default()).expect("a file");
    assert!(file.profiles.iter().all(|p| p.end_value == 10 * MS));
    let pprof = read.pprof(&ungrouped());
    assert_eq!(pprof.time_ns, 1_700_000_000_015_000_000);
}

/// Check filters by function and thread, relations and groups.
#[test]
fn filters_and_groups() {
    let read = Read::of(&example(), None);
    let stacks = |view: &View| {
        let mut stacks: Vec<String> = read.pprof(view).folded().into_keys().collect();
        stacks.sort();
        stacks
    };
    let focus = |name| FunctionFilter::new(name).expect("a regex");
    let view = View {
        focus: Some(focus("compute")),
        hide: Some(focus("^work$")),
        ..ungrouped()
    };
    assert_eq!(stacks(&view), ["main;compute"]);
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
        ["work;compute", "work;pthread_mutex_lock;__lll_lock_wait"]
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
        min_percent: 50.0,
        ..ungrouped()
    };
    assert_eq!(stacks(&view), ["main;nap", "main;work;[below 50%]"]);
    let file = read
        .speedscope(&View {
            by: GroupBy::Process,
            ..View::default()
        })
        .expect("a file");
    assert_eq!(file.profiles.len(), 1);
    assert_eq!(file.profiles[0].name, "ceph-osd (pid 100)");
}

/// Check that hostile names come back as they are, and that none is a formula of a spreadsheet.
#[test]
fn hostile_names() {
    let names = [
        "=cmd|' /C calc'!A1",
        "a\"b,c\r\nd",
        "</script>\u{202e}",
        "\u{0}\\u0000",
    ];
    let mut maker = Maker::new();
    let thread = maker.thread(101, "@SUM(1;2)");
    maker.on_cpu(thread, &names, MS);
    let read = Read::of(&maker, None);
    let view = ungrouped();
    let pprof = read.pprof(&view);
    assert_eq!(pprof.samples[0].labels["thread"], "@SUM(1;2)");
    assert!(pprof.samples[0].functions.iter().rev().eq(names.iter()));
    assert_eq!(read.speedscope(&view).expect("a file").stack(0, 0), names);
    let document = read.firefox(&view).expect("a document");
    assert_eq!(document.stack(document.threads[0].samples.stack[0]), names);
    let rows = read.csv(&view);
    assert_eq!(rows[0]["thread"], "'@SUM(1;2)");
    assert!(rows[0]["stack"].starts_with("'=cmd"));
}

/// A trace with four threads, whose spans follow each other.
fn trace() -> impl Strategy<Value = Maker> {
    const STACKS: &[&[&str]] = &[
        &["main", "a", "b"],
        &["main", "a", "a", "c"],
        &["main", "b"],
        &["start", "libc:pthread_mutex_lock"],
    ];
    let state = prop::sample::select(vec![
        ThreadState::OnCpu,
        ThreadState::Guest,
        ThreadState::Runnable,
        ThreadState::Blocked,
        ThreadState::StealIrq,
        ThreadState::Unknown,
    ]);
    let stack = prop::option::of((0..STACKS.len(), any::<bool>()));
    let span = (0..4_u32, state, stack, 0..5 * MS, 0..3 * MS);
    prop::collection::vec(span, 1..40).prop_map(|spans| {
        let mut maker = Maker::new();
        for tid in 0..4 {
            maker.thread(101 + tid, "worker");
        }
        let stacks: Vec<_> = STACKS
            .iter()
            .flat_map(|s| [(*s, StackEnd::Root), (*s, StackEnd::NoUnwindInfo)])
            .map(|(s, end)| maker.stack(s, end))
            .collect();
        let wait = maker.wait(kernel("io_schedule"));
        let mut now = [0; 4];
        for (thread, state, stack, weight, rest) in spans {
            let start = now[thread as usize];
            now[thread as usize] = start + weight + rest;
            maker.spans.push(Span {
                thread: wcprof_trace::model::ThreadId(thread),
                start: TimeNs(start),
                end: TimeNs(start + weight + rest),
                weight,
                n_samples: 1,
                state,
                wait: (state == ThreadState::Blocked).then_some(wait),
                stack: stack.map(|(at, cut)| stacks[2 * at + usize::from(cut)]),
            });
        }
        maker
    })
}

fn view() -> impl Strategy<Value = View> {
    let by = prop::sample::select(vec![
        GroupBy::Thread,
        GroupBy::Pool,
        GroupBy::Process,
        GroupBy::Cgroup,
        GroupBy::All,
    ]);
    let hide = prop::option::of(prop::sample::select(vec!["^a$", "main", "."]));
    (by, any::<bool>(), any::<bool>(), 0.0..30.0_f64, hide).prop_map(
        |(by, idle, state_frames, percent, hide)| View {
            by,
            idle,
            state_frames,
            min_percent: (percent - 15.0).max(0.0),
            hide: hide.map(|h| FunctionFilter::new(h).expect("a regex")),
            ..View::default()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Check that every format holds the stacks of the tree, each with the tree's time.
    #[test]
    fn all_agree(maker in trace(), view in view(), window in prop::option::of(0..20 * MS)) {
        let read = Read::of(&maker, window.map(|from| (from, from + 25 * MS)));
        let shown = read.shown(&view);
        prop_assert_eq!(&read.pprof(&view).folded(), &shown);
        let mut csv = BTreeMap::new();
        for row in read.csv(&view) {
            let weight: u64 = row["weight_ns"].parse().expect("a number");
            if weight > 0 {
                *csv.entry(row["stack"].clone()).or_default() += weight;
            }
        }
        prop_assert_eq!(&csv, &shown);
        let firefox = read.firefox(&view).map(|d| d.folded()).unwrap_or_default();
        prop_assert_eq!(firefox.keys().collect::<Vec<_>>(), shown.keys().collect::<Vec<_>>());
        for (stack, ns) in &firefox {
            // Milliseconds with a fraction.
            prop_assert!((ns - shown[stack] as f64).abs() < 1.0, "{}: {}", stack, ns);
        }
        let speedscope = read.speedscope(&view).map(|f| f.folded(view.by != GroupBy::All));
        prop_assert_eq!(&speedscope.unwrap_or_default(), &shown);
    }

    /// Check that no samples of a track overlap.
    #[test]
    fn tracks_are_in_order(maker in trace()) {
        let read = Read::of(&maker, None);
        let view = View { idle: true, ..ungrouped() };
        for thread in read.firefox(&view).iter().flat_map(|d| &d.threads) {
            let samples = &thread.samples;
            let ends = samples.time.iter().zip(&samples.weight).map(|(t, w)| t + w);
            for (end, next) in ends.zip(samples.time.iter().skip(1)) {
                prop_assert!(end <= next + 1e-6);
            }
        }
    }
}
