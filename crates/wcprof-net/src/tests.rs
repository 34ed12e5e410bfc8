//! A pusher against servers on loopback that do what servers do on bad days.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

use flate2::read::GzDecoder;

use crate::{
    Answer, ClientLimits, Credentials, Pusher, PusherOptions, Secret, Spool, SpoolOptions, Store,
    StoreKind, StoreOptions,
};

/// How long a request or an answer that must come may take.
const PATIENCE: Duration = Duration::from_secs(300);

/// What a server does with one request, after it has read all of it.
#[derive(Clone, Debug)]
enum Then {
    /// Answers with this.
    Say(String),
    /// Answers with this, and ends the connection.
    Cut(&'static str),
    /// Says nothing until the client has gone.
    Hang,
    /// Ends the connection.
    Leave,
    /// Answers without end.
    Talk,
}

fn status(status: &str) -> Then {
    Then::Say(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n"))
}

/// A request as a server got it.
#[derive(Debug)]
struct Got {
    head: String,
    body: Vec<u8>,
}

/// Each request takes one of the acts, the last one again and again.
fn serve(acts: Vec<Then>) -> (String, Receiver<Got>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, got) = channel();
    let acts = Arc::new(Mutex::new(VecDeque::from(acts)));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (acts, sender) = (Arc::clone(&acts), sender.clone());
            thread::spawn(move || {
                let stream = stream.unwrap();
                while let Some(request) = read(&stream) {
                    let mut acts = acts.lock().unwrap();
                    let act = match acts.len() {
                        1 => acts[0].clone(),
                        _ => acts.pop_front().unwrap(),
                    };
                    drop(acts);
                    // The test may have all that it wants.
                    let _ = sender.send(request);
                    if !answer(&stream, &act) {
                        break;
                    }
                }
            });
        }
    });
    (url, got)
}

fn read(mut stream: &TcpStream) -> Option<Got> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.extend(byte);
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    if head.starts_with("get /ready ") {
        // As behind a gateway that lets profiles through alone.
        let no = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
        stream.write_all(no).ok()?;
        return read(stream);
    }
    let (_, rest) = head.split_once("content-length: ").unwrap();
    let length = rest.split("\r\n").next().unwrap().parse().unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some(Got { head, body })
}

fn answer(mut stream: &TcpStream, act: &Then) -> bool {
    match act {
        Then::Say(text) => stream.write_all(text.as_bytes()).is_ok(),
        Then::Cut(text) => {
            let _ = stream.write_all(text.as_bytes());
            let _ = stream.shutdown(Shutdown::Both);
            false
        }
        Then::Hang => {
            let _ = stream.read(&mut [0]);
            false
        }
        Then::Leave => {
            let _ = stream.shutdown(Shutdown::Both);
            false
        }
        Then::Talk => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
            while stream.write_all(&[b'x'; 4096]).is_ok() {}
            false
        }
    }
}

fn options(url: &str) -> StoreOptions {
    StoreOptions {
        limits: ClientLimits {
            connect: Some(Duration::from_secs(5)),
            step: Some(Duration::from_secs(2)),
            whole: Some(Duration::from_secs(5)),
            max_redirects: 0,
            proxy: false,
        },
        ..StoreOptions::new(url, StoreKind::Pyroscope)
    }
}

fn spool(folder: Option<&Path>) -> Arc<Spool> {
    let spool = Spool::open(SpoolOptions {
        folder: folder.map(|folder| File::open(folder).unwrap()),
        kind: StoreKind::Pyroscope.name(),
        max_bytes: 1 << 20,
        max_age: None,
    });
    Arc::new(spool.unwrap())
}

