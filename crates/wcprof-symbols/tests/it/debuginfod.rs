//! Files from debuginfod servers: a real one, and some that misbehave.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use rustix::fs::{FallocateFlags, fallocate, fstatvfs};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use wcprof_symbols::{
    CachePath, Debuginfod, DebuginfodOptions, ModuleSymbols, ServerFailure, SourceKind,
};

use crate::common::{Fixture, run};

const TOTAL: &str = "_ZN4shop5totalERVlRKNS_4ItemE";

/// A stripped module with its debug file elsewhere.
struct Stripped {
    fixture: Fixture,
    addresses: Vec<u64>,
    /// What is found before it is stripped.
    expected: ModuleSymbols,
    debug: std::path::PathBuf,
}

impl Stripped {
    fn build() -> Self {
        let fixture = Fixture::build("g++", "inline.cc", &["-O2", "-g"]);
        let total = fixture.address(TOTAL);
        let addresses = vec![total, total + 3, fixture.address("main")];
        let expected = fixture.symbolize(&addresses);
        let debug = fixture.dir.path().join("served/module.debug");
        fixture.split_debug(&debug);
        Self {
            fixture,
            addresses,
            expected,
            debug,
        }
    }

    fn options(&self, urls: &[&str]) -> DebuginfodOptions {
        DebuginfodOptions {
            cache: Some(CachePath {
                path: self.fixture.dir.path().join("cache"),
                is_named: true,
            }),
            proxy: false,
            ..DebuginfodOptions::new(urls.iter().map(|url| (*url).to_owned()))
        }
    }

    fn symbolize(&mut self, options: DebuginfodOptions) -> (ModuleSymbols, Vec<ServerFailure>) {
        let client = Arc::new(Debuginfod::new(options));
        self.fixture.options.debuginfod = Some(client.clone());
        let result = self.fixture.symbolize(&self.addresses);
        (result, client.failures())
    }

    fn cached(&self) -> std::path::PathBuf {
        let id = self.fixture.build_id().to_string();
        self.fixture
            .dir
            .path()
            .join(format!("cache/{id}/debuginfo"))
    }

    /// Check that nothing was found, and what was said of the file.
    fn refused(&mut self, options: DebuginfodOptions) -> (Vec<String>, Vec<ServerFailure>) {
        let (result, failures) = self.symbolize(options);
        assert!(!result.frames[0].last().unwrap().resolved);
        assert!(result.report.missing_symtab && result.report.missing_dwarf);
        let cache = self.cached();
        assert!(!cache.exists() || std::fs::metadata(&cache).unwrap().len() == 0);
        let temporary = cache.parent().unwrap();
        let n = std::fs::read_dir(temporary).map_or(0, Iterator::count);
        assert_eq!(n, usize::from(cache.exists()), "what was begun is removed");
        let problems = result.report.problems.iter().map(ToString::to_string);
        (problems.collect(), failures)
    }
}

/// What a server sends.
type Reply = dyn Fn(&mut TcpStream) + Send + Sync;

/// A server that answers each request in one way.
struct Stub {
    url: String,
    n_requests: Arc<AtomicUsize>,
    paths: Arc<Mutex<Vec<String>>>,
}

impl Stub {
    fn start(reply: impl Fn(&mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let n_requests = Arc::new(AtomicUsize::new(0));
        let paths = Arc::new(Mutex::new(Vec::new()));
        let stub = Self {
            url,
            n_requests: n_requests.clone(),
            paths: paths.clone(),
        };
        let reply: Arc<Reply> = Arc::new(reply);
        // It ends with the process of the tests.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { break };
                let (n_requests, paths, reply) = (n_requests.clone(), paths.clone(), reply.clone());
                std::thread::spawn(move || {
                    let mut reader = BufReader::new(stream.try_clone().unwrap());
                    let mut first = String::new();
                    if reader.read_line(&mut first).unwrap_or(0) == 0 {
                        return;
                    }
                    let mut line = String::new();
                    while reader.read_line(&mut line).unwrap_or(0) > 2 {
                        line.clear();
                    }
                    let path = first.split(' ').nth(1).unwrap_or("").to_owned();
                    paths.lock().unwrap().push(path);
                    n_requests.fetch_add(1, Ordering::SeqCst);
                    reply(&mut stream);
                });
            }
        });
        stub
    }

    fn sends(bytes: Vec<u8>) -> Self {
        Self::start(move |stream| {
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\
                 Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n",
                bytes.len()
            );
            // The client may have gone.
            let _ = stream.write_all(head.as_bytes());
            let _ = stream.write_all(&bytes);
        })
    }

    fn n_requests(&self) -> usize {
        self.n_requests.load(Ordering::SeqCst)
    }
}

