//! Names by processes that are threads here: an honest one, and some that end or lie.

use std::fs::File;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use dwarf_stream::elf::ElfFile;
use wcprof_types::{BuildId, Svma};

use super::messages::{Reply, Request, Start, WireModule};
use super::names::Names;
use super::wire::{expect, send};
use super::{ConfinedProcess, Confinement, Ended, run_confined, symbolize_confined};
use crate::files::{LocalFiles, ModuleFile, ModuleFiles, ModuleIdentity, OpenError, TargetFile};
use crate::module::{symbolize_modules, unnamed};
use crate::options::{Inlines, SymbolOptions};
use crate::query::{ModuleQuery, ModuleSymbols};

/// A process that is a thread.
struct Thread {
    socket: UnixStream,
    thread: JoinHandle<()>,
}

impl ConfinedProcess for Thread {
    fn kill(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    fn end(self: Box<Self>) -> Ended {
        self.kill();
        self.thread.join().unwrap();
        Ended {
            how: "ended in a test".to_owned(),
            is_silent: false,
            child: None,
        }
    }
}

fn start(
    socket: UnixStream,
    body: impl FnOnce(UnixStream) + Send + 'static,
) -> io::Result<Box<dyn ConfinedProcess>> {
    let (for_kill, for_end) = (socket.try_clone()?, socket.try_clone()?);
    let thread = std::thread::spawn(move || {
        body(socket);
        // A process has no other descriptor of it.
        let _ = for_end.shutdown(Shutdown::Both);
    });
    Ok(Box::new(Thread {
        socket: for_kill,
        thread,
    }))
}

/// A process that tells of each module what `names` says, and ends at the first of which it says nothing.
fn tells(socket: UnixStream, names: fn(&WireModule) -> Option<Names>) {
    send(&socket, &Confinement::default(), None).unwrap();
    let (start, _) = expect::<Start>(&socket, 1 << 20).unwrap();
    for module in &start.modules {
        let request = Request::Module {
            module: module.index,
        };
        // It may have been ended for what it has said.
        let answer = send(&socket, &request, None).map(|()| expect::<Reply>(&socket, 1 << 20));
        let (Ok(Ok(_)), Some(names)) = (answer, names(module)) else {
            break;
        };
        let done = Request::Done {
            module: module.index,
            names,
        };
        // Nobody may be there to hear a lie.
        let _ = send(&socket, &done, None);
    }
}

fn query(path: &str, build_id: Option<BuildId>, addresses: &[u64]) -> ModuleQuery {
    ModuleQuery {
        module: ModuleIdentity {
            path: path.to_owned(),
            build_id,
            pid: None,
            start: None,
        },
        base: Svma(0),
        addresses: addresses.iter().map(|a| Svma(*a).into()).collect(),
    }
}

fn options() -> SymbolOptions {
    SymbolOptions {
        debug_dirs: Vec::new(),
        // So that a process takes the modules in their order.
        threads: 1,
        ..SymbolOptions::default()
    }
}

/// Names of three modules, the second of which is `bad`, by processes that do this.
fn symbolize(
    options: &SymbolOptions,
    names: fn(&WireModule) -> Option<Names>,
) -> Vec<ModuleSymbols> {
    let queries = ["good", "bad", "late"].map(|path| query(path, None, &[1]));
    symbolize_confined(&queries, &LocalFiles, options, &|socket| {
        start(socket, move |socket| tells(socket, names))
    })
}

fn sound(module: &WireModule) -> Names {
    let mut symbols = unnamed(&module.query(), "as told");
    symbols.frames[0][0].name = match module.inlines {
        Inlines::No => "by symbol tables".to_owned(),
        Inlines::Quick | Inlines::All => "by DWARF".to_owned(),
    };
    symbols.into()
}

fn is_bad(module: &WireModule) -> bool {
    module.query().module.path == "bad"
}

fn names_of(symbols: &[ModuleSymbols]) -> Vec<&str> {
    let first = symbols
        .iter()
        .map(|symbols| symbols.frames[0][0].name.as_str());
    first.collect()
}

/// Check that the process tells what would be found here: of this program, of what is no ELF file and of what
/// is not there; also on several threads, and where no addresses are asked for. Check that what is wanted
/// quickly is what the cache has, if that is most, and that it says how much is missing.
#[test]
fn like_here() {
    let program = std::env::current_exe().unwrap();
    let elf = ElfFile::from_file(File::open(&program).unwrap()).unwrap();
    let build_id = elf.build_id().and_then(|id| BuildId::new(&id));
    let text = elf.section(".text").unwrap();
    let addresses = (0..200).map(|i| text.address + i * (text.size / 200));
    let addresses: Vec<u64> = addresses.collect();
    let no_elf = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let queries = [
        query(program.to_str().unwrap(), build_id.clone(), &addresses),
        query(no_elf, build_id.clone(), &[1, 2]),
        query("/nonexistent/a.so", build_id, &[3]),
        query("[vdso]", None, &[4]),
        query("/nonexistent/b.so", None, &[]),
    ];
    let cache = tempfile::tempdir().unwrap();
    let options = SymbolOptions {
        threads: 3,
        cache: Some(cache.path().join("cache")),
        ..options()
    };
    let run = |queries: &[ModuleQuery], inlines| {
        let options = SymbolOptions {
            inlines,
            ..options.clone()
        };
        symbolize_confined(queries, &LocalFiles, &options, &|socket| {
            start(socket, |socket| {
                let on_file = Box::new(|size| assert!(size < 1 << 40));
                run_confined(socket, &Confinement::default(), on_file).unwrap();
            })
        })
    };
    // Of more than half of the addresses the cache knows nothing: all are read; then they are not.
    let n_cached = addresses.len() * 3 / 5;
    let mut part = queries.clone();
    part[0].addresses.truncate(n_cached);
    run(&part, Inlines::Quick);
    let quick = run(&queries, Inlines::Quick);
    assert_eq!(quick[0].report.n_pending, addresses.len() - n_cached);
    let without = run(&queries, Inlines::No);
    assert_eq!(quick[0].frames[n_cached..], without[0].frames[n_cached..]);
    let first = run(&queries, Inlines::All);
    assert_eq!(first[0].report.n_pending, 0);
    assert_eq!(quick[0].frames[..n_cached], first[0].frames[..n_cached]);
    assert_ne!(first[0].frames, without[0].frames);
    let resolved = first[0].frames.iter().flatten().filter(|f| f.resolved);
    assert!(resolved.count() > 100);
    // From the cache that this process has written.
    assert_eq!(
        std::fs::read_dir(cache.path().join("cache"))
            .unwrap()
            .count(),
        1
    );
    assert_eq!(run(&queries, Inlines::All), first);
    assert_eq!(run(&queries, Inlines::Quick), first);
    let here = symbolize_modules(&queries, &LocalFiles, &options);
    assert_eq!(here, first);
}

/// Check that a file is as large as what it has on its disk, whatever length its owner gave it.
#[test]
fn holes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.so");
    std::fs::write(&path, b"\x7fELF").unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    file.set_len(1 << 43).unwrap();
    let queries = [query(path.to_str().unwrap(), BuildId::new(&[1; 20]), &[1])];
    let sizes = Arc::new(Mutex::new(Vec::new()));
    symbolize_confined(&queries, &LocalFiles, &options(), &|socket| {
        let sizes = Arc::clone(&sizes);
        start(socket, move |socket| {
            let on_file = Box::new(move |size| sizes.lock().unwrap().push(size));
            run_confined(socket, &Confinement::default(), on_file).unwrap();
        })
    });
    let sizes = sizes.lock().unwrap();
    assert!(
        !sizes.is_empty() && sizes.iter().all(|size| *size < 1 << 20),
        "{sizes:?}"
    );
}