/// Pushes these requests to the store, until `end` says that what happened is enough.
fn push(
    store: Store,
    spool: &Arc<Spool>,
    requests: &[&str],
    mut is_enough: impl FnMut(&[Answer]) -> bool,
) -> Vec<Answer> {
    for request in requests {
        spool
            .add(
                StoreKind::Pyroscope.pack(request.as_bytes().to_vec()),
                SystemTime::now(),
            )
            .unwrap();
    }
    let (sender, events) = channel();
    let options = PusherOptions {
        spread: Duration::ZERO,
        first_wait: Some(Duration::from_millis(2)),
    };
    let pusher = Pusher::start(
        store,
        Arc::clone(spool),
        options,
        || {},
        move |event: &Answer, _| {
            let _ = sender.send(event.clone());
        },
    );
    let pusher = pusher.unwrap();
    let mut all = Vec::new();
    while !is_enough(&all) {
        all.push(events.recv_timeout(PATIENCE).unwrap());
    }
    assert!(pusher.finish(PATIENCE, Duration::ZERO, || false));
    all
}

/// Begins to push with the options of most.
fn start(
    store: Store,
    spool: &Arc<Spool>,
    event: impl FnMut(&Answer, Option<Duration>) + Send + 'static,
) -> Pusher {
    let options = PusherOptions::default();
    Pusher::start(store, Arc::clone(spool), options, || {}, event).unwrap()
}

fn is_taken(event: &Answer) -> bool {
    matches!(event, Answer::Taken)
}

fn n_taken(events: &[Answer]) -> usize {
    events.iter().filter(|event| is_taken(event)).count()
}

fn unpacked(got: &Got) -> String {
    let mut text = String::new();
    GzDecoder::new(&*got.body)
        .read_to_string(&mut text)
        .unwrap();
    text
}

/// Check what a store gets: path, type, tenant and credentials, of a file that is replaced meanwhile.
#[test]
fn request() {
    let (url, got) = serve(vec![status("200 OK")]);
    let token = tempfile::NamedTempFile::new().unwrap();
    fs::write(token.path(), "first\n").unwrap();
    let bearer = Credentials::Bearer(Secret::File(token.path().into()));
    let store = Store::new(StoreOptions {
        tenant: Some("storage".into()),
        credentials: bearer,
        ..options(&url)
    });
    let store = store.unwrap();
    let packed = StoreKind::Pyroscope.pack(b"profile".to_vec());
    assert_eq!(store.send(&packed), Answer::Taken);
    let first = got.recv().unwrap();
    assert_eq!(unpacked(&first), "profile");
    for line in [
        "post /push.v1.pusherservice/push http/1.1",
        "content-type: application/proto",
        "content-encoding: gzip",
        "x-scope-orgid: storage",
        "authorization: bearer first",
    ] {
        assert!(first.head.contains(line), "{}", first.head);
    }
    fs::write(token.path(), "second").unwrap();
    assert_eq!(store.send(&packed), Answer::Taken);
    assert!(got.recv().unwrap().head.contains("bearer second"));
    drop(token);
    assert!(matches!(store.send(&packed), Answer::NoEntry { .. }));
    let basic = Credentials::Basic("Aladdin".into(), Secret::Text("open sesame".into()));
    let store = Store::new(StoreOptions {
        credentials: basic,
        ..options(&url)
    });
    assert_eq!(store.unwrap().send(&packed), Answer::Taken);
    // The example of RFC 7617, in lower case.
    let expected = "basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==".to_lowercase();
    assert!(got.recv().unwrap().head.contains(&expected));
}

