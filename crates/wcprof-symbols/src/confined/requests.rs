//! What the confined process asks for to files and answers.
//!
//! It may have been taken over by a file that it has read. So it gets nothing but ELF files, which are
//! opened for reading and are regular files, and what it says is checked before it is kept.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{MemfdFlags, memfd_create};
use wcprof_host::open::{Remote, TargetFile, look_in_time};
use wcprof_host::own_files::unnamed_file;
use wcprof_host::while_wanted;
use wcprof_types::BuildId;

use super::messages::{Reply, Request};
use super::wire::{receive, send};
use crate::cache::is_sound;
use crate::cache_key::{CacheKey, stamp};
use crate::debuginfod::Artifact;
use crate::files::{ModuleFile, ModuleFiles, NoFile, OpenError};
use crate::options::SymbolOptions;
use crate::query::{ModuleQuery, ModuleSymbols};
use crate::report::Problem;
use crate::surroundings::{Surroundings, ThisMachine};

/// Largest message: the names of a module.
const MAX_MESSAGE: u64 = 256 << 20;
const ELF_MAGIC: [u8; 4] = *b"\x7fELF";

/// Serves a confined process; several threads at a time.
pub(super) struct Server<'s> {
    pub(super) queries: &'s [ModuleQuery],
    pub(super) files: &'s dyn ModuleFiles,
    pub(super) options: &'s SymbolOptions,
    /// By module.
    pub(super) states: Vec<State>,
    /// Stamps of the files that were handed out.
    pub(super) stamps: Mutex<HashSet<String>>,
    /// Threads that make an answer.
    pub(super) n_answering: AtomicUsize,
}

/// How far a module is.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Its file was asked for.
    pub(super) has_begun: AtomicBool,
    /// The file system of that did not answer.
    pub(super) is_silent: AtomicBool,
    pub(super) symbols: Mutex<Option<ModuleSymbols>>,
    /// Mounts of its files that may not answer later.
    pub(super) mounts: Mutex<Vec<Remote>>,
}

impl State {
    pub(super) fn mounts(&self) -> MutexGuard<'_, Vec<Remote>> {
        self.mounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A message that is parsed and answered, which is counted.
struct Answering<'n>(&'n AtomicUsize);

