//! Admin sockets of this process that answer, hang, answer too much or nonsense; and texts of old and new releases.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;

use tempfile::TempDir;
use wcprof_types::{CounterName, CounterValue, Pid};

use super::socket::{ask, try_access};
use super::*;

const PERF_DUMP: &str = r#"{
  "osd": {"op_wip": 3, "op": 558, "op_latency": {"avgcount": 558, "sum": 20.148655112, "avgtime": 0.0361087},
          "numpg": 32, "op_rw_queue": {"avgcount": 2, "sum": 9}},
  "bluestore": {"kv_commit_lat": {"avgcount": 10, "sum": 0.080000000, "avgtime": 0.008}, "alloc_unit": 4096},
  "AsyncMessenger::Worker-0": {"msgr_recv_messages": 5, "msgr_running_send_time": 0.250000000},
  "AsyncMessenger::Worker-1": {"msgr_recv_messages": 7, "msgr_running_send_time": 0.500000000},
  "throttle-osd_client_bytes": {"val": 0, "wait": {"avgcount": 0, "sum": 0.0, "avgtime": 0.0}}
}"#;

fn get(counters: &Counters, name: &str) -> Option<(bool, u64, u64)> {
    let found = counters.iter().find(|(known, _)| known.name == name);
    found.map(|(name, value)| (name.timed, value.count, value.time_ns))
}

/// Check counts, averages and plain times, what is left out, and that threads of the messenger are one.
#[test]
fn old_release() {
    let counters = parse_dump(PERF_DUMP.as_bytes()).unwrap();
    assert_eq!(get(&counters, "osd.op"), Some((false, 558, 0)));
    assert_eq!(
        get(&counters, "osd.op_latency"),
        Some((true, 558, 20_148_655_112))
    );
    assert_eq!(
        get(&counters, "bluestore.kv_commit_lat"),
        Some((true, 10, 80_000_000))
    );
    assert_eq!(
        get(&counters, "messenger.msgr_recv_messages"),
        Some((false, 12, 0))
    );
    assert_eq!(
        get(&counters, "messenger.msgr_running_send_time"),
        Some((true, 0, 750_000_000))
    );
    assert_eq!(counters.len(), 5, "{counters:?}");
}

/// Check that entries with labels count where there is none without, and that no label is kept.
#[test]
fn labels() {
    let text = r#"{"osd": [{"labels": {}, "counters": {"op": 5}}],
        "rgw_op": [{"labels": {}, "counters": {"put_obj_ops": 9}},
                   {"labels": {"Bucket": "secret"}, "counters": {"put_obj_ops": 9}}],
        "rgw": [{"labels": {"a": "b"}, "counters": {"req": 2}}, {"labels": {"a": "c"}, "counters": {"req": 3}}],
        "librbd-1-pool-image": [{"labels": {}, "counters": {"rd": 1}}],
        "librbd-2-pool-secret": {"rd": 4}}"#;
    let counters = parse_dump(text.as_bytes()).unwrap();
    assert_eq!(get(&counters, "osd.op"), Some((false, 5, 0)));
    assert_eq!(get(&counters, "rgw_op.put_obj_ops"), Some((false, 9, 0)));
    assert_eq!(get(&counters, "rgw.req"), Some((false, 5, 0)));
    assert_eq!(get(&counters, "librbd.rd"), Some((false, 5, 0)));
    assert!(!format!("{counters:?}").contains("secret"));
}

/// Check that other texts are refused, and that a hostile one is bounded and keeps no odd name.
#[test]
fn hostile_texts() {
    for bad in [
        "",
        "[]",
        "{",
        "{}",
        r#"{"osd": 5}"#,
        r#"{"osd": {"op": 1}} x"#,
        r#"{"osd": {"op": -1}}"#,
    ] {
        assert!(parse_dump(bad.as_bytes()).is_err(), "{bad}");
    }
    let many: Vec<String> = (0..2000).map(|n| format!("\"op_{n}\": {n}")).collect();
    let text = format!("{{\"osd\": {{\"op\\u001b[2J\": 1, {}}}}}", many.join(","));
    let counters = parse_dump(text.as_bytes()).unwrap();
    assert_eq!(counters.len(), 512);
    assert!(
        counters
            .iter()
            .all(|(name, _)| !name.name.contains('\u{1b}'))
    );
    let text = r#"{"osd": {"op_latency": {"avgcount": 1, "sum": 1e300, "avgtime": 1}}}"#;
    let counters = parse_dump(text.as_bytes()).unwrap();
    assert_eq!(get(&counters, "osd.op_latency"), Some((true, 1, u64::MAX)));
    let nested = format!("{{\"osd\": {}", "[{\"counters\": ".repeat(100_000));
    assert!(parse_dump(nested.as_bytes()).is_err());
}

/// Check that values add up without a carry, and that one which fell has grown by nothing.
#[test]
fn values() {
    let value = |count, time_ns| CounterValue { count, time_ns };
    assert_eq!(value(5, 50).since(value(2, 60)), value(3, 0));
    assert_eq!(value(u64::MAX, 1).plus(value(1, 1)), value(u64::MAX, 2));
    let _ = CounterName::default();
}