/// Check that each request is stored once at most, and is taken or counted, whatever a server does.
#[test]
fn faults() {
    let not_stored = [
        status("429 Too Many Requests"),
        status("503 Service Unavailable"),
        status("302 Found\r\nLocation: http://127.0.0.1:1/"),
        status("401 Unauthorized"),
    ];
    let perhaps_stored = [
        Then::Hang,
        Then::Leave,
        Then::Cut("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf of"),
        Then::Cut("HTTP/1.1 200 O"),
        Then::Cut("what?\r\n\r\n"),
        Then::Talk,
    ];
    let n_unsure = perhaps_stored.len();
    let acts = not_stored.into_iter().chain(perhaps_stored);
    let (url, got) = serve(acts.chain([status("200 OK")]).collect());
    let spool = spool(None);
    let store = Store::new(options(&url)).unwrap();
    let requests = [
        "one", "two", "three", "four", "five", "six", "seven", "eight",
    ];
    let events = push(store, &spool, &requests, |events| n_taken(events) == 2);
    let kinds = events.iter().map(|event| match event {
        Answer::Taken | Answer::Partly { .. } => 't',
        Answer::Later { .. } => 'l',
        Answer::NoEntry { .. } => 'n',
        Answer::Refused { .. } => 'r',
        Answer::InPart { .. } | Answer::Unsure { .. } => 'u',
    });
    assert_eq!(kinds.collect::<String>(), "lllnuuuuuutt", "{events:?}");
    let bodies = got.try_iter().map(|got| unpacked(&got));
    let mut stored: Vec<String> = bodies.skip(4).collect();
    assert_eq!(stored.len(), n_unsure + 2);
    stored.sort();
    stored.dedup();
    assert_eq!(stored.len(), requests.len(), "{stored:?}");
    assert_eq!(spool.figures().n_waiting, 0);
    assert_eq!(spool.figures().n_dropped, 0);
}

/// Check that a request which a server did not read to its end is sent again.
#[test]
fn half_sent() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; 100]).unwrap();
        // What is unread makes the kernel reset the connection.
    });
    // More than the kernel takes for a reader who does not read.
    let request = vec![0; 64 << 20];
    let answer = Store::new(options(&url)).unwrap().send(&request);
    server.join().unwrap();
    assert!(matches!(answer, Answer::Later { .. }), "{answer:?}");
}

/// Check that a page for browsers with status 200 is no store that has taken a request.
#[test]
fn page() {
    let page = "<!DOCTYPE html><title>Log in</title>";
    let length = page.len();
    let said = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {length}\r\n\r\n{page}"
    );
    let (url, _got) = serve(vec![Then::Say(said)]);
    let answer = Store::new(options(&url)).unwrap().send(b"profile");
    assert!(
        matches!(&answer, Answer::Later { reason, .. } if reason.contains("browsers")),
        "{answer:?}"
    );
}

/// Check that a request which a store refuses for good is dropped, and its words are harmless and short.
#[test]
fn refused() {
    let words = format!("bad \u{1b}[31m{}", "x".repeat(10_000));
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Length: {}\r\n\r\n{words}",
        words.len()
    );
    let (url, _got) = serve(vec![Then::Say(answer), status("200 OK")]);
    let store = Store::new(options(&url)).unwrap();
    let spool = spool(None);
    let events = push(store, &spool, &["bad", "good"], |events| events.len() == 2);
    let Answer::Refused { reason } = &events[0] else {
        panic!("{events:?}")
    };
    assert!(reason.contains("400 Bad Request: bad ?[31mx"), "{reason}");
    assert!(reason.len() < 500);
    assert!(is_taken(&events[1]));
}

/// Check that what a dead store did not take is there for the next process.
#[test]
fn restart() {
    let folder = tempfile::tempdir().unwrap();
    let dead = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let nobody = format!("http://{}", dead.local_addr().unwrap());
    drop(dead);
    let store = Store::new(options(&nobody)).unwrap();
    let events = push(store, &spool(Some(folder.path())), &["a", "b"], |events| {
        events.len() >= 3
    });
    assert_eq!(n_taken(&events), 0);
    let (url, got) = serve(vec![status("200 OK")]);
    let next = spool(Some(folder.path()));
    assert_eq!(next.figures().n_waiting, 2);
    let store = Store::new(options(&url)).unwrap();
    push(store, &next, &["c"], |events| n_taken(events) == 3);
    let bodies: Vec<String> = got.try_iter().map(|got| unpacked(&got)).collect();
    assert_eq!(bodies, ["a", "b", "c"]);
}

