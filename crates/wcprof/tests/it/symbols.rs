//! Names where the recording was made, and elsewhere.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use wcprof_testkit::{has_capability, skip, wait_until};
use wcprof_trace::TraceReader;
use wcprof_trace::model::{Frame, Trace};

use crate::support::{OSD, fixture};

const SOURCE: &str = r#"
#include <sys/prctl.h>
#include <signal.h>
#include <unistd.h>
__attribute__((noinline)) static int inner_wait(int n) { usleep(1000); return n + 1; }
__attribute__((noinline)) int outer_loop(int n) { for (;;) n = inner_wait(n); }
int main(void) { return outer_loop(prctl(PR_SET_PDEATHSIG, SIGKILL)); }
"#;

/// Ends its process when it goes out of scope.
struct Target(Child);

impl Drop for Target {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Compiles `spin` from a source with these flags.
fn compile_spin(dir: &Path, source: &str, flags: &[&str]) {
    std::fs::write(dir.join("spin.c"), source).expect("the source is written");
    let mut gcc = Command::new("gcc");
    gcc.args(flags).args(["-O1", "-o", "spin", "spin.c"]);
    let built = gcc.current_dir(dir).status();
    assert!(built.expect("gcc runs").success());
}

fn start_spin(dir: &Path) -> Target {
    let mut spin = Command::new(dir.join("spin"));
    Target(spin.process_group(0).spawn().expect("the target runs"))
}

fn command(dir: &Path, args: &[&str]) -> Command {
    let mut command = wcprof_testkit::wcprof();
    command
        .args(args)
        .current_dir(dir)
        .env("NO_COLOR", "1")
        .env("XDG_CACHE_HOME", dir.join("cache"))
        .env_remove("DEBUGINFOD_CACHE_PATH");
    command
}

fn wcprof(dir: &Path, args: &[&str]) -> Output {
    command(dir, args).output().expect("the program runs")
}

fn stdout(output: Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).expect("output is text")
}

/// Check that a raw trace, opened where none of the recorded machine's files are, gives the same
/// report with `--debug-dir`; that it has no names without; and that the health report tells both.
#[test]
fn raw_elsewhere() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    compile_spin(dir, SOURCE, &["-g", "-Wl,--build-id=sha1"]);
    let target = start_spin(dir);
    let pid = target.0.id().to_string();
    let recorded = wcprof(dir, &["attach", &pid, "-d", "1", "--raw", "-o", "raw.wct"]);
    if recorded.status.code() == Some(4) {
        eprintln!("SKIPPED raw_elsewhere: recording is not permitted here");
        return;
    }
    stdout(recorded);
    let here = ["report", "raw.wct", "--by", "all", "--format", "folded"];
    let expected = stdout(wcprof(dir, &here));
    assert!(
        expected.contains("main;outer_loop;inner_wait;"),
        "{expected}"
    );

    // With inline frames, files and lines.
    let whole = ["--json", "--tree"].map(|format| {
        let args = ["report", "raw.wct", "--lines", format];
        (format, stdout(wcprof(dir, &args)))
    });
    assert!(
        whole[0].1.contains("inner_wait (spin.c:5)"),
        "{}",
        whole[0].1
    );

    std::fs::create_dir(dir.join("debug")).expect("a folder");
    std::fs::create_dir(dir.join("empty")).expect("a folder");
    let health: serde_json::Value =
        serde_json::from_str(&stdout(wcprof(dir, &["check", "--json", "raw.wct"])))
            .expect("the report is JSON");
    for module in health["modules"].as_array().expect("modules") {
        let path = Path::new(module["path"].as_str().expect("a path"));
        if path.is_absolute() {
            let name = path.file_name().expect("a file name");
            std::fs::copy(path, dir.join("debug").join(name)).expect("the module is copied");
        }
    }
    std::fs::remove_file(dir.join("spin")).expect("the module is removed");

    let elsewhere = ["--sysroot", "empty", "--debug-dir", "debug"];
    assert_eq!(
        stdout(wcprof(dir, &[&here[..], &elsewhere[..]].concat())),
        expected
    );
    for (format, expected) in whole {
        let args = ["report", "raw.wct", "--lines", format];
        let found = stdout(wcprof(dir, &[&args[..], &elsewhere[..]].concat()));
        assert_eq!(found, expected, "{format}");
    }
    let nothing = stdout(wcprof(dir, &[&here[..], &elsewhere[..2]].concat()));
    assert!(
        !nothing.contains("outer_loop") && nothing.contains("spin+0x"),
        "{nothing}"
    );

    let line = |args: &[&str]| {
        let text = stdout(wcprof(dir, args));
        let line = text.lines().find(|line| line.starts_with("spin "));
        line.expect("a line of the module").to_owned()
    };
    let without = line(&["check", "raw.wct"]);
    assert!(without.contains("100.0 % unnamed"), "{without}");
    assert!(
        without.contains("missing module file, .symtab, DWARF"),
        "{without}"
    );
    let with = line(&["check", "raw.wct", "--debug-dir", "debug"]);
    assert!(with.contains("  0.0 % unnamed"), "{with}");
    assert!(
        with.contains("from module debug/spin") && !with.contains("missing"),
        "{with}"
    );
}