/// Check that a process gets a file for a table that fits on the disk, and a reason for one that does not.
#[test]
fn no_room() {
    let queries = [query("a", None, &[1])];
    let answers = Arc::new(Mutex::new(Vec::new()));
    symbolize_confined(&queries, &LocalFiles, &options(), &|socket| {
        let answers = Arc::clone(&answers);
        start(socket, move |socket| {
            send(&socket, &Confinement::default(), None).unwrap();
            expect::<Start>(&socket, 1 << 20).unwrap();
            for size in [0, 1 << 60] {
                send(&socket, &Request::Spill { size }, None).unwrap();
                let (reply, file) = expect::<Reply>(&socket, 1 << 20).unwrap();
                answers
                    .lock()
                    .unwrap()
                    .push((format!("{reply:?}"), file.is_some()));
            }
        })
    });
    let answers = answers.lock().unwrap();
    assert!(answers[0].1 && !answers[1].1, "{answers:?}");
    assert!(answers[1].0.contains("MiB free"), "{answers:?}");
}

/// Check that a module at which the process ends has the names of its symbol tables, and says why; those
/// before and after it have all.
#[test]
fn ends_in_dwarf() {
    let symbols = symbolize(&options(), |module| {
        (!is_bad(module) || module.inlines == Inlines::No).then(|| sound(module))
    });
    assert_eq!(
        names_of(&symbols),
        ["by DWARF", "by symbol tables", "by DWARF"]
    );
    let report = &symbols[1].report;
    assert!(report.missing_dwarf);
    assert_eq!(
        report.problems[0].to_string(),
        "bad: its debug information was not read: the process that reads it ended in a test"
    );
    assert_eq!(symbols[2].report.problems.len(), 1);
}