/// Keeps a connection open until the client closes it.
fn wait_for_end(stream: &mut TcpStream) {
    let mut byte = [0];
    while stream.read(&mut byte).is_ok_and(|n| n > 0) {}
}

/// Debian's debuginfod with one folder.
struct Real {
    child: Child,
    url: String,
}

impl Real {
    /// `None` when it is not installed.
    fn start(dir: &Path, served: &Path) -> Option<Self> {
        // The port may be taken in between; then it ends and another one is tried.
        for _ in 0..5 {
            let port = {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
                listener.local_addr().unwrap().port()
            };
            let child = Command::new("debuginfod")
                .args(["-F", "-d", ":memory:", "-p", &port.to_string()])
                .arg(served)
                .env_remove("DEBUGINFOD_URLS")
                .env("HOME", dir)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            let Ok(child) = child else {
                println!("SKIPPED debuginfod: debuginfod is not installed");
                return None;
            };
            let mut this = Self {
                child,
                url: format!("http://127.0.0.1:{port}"),
            };
            if this.wait(port) {
                return Some(this);
            }
        }
        panic!("debuginfod does not start");
    }

    /// Until it has looked at its folder.
    fn wait(&mut self, port: u16) -> bool {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        for _ in 0..600 {
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
            if let Ok(mut stream) = TcpStream::connect(address) {
                let _ = stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n");
                let mut text = String::new();
                let _ = stream.read_to_string(&mut text);
                let is_done = |line: &str| {
                    line.starts_with("thread_work_total{role=\"traverse\"}")
                        && !line.ends_with(" 0")
                };
                let waits = text.lines().any(|line| {
                    line.starts_with("thread_work_pending{role=\"scan\"}") && !line.ends_with(" 0")
                });
                if text.lines().any(is_done) && !waits {
                    return true;
                }
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        false
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Check that names, inline frames and lines come from a real server; that they come from the
/// cache when it has gone; and that elfutils' own client finds what was cached.
#[test]
fn real_server() {
    let mut stripped = Stripped::build();
    let dir = stripped.fixture.dir.path().to_owned();
    let Some(server) = Real::start(&dir, stripped.debug.parent().unwrap()) else {
        return;
    };
    let url = server.url.clone();
    let urls = [&*url];
    let (result, failures) = stripped.symbolize(stripped.options(&urls));
    assert_eq!((result.report.problems, failures), (vec![], vec![]));
    assert_eq!(result.frames, stripped.expected.frames);
    assert!(result.frames.iter().any(|chain| chain.len() > 1));
    let source = result.report.sources.last().unwrap();
    let cached = stripped.cached();
    assert_eq!(
        (source.kind, &source.path),
        (SourceKind::Debuginfod, &cached)
    );
    assert!(source.dwarf && source.n_symtab > 0);
    assert_eq!(
        std::fs::read(&cached).unwrap(),
        std::fs::read(&stripped.debug).unwrap()
    );

    drop(server);
    let (result, failures) = stripped.symbolize(stripped.options(&urls));
    assert_eq!((result.report.problems, failures), (vec![], vec![]));
    assert_eq!(result.frames, stripped.expected.frames);

    let found = run(Command::new("debuginfod-find")
        .args(["debuginfo", &stripped.fixture.build_id().to_string()])
        .env("DEBUGINFOD_URLS", &url)
        .env("DEBUGINFOD_CACHE_PATH", dir.join("cache")));
    assert_eq!(Path::new(found.trim()), cached);
}

/// Check that what elfutils' client downloaded, or knows to be missing, is not asked for again.
#[test]
fn shared_cache() {
    let mut stripped = Stripped::build();
    let dir = stripped.fixture.dir.path().to_owned();
    let Some(server) = Real::start(&dir, stripped.debug.parent().unwrap()) else {
        return;
    };
    let id = stripped.fixture.build_id().to_string();
    let find = |id: &str| {
        Command::new("debuginfod-find")
            .args(["debuginfo", id])
            .env("DEBUGINFOD_URLS", &server.url)
            .env("DEBUGINFOD_CACHE_PATH", dir.join("cache"))
            .output()
            .unwrap()
    };
    assert!(find(&id).status.success());
    let stub = Stub::sends(Vec::new());
    let (result, _) = stripped.symbolize(stripped.options(&[&stub.url]));
    assert_eq!(result.frames, stripped.expected.frames);

    let mut other = Stripped::build();
    std::fs::remove_dir_all(dir.join("cache")).unwrap();
    let other_id = other.fixture.build_id().to_string();
    std::fs::remove_file(&stripped.debug).unwrap();
    assert!(!find(&"00".repeat(20)).status.success());
    let note = dir.join("cache").join("00".repeat(20)).join("debuginfo");
    let place = other.cached();
    std::fs::create_dir_all(place.parent().unwrap()).unwrap();
    std::fs::copy(note, &place).unwrap();
    let (problems, failures) = other.refused(other.options(&[&stub.url]));
    assert_eq!((problems, failures), (vec![], vec![]), "{other_id}");
    assert_eq!(stub.n_requests(), 0);
}

/// Check that a missing file is no failure, is remembered, and asked for by no later run.
#[test]
fn not_found() {
    let mut stripped = Stripped::build();
    let stub = Stub::start(|stream| {
        let _ = stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    });
    for _ in 0..2 {
        let (problems, failures) = stripped.refused(stripped.options(&[&stub.url]));
        assert_eq!((problems, failures), (vec![], vec![]));
    }
    let id = stripped.fixture.build_id();
    let asked = stub.paths.lock().unwrap();
    assert_eq!(*asked, [format!("/buildid/{id}/debuginfo")]);
    assert_eq!(std::fs::metadata(stripped.cached()).unwrap().len(), 0);
}

/// Check that the next server is asked, and that one that is gone is told once and not in the way.
#[test]
fn unreachable() {
    let mut stripped = Stripped::build();
    let gone = {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    let stub = Stub::sends(std::fs::read(&stripped.debug).unwrap());
    let urls = [&*gone, "ftp://x", &*stub.url];
    let (result, failures) = stripped.symbolize(stripped.options(&urls));
    assert_eq!(result.frames, stripped.expected.frames);
    let texts: Vec<String> = failures.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert!(
        texts[0].starts_with(&format!("debuginfod server `{gone}`: "))
            && texts[0].ends_with("; going on without it"),
        "{texts:?}"
    );
    assert!(texts[1].contains("only http and https"), "{texts:?}");
    let modified = std::fs::metadata(stripped.cached()).unwrap().modified();
    let since = modified.unwrap().duration_since(std::time::UNIX_EPOCH);
    assert_eq!(since.unwrap().as_secs(), 784_111_777);
}

/// Check that a file for another build is refused by name, and neither used nor kept.
#[test]
fn other_build() {
    let mut stripped = Stripped::build();
    let other = Fixture::build("g++", "inline.cc", &["-O1", "-g"]);
    let stub = Stub::sends(std::fs::read(&other.path).unwrap());
    let (problems, failures) = stripped.refused(stripped.options(&[&stub.url]));
    let id = stripped.fixture.build_id();
    let expected = format!(
        "module: debug file `{}/buildid/{id}/debuginfo` is for build-id {}, the process runs {id}",
        stub.url,
        other.build_id(),
    );
    assert_eq!((problems, failures), (vec![expected], vec![]));
}

/// Check that a server that stalls, before or after it begins to answer, is given up and not asked
/// for the next module.
#[test]
fn stalls() {
    let replies: [&[u8]; 3] = [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n\x7fELF",
    ];
    for reply in replies {
        let mut stripped = Stripped::build();
        let stub = Stub::start(move |stream| {
            let _ = stream.write_all(reply);
            wait_for_end(stream);
        });
        let options = DebuginfodOptions {
            timeout: Some(Duration::from_millis(200)),
            ..stripped.options(&[&stub.url])
        };
        let (problems, failures) = stripped.refused(options);
        assert_eq!(problems, [""; 0]);
        assert_eq!(failures.len(), 1);
        assert!(failures[0].given_up, "{failures:?}");
        assert!(
            failures[0].reason.contains("less than 100 KiB in 0.2 s"),
            "{failures:?}"
        );
        // The same client.
        stripped.fixture.symbolize(&stripped.addresses);
        assert!(stub.n_requests() <= 1);
    }
}

/// Check that a server that never answers is left when names are no longer wanted, without a word on it, and that other
/// modules are not begun.
#[test]
fn cancelled() {
    let replies: [&[u8]; 2] = [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n\x7fELF",
    ];
    for reply in replies {
        let mut stripped = Stripped::build();
        let cancel = stripped.fixture.options.cancel.clone();
        let stub = Stub::start(move |stream| {
            let _ = stream.write_all(reply);
            cancel.cancel();
            wait_for_end(stream);
        });
        let options = DebuginfodOptions {
            timeout: None,
            ..stripped.options(&[&stub.url])
        };
        let (result, failures) = stripped.symbolize(options);
        assert!(result.report.is_cancelled);
        let problems: Vec<&str> = result.report.problems.iter().map(|p| &*p.text).collect();
        assert_eq!(problems, ["the search for its names was ended early"]);
        assert_eq!((failures, stub.n_requests()), (vec![], 1));
        assert!(!stripped.cached().exists());
        // Once cancelled, nothing is opened or asked for.
        let result = stripped.fixture.symbolize(&stripped.addresses);
        assert!(result.report.is_cancelled && result.report.sources.is_empty());
        assert_eq!(result.report.n_unresolved, stripped.addresses.len());
        assert_eq!(stub.n_requests(), 1);
    }
}

/// Check that a server that sends a byte now and then is given up, too.
#[test]
fn drips() {
    let mut stripped = Stripped::build();
    let stub = Stub::start(|stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n\x7fELF");
        while stream.write_all(b"x").is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let options = DebuginfodOptions {
        timeout: Some(Duration::from_millis(300)),
        ..stripped.options(&[&stub.url])
    };
    let (problems, failures) = stripped.refused(options);
    assert_eq!(problems, [""; 0]);
    assert!(failures[0].given_up && failures[0].reason.contains("100 KiB"));
}

/// Check that time lost with answers of no use has a bound over all modules.
#[test]
fn slow_refusals() {
    let mut stripped = Stripped::build();
    let stub = Stub::start(|stream| {
        std::thread::sleep(Duration::from_millis(150));
        let _ = stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    });
    let options = DebuginfodOptions {
        timeout: Some(Duration::from_millis(400)),
        cache: None,
        ..stripped.options(&[&stub.url])
    };
    let client = Arc::new(Debuginfod::new(options));
    stripped.fixture.options.debuginfod = Some(client.clone());
    for _ in 0..10 {
        stripped.fixture.symbolize(&stripped.addresses);
    }
    assert!(stub.n_requests() <= 3, "{} requests", stub.n_requests());
    let failures = client.failures();
    assert!(failures[0].given_up, "{failures:?}");
}

/// Check garbage, a body that ends early or never, too large ones, and errors of servers.
#[test]
fn garbage() {
    let ends_early = |stream: &mut TcpStream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n\x7fELF");
    };
    let endless = |stream: &mut TcpStream| {
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n\x7fELF\r\n";
        let _ = stream.write_all(head);
        let chunk = [&b"1000\r\n"[..], &[0; 4096], b"\r\n"].concat();
        while stream.write_all(&chunk).is_ok() {}
    };
    let status = |stream: &mut TcpStream| {
        let _ = stream.write_all(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n");
    };
    let no_http = |stream: &mut TcpStream| {
        let _ = stream.write_all(&[b'x'; 100_000]);
    };
    let redirects = |stream: &mut TcpStream| {
        let _ = stream
            .write_all(b"HTTP/1.1 302 Found\r\nLocation: /again\r\nContent-Length: 0\r\n\r\n");
    };
    let mut elf = vec![0; 4096];
    elf[..4].copy_from_slice(b"\x7fELF");
    let huge = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\n\x7fELF";
    let cases: [(Stub, &str, &str); 8] = [
        (
            Stub::sends(b"<html>hello</html>".to_vec()),
            "not an ELF file",
            "",
        ),
        (Stub::sends(elf), "unsupported ELF file", ""),
        (Stub::start(ends_early), "", ""),
        (Stub::start(endless), "larger than 1000000 bytes", ""),
        (Stub::start(status), "", "answered with status 503"),
        (Stub::start(no_http), "", ""),
        (Stub::start(redirects), "", ""),
        (
            Stub::start(|stream| {
                let _ = stream.write_all(huge);
                wait_for_end(stream);
            }),
            "MiB free",
            "",
        ),
    ];
    for (i, (stub, problem, failure)) in cases.into_iter().enumerate() {
        let mut stripped = Stripped::build();
        let options = DebuginfodOptions {
            max_unknown_size: 1_000_000,
            timeout: Some(Duration::from_secs(20)),
            ..stripped.options(&[&stub.url])
        };
        let (problems, failures) = stripped.refused(options);
        assert_eq!(
            problems.len() + failures.len(),
            1,
            "{i}: {problems:?} {failures:?}"
        );
        match problem.is_empty() {
            false => assert!(problems[0].contains(problem), "{problems:?}"),
            true => assert!(failures[0].reason.contains(failure), "{failures:?}"),
        }
        assert!(
            stub.n_requests() <= 7,
            "{i}: {} requests",
            stub.n_requests()
        );
    }
    // A limit of the user's own.
    let mut stripped = Stripped::build();
    let stub = Stub::sends(std::fs::read(&stripped.debug).unwrap());
    let options = DebuginfodOptions {
        max_size: Some(1000),
        ..stripped.options(&[&stub.url])
    };
    let (problems, _) = stripped.refused(options);
    assert!(
        problems[0].contains("larger than 1000 bytes"),
        "{problems:?}"
    );
}

/// Check that a download ends when others take the space that was free when it began.
#[test]
fn disk_fills() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED debuginfod::disk_fills: only root can mount a file system");
        return;
    }
    let mut stripped = Stripped::build();
    let folder = tempfile::tempdir().unwrap();
    let run = || {
        // What this thread mounts, and those that it starts see, ends with them.
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        mount_change(
            "/",
            MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
        )
        .unwrap();
        mount(
            "tmpfs",
            folder.path(),
            "tmpfs",
            MountFlags::empty(),
            c"size=514m",
        )
        .unwrap();
        let other = std::fs::File::create(folder.path().join("other")).unwrap();
        let stub = Stub::start(move |stream| {
            let free = || fstatvfs(&other).unwrap().f_bavail;
            let before = free();
            let mut bytes = vec![0; 1 << 16];
            bytes[..4].copy_from_slice(b"\x7fELF");
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1048576\r\n\r\n");
            let _ = stream.write_all(&bytes);
            while free() == before {
                std::thread::yield_now();
            }
            fallocate(&other, FallocateFlags::empty(), 0, 3 << 19).unwrap();
            for _ in 1..16 {
                let _ = stream.write_all(&bytes);
            }
        });
        let mut options = stripped.options(&[&stub.url]);
        options.cache = Some(CachePath {
            path: folder.path().join("cache"),
            is_named: true,
        });
        stripped.symbolize(options)
    };
    let (result, failures) = std::thread::scope(|scope| scope.spawn(run).join()).unwrap();
    let problems: Vec<_> = result
        .report
        .problems
        .iter()
        .map(ToString::to_string)
        .collect();
    assert!(
        problems.iter().any(|text| text.contains("MiB free")),
        "{problems:?} {failures:?}"
    );
}

/// Check that a module that is nowhere here comes from a server, with its debug file; that a
/// damaged file in the cache is replaced; and that what is no file is not asked for.
#[test]
fn module_itself() {
    let mut stripped = Stripped::build();
    let identity = stripped.fixture.identity();
    let module = std::fs::read(&stripped.fixture.path).unwrap();
    let executable = stripped.cached().with_file_name("executable");
    let served = stripped.fixture.dir.path().join("served/module");
    std::fs::rename(&stripped.fixture.path, &served).unwrap();
    let Some(server) = Real::start(stripped.fixture.dir.path(), served.parent().unwrap()) else {
        return;
    };
    let options = stripped.options(&[&server.url]);
    std::fs::create_dir_all(executable.parent().unwrap()).unwrap();
    std::fs::write(&executable, "damaged").unwrap();
    stripped.fixture.options.debuginfod = Some(Arc::new(Debuginfod::new(options)));
    let files = wcprof_symbols::LocalFiles;
    let symbolize = |identity: &_| {
        let options = &stripped.fixture.options;
        crate::common::symbolize(identity, &files, options, &stripped.addresses)
    };
    let result = symbolize(&identity);
    assert_eq!(result.frames, stripped.expected.frames);
    assert_eq!(result.report.sources[0].path, executable);
    assert_eq!(std::fs::read(&executable).unwrap(), module);
    assert_eq!(result.report.problems, []);

    let stub = Stub::sends(Vec::new());
    let options = stripped.options(&[&stub.url]);
    stripped.fixture.options.debuginfod = Some(Arc::new(Debuginfod::new(options)));
    let vdso = wcprof_symbols::ModuleIdentity {
        path: "[vdso]".to_owned(),
        build_id: wcprof_types::BuildId::new(&[7; 20]),
        ..identity
    };
    let options = &stripped.fixture.options;
    crate::common::symbolize(&vdso, &files, options, &stripped.addresses);
    assert_eq!(stub.n_requests(), 0);
}
