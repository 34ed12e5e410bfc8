//! Tests of naming a trace, with files that do not exist: the grouping is what counts.

use std::path::Path;
use std::sync::Mutex;

use wcprof_trace::model::{Header, ModuleId, Process, ProcessId, SymbolFrame};
use wcprof_types::{Avma, BuildId, FileOffset, LoadBias, Pid, RelativeAddress, Svma};

use super::*;
use crate::files::{ModuleFile, ModuleFiles, NoFile, OpenError, TargetFile};
use crate::module::{new_report, symbolize_modules};
use crate::options::SymbolOptions;

/// Notes which modules are opened, and has none.
#[derive(Default)]
struct NoFiles(Mutex<Vec<ModuleIdentity>>);

impl ModuleFiles for NoFiles {
    fn open(&self, module: &ModuleIdentity) -> Result<ModuleFile, OpenError> {
        self.0.lock().unwrap().push(module.clone());
        Err(NoFile::NotAFile.at(&module.path))
    }

    fn open_path(&self, _module: &ModuleIdentity, path: &Path) -> Result<TargetFile, OpenError> {
        Err(NoFile::NotFound.at(path))
    }
}

fn module(process: u32, path: &str, build_id: Option<&[u8]>, base: u64) -> Module {
    Module {
        process: ProcessId(process),
        path: path.to_owned(),
        build_id: build_id.and_then(BuildId::new),
        start: Avma(0x7f00_0000_0000),
        end: Avma(0x7f00_0010_0000),
        offset: FileOffset(0),
        bias: LoadBias(0x7f00_0000_0000),
        base: Svma(base),
        deleted: false,
    }
}

fn native(module: u32, address: u64, function: Option<u64>) -> Frame {
    Frame::Native {
        module: ModuleId(module),
        address: RelativeAddress(address),
        function: function.map(RelativeAddress),
    }
}

fn tables(modules: Vec<Module>, frames: Vec<Frame>) -> Tables {
    let process = |pid| Process {
        pid: Pid(pid),
        comm: "fixture".to_owned(),
        cmdline: Vec::new(),
        cgroup: String::new(),
        birth: String::new(),
    };
    Tables {
        processes: vec![process(10), process(20)],
        modules,
        frames,
        ..Tables::new(Header {
            wcprof_version: "0".to_owned(),
            engine: "procfs".to_owned(),
            rate_hz: 99,
            n_cpus: 1,
            ..Header::default()
        })
    }
}

fn run(tables: &Tables) -> (SymbolTable, SymbolReport, Vec<ModuleIdentity>) {
    let files = NoFiles::default();
    let options = SymbolOptions {
        debug_dirs: Vec::new(),
        threads: 1,
        ..SymbolOptions::default()
    };
    let symbolize = |queries: &[_]| symbolize_modules(queries, &files, &options);
    let (table, report) = symbolize_tables(tables, &SymbolTable::default(), symbolize);
    (table, report, files.0.into_inner().unwrap())
}

/// Check that known frames are not asked for, and which are to be asked for later: all of a module whose search was
/// ended, those without a name where a file system was silent.
#[test]
fn unfinished() {
    let modules = ["/a", "/b", "/c"].map(|path| module(0, path, None, 0));
    let frames = [0, 0, 1, 1, 2, 2];
    let frames = (0..).zip(frames).map(|(n, m)| native(m, n, None));
    let tables = tables(modules.into(), frames.collect());
    let mut known = SymbolTable::default();
    known.frames.insert(FrameId(4), Vec::new());
    let symbolize = |queries: &[ModuleQuery]| {
        let n_asked = queries.iter().map(|query| query.addresses.len());
        assert_eq!(n_asked.collect::<Vec<_>>(), [2, 2, 1]);
        let of = |query: &ModuleQuery| {
            let mut report = new_report(query);
            report.is_cancelled = query.module.path == "/a";
            report.is_silent = query.module.path == "/b";
            let frame = |n| SymbolFrame {
                resolved: n == 0,
                ..SymbolFrame::default()
            };
            let frames = (0..query.addresses.len()).map(|n| vec![frame(n)]);
            ModuleSymbols {
                frames: frames.collect(),
                report,
            }
        };
        queries.iter().map(of).collect()
    };
    let (table, report) = symbolize_tables(&tables, &known, symbolize);
    assert_eq!(table.frames.len(), 5);
    let mut unfinished: Vec<u32> = report.unfinished.iter().map(|id| id.0).collect();
    unfinished.sort_unstable();
    assert_eq!(unfinished, [0, 1, 3]);
}

/// Check that a file of two processes is opened once if its build-id proves it, else twice.
#[test]
fn shared_modules() {
    let modules = vec![
        module(0, "/lib/a.so", Some(&[1]), 0),
        module(1, "/lib/a.so", Some(&[1]), 0),
        module(0, "/lib/b.so", None, 0),
        module(1, "/lib/b.so", None, 0),
        module(1, "/lib/a.so", Some(&[2]), 0),
    ];
    let frames = (0..5).map(|i| native(i, 0x10, None)).collect();
    let (table, report, opened) = run(&tables(modules, frames));
    let opened: Vec<_> = opened.iter().map(|m| (m.path.as_str(), m.pid)).collect();
    assert_eq!(
        opened,
        [
            ("/lib/a.so", Some(Pid(10))),
            ("/lib/b.so", Some(Pid(10))),
            ("/lib/b.so", Some(Pid(20))),
            ("/lib/a.so", Some(Pid(20))),
        ]
    );
    assert_eq!(table.frames.len(), 5);
    assert_eq!(report.modules.len(), 4);
    assert_eq!(report.modules[0].n_frames, 2);
    assert_eq!((report.n_frames, report.n_unresolved), (5, 5));
}

/// Check names without symbols: the function's start where the trace has it, relative to the base.
#[test]
fn unnamed() {
    let modules = vec![module(0, "/opt/my app", Some(&[1]), 0x40_0000)];
    let frames = vec![native(0, 0x1234, Some(0x1200)), native(0, 0x1234, None)];
    let (table, _, _) = run(&tables(modules, frames));
    let names: Vec<_> = table.frames.values().map(|f| f[0].name.as_str()).collect();
    assert_eq!(names, ["my app+0x1200", "my app+0x1234"]);
    assert!(
        table
            .frames
            .values()
            .all(|f| f.len() == 1 && !f[0].resolved)
    );
}

/// Check that frames outside modules, in the kernel or of unknown modules get no entry, and that
/// a module without frames is not opened.
#[test]
fn other_frames() {
    let modules = vec![module(0, "/lib/a.so", Some(&[1]), 0)];
    let frames = vec![
        Frame::Unmapped(Avma(0x1000)),
        Frame::Kernel("do_exit".to_owned()),
        native(7, 0x10, None),
    ];
    let (table, report, opened) = run(&tables(modules, frames));
    assert!(table.frames.is_empty() && opened.is_empty());
    let [anon] = report.modules.as_slice() else {
        panic!("{:?}", report.modules);
    };
    assert_eq!(
        (anon.path.as_str(), anon.n_frames, anon.n_unresolved),
        ("[anon]", 1, 1)
    );
    assert_eq!((report.n_frames, report.n_unresolved), (2, 2));
}
