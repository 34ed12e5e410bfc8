//! Every format against its golden file. `WCPROF_BLESS=1` writes the files anew.

use crate::support;

use std::path::PathBuf;

use support::{MS, Maker, kernel, syscall, syscall_op};
use wcprof_findings::{ExpectedGain, Remedy, ToDo, ToDoList};
use wcprof_profile::model::Profile;
use wcprof_profile::{
    Direction, GroupBy, Rules, ThreadFilter, Trees, View, cpu_by_category, globs,
};
use wcprof_report::{
    Answers, Headline, Overview, SvgOptions, TextOptions, TextTrees, folded, json, markdown, svg,
    text, uwpmp,
};
use wcprof_testkit::golden;
use wcprof_types::TimeNs;
use wcprof_types::{StackEnd, ThreadState, Wait};

fn check(name: &str, got: &[u8]) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    golden(folder.join(name), got);
}

fn run(write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    out
}

/// Messengers that decrypt, an op pool with a lock, a worker without a user stack, hostile names,
/// recursion, a truncated stack, inline frames, a second process, time without a stack.
fn osd() -> Profile {
    let mut m = Maker::new();
    let decrypt = [
        "libc:clone3",
        "EventCenter::process_events(unsigned int)",
        "AsyncConnection::process()",
        "EVP_DecryptUpdate",
    ];
    for (i, tid) in [101, 102].into_iter().enumerate() {
        let thread = m.thread(tid, &format!("msgr-worker-{i}"));
        let mut stack = decrypt.to_vec();
        stack.push("?1a2b40");
        m.on_cpu(thread, &stack, 300 * MS + 333);
        m.on_cpu(thread, &decrypt, 50 * MS + 333);
        m.blocked(
            thread,
            syscall("epoll_wait"),
            &[
                "libc:clone3",
                "EventCenter::process_events(unsigned int)",
                "libc:epoll_wait",
            ],
            600 * MS,
        );
        m.span(thread, ThreadState::Runnable, None, None, 49 * MS + 334);
    }
    let op = m.thread(110, "tp_osd_tp");
    m.blocked(
        op,
        syscall_op("futex", 128),
        &[
            "libc:clone3",
            "inner()+outer()",
            "libc:pthread_mutex_lock",
            "?85120",
        ],
        400 * MS,
    );
    m.on_cpu(
        op,
        &["libc:clone3", "rec(int)", "rec(int)", "rec(int)", "leaf()"],
        90 * MS,
    );
    m.on_cpu(op, &["libc:clone3", "small()"], MS);
    m.on_cpu(op, &["libc:clone3", "tiny()"], MS / 2);
    let cut = m.stack(&["outer()", "alloca_user()"], StackEnd::NoUnwindInfo);
    m.span(op, ThreadState::OnCpu, None, Some(cut), 108 * MS);
    m.span(op, ThreadState::OnCpu, None, None, 200 * MS);
    m.span(op, ThreadState::StealIrq, None, None, 100 * MS);
    m.on_cpu(op, &["0x7f0012345678"], 100 * MS);
    let worker = m.thread(120, "iou-wrk-110");
    let none = m.stack(&[], StackEnd::NoUserStack);
    let idle = m.wait(kernel("io_wq_worker"));
    m.span(
        worker,
        ThreadState::Blocked,
        Some(idle),
        Some(none),
        900 * MS,
    );
    let flush = m.wait(kernel("blkdev_issue_flush"));
    m.span(
        worker,
        ThreadState::Blocked,
        Some(flush),
        Some(none),
        100 * MS,
    );
    let exited = m.thread(0, "exited");
    m.span(exited, ThreadState::OnCpu, None, None, 70 * MS);
    let other = m.process(200, "evil;\x1b[31m</script>");
    let hostile = m.thread_of(other, 201, "a;b \"<script>\n\u{202e}/9");
    m.on_cpu(
        hostile,
        &[
            "main",
            "</script><script>alert('x')</script>",
            "a;b\t\"&amp;\" 42",
        ],
        40 * MS,
    );
    m.blocked(
        hostile,
        Wait::default(),
        &["main", "größe::ファイル()"],
        10 * MS,
    );
    let stats = &mut m.tables.stats;
    stats.n_observations = 500;
    stats.n_timer_samples = 90;
    stats.losses.n_torn = 2;
    stats.losses.n_late = 1;
    stats.ends.insert(StackEnd::Root, 580);
    stats.ends.insert(StackEnd::NoUnwindInfo, 10);
    stats.own_cpu_ns = 12 * MS;
    m.profile()
}

fn threads(glob: &str) -> ThreadFilter {
    ThreadFilter {
        threads: globs(&[glob]).unwrap(),
        ..ThreadFilter::default()
    }
}

fn view(by: GroupBy) -> View {
    View {
        by,
        ..View::default()
    }
}

fn inverted(by: GroupBy) -> View {
    View {
        direction: Direction::LeafFirst,
        ..view(by)
    }
}

fn text_of(profile: &Profile, view: &View, options: &TextOptions) -> Vec<u8> {
    run(|out| text(profile, &TextTrees::new(profile, view), options, out))
}

