//! The confined process: reads files that it is given, and tells the names of each module.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use dwarf_stream::Budget;
use dwarf_stream::elf::ElfFile;
use wcprof_types::BuildId;

use super::messages::{Confinement, Reply, Request, Start, WireModule};
use super::wire::{expect, send};
use crate::cache_key::CacheKey;
use crate::debuginfod::Artifact;
use crate::files::{ModuleFile, ModuleFiles, ModuleIdentity, NoFile, OpenError, TargetFile};
use crate::module::{for_each_module, symbolize_module, without_thread};
use crate::options::Inlines;
use crate::query::{ModuleQuery, ModuleSymbols};
use crate::report::Problem;
use crate::surroundings::Surroundings;

/// Of a file that is longer only what is on its disk counts, since the length of one with holes costs its owner nothing.
/// What is on the disk of a shorter one may be packed, or not written yet.
const MAX_LENGTH: u64 = 8 << 30;

/// Told the size of each file in bytes before it is read: more is permitted then.
pub type OnFile = dyn Fn(u64) + Send + Sync;

/// Tells the size of a file that is read next.
///
/// # Errors
/// When it cannot be looked at.
pub fn tell_size(file: &File, on_file: &OnFile) -> io::Result<()> {
    let file = file.metadata()?;
    let mut size = file.len();
    if size > MAX_LENGTH {
        size = size.min(file.blocks().saturating_mul(512));
    }
    on_file(size);
    Ok(())
}

/// Does what is asked for on `socket`, and returns when it is done.
///
/// # Errors
/// When the parent has ended, or threads cannot be started.
pub fn run_confined(
    socket: UnixStream,
    confinement: &Confinement,
    on_file: Box<OnFile>,
) -> io::Result<()> {
    send(&socket, confinement, None)?;
    let (start, _) = expect::<Start>(&socket, u64::MAX)?;
    let mut sockets = vec![Mutex::new(socket)];
    while sockets.len() < start.n_threads {
        let first = sockets.first().map(|first| lock(first).try_clone());
        let first = first.ok_or(ErrorKind::InvalidData)??;
        let ((), file) = expect(&first, 100)?;
        let file = file.ok_or(ErrorKind::InvalidData)?;
        sockets.push(Mutex::new(UnixStream::from(std::os::fd::OwnedFd::from(
            file,
        ))));
    }
    let parent = Arc::new(Parent { sockets, on_file });
    let files = Arc::clone(&parent);
    let new_file = move |size| files.ask(&Request::Spill { size }).and_then(Answer::file);
    let budget = Budget::with_files(start.max_memory / 2, new_file);
    let queries: Vec<ModuleQuery> = start.modules.iter().map(|module| module.query()).collect();
    let tell = |module: &WireModule, symbols: ModuleSymbols| {
        let done = Request::Done {
            module: module.index,
            names: symbols.into(),
        };
        // Without a parent this process ends.
        let _ = parent.tell(&done);
    };
    let symbolize = |i: usize, query: &ModuleQuery| {
        let Some(module) = start.modules.get(i) else {
            return;
        };
        let asking = Asking {
            parent: &parent,
            module: module.index,
        };
        let options = start.options(module.inlines);
        let symbols = symbolize_module(query, (&asking, &asking), &options, &budget);
        tell(module, symbols);
    };
    if for_each_module(&queries, &start.options(Inlines::All), symbolize).is_none() {
        let modules = start.modules.iter().zip(&queries);
        modules.for_each(|(module, query)| tell(module, without_thread(query)));
    }
    // While a file is closed whose server does not answer, this process does not end.
    for socket in &parent.sockets {
        lock(socket).shutdown(Shutdown::Both)?;
    }
    Ok(())
}

fn lock(socket: &Mutex<UnixStream>) -> std::sync::MutexGuard<'_, UnixStream> {
    socket.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The process that opens files.
struct Parent {
    /// One for each thread, so that they wait for it side by side.
    sockets: Vec<Mutex<UnixStream>>,
    on_file: Box<OnFile>,
}

