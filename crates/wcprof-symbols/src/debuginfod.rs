//! Build-ids to files that debuginfod servers have for them, kept in the cache that elfutils and
//! GDB share.
//!
//! Protocol: debuginfod(8), `GET URL/buildid/HEX/debuginfo` and `/executable`; variables and cache:
//! debuginfod-client-config(7). Servers are chosen by the user, build-ids by whoever made the
//! target: only hexadecimal digits of a sane number go into URLs and paths, and a file is used and
//! kept only if it is an ELF file with that build-id. A server that cannot be reached, or is too
//! slow, is not asked again, so that the time lost with it has a bound.

mod cache;
mod options;
mod server;

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use dwarf_stream::Cancel;
use dwarf_stream::elf::{ElfError, ElfFile, Kind, Source};
use serde::{Deserialize, Serialize};
use wcprof_types::BuildId;

pub use options::{CachePath, DebuginfodOptions, Download, OnProgress, ServerFailure};

use crate::build_id::build_id_of;
use crate::report::Problem;
use cache::{Cached, Slot};
use server::{Server, Stop};

/// Bytes of a build-id that is asked for: GNU ld writes 16 or 20, elfutils takes less than 64.
const BUILD_ID_BYTES: std::ops::Range<usize> = 4..64;

/// What is asked for.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Artifact {
    DebugInfo,
    Executable,
    /// Debug information without code, which `dwz` made for several files.
    SharedDwarf,
}

impl Artifact {
    fn file_name(self) -> &'static str {
        match self {
            Self::DebugInfo | Self::SharedDwarf => "debuginfo",
            Self::Executable => "executable",
        }
    }

    pub(crate) fn parse(self, file: File) -> Result<ElfFile, ElfError> {
        let kind = match self {
            Self::SharedDwarf => Kind::DwarfOnly,
            Self::DebugInfo | Self::Executable => Kind::Linked,
        };
        ElfFile::parse(Source::from_file(file)?, kind)
    }
}

/// A client of debuginfod servers. Remembers which of them did not answer.
#[derive(Debug)]
pub struct Debuginfod {
    options: DebuginfodOptions,
    servers: Vec<Arc<Server>>,
}

impl Debuginfod {
    /// Connects to nothing yet.
    pub fn new(options: DebuginfodOptions) -> Self {
        let servers = options.urls.iter().map(|url| Arc::new(Server::new(url)));
        Self {
            servers: servers.collect(),
            options,
        }
    }

    /// What went wrong with servers so far, at most once each, in the order of their URLs.
    pub fn failures(&self) -> Vec<ServerFailure> {
        self.servers.iter().filter_map(|s| s.failure()).collect()
    }

    /// The file for a build-id, and where it is. Files that were refused are added to `problems`.
    pub(crate) fn fetch(
        &self,
        (module, build_id): (&str, &BuildId),
        artifact: Artifact,
        cancel: &Cancel,
        problems: &mut Vec<Problem>,
    ) -> Option<(ElfFile, PathBuf)> {
        if !BUILD_ID_BYTES.contains(&build_id.as_bytes().len()) {
            return None;
        }
        let hex = build_id.to_string();
        let request = Request {
            module,
            build_id,
            artifact,
            cancel,
        };
        let cache = self.options.cache.as_ref();
        let slot = cache.map(|cache| Slot::new(cache, &hex, artifact.file_name()));
        match slot.as_ref().map_or(Cached::Absent, Slot::look_up) {
            Cached::File(file, path) => match request.check(file, &path) {
                Ok(elf) => return Some((elf, path)),
                // It is replaced if a server has the right one.
                Err(problem) => problems.push(problem),
            },
            Cached::Missing => return None,
            Cached::Absent => {}
        }
        let mut n_missing = 0;
        for server in self
            .servers
            .iter()
            .filter(|s| s.is_alive() && !cancel.is_cancelled())
        {
            match self.ask(server, &hex, &request, slot.as_ref()) {
                Ok(Some(found)) => return Some(found),
                Ok(None) => n_missing += 1,
                Err(Some(problem)) => problems.push(problem),
                Err(None) => {}
            }
        }
        if n_missing == self.servers.len()
            && let Some(slot) = &slot
        {
            slot.remember_missing();
        }
        None
    }

    /// Asks one server: `Ok(None)` when it does not have the file, `Err(None)` when it failed.
    fn ask(
        &self,
        server: &Arc<Server>,
        hex: &str,
        request: &Request<'_>,
        slot: Option<&Slot>,
    ) -> Result<Option<(ElfFile, PathBuf)>, Option<Problem>> {
        let begin = Instant::now();
        let name = request.artifact.file_name();
        let url = server.url(hex, name);
        let shown = PathBuf::from(server.shown_url(hex, name));
        let mut place = cache::Place::new(slot).map_err(|source| {
            let reason = format!("failed to make a file for it: {source}");
            Problem::unusable(request.module, &shown, &reason)
        })?;
        let mut progress = |received, size| {
            if let Some(on_progress) = &self.options.on_progress {
                on_progress(&Download {
                    module: request.module.to_owned(),
                    server: server.name().to_owned(),
                    received,
                    size,
                });
            }
        };
        progress(0, None);
        let lost = || server.lost(begin.elapsed(), &self.options);
        let downloaded = place
            .file()
            .try_clone()
            .map_err(|e| Stop::Refused(e.to_string()));
        let downloaded = downloaded.and_then(|file| {
            server.download_unless(request.cancel, url, file, &self.options, &mut progress)
        });
        let modified = match downloaded {
            Ok(modified) => modified,
            Err(Stop::Missing) => {
                lost();
                return Ok(None);
            }
            Err(Stop::Refused(reason)) => {
                lost();
                return Err(Some(Problem::unusable(request.module, &shown, &reason)));
            }
            Err(Stop::Cancelled) => return Err(None),
            Err(Stop::Failed(reason)) => {
                server.fail(reason, false);
                return Err(None);
            }
            Err(Stop::Dead(reason)) => {
                server.fail(reason, true);
                return Err(None);
            }
        };
        let file = place.file().try_clone();
        let file = file.map_err(|e| Problem::unusable(request.module, &shown, &e))?;
        let elf = request.check(file, &shown).inspect_err(|_| lost())?;
        Ok(Some((elf, place.keep(modified).unwrap_or(shown))))
    }
}

/// What is wanted, and for whom.
struct Request<'a> {
    module: &'a str,
    build_id: &'a BuildId,
    artifact: Artifact,
    cancel: &'a Cancel,
}

impl Request<'_> {
    /// Takes a file only if it is what was asked for.
    fn check(&self, file: File, path: &std::path::Path) -> Result<ElfFile, Problem> {
        let elf = self.artifact.parse(file);
        let elf = elf.map_err(|error| Problem::unusable(self.module, path, &error))?;
        let (found, wanted) = (build_id_of(&elf), Some(self.build_id));
        match found.as_ref() == wanted {
            true => Ok(elf.with_cancel(self.cancel)),
            false => Err(Problem::mismatch(self.module, path, found.as_ref(), wanted)),
        }
    }
}