/// Check the text tree by thread, and inverted by pool with pruning.
#[test]
fn text_trees() {
    let profile = osd();
    let plain = TextOptions::default();
    check(
        "text-thread.txt",
        &text_of(&profile, &view(GroupBy::Thread), &plain),
    );
    let pools = View {
        min_percent: 5.0,
        idle: true,
        ..inverted(GroupBy::Pool)
    };
    check("text-pool-inverted.txt", &text_of(&profile, &pools, &plain));
}

/// Check colors and that no line is wider than asked.
#[test]
fn text_terminal() {
    let profile = osd();
    let options = TextOptions {
        width: Some(50),
        color: true,
        max_nodes: Some(4),
        ..TextOptions::default()
    };
    check(
        "text-color.txt",
        &text_of(&profile, &view(GroupBy::Process), &options),
    );
    let options = TextOptions {
        width: Some(50),
        ..TextOptions::default()
    };
    let out = text_of(&profile, &view(GroupBy::All), &options);
    let out = String::from_utf8(out).unwrap();
    assert!(out.lines().all(|line| line.chars().count() <= 50), "{out}");
}

/// Check uwpmp's format, forward and inverted, whole and cut to a terminal.
#[test]
fn uwpmp_format() {
    let profile = osd();
    let forward = View {
        idle: true,
        min_percent: 0.1,
        ..View::default()
    };
    check(
        "uwpmp.txt",
        &run(|out| uwpmp(&profile, &forward, None, out)),
    );
    let inverted = View {
        direction: Direction::LeafFirst,
        min_percent: 5.0,
        threads: threads("tp_*"),
        ..forward
    };
    check(
        "uwpmp-inverted.txt",
        &run(|out| uwpmp(&profile, &inverted, Some(40), out)),
    );
}

fn folded_of(profile: &Profile, view: &View) -> Vec<u8> {
    run(|out| folded(profile, &Trees::new(profile, view), out))
}

/// Check folded stacks by every group, with states, inverted, pruned.
#[test]
fn folded_format() {
    let profile = osd();
    let shown = |view: View| View { idle: true, ..view };
    check(
        "folded-thread.txt",
        &folded_of(&profile, &shown(view(GroupBy::Thread))),
    );
    let states = View {
        state_frames: true,
        ..shown(view(GroupBy::Thread))
    };
    check("folded-states.txt", &folded_of(&profile, &states));
    let states = View {
        state_frames: true,
        ..inverted(GroupBy::Pool)
    };
    check(
        "folded-states-inverted-pool.txt",
        &folded_of(&profile, &states),
    );
    let pruned = View {
        min_percent: 1.5,
        ..view(GroupBy::Process)
    };
    check("folded-pruned-process.txt", &folded_of(&profile, &pruned));
    check("folded-all.txt", &folded_of(&profile, &view(GroupBy::All)));
}

/// Check the JSON document that the schema's description shows.
#[test]
fn json_format() {
    let profile = osd();
    let view = View {
        threads: threads("tp_osd_tp"),
        min_percent: 1.0,
        ..inverted(GroupBy::Pool)
    };
    let out = run(|out| json(&profile, &view, None, out));
    check("report.json", &out);
    let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(value["version"], wcprof_report::JSON_VERSION);
}

/// Check that hostile names stay text in JSON.
#[test]
fn json_hostile() {
    let profile = osd();
    let out = run(|out| json(&profile, &view(GroupBy::Thread), None, out));
    let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
    let names: Vec<_> = value["groups"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|g| g["name"].as_str())
        .collect();
    assert!(
        names.contains(&"a;b \"<script>\n\u{202e}/9/201"),
        "{names:?}"
    );
}

const EVIL: SvgOptions<'_> = SvgOptions {
    title: "evil <b> & \"title\"\x07",
    from_top: false,
    full_names: true,
};

/// Check the flame graph, that it has titles, search and units, and that nothing in a name is
/// markup.
#[test]
fn svg_format() {
    let profile = osd();
    let out = run(|out| svg(&profile, &view(GroupBy::Thread), &EVIL, out));
    let out = String::from_utf8(out).unwrap();
    // inferno's own two scripts are the only ones.
    let frames = out.split("<svg id=\"frames\"").nth(1).unwrap();
    assert!(
        !frames.contains("<script") && !frames.contains("alert('x')<"),
        "{frames}"
    );
    assert!(frames.contains("&lt;/script&gt;&lt;script&gt;alert"));
    assert!(out.contains("evil &lt;b&gt; &amp; &quot;title&quot;?"));
    assert!(out.contains("Search") && out.contains(" us, "));
    assert!(
        !out.chars().any(|c| c.is_control() && c != '\n'),
        "control character"
    );
    assert!(frames.contains("(300,000 us, "), "a weight in microseconds");
    // A name that ends in a number is not taken for a second weight.
    assert!(frames.contains("\u{a0}42 (40,000 us, "), "{frames}");
    let again = run(|out| svg(&profile, &view(GroupBy::Thread), &EVIL, out));
    assert!(out.as_bytes() == again, "not the same bytes twice");
}