/// Check that a server whose certificate nobody vouches for gets nothing.
#[test]
fn wrong_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let made = Command::new("openssl")
        .args([
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
        ])
        .args([
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
        ])
        .args(["-keyout", "key.pem", "-out", "cert.pem"])
        .current_dir(&folder)
        .stderr(Stdio::null())
        .status();
    if !made.is_ok_and(|status| status.success()) {
        println!("SKIPPED wrong_certificate: openssl is not installed");
        return;
    }
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let mut server = Command::new("openssl")
        .args([
            "s_server",
            "-accept",
            &address.to_string(),
            "-key",
            "key.pem",
            "-cert",
            "cert.pem",
        ])
        .current_dir(&folder)
        // It ends with its input.
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut said = Vec::new();
    let mut stdout = server.stdout.take().unwrap();
    while !said.ends_with(b"ACCEPT") {
        let mut byte = [0];
        stdout.read_exact(&mut byte).unwrap();
        said.extend(byte);
    }
    let store = Store::new(options(&format!("https://{address}"))).unwrap();
    let answer = store.send(b"secret profile");
    server.kill().unwrap();
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    server.wait().unwrap();
    let Answer::Later { reason, .. } = answer else {
        panic!("{answer:?}")
    };
    assert!(reason.contains("certificate"), "{reason}");
    assert!(!rest.contains("secret"), "{rest}");
}

/// Check that a pusher that was given up sends nothing more: another one may.
#[test]
fn given_up() {
    let (url, _got) = serve(vec![status("200 OK")]);
    let spool = spool(None);
    for request in [b"1", b"2", b"3"] {
        spool
            .add(
                StoreKind::Pyroscope.pack(request.to_vec()),
                SystemTime::now(),
            )
            .unwrap();
    }
    let (sender, events) = channel();
    let (go_on, wait) = channel::<()>();
    let event = move |event: &Answer, _| {
        let _ = sender.send(event.clone());
        let _ = wait.recv();
    };
    let store = Store::new(options(&url)).unwrap();
    let pusher = start(store, &spool, event);
    assert!(is_taken(&events.recv().unwrap()));
    // Nobody else will send the request that is under way.
    assert!(!pusher.finish(Duration::ZERO, Duration::MAX, || true));
    drop(go_on);
    assert_eq!(events.iter().count(), 0);
    assert_eq!(spool.figures().n_waiting, 2);
}

/// Check that what a collector says beside its success is counted and handed on, and that the request is not sent again.
#[test]
fn partly_taken() {
    // `partial_success`: two rejected profiles, and why.
    let said = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n\x0a\x05\x08\x02\x12\x01x";
    let (url, _got) = serve(vec![Then::Say(said.to_owned())]);
    let mut options = StoreOptions::new(&url, StoreKind::Otlp);
    options.limits.proxy = false;
    let store = Store::new(options).unwrap();
    let spool = Spool::open(SpoolOptions {
        folder: None,
        kind: StoreKind::Otlp.name(),
        max_bytes: 1 << 20,
        max_age: None,
    });
    let spool = Arc::new(spool.unwrap());
    let (sender, events) = channel();
    let event = move |event: &Answer, _| drop(sender.send(event.clone()));
    let pusher = start(store, &spool, event);
    let figures = Arc::clone(&pusher.figures);
    spool
        .add(
            StoreKind::Otlp.pack(b"profiles".to_vec()),
            SystemTime::now(),
        )
        .unwrap();
    assert!(pusher.finish(PATIENCE, Duration::ZERO, || false));
    let all: Vec<Answer> = events.iter().collect();
    let partly = Answer::Partly {
        n_rejected: 2,
        reason: "x".to_owned(),
    };
    assert_eq!(all, [partly]);
    assert_eq!(figures.n_rejected.load(Ordering::Relaxed), 2);
    assert_eq!(figures.n_taken.load(Ordering::Relaxed), 1);
}