/// What the parent answered.
struct Answer(Reply, Option<File>);

impl Answer {
    fn file(self) -> io::Result<File> {
        match self {
            Self(Reply::File, Some(file)) => Ok(file),
            Self(Reply::NoFile { reason, .. }, _) => Err(io::Error::other(reason)),
            _ => Err(ErrorKind::InvalidData.into()),
        }
    }
}

impl Parent {
    fn socket(&self) -> io::Result<std::sync::MutexGuard<'_, UnixStream>> {
        // Threads that expand sections beside those of the pool have no index: they take the first.
        let i = rayon::current_thread_index().unwrap_or(0) % self.sockets.len().max(1);
        let socket = self.sockets.get(i).ok_or(ErrorKind::NotConnected)?;
        Ok(lock(socket))
    }

    fn tell(&self, message: &Request) -> io::Result<()> {
        send(&*self.socket()?, message, None)
    }

    fn ask(&self, request: &Request) -> io::Result<Answer> {
        let socket = self.socket()?;
        send(&socket, request, None)?;
        let (reply, file) = expect(&socket, u64::MAX)?;
        if let Some(file) = &file {
            tell_size(file, &*self.on_file)?;
        }
        Ok(Answer(reply, file))
    }

    /// A file at a path, which names it in errors.
    fn open(&self, request: &Request, path: &Path) -> Result<TargetFile, OpenError> {
        let failed = |error: io::Error| NoFile::System(error).at(path);
        match self.ask(request).map_err(failed)? {
            Answer(Reply::NoFile { is_not_found, .. }, _) if is_not_found => {
                Err(NoFile::NotFound.at(path))
            }
            answer => answer.file().map(TargetFile::from).map_err(failed),
        }
    }
}

/// What a module's symbolization asks the parent for.
struct Asking<'p> {
    parent: &'p Parent,
    module: usize,
}

impl ModuleFiles for Asking<'_> {
    fn open(&self, module: &ModuleIdentity) -> Result<ModuleFile, OpenError> {
        let request = Request::Module {
            module: self.module,
        };
        let file = self.parent.open(&request, Path::new(&module.path));
        file.map(ModuleFile::File)
    }

    fn open_path(&self, _module: &ModuleIdentity, path: &Path) -> Result<TargetFile, OpenError> {
        let request = Request::Path {
            module: self.module,
            path: path.into(),
        };
        self.parent.open(&request, path)
    }
}

impl Surroundings for Asking<'_> {
    fn open(&self, path: &Path) -> Result<TargetFile, OpenError> {
        let request = Request::Host {
            module: self.module,
            path: path.into(),
        };
        self.parent.open(&request, path)
    }

    fn fetch(
        &self,
        (module, build_id): (&str, &BuildId),
        artifact: Artifact,
        problems: &mut Vec<Problem>,
    ) -> Option<(ElfFile, PathBuf)> {
        let request = Request::Fetch {
            module: self.module,
            build_id: build_id.as_bytes().to_vec(),
            artifact,
        };
        let Answer(reply, file) = self.parent.ask(&request).ok()?;
        let Reply::Fetched {
            path,
            problems: refused,
        } = reply
        else {
            return None;
        };
        problems.extend(refused.into_iter().map(|text| Problem {
            module: module.to_owned(),
            text,
        }));
        // The parent has compared its build-id.
        Some((artifact.parse(file?).ok()?, path?.into()))
    }

    fn read_cache(&self, key: &CacheKey) -> Option<Vec<u8>> {
        match self.parent.ask(&Request::ReadCache(key.clone())).ok()?.0 {
            Reply::Content(content) => content.map(String::into_bytes),
            _ => None,
        }
    }

    fn write_cache(&self, key: &CacheKey, content: &[u8]) {
        if let Ok(content) = String::from_utf8(content.to_vec()) {
            // Without a cache all is as right, and slower.
            let _ = self.parent.ask(&Request::WriteCache(key.clone(), content));
        }
    }
}