impl<'n> Answering<'n> {
    fn new(n: &'n AtomicUsize) -> Self {
        n.fetch_add(1, Ordering::Relaxed);
        Self(n)
    }
}

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Server<'_> {
    /// Answers on one socket until the process ends.
    ///
    /// # Errors
    /// When it says what the program never says.
    pub(super) fn serve(&self, socket: &UnixStream) -> io::Result<()> {
        let cancel = self.options.cancel.clone();
        while_wanted(move || cancel.is_cancelled(), || self.answer_all(socket))
    }

    fn answer_all(&self, socket: &UnixStream) -> io::Result<()> {
        loop {
            let mut answering = None;
            let on_read = || answering = Some(Answering::new(&self.n_answering));
            let Some((request, file)) = receive(socket, MAX_MESSAGE, on_read)? else {
                return Ok(());
            };
            // It sends none, unless it was taken over.
            drop(file.map(TargetFile::from));
            if let Some((reply, file)) = self.answer(request)? {
                send(socket, &reply, file.as_ref().map(|file| file.as_fd()))?;
            }
        }
    }

    pub(super) fn is_answering(&self) -> bool {
        self.n_answering.load(Ordering::Relaxed) > 0
    }

    fn answer(&self, request: Request) -> io::Result<Option<(Reply, Option<TargetFile>)>> {
        let surroundings = &ThisMachine(self.options);
        Ok(Some(match request {
            Request::Module { module } => {
                let (query, state) = self.module(module)?;
                state.has_begun.store(true, Ordering::Relaxed);
                let opened = match self.files.open(&query.module) {
                    Ok(ModuleFile::File(file)) => Ok(file),
                    Ok(ModuleFile::Bytes(bytes)) => Ok(in_memory(&bytes)?),
                    Err(error) => Err(error),
                };
                let looked = self.look(state, opened);
                let is_silent = looked.as_ref().is_err_and(NoFile::is_silence);
                state.is_silent.store(is_silent, Ordering::Relaxed);
                hand_out(looked)
            }
            Request::Path { module, path } => {
                let (query, state) = self.module(module)?;
                let opened = self.files.open_path(&query.module, &PathBuf::from(path));
                hand_out(self.look(state, opened))
            }
            Request::Host { module, path } => {
                let opened = surroundings.open(&PathBuf::from(path));
                let (_, state) = self.module(module)?;
                hand_out(self.look(state, opened))
            }
            Request::Fetch {
                module,
                build_id,
                artifact,
            } => {
                let (query, _) = self.module(module)?;
                let build_id = BuildId::new(&build_id).ok_or_else(|| unsound("a build-id"))?;
                self.fetch(query, &build_id, artifact)
            }
            Request::ReadCache(key) if self.has_handed_out(&key) => {
                let content = surroundings.read_cache(&key);
                let content = content.and_then(|content| String::from_utf8(content).ok());
                (Reply::Content(content), None)
            }
            Request::WriteCache(key, content)
                if self.has_handed_out(&key) && is_sound(content.as_bytes()) =>
            {
                surroundings.write_cache(&key, content.as_bytes());
                (Reply::Noted, None)
            }
            Request::ReadCache(_) | Request::WriteCache(..) => return Err(unsound("a cache key")),
            Request::Spill { size } => spill(size),
            Request::Done { module, names } => {
                let (query, state) = self.module(module)?;
                let mut symbols = names.checked(query).ok_or_else(|| unsound("names"))?;
                if self.options.cancel.is_cancelled() {
                    symbols.report.cancel(query);
                }
                let mut slot = state.symbols.lock().unwrap_or_else(PoisonError::into_inner);
                if slot.replace(symbols).is_none()
                    && let Some(progress) = &self.options.progress
                {
                    progress.n_done.fetch_add(1, Ordering::Relaxed);
                }
                return Ok(None);
            }
        }))
    }

    fn module(&self, module: usize) -> io::Result<(&ModuleQuery, &State)> {
        let module = self.queries.get(module).zip(self.states.get(module));
        module.ok_or_else(|| unsound("a module"))
    }

    /// A file for the process; an empty one in place of what is no ELF file.
    fn look(
        &self,
        state: &State,
        opened: Result<TargetFile, OpenError>,
    ) -> Result<TargetFile, NoFile> {
        let opened = opened.map_err(|error| error.reason)?;
        let look = |file: TargetFile| (is_elf(&file), stamp(&file), Remote::of(&file));
        let (is_elf, stamp, remote) = look_in_time(&opened, look)?;
        if !is_elf {
            return Ok(in_memory(&[])?);
        }
        state.mounts().extend(remote);
        self.note(stamp);
        Ok(opened)
    }

    fn fetch(
        &self,
        query: &ModuleQuery,
        build_id: &BuildId,
        artifact: Artifact,
    ) -> (Reply, Option<TargetFile>) {
        let mut problems = Vec::new();
        let module = (query.module.file_name(), build_id);
        let found = ThisMachine(self.options).fetch(module, artifact, &mut problems);
        let (file, path) = match found {
            Some((elf, path)) => (
                elf.file().and_then(|file| file.try_clone().ok()),
                Some(path),
            ),
            None => (None, None),
        };
        if let Some(file) = &file {
            self.note(stamp(file));
        }
        let reply = Reply::Fetched {
            path: path.as_deref().map(Into::into),
            problems: problems.into_iter().map(|problem| problem.text).collect(),
        };
        (reply, file.map(TargetFile::from))
    }

    /// Notes that the process has the file with this stamp.
    fn note(&self, stamp: Option<String>) {
        let mut stamps = self.stamps.lock().unwrap_or_else(PoisonError::into_inner);
        stamps.extend(stamp);
    }

    fn has_handed_out(&self, key: &CacheKey) -> bool {
        let stamps = self.stamps.lock().unwrap_or_else(PoisonError::into_inner);
        key.stamps().all(|stamp| stamps.contains(stamp))
    }
}

fn hand_out(file: Result<TargetFile, NoFile>) -> (Reply, Option<TargetFile>) {
    match file {
        Ok(file) => (Reply::File, Some(file)),
        Err(reason) => {
            let reply = Reply::NoFile {
                is_not_found: matches!(reason, NoFile::NotFound),
                reason: reason.to_string(),
            };
            (reply, None)
        }
    }
}

/// A file for a table, if there is room for it.
fn spill(size: u64) -> (Reply, Option<TargetFile>) {
    let file = unnamed_file(size).map(TargetFile::own);
    hand_out(file.map_err(NoFile::System))
}

/// An open file as a confined process may have it: an empty one in the place of what is no ELF file.
///
/// # Errors
/// When its file system does not answer.
pub fn elf_file(opened: TargetFile) -> Result<TargetFile, NoFile> {
    match look_in_time(&opened, |file| is_elf(&file))? {
        true => Ok(opened),
        false => Ok(in_memory(&[])?),
    }
}

/// The executable or library that has a build-id, from the debuginfod servers that the options name. What was refused is added to
/// `problems`.
pub fn code_from_server(
    module: (&str, &BuildId),
    options: &SymbolOptions,
    problems: &mut Vec<Problem>,
) -> Option<TargetFile> {
    let (elf, _) = ThisMachine(options).fetch(module, Artifact::Executable, problems)?;
    let file = elf.file()?.try_clone().ok()?;
    Some(TargetFile::from(file))
}

fn is_elf(file: &File) -> bool {
    let mut magic = [0; ELF_MAGIC.len()];
    file.read_exact_at(&mut magic, 0).is_ok() && magic == ELF_MAGIC
}

/// A file in memory.
///
/// # Errors
/// When there is no room for it.
pub fn in_memory(bytes: &[u8]) -> io::Result<TargetFile> {
    let mut file = File::from(memfd_create("image", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    Ok(TargetFile::own(file))
}

fn unsound(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("{what} that it cannot know"),
    )
}