/// Check that an empty view is an error that says what to do, not an empty picture.
#[test]
fn svg_empty() {
    let profile = osd();
    let view = View {
        states: Some(vec![]),
        ..view(GroupBy::All)
    };
    let error = svg(&profile, &view, &SvgOptions::default(), &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("idle time is hidden"));
}

/// Check the headline.
#[test]
fn headline() {
    check("headline.txt", Headline::new(&osd()).text().as_bytes());
}

/// Eight things to do, longer and longer ones.
fn answers(profile: &Profile) -> Answers {
    let categories = Rules::builtin().unwrap().categories().unwrap();
    let item = |n: usize| ToDo {
        remedy: if n < 4 {
            Remedy::Setting
        } else {
            Remedy::Rework
        },
        gain: ExpectedGain {
            threads: 0.5 / n as f64,
            is_cpu: n.is_multiple_of(2),
            is_estimate: n > 4,
        },
        why: format!("reason {n}: {}", "word ".repeat(12 * n)),
        action: "do\x1b that".to_owned(),
    };
    Answers {
        categories: cpu_by_category(profile, &categories),
        to_do: ToDoList {
            cpu_wait: Some(ToDo {
                why: "Threads wait for a CPU while other processes use 1.20 of 2 cores".to_owned(),
                ..item(5)
            }),
            items: (1..9).map(item).collect(),
        },
        n_undecided: 2,
    }
}

/// Check that CPU time without a stack says why where its threads ran for a few periods of the timer, and else does not.
#[test]
fn too_brief_for_samples() {
    let mut profile = osd();
    let answers = answers(&profile);
    let text = |profile: &Profile| {
        let overview = Overview {
            profile,
            answers: &answers,
            width: None,
            color: false,
        };
        overview.text()
    };
    let why = "not sampled          threads that ran too briefly to be sampled";
    assert!(!text(&profile).contains(why), "{}", text(&profile));
    // 0.27 s without a stack, of a period of 1 s.
    profile.header.rate_hz = 1;
    assert!(text(&profile).contains(why), "{}", text(&profile));
}

/// Check the block for trackers: its tables, and that hostile names are code.
#[test]
fn markdown_block() {
    let mut profile = osd();
    let hostile = "@a|b `#1` ``` <img>\n\u{202e}";
    profile.pools[0].name = hostile.to_owned();
    profile.header.notes = vec![hostile.to_owned()];
    profile.processes[0].title = hostile.to_owned();
    for function in &mut profile.functions {
        if function.name == "leaf()" {
            function.name = "```` </details> `".to_owned();
        }
    }
    let block = run(|out| markdown(&profile, &answers(&profile), out));
    check("markdown.md", &block);
}

/// Check the first screen, that it fits where what is to do is short, and that colors change nothing else.
#[test]
fn overview() {
    let profile = osd();
    let answers = answers(&profile);
    let text = |width, color| {
        let overview = Overview {
            profile: &profile,
            answers: &answers,
            width: Some(width),
            color,
        };
        overview.text()
    };
    let plain = text(100, false);
    check("overview.txt", plain.as_bytes());
    assert!(
        plain.contains("\n 6 ~0.08 cores") && !plain.contains("\n 7 ~0.07 threads"),
        "{plain}"
    );
    // Tables have their least lines, six things their room; what is short fits the screen, all of it.
    let short = Answers {
        to_do: ToDoList {
            cpu_wait: None,
            items: vec![answers.to_do.items[0].clone(); 8],
        },
        ..answers.clone()
    };
    let short = Overview {
        profile: &profile,
        answers: &short,
        width: Some(100),
        color: false,
    };
    let short = short.text();
    assert!(
        short.lines().count() <= 36 && short.contains("\n 8 0.50 threads"),
        "{short}"
    );
    assert!(
        text(40, false)
            .lines()
            .all(|line| line.chars().count() <= 40)
    );
    let mut colored = text(100, true);
    for code in ["0", "1", "31", "32", "33", "34", "35", "36", "90"] {
        colored = colored.replace(&format!("\x1b[{code}m"), "");
    }
    assert_eq!(colored, plain);
}

/// Check that wcprof's own CPU time is a share of all recordings of a merged trace, and that processes of
/// which no thread was seen are named all the same.
#[test]
fn headline_of_odd_traces() {
    let mut profile = osd();
    profile.stats.own_cpu_ns = 100 * MS;
    profile.time.recorded_ns = 2000 * MS;
    let text = Headline::new(&profile).text();
    assert!(
        text.contains("wcprof itself: 100 ms CPU (5.0 % of one core)"),
        "{text}"
    );
    assert!(!text.contains("lowered"), "{text}");
    profile.stats.rate_changes = vec![(TimeNs(1), 7), (TimeNs(2), 99)];
    let text = Headline::new(&profile).text();
    let lowered = "lowered to 7 Hz to keep to the CPU limit";
    assert!(text.contains(lowered), "{text}");
    profile.threads.clear();
    profile.rows.clear();
    let text = Headline::new(&profile).text();
    assert!(text.starts_with("ceph-osd (pid 100)"), "{text}");
}
