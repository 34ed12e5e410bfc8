//! Names that are looked up while a recording runs: in CPU time that nobody else wants, so nothing runs beside it.

use std::fs::read_dir;
use std::process::Stdio;

use wcprof_trace::Ending;

use wcprof_testkit::{
    Attach, Engine, RemoteProcess, Variant, fixture, interrupt, read_trace, wait_until,
};

pub(crate) fn names_ahead(engine: Engine) {
    let folder = tempfile::tempdir().expect("temporary folder");
    // It has enough DWARF to be worth a cache, and so little that it is soon done.
    let target = RemoteProcess::start(&fixture("names.rs", Variant::NoFramePointers));
    let child = Attach::new(engine, target.pid())
        .seconds(0.0)
        .command(&folder.path().join("a.wct"))
        .env("XDG_CACHE_HOME", folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("wcprof starts");
    let kept = || {
        let mut files = read_dir(folder.path().join("wcprof")).ok()?.flatten();
        files.find(|file| file.path().extension().is_some_and(|e| e == "wcprof-names"))
    };
    wait_until("no names are looked up while it records", kept);
    interrupt(&child);
    let output = child.wait_with_output().expect("wcprof ends");
    assert!(output.status.success(), "{output:?}");
    let (trace, ending) = read_trace(&folder.path().join("a.wct"));
    assert_eq!(ending, Ending::Clean);
    let symbols = trace.tables.names.symbols.expect("it has names");
    assert!(symbols.frames.values().flatten().any(|f| f.inlined));
}
