//! A hostile file to a trace file, by a confined process.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

use wcprof_symbols::wire::{receive, send};
use wcprof_symbols::{Cancel, Ended, ProcessWatch, StartProcess, TargetFile, begin, elf_file};

use super::messages::{ImportRefusal, ImportRequest, ImportStart, InputKind, RefusalKind};
use crate::code::{CodeFiles, WantedFile};
use crate::options::Options;

/// Largest message: a path, or a reason.
const MAX_MESSAGE: u64 = 1 << 20;
/// Characters of a reason that are kept.
const MAX_REASON: usize = 2000;

/// What is imported, and into which file.
#[derive(Copy, Clone, Debug)]
pub struct ImportJob<'j> {
    /// The file to read. Its position moves.
    pub input: &'j File,
    /// What it is taken for.
    pub kind: InputKind,
    /// An empty file for the trace. What is in it is hostile, and may be anything if the job fails.
    pub output: &'j File,
    /// How to import.
    pub options: &'j Options,
}

/// Imports a file in a process that `start` starts. `code` opens what it asks for. The process has ended when this returns.
///
/// # Errors
/// When the file is refused, or the process ends early.
pub fn import_confined(
    job: ImportJob<'_>,
    code: &mut dyn CodeFiles,
    start: &StartProcess<'_>,
) -> Result<(), ImportRefusal> {
    let (socket, process) = begin(start).map_err(|ended| early(&ended, RefusalKind::System))?;
    let is_answering = AtomicBool::new(false);
    let end = || {
        process.kill();
        let _ = socket.shutdown(Shutdown::Both);
    };
    let watch = ProcessWatch {
        process: &*process,
        is_answering: &|| is_answering.load(Ordering::Relaxed),
        cancel: &Cancel::default(),
    };
    let work = || serve(job, code, &socket, &is_answering);
    let served = watch
        .confinement(&socket, &end)
        .and_then(|()| watch.run(&end, work)?);
    let ended = process.end();
    match served {
        Ok(done) => done.map_err(|refusal| ImportRefusal {
            text: refusal.text.chars().take(MAX_REASON).collect(),
            ..refusal
        }),
        Err(error) if error.kind() == ErrorKind::InvalidData => Err(ImportRefusal {
            kind: RefusalKind::Content,
            text: format!("the process that reads it said {error}"),
        }),
        Err(_) if ended.is_silent => Err(early(&ended, RefusalKind::System)),
        Err(_) => Err(early(&ended, RefusalKind::Content)),
    }
}

fn early(ended: &Ended, kind: RefusalKind) -> ImportRefusal {
    let reason = match kind {
        RefusalKind::Content => "it is damaged, or too large: ",
        _ => "",
    };
    ImportRefusal {
        kind,
        text: format!("{reason}the process that reads it {}", ended.how),
    }
}

/// Tells the process what to do, and answers until it is done.
fn serve(
    job: ImportJob<'_>,
    code: &mut dyn CodeFiles,
    socket: &UnixStream,
    is_answering: &AtomicBool,
) -> io::Result<Result<(), ImportRefusal>> {
    let start = ImportStart {
        kind: job.kind,
        options: job.options.clone(),
    };
    send(socket, &start, Some(job.input.as_fd()))?;
    send(socket, &(), Some(job.output.as_fd()))?;
    loop {
        let on_read = || is_answering.store(true, Ordering::Relaxed);
        let message = receive::<ImportRequest>(socket, MAX_MESSAGE, on_read)?;
        let (request, file) = message.ok_or(ErrorKind::UnexpectedEof)?;
        // It sends none, unless it was taken over.
        drop(file.map(TargetFile::from));
        let found = match request {
            ImportRequest::Done(done) => return Ok(done),
            ImportRequest::File(wanted @ WantedFile::Jit(_)) => code.open(&wanted),
            ImportRequest::File(wanted) => {
                let file = code.open(&wanted);
                file.and_then(|file| elf_file(file).ok())
            }
        };
        let file = found.as_ref().map(|file| file.as_fd());
        send(socket, &found.is_some(), file)?;
        is_answering.store(false, Ordering::Relaxed);
    }
}
