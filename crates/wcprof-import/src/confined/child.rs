//! The confined process: reads the file that it is given, and writes a trace of it.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind};
use std::os::unix::net::UnixStream;

use wcprof_symbols::wire::{expect, send};
use wcprof_symbols::{Confinement, OnFile, TargetFile, tell_size};

use super::messages::{ImportRequest, ImportStart, InputKind};
use crate::code::{CodeFiles, WantedFile};
use crate::import::{import, import_core};

/// Does what is asked for on `socket`, and returns when it is done. `on_file` is told the size of each file, bytes, before it is
/// read.
///
/// # Errors
/// When the parent has ended.
pub fn run_confined_import(
    socket: &UnixStream,
    confinement: &Confinement,
    on_file: &OnFile,
) -> io::Result<()> {
    send(socket, confinement, None)?;
    let (ImportStart { kind, options }, input) = expect(socket, u64::MAX)?;
    let ((), output) = expect(socket, 100)?;
    let (input, output) = input.zip(output).ok_or(ErrorKind::InvalidData)?;
    tell_size(&input, on_file)?;
    let mut code = SocketCode { socket, on_file };
    let done = match kind {
        InputKind::Profile => import(BufReader::new(input), &options, &mut code, output),
        InputKind::Core => import_core(&input, &options, &mut code, output),
    };
    send(socket, &ImportRequest::Done(done.map_err(Into::into)), None)
}

/// The process that opens files.
struct SocketCode<'s> {
    socket: &'s UnixStream,
    on_file: &'s OnFile,
}

impl SocketCode<'_> {
    fn ask(&self, wanted: &WantedFile) -> io::Result<Option<File>> {
        send(self.socket, &ImportRequest::File(wanted.clone()), None)?;
        let (is_there, file) = expect::<bool>(self.socket, 100)?;
        let file = file.filter(|_| is_there);
        if let Some(file) = &file {
            tell_size(file, self.on_file)?;
        }
        Ok(file)
    }
}

impl CodeFiles for SocketCode<'_> {
    fn open(&mut self, wanted: &WantedFile) -> Option<TargetFile> {
        // Without a parent this process ends.
        self.ask(wanted).ok()?.map(TargetFile::from)
    }
}