/// Check that a sysroot that is no folder is refused as wrong usage, before anything is recorded.
#[test]
fn bad_sysroot() {
    let dir = tempfile::tempdir().expect("a folder");
    let pid = std::process::id().to_string();
    let output = wcprof(dir.path(), &["attach", &pid, "--sysroot", "nowhere"]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("failed to open sysroot `nowhere`"), "{text}");
    assert_eq!(std::fs::read_dir(dir.path()).expect("a folder").count(), 0);
}

/// Check that trees have short names, without template arguments and versions of namespaces, unless full
/// ones are asked for.
#[test]
fn short_names() {
    let trace = &fixture(OSD);
    let dir = tempfile::tempdir().expect("a folder");
    let report = |names: &[&str]| {
        let args = ["report", trace, "--functions", "--min-percent", "0"];
        stdout(wcprof(dir.path(), &[&args[..], names].concat()))
    };
    let (short, full) = (report(&[]), report(&["--full-names"]));
    assert!(full.contains("std::unique_lock<std::mutex>"));
    assert!(!short.contains("std::unique_lock<std::mutex>"));
    assert!(full.contains("ceph::buffer::v15_2_0::") && !short.contains("v15_2_0::"));
    assert!(short.len() < full.len());
}

/// Counts requests for debug files, and has no right one.
struct EmptyServer {
    url: String,
    n_requests: Arc<AtomicUsize>,
}

impl EmptyServer {
    fn start() -> Self {
        Self::sends(
            b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec(),
        )
    }

    /// One that answers everything so.
    fn sends(reply: Vec<u8>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let url = format!(
            "http://{}",
            listener.local_addr().expect("it has an address")
        );
        let n_requests = Arc::new(AtomicUsize::new(0));
        let counter = n_requests.clone();
        // It ends with the process of the tests.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { break };
                let mut bytes = [0; 4096];
                counter.fetch_add(1, Ordering::SeqCst);
                // The client may have gone.
                let _ = stream.read(&mut bytes);
                let _ = stream.write_all(&reply);
            }
        });
        Self { url, n_requests }
    }

    fn n_requests(&self) -> usize {
        self.n_requests.swap(0, Ordering::SeqCst)
    }
}

/// Check when debuginfod servers are asked, that one that is not there costs a line and no failure,
/// and that standard error has no progress when it is no terminal.
#[test]
fn debuginfod_servers() {
    let trace = &fixture(OSD);
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    std::fs::create_dir(dir.join("empty")).expect("a folder");
    let server = EmptyServer::start();
    let gone = {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        format!(
            "http://{}",
            listener.local_addr().expect("it has an address")
        )
    };
    let urls = format!("{gone} {}", server.url);
    let symbols = ["check", trace, "--sysroot", "empty"];
    let run = |more: &[&str], urls: &str| {
        let mut command = command(dir, &[&symbols[..], more].concat());
        command
            .env("DEBUGINFOD_URLS", urls)
            // How long package databases take must not matter.
            .env("PATH", dir.join("empty"))
            .env("NO_PROXY", "127.0.0.1");
        let output = command.output().expect("the program runs");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        (stdout(output), errors)
    };

    let (text, errors) = run(&["--no-debuginfod"], &urls);
    assert_eq!((server.n_requests(), errors.as_str()), (0, ""));
    let (without, errors) = run(&[], "");
    assert_eq!(
        (server.n_requests(), errors.as_str(), &without),
        (0, "", &text)
    );

    let (asked, errors) = run(&[], &urls);
    assert!(server.n_requests() >= 2);
    assert_eq!(asked, text);
    let start = format!("wcprof: debuginfod server `{gone}`: ");
    assert!(errors.starts_with(&start), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.ends_with("; going on without it\n"), "{errors}");

    // Files that must be signed cannot be verified: that server is not asked.
    let (_, errors) = run(&[], &format!("ima:enforcing {}", server.url));
    assert_eq!(server.n_requests(), 0);
    let refused = "wcprof: 1 of the servers in DEBUGINFOD_URLS are not asked: `ima:enforcing`";
    assert!(errors.starts_with(refused), "{errors}");

    // What one server does not have is remembered when all could be asked.
    run(&[], &server.url);
    assert!(server.n_requests() >= 2);
    let (_, errors) = run(&[], &server.url);
    assert_eq!((server.n_requests(), errors.as_str()), (0, ""));
}

