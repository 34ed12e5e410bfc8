//! Profiles to cores by class, process and pool.

use crate::support;

use support::{MS, Maker};
use wcprof_profile::{GroupBy, GroupKey, Rules, Trees, View, cores};
use wcprof_trace::model::{ProcessEnd, ProcessId, Source};
use wcprof_types::TimeNs;

fn args(list: &[&str]) -> Vec<String> {
    list.iter().map(|&a| a.to_owned()).collect()
}

/// A second of two OSDs (0.5 and 0.25 cores), a gateway (1.5) and something else.
fn cluster() -> Maker {
    let mut m = Maker::new();
    m.tables.stats.duration = TimeNs(1000 * MS);
    m.tables.processes[0].cmdline = args(&["/usr/bin/ceph-osd", "--id", "3"]);
    let t = m.thread(101, "msgr-worker-0");
    m.on_cpu(t, &["f"], 300 * MS);
    let t = m.thread(102, "tp_osd_tp");
    m.on_cpu(t, &["f"], 200 * MS);
    let other = m.process(200, "ceph-osd");
    let t = m.thread_of(other, 201, "msgr-worker-0");
    m.on_cpu(t, &["f"], 250 * MS);
    let rgw = m.process(300, "radosgw");
    for tid in [301, 302] {
        let t = m.thread_of(rgw, tid, "radosgw");
        m.on_cpu(t, &["f"], 750 * MS);
    }
    let odd = m.process(400, "fio");
    let t = m.thread_of(odd, 401, "fio");
    m.on_cpu(t, &["f"], 10 * MS);
    m
}

/// Check classes, titles, pools, the ratio of gateways to OSDs, and CPU time of an operation.
#[test]
fn classes() {
    let mut m = cluster();
    let reason = "exited".to_owned();
    let time = TimeNs(500 * MS);
    let end = ProcessEnd { time, reason };
    m.tables.origins.process_ends.insert(ProcessId(1), end);
    let rules = Rules::builtin().unwrap();
    let found = cores(
        &m.profile(),
        &rules,
        &rules.categories().unwrap(),
        Some(1000.0),
    );
    let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
    let names: Vec<_> = found.classes.iter().map(|c| c.class.as_str()).collect();
    assert_eq!(names, ["radosgw", "ceph-osd", "fio"]);
    let osd = &found.classes[1];
    assert!(near(osd.cores, 0.75) && near(osd.us_per_op.unwrap(), 750.0));
    assert_eq!((osd.n_threads, osd.processes.len()), (3, 2));
    let titles: Vec<_> = osd.processes.iter().map(|p| p.title.as_str()).collect();
    assert_eq!(titles, ["osd.3", "ceph-osd"]);
    assert_eq!(osd.processes[1].ended.as_deref(), Some("exited"));
    let pool = &osd.pools[0];
    assert_eq!((pool.name.as_str(), pool.n_threads), ("msgr-worker-N", 2));
    assert!(near(pool.cores, 0.55));
    assert!(near(found.cores, 2.26) && near(found.us_per_op.unwrap(), 2260.0));
    let [ratio] = found.ratios.as_slice() else {
        panic!("{:?}", found.ratios);
    };
    assert_eq!(
        (ratio.class.as_str(), ratio.to.as_str()),
        ("radosgw", "ceph-osd")
    );
    assert!(near(ratio.ratio, 2.0));
    assert_eq!(
        cores(&m.profile(), &rules, &rules.categories().unwrap(), None).us_per_op,
        None
    );
}

/// Check a user's class, which comes before the built-in ones.
#[test]
fn own_class() {
    let own = "[[class]]\nname = \"load\"\nprocess = [\"fio\"]\nratio_to = \"radosgw\"\n";
    let rules = Rules::with_user_files(&[("own.toml", own)]).unwrap();
    let found = cores(
        &cluster().profile_with(&rules),
        &rules,
        &rules.categories().unwrap(),
        None,
    );
    assert!(found.classes.iter().any(|c| c.class == "load"));
    assert_eq!(found.ratios[0].to, "radosgw");
}

/// Check that processes of two hosts with one pid stay apart, and that cores are over each host's
/// own recording.
#[test]
fn hosts() {
    let mut m = cluster();
    m.tables.processes[1].pid = m.tables.processes[0].pid;
    let source = |host: &str, n_processes, duration| Source {
        host: host.to_owned(),
        engine: "bpf".to_owned(),
        kernel: String::new(),
        n_cpus: 2,
        rate_hz: 99,
        started_unix_ns: 0,
        start: TimeNs(0),
        duration: TimeNs(duration * MS),
        n_processes,
    };
    assert_eq!(m.profile().time.recorded_ns, 1000 * MS);
    m.tables.origins.sources = vec![source("a", 1, 1000), source("b", 3, 500)];
    assert_eq!(m.profile().time.recorded_ns, 1500 * MS);
    let profile = m.profile();
    let rules = Rules::builtin().unwrap();
    let found = cores(&profile, &rules, &rules.categories().unwrap(), None);
    let osd = found
        .classes
        .iter()
        .find(|c| c.class == "ceph-osd")
        .unwrap();
    let hosts: Vec<_> = osd
        .processes
        .iter()
        .map(|p| (p.host.as_str(), p.cores))
        .collect();
    assert_eq!(hosts, [("a", 0.5), ("b", 0.5)]);
    let groups = |by| {
        let view = View {
            by,
            ..View::default()
        };
        Trees::new(&profile, &view).groups
    };
    assert_eq!(groups(GroupBy::Process).len(), 4);
    let keys: Vec<_> = groups(GroupBy::Host).into_iter().map(|g| g.key).collect();
    assert_eq!(
        keys,
        [GroupKey::Host("b".into()), GroupKey::Host("a".into())]
    );
    // Pools of one name in two processes are two pools, one tree.
    let n = profile
        .pools
        .iter()
        .filter(|p| p.name == "msgr-worker-N")
        .count();
    assert_eq!(n, 2);
}

/// Check that a process which stands for several says for how many, and was observed as long as they were.
#[test]
fn folded() {
    let mut m = cluster();
    m.tables.origins.folded.insert(ProcessId(3), 417);
    m.tables.origins.folded.insert(ProcessId(1), 1);
    let profile = m.profile();
    let titles: Vec<_> = profile.processes.iter().map(|p| p.title.as_str()).collect();
    assert_eq!(titles, ["osd.3", "ceph-osd", "radosgw", "fio ×417"]);
    let fio = profile.threads.iter().find(|t| t.comm == "fio").unwrap();
    assert_eq!(fio.observed_ns, 10 * MS);
}