fn me() -> Pid {
    Pid(std::process::id() as i32)
}

/// Serves connections in this process, each with its question.
fn serve(serve: impl Fn(UnixStream, String) + Send + 'static) -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.asok");
    let listener = UnixListener::bind(&path).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut question = Vec::new();
            let mut byte = [0];
            while stream.read_exact(&mut byte).is_ok() && byte[0] != 0 {
                question.push(byte[0]);
            }
            serve(stream, String::from_utf8(question).unwrap());
        }
    });
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

fn answer(mut stream: UnixStream, text: &str) {
    stream
        .write_all(&(text.len() as u32).to_be_bytes())
        .unwrap();
    stream.write_all(text.as_bytes()).unwrap();
}

/// Check that the socket of a process is found by its descriptors, and that a daemon is asked nothing that its release does not
/// know, which would be an error in its log.
#[test]
fn finds_and_asks() {
    for (version, expected) in [
        (r#"{"version":"16.2.15","release":"pacific"}"#, "perf dump"),
        (r#"{"version":"18.2.4","release":"reef"}"#, "counter dump"),
        (
            r#"{"version":"20.3.0-1234-g0","release":"tentacle"}"#,
            "counter dump",
        ),
        ("{}", "perf dump"),
        ("ERROR: (22) Invalid argument", "perf dump"),
    ] {
        let (asked, questions) = channel();
        let (_folder, path) = serve(move |stream, question| {
            let text = match question.contains("version") {
                true => version,
                false => PERF_DUMP,
            };
            // Before whoever asks goes on.
            asked.send(question).unwrap();
            answer(stream, text);
        });
        let paths = crate::sockets::listening_paths(me()).unwrap();
        assert!(paths.contains(&path), "{paths:?}");
        assert!(try_access(me(), &path).is_ok());
        let mut daemon = CephDaemon::at(me(), path);
        assert!(!daemon.first_counters().unwrap().is_empty());
        let prefix = |words: &str| format!("{{\"prefix\": \"{words}\"}}");
        assert_eq!(
            questions.try_iter().collect::<Vec<_>>(),
            [prefix("version"), prefix(expected)],
            "{version}"
        );
    }
}

/// Check that the counters of an answer are read.
#[test]
fn answers() {
    let (_folder, path) = serve(|stream, _| answer(stream, PERF_DUMP));
    let daemon = CephDaemon::at(me(), path);
    assert_eq!(
        get(&daemon.counters().unwrap(), "osd.op"),
        Some((false, 558, 0))
    );
}

/// Check that a daemon that hangs or trickles is given up, that a long or cut answer is refused, and what is no
/// socket.
#[test]
fn bad_answers() {
    let (held, _keep) = channel();
    let (_folder, path) = serve(move |stream, _| held.send(stream).unwrap());
    assert!(matches!(ask(me(), &path, b"\0"), Err(NoAnswer::Late)));
    let (_folder, path) = serve(|mut stream, _| {
        let _ = stream.write_all(&100_000_000_u32.to_be_bytes());
    });
    assert!(matches!(
        ask(me(), &path, b"\0"),
        Err(NoAnswer::TooLong(100_000_000))
    ));
    let (_folder, path) = serve(|mut stream, _| {
        let _ = stream.write_all(b"\0\0\0\x09{");
    });
    assert!(matches!(ask(me(), &path, b"\0"), Err(NoAnswer::Cut(_))));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.asok");
    std::fs::write(&file, "").unwrap();
    assert!(try_access(me(), file.to_str().unwrap()).is_err());
    let error = ask(me(), file.to_str().unwrap(), b"\0").unwrap_err();
    assert!(
        error.to_string().contains("regular file, not a socket"),
        "{error}"
    );
    let error = ask(me(), "/nonexistent/a.asok", b"\0").unwrap_err();
    assert!(error.to_string().contains("no such file"), "{error}");
}

/// Check that a queue that is full is not waited for.
#[test]
fn full_queue() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("full.asok");
    let listener = UnixListener::bind(&path).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let _first = UnixStream::connect(&path).unwrap();
    let error = ask(me(), path.to_str().unwrap(), b"\0").unwrap_err();
    assert!(error.to_string().contains("too many questions"), "{error}");
}

/// Check that the socket of another process is not asked, and that a process without one says so.
#[test]
fn other_process() {
    let (sender, asked) = channel();
    let (_folder, path) = serve(move |_, question| sender.send(question).unwrap());
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let pid = Pid(child.id() as i32);
    let error = ask(pid, &path, b"a question\0").unwrap_err();
    assert!(
        matches!(error, NoAnswer::Other { peer, .. } if peer == me().0),
        "{error}"
    );
    assert_eq!(asked.recv().unwrap(), "", "what the other process got");
    assert!(matches!(CephDaemon::find(pid), Err(NoAnswer::NoSocket)));
    drop(child.stdin.take());
    child.wait().unwrap();
    assert!(CephDaemon::find(pid).is_err());
}