/// A process whose own functions only a debug file could name.
fn stripped_target(dir: &Path) -> Target {
    compile_spin(dir, SOURCE, &["-s", "-Wl,--build-id=sha1"]);
    start_spin(dir)
}

/// Check that a recording asks servers for what is missing, and a raw one does not.
#[test]
fn raw_asks_no_server() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let target = stripped_target(dir);
    let pid = target.0.id().to_string();
    let server = EmptyServer::start();
    let attach = |more: &[&str]| {
        let args = ["attach", &pid, "-d", "0.5", "--force", "-o", "x.wct"];
        let mut command = command(dir, &[&args[..], more].concat());
        command
            .env("DEBUGINFOD_URLS", &server.url)
            .env("NO_PROXY", "127.0.0.1");
        command.output().expect("the program runs")
    };
    let raw = attach(&["--raw"]);
    if raw.status.code() == Some(4) {
        eprintln!("SKIPPED raw_asks_no_server: recording is not permitted here");
        return;
    }
    stdout(raw);
    assert_eq!(server.n_requests(), 0);
    stdout(attach(&[]));
    assert!(server.n_requests() >= 1);
}

/// What a trace holds by now.
fn read(trace: &Path) -> Option<Trace> {
    let read = TraceReader::open(trace).and_then(TraceReader::read_all);
    read.ok().map(|(trace, _)| trace)
}

/// Waits until a trace is as it is to be.
#[track_caller]
fn wait_for(trace: &Path, is_so: impl Fn(&Trace) -> bool) {
    wait_until("the trace never is so", || {
        read(trace).filter(&is_so).map(drop)
    });
}

/// Check that a signal ends the search for names of a recording that is over, that a report is printed, and that
/// the names are found later; the server never answers, so that nothing else would end the search.
#[test]
fn names_not_waited_for() {
    if !has_capability() {
        return skip("names_not_waited_for", "needs root to record");
    }
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let trace = dir.join("x.wct");
    let target = stripped_target(dir);
    let pid = target.0.id().to_string();
    for (duration, signals) in [
        // The recording ends by itself, or by the first of two signals.
        ("0.5", vec![Signal::SIGINT]),
        ("0.5", vec![Signal::SIGHUP, Signal::SIGTERM]),
        ("0", vec![Signal::SIGTERM, Signal::SIGINT]),
    ] {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let url = server.local_addr().expect("it has an address");
        let mut command = command(dir, &["attach", &pid, "-d", duration, "-o", "x.wct"]);
        command
            .env("DEBUGINFOD_URLS", format!("http://{url}"))
            .env("DEBUGINFOD_TIMEOUT", "0")
            .env("NO_PROXY", "127.0.0.1")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let attach = command.spawn().expect("the program runs");
        let send = |signal| kill(Pid::from_raw(attach.id() as i32), signal).expect("it runs");
        let mut signals = signals.into_iter();
        if duration == "0" {
            wait_for(&trace, |trace| !trace.spans.is_empty());
            send(signals.next().expect("two signals"));
        }
        // Accepted, and never answered: the names are looked for.
        let asked = server.accept().expect("the server is asked");
        signals.for_each(send);
        let output = attach.wait_with_output().expect("the program ends");
        drop(asked);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let said =
            "names are incomplete, as the search for them was ended; `wcprof report x.wct` finds";
        assert!(errors.contains(said), "{errors}");
        assert!(!errors.contains("debuginfod"), "{errors}");
        assert!(stdout(output).contains("spin"), "the report is printed");
        let saved = read(&trace).expect("the trace is whole");
        // What was not searched through is left to a report.
        let names = saved.tables.names.symbols.expect("it has a table of names");
        let frames = saved.tables.frames.iter();
        let n_native = frames.filter(|frame| matches!(frame, Frame::Native { .. }));
        assert!(saved.tables.stats.complete && names.frames.len() < n_native.count());
        let later = stdout(wcprof(dir, &["report", "x.wct", "--format", "folded"]));
        assert!(later.contains("nanosleep"), "{later}");
        std::fs::remove_file(&trace).expect("the trace is there");
    }
}