/// Check that a module at which it ends again has addresses, and the others have names.
#[test]
fn ends_always() {
    let symbols = symbolize(&options(), |module| {
        (!is_bad(module)).then(|| sound(module))
    });
    assert_eq!(names_of(&symbols), ["by DWARF", "bad+0x1", "by DWARF"]);
    assert_eq!(symbols[1].report.n_unresolved, 1);
    assert_eq!(
        symbols[1].report.problems[0].to_string(),
        "bad: its files were not read: the process that reads it ended in a test"
    );
}

/// Check that names which nobody can have made end the process, and are not used.
#[test]
fn lies() {
    let symbols = symbolize(&options(), |module| {
        let names = match is_bad(module) {
            true => Names::from(ModuleSymbols::default()),
            false => sound(module),
        };
        Some(names)
    });
    assert_eq!(names_of(&symbols)[1], "bad+0x1");
    let text = symbols[1].report.problems[0].to_string();
    assert!(text.ends_with("said names that it cannot know"), "{text}");
}

/// Check that names are missing, with a reason, where no process can be started.
#[test]
fn not_started() {
    let queries = [query("a", None, &[1])];
    let symbols = symbolize_confined(&queries, &LocalFiles, &options(), &|_| {
        Err(io::Error::other("no processes"))
    });
    assert_eq!(names_of(&symbols), ["a+0x1"]);
    let text = symbols[0].report.problems[0].to_string();
    assert!(
        text.ends_with("could not be started: no processes"),
        "{text}"
    );
}

/// A process that keeps its socket open, also when it is killed, and gets on no more after the first answer.
struct Stuck {
    _socket: UnixStream,
    /// Its request is being answered.
    is_answered: Arc<AtomicBool>,
    has_answer: Arc<AtomicBool>,
}

impl ConfinedProcess for Stuck {
    fn kill(&self) {}

    fn end(self: Box<Self>) -> Ended {
        Ended {
            how: "was left behind".to_owned(),
            is_silent: true,
            child: None,
        }
    }

    fn tick(&self, is_answered: bool) -> bool {
        self.is_answered.fetch_or(is_answered, Ordering::SeqCst);
        is_answered || !self.has_answer.load(Ordering::SeqCst)
    }
}

/// Answers when the process has been told that it may wait.
struct Slow(Arc<AtomicBool>);

impl ModuleFiles for Slow {
    fn open(&self, module: &ModuleIdentity) -> Result<ModuleFile, OpenError> {
        while !self.0.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        LocalFiles.open(module)
    }

    fn open_path(&self, module: &ModuleIdentity, path: &Path) -> Result<TargetFile, OpenError> {
        LocalFiles.open_path(module, path)
    }
}

/// Check that a process which gets on no more, and does not even end when it is killed, is left behind, but not while
/// it waits for an answer.
#[test]
fn left_behind() {
    let queries = [query("a", None, &[1])];
    let (is_answered, has_answer) = <(Arc<AtomicBool>, Arc<AtomicBool>)>::default();
    let files = Slow(is_answered.clone());
    let symbols = symbolize_confined(&queries, &files, &options(), &|socket| {
        let _socket = socket.try_clone()?;
        let flag = has_answer.clone();
        std::thread::spawn(move || {
            send(&socket, &Confinement::default(), None).unwrap();
            expect::<Start>(&socket, 1 << 20).unwrap();
            // The second one is given up before that.
            let _ = send(&socket, &Request::Module { module: 0 }, None);
            let answer = expect::<Reply>(&socket, 1 << 20);
            let is_first = matches!(answer, Ok((Reply::NoFile { .. }, None)));
            flag.fetch_or(is_first, Ordering::SeqCst);
        });
        Ok(Box::new(Stuck {
            _socket,
            is_answered: is_answered.clone(),
            has_answer: has_answer.clone(),
        }))
    });
    assert!(has_answer.load(Ordering::SeqCst));
    assert_eq!(names_of(&symbols), ["a+0x1"]);
    let text = symbols[0].report.problems[0].to_string();
    assert!(text.ends_with("it was left behind"), "{text}");
}

/// Check that a process which never answers is ended when the user wants no more names.
#[test]
fn cancelled() {
    let options = options();
    let cancel = options.cancel.clone();
    let queries = [query("a", None, &[1])];
    let symbols = symbolize_confined(&queries, &LocalFiles, &options, &|socket| {
        let cancel = cancel.clone();
        start(socket, move |socket| {
            send(&socket, &Confinement::default(), None).unwrap();
            expect::<Start>(&socket, 1 << 20).unwrap();
            cancel.cancel();
            assert!(expect::<Reply>(&socket, 1 << 20).is_err());
        })
    });
    assert_eq!(names_of(&symbols), ["a+0x1"]);
    assert!(symbols[0].report.is_cancelled);
}
