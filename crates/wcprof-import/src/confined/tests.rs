//! Imports by processes that are threads here: an honest one, and some that end or lie.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::net::Shutdown;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

use wcprof_symbols::wire::{expect, send};
use wcprof_symbols::{ConfinedProcess, Confinement, Ended, LocalFiles, SymbolOptions};
use wcprof_trace::TraceReader;
use wcprof_trace::model::Trace;
use wcprof_types::BuildId;

use super::messages::{ImportRequest, ImportStart};
use super::{
    ImportJob, ImportRefusal, InputKind, RefusalKind, import_confined, run_confined_import,
};
use crate::code::{CodeFiles, MachineCode, NoCode, WantedFile, WithVdso};
use crate::options::Options;

const FOLDED: &str = "main;a 3\nmain;b 4\n";

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

fn file_of(content: &str) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(content.as_bytes()).unwrap();
    file.rewind().unwrap();
    file
}

/// Imports a text by a process that does this.
fn import(
    (text, kind): (&str, InputKind),
    code: &mut dyn CodeFiles,
    body: impl FnOnce(&UnixStream) + Send + Clone + 'static,
) -> Result<Trace, ImportRefusal> {
    let (input, mut output) = (file_of(text), tempfile::tempfile().unwrap());
    let options = Options::default();
    let job = ImportJob {
        input: &input,
        kind,
        output: &output,
        options: &options,
    };
    let start = |socket: UnixStream| -> io::Result<Box<dyn ConfinedProcess>> {
        let (own, body) = (socket.try_clone()?, body.clone());
        let thread = std::thread::spawn(move || {
            body(&own);
            // A process has no other descriptor of it.
            let _ = own.shutdown(Shutdown::Both);
        });
        Ok(Box::new(Thread { socket, thread }))
    };
    import_confined(job, code, &start)?;
    output.rewind().unwrap();
    let read = TraceReader::from_reader(&output).and_then(TraceReader::read_all);
    Ok(read.unwrap().0)
}

fn honest(socket: &UnixStream) {
    // Without a parent it ends.
    let _ = run_confined_import(socket, &Confinement::default(), &|_| ());
}

/// One that is told what to do, and has not begun with it.
fn begun(socket: &UnixStream) {
    send(socket, &Confinement::default(), None).unwrap();
    expect::<ImportStart>(socket, 1 << 20).unwrap();
    expect::<()>(socket, 100).unwrap();
}

/// Check that the trace is that of an import here, and that reasons are those, each of its kind.
#[test]
fn like_here() {
    let folded = (FOLDED, InputKind::Profile);
    let trace = import(folded, &mut NoCode, honest).unwrap();
    let mut here = Vec::new();
    let source = io::Cursor::new(FOLDED);
    crate::import(source, &Options::default(), &mut NoCode, &mut here).unwrap();
    let read = TraceReader::from_reader(here.as_slice()).and_then(TraceReader::read_all);
    assert_eq!(trace, read.unwrap().0);
    assert_eq!(trace.spans.len(), 2);

    let refusals = [
        (
            ("no weights\n", InputKind::Profile),
            RefusalKind::NotRecognized,
            "not recognized",
        ),
        (
            ("", InputKind::Profile),
            RefusalKind::Content,
            "the file is empty",
        ),
        (folded_as_core(), RefusalKind::NoCore, "no core file"),
    ];
    for (input, kind, text) in refusals {
        let refusal = import(input, &mut NoCode, honest).unwrap_err();
        assert_eq!(refusal.kind, kind, "{refusal}");
        assert!(refusal.text.contains(text), "{refusal}");
    }
}

fn folded_as_core() -> (&'static str, InputKind) {
    (FOLDED, InputKind::Core)
}

/// Check that the import fails by how the process ended, where it ends before it is done.
#[test]
fn ends_early() {
    let bodies: [fn(&UnixStream); 3] = [
        |_| (),
        |socket| send(socket, &Confinement::default(), None).unwrap(),
        begun,
    ];
    for body in bodies {
        let refusal = import((FOLDED, InputKind::Profile), &mut NoCode, body).unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::Content);
        assert_eq!(
            refusal.text,
            "it is damaged, or too large: the process that reads it ended in a test"
        );
    }
}

/// Check that what the program never says ends the import, and that a reason of any length is cut.
#[test]
fn lies() {
    let bodies: [fn(&UnixStream); 2] = [
        |socket| send(socket, &"what", None).unwrap(),
        |socket| {
            let mut socket = socket;
            socket.write_all(&u32::MAX.to_le_bytes()).unwrap();
        },
    ];
    for body in bodies {
        let lie = move |socket: &UnixStream| {
            begun(socket);
            body(socket);
        };
        let refusal = import((FOLDED, InputKind::Profile), &mut NoCode, lie).unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::Content);
        assert!(
            refusal.text.starts_with("the process that reads it said"),
            "{refusal}"
        );
    }
    let long = |socket: &UnixStream| {
        begun(socket);
        let refusal = ImportRefusal {
            kind: RefusalKind::Content,
            text: "x".repeat(1 << 19),
        };
        send(socket, &ImportRequest::Done(Err(refusal)), None).unwrap();
    };
    let refusal = import((FOLDED, InputKind::Profile), &mut NoCode, long).unwrap_err();
    assert_eq!(refusal.text.len(), 2000);
}

/// Check that the process gets an ELF file that it asks for, nothing of a file that is none, and no file that is not there; and
/// the vdso.
#[test]
fn code() {
    let asks = |socket: &UnixStream| {
        begun(socket);
        let ask = |path: &str| {
            let wanted = WantedFile::AtPath(path.to_owned(), BuildId::new(&[1; 20]).unwrap());
            send(socket, &ImportRequest::File(wanted), None).unwrap();
            let (is_there, file) = expect::<bool>(socket, 100).unwrap();
            assert_eq!(is_there, file.is_some());
            file
        };
        let program = std::env::current_exe().unwrap();
        let file = ask(program.to_str().unwrap()).unwrap().metadata().unwrap();
        assert_eq!(file.ino(), program.metadata().unwrap().ino());
        let no_elf = ask(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap();
        assert_eq!(no_elf.metadata().unwrap().len(), 0);
        assert!(ask("/nowhere").is_none());
        let mut magic = [0; 4];
        let vdso = ask("[vdso]").unwrap();
        vdso.read_exact_at(&mut magic, 0).unwrap();
        assert_eq!(&magic, b"\x7fELF");
        let refusal = ImportRefusal {
            kind: RefusalKind::Content,
            text: "all was asked".to_owned(),
        };
        send(socket, &ImportRequest::Done(Err(refusal)), None).unwrap();
    };
    let options = SymbolOptions::default();
    let files = WithVdso(&LocalFiles);
    let mut code = MachineCode::new(&files, &options);
    let refusal = import((FOLDED, InputKind::Profile), &mut code, asks).unwrap_err();
    assert_eq!(refusal.text, "all was asked");
}