/// Check that the end of the session that it was started from ends a recording, whose trace is whole and has names.
#[test]
fn terminal_gone() {
    if !has_capability() {
        return skip("terminal_gone", "needs root to record");
    }
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let trace = dir.join("x.wct");
    let target = stripped_target(dir);
    let terminal = Command::new("script")
        .args([
            "-qec",
            "exec \"$WCPROF\" attach \"$TARGET\" -d 0 -o x.wct",
            "/dev/null",
        ])
        .current_dir(dir)
        .env("WCPROF", wcprof_testkit::program())
        .env("TARGET", target.0.id().to_string())
        .env("XDG_CACHE_HOME", dir.join("cache"))
        .env_remove("DEBUGINFOD_URLS")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn();
    let Ok(terminal) = terminal else {
        return skip("terminal_gone", "script (bsdutils) is not installed");
    };
    wait_for(&trace, |trace| !trace.spans.is_empty());
    drop(Target(terminal));
    wait_for(&trace, |trace| trace.tables.names.symbols.is_some());
    let stats = read(&trace).expect("the trace is whole").tables.stats;
    assert!(stats.complete);
    assert_eq!(stats.end_reason, "interrupted");
}

/// Check that a terminal shows who is asked, and how far a download is, in a line that goes away.
#[test]
fn progress_on_a_terminal() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    std::fs::create_dir(dir.join("empty")).expect("a folder");
    let mut reply =
        b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\nConnection: close\r\n\r\n".to_vec();
    let body = reply.len();
    reply.extend(b"\x7fELF");
    reply.resize(body + 200_000, 0);
    let server = EmptyServer::sends(reply);
    let output = Command::new("script")
        .args([
            "-qefc",
            "\"$WCPROF\" check \"$TRACE\" --sysroot empty > /dev/null",
            "/dev/null",
        ])
        .current_dir(dir)
        .env("WCPROF", wcprof_testkit::program())
        .env("TRACE", fixture(OSD))
        .env("XDG_CACHE_HOME", dir.join("cache"))
        .env_remove("DEBUGINFOD_CACHE_PATH")
        .env("DEBUGINFOD_URLS", &server.url)
        .env("NO_PROXY", "127.0.0.1")
        .stdin(Stdio::null())
        .output();
    let Ok(output) = output else {
        println!("SKIPPED progress_on_a_terminal: script (bsdutils) is not installed");
        return;
    };
    let shown = stdout(output);
    let host = server.url.strip_prefix("http://").expect("its URL");
    for part in [
        format!("\r\x1b[Kasking {host} for ceph-osd\r"),
        "\r\x1b[K[####################] 0.2 of 0.2 MB for ceph-osd from ".to_owned(),
    ] {
        assert!(shown.contains(&part), "{part:?} in {shown:?}");
    }
    // Nothing is left of it.
    let last = shown.rsplit("\r\x1b[K").next().expect("a part");
    assert!(!last.contains(" for ") && !last.contains('#'), "{last:?}");
}

/// Check that over the limit on memory functions keep their names and lose inline frames and lines, and
/// that recording, reporting and the health report all say so.
#[test]
fn max_memory() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    // The debug information of one unit grows to several hundred kilobytes.
    let globals: String = (0..20_000).map(|i| format!("int global_{i};\n")).collect();
    let source = format!("{SOURCE}{globals}");
    compile_spin(dir, &source, &["-g", "-Wl,--build-id=sha1"]);
    let target = start_spin(dir);
    let pid = target.0.id().to_string();
    let attach = ["attach", &pid, "-d", "0.5", "-o"];
    let recorded = wcprof(dir, &[&attach[..], &["full.wct"]].concat());
    if recorded.status.code() == Some(4) {
        eprintln!("SKIPPED max_memory: recording is not permitted here");
        return;
    }
    let said = |output: Output| {
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let is_said = errors.contains("of the memory limit");
        (is_said, stdout(output))
    };
    assert!(!said(recorded).0);
    let little = ["--max-memory", "1", "--no-cache"];
    let recorded = wcprof(dir, &[&attach[..], &["little.wct"], &little[..]].concat());
    assert!(said(recorded).0);
    let recorded = wcprof(dir, &[&attach[..], &["raw.wct", "--raw"]].concat());
    assert!(!said(recorded).0);

    let report = ["report", "raw.wct", "--lines", "--json"];
    let (is_said, full) = said(wcprof(dir, &[&report[..], &["--no-cache"]].concat()));
    assert!(!is_said && full.contains("inner_wait (spin.c:5)"));
    let (is_said, degraded) = said(wcprof(dir, &[&report[..], &little[..]].concat()));
    assert!(is_said && !degraded.contains("spin.c"));
    for name in ["main", "outer_loop", "inner_wait"] {
        assert!(degraded.contains(&format!("\"{name}\"")), "{degraded}");
    }
    let health = wcprof(dir, &[&["check", "raw.wct"], &little[..]].concat());
    let health = stdout(health);
    let line = health.lines().find(|line| line.starts_with("spin "));
    let line = line.expect("a line of the module");
    assert!(
        line.contains("of the memory limit") && line.contains("missing DWARF"),
        "{line}"
    );
}

/// Check that a server behind TLS is asked if the system trusts its certificate, and else is not.
#[test]
fn debuginfod_over_tls() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    compile_spin(dir, SOURCE, &["-g", "-Wl,--build-id=0x1122334455667788"]);
    let run = |program: &str, args: &[&str]| {
        let status = Command::new(program)
            .args(args)
            .current_dir(dir)
            .stderr(Stdio::null())
            .status();
        assert!(status.expect("it runs").success(), "{program} {args:?}");
    };
    let served = "buildid/1122334455667788";
    std::fs::create_dir_all(dir.join(served)).expect("a folder");
    let debuginfo = format!("{served}/debuginfo");
    run("objcopy", &["--only-keep-debug", "spin", &debuginfo]);
    run("objcopy", &["--strip-all", "spin"]);
    for (key, certificate) in [("key.pem", "cert.pem"), ("other-key.pem", "other.pem")] {
        let request = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 \
             -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE";
        let mut args: Vec<&str> = request.split_whitespace().collect();
        args.extend(["-keyout", key, "-out", certificate]);
        run("openssl", &args);
    }
    let mut server = Target(
        Command::new("openssl")
            .args(["s_server", "-accept", "127.0.0.1:0", "-WWW"])
            .args(["-cert", "cert.pem", "-key", "key.pem"])
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl runs"),
    );
    let lines = BufReader::new(server.0.stdout.take().expect("a pipe")).lines();
    let mut lines = lines.map_while(Result::ok);
    let address = lines
        .find_map(|line| line.strip_prefix("ACCEPT ").map(str::to_owned))
        .expect("it says where it listens");
    // It must be able to go on printing.
    std::thread::spawn(move || lines.count());
    let target = start_spin(dir);
    let pid = target.0.id().to_string();
    let attach = |certificates: &str| {
        let mut command = command(
            dir,
            &["attach", &pid, "-d", "0.5", "--force", "-o", "x.wct"],
        );
        command
            .env("DEBUGINFOD_URLS", format!("https://{address}"))
            .env("SSL_CERT_FILE", dir.join(certificates))
            .env("SSL_CERT_DIR", dir.join(served))
            .env("NO_PROXY", "127.0.0.1");
        command.output().expect("the program runs")
    };
    let refused = attach("other.pem");
    if refused.status.code() == Some(4) {
        eprintln!("SKIPPED debuginfod_over_tls: recording is not permitted here");
        return;
    }
    let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(errors.contains("invalid peer certificate"), "{errors}");
    assert!(!stdout(refused).contains("inner_wait"));
    let trusted = attach("cert.pem");
    let errors = String::from_utf8_lossy(&trusted.stderr).into_owned();
    assert!(!errors.contains("debuginfod server"), "{errors}");
    assert!(stdout(trusted).contains("inner_wait"));
}
