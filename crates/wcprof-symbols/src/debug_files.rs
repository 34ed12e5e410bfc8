//! Where separate debug files may be, and whether one belongs to the module.
//!
//! Sources are asked in the order of [`SOURCES`]; a further kind of source is a further entry.

use std::path::{Path, PathBuf};

use wcprof_types::BuildId;

use crate::debuginfod::Artifact;
use crate::elf::{AltLink, DebugLink, ElfFile};
use crate::files::{ModuleFiles, ModuleIdentity, open_regular};
use crate::options::SymbolOptions;
use crate::report::{Problem, SourceKind};

/// What is known when a debug file is searched.
#[derive(Debug)]
pub(crate) struct Search<'a> {
    pub(crate) module: &'a ModuleIdentity,
    /// The loaded image's build-id.
    pub(crate) build_id: Option<&'a BuildId>,
    /// `.gnu_debuglink` of the module's file.
    pub(crate) link: Option<&'a DebugLink>,
    pub(crate) options: &'a SymbolOptions,
}

/// A file that may be the module's debug file.
struct Candidate {
    path: PathBuf,
    /// Also looked for on this machine, not only where the module was loaded.
    on_host: bool,
    /// Checksum that the file must have.
    crc: Option<u32>,
    /// It has DWARF for several files and none of their code.
    is_shared: bool,
}

/// A kind of place for debug files.
struct Source {
    kind: SourceKind,
    candidates: fn(&Search<'_>) -> Vec<Candidate>,
}

const SOURCES: [Source; 3] = [
    Source {
        kind: SourceKind::BuildIdFile,
        candidates: by_build_id,
    },
    Source {
        kind: SourceKind::DebugLink,
        candidates: by_debug_link,
    },
    Source {
        kind: SourceKind::DebugDir,
        candidates: by_name,
    },
];

/// A debug file that belongs to the module.
#[derive(Debug)]
pub(crate) struct DebugFile {
    pub(crate) elf: ElfFile,
    pub(crate) kind: SourceKind,
    pub(crate) path: PathBuf,
    /// It is one of this machine, and not only where the module was loaded.
    pub(crate) on_host: bool,
}

/// The first debug file that belongs to the module. Those that were refused on the way are added
/// to `problems`.
pub(crate) fn find(
    search: &Search<'_>,
    files: &dyn ModuleFiles,
    problems: &mut Vec<Problem>,
) -> Option<DebugFile> {
    for source in &SOURCES {
        for candidate in (source.candidates)(search) {
            match open(search, files, &candidate) {
                // A stripped copy of the module tells nothing new.
                Ok(Some(elf)) if elf.section(".symtab").is_none() && !elf.has_dwarf() => {}
                Ok(Some(elf)) => {
                    return Some(DebugFile {
                        elf,
                        kind: source.kind,
                        on_host: candidate.on_host,
                        path: candidate.path,
                    });
                }
                Ok(None) => {}
                Err(problem) => problems.push(problem),
            }
        }
    }
    None
}

/// The file that `.gnu_debugaltlink` of `of` names, where GDB searches it: at its path, then by
/// build-id, then in the folder `.dwz` that distributions use.
pub(crate) fn find_supplementary(
    search: &Search<'_>,
    of: &Path,
    link: &AltLink,
    files: &dyn ModuleFiles,
    problems: &mut Vec<Problem>,
) -> Option<ElfFile> {
    let search = Search {
        build_id: Some(&link.build_id),
        link: None,
        ..*search
    };
    let beside = of.parent().unwrap_or(Path::new("/")).join(&link.path);
    let mut candidates = vec![Candidate {
        path: beside,
        // The owner of the module chose this path: it must not lead out of a container.
        on_host: false,
        crc: None,
        is_shared: false,
    }];
    candidates.extend(by_build_id(&search));
    if let Some(name) = Path::new(&link.path).file_name() {
        let dirs = search.options.debug_dirs.iter();
        candidates.extend(dirs.map(|dir| Candidate {
            path: dir.join(".dwz").join(name),
            on_host: true,
            crc: None,
            is_shared: false,
        }));
    }
    for candidate in &mut candidates {
        candidate.is_shared = true;
    }
    let mut refused = Vec::new();
    let found = candidates
        .iter()
        .find_map(|candidate| match open(&search, files, candidate) {
            Ok(elf) => elf,
            Err(problem) => {
                refused.push(problem);
                None
            }
        });
    let found = found.or_else(|| {
        let client = search.options.debuginfod.as_ref()?;
        let module = search.module.file_name();
        let artifact = Artifact::SharedDwarf;
        let fetched = client.fetch(module, &link.build_id, artifact, &mut refused);
        fetched.map(|(elf, _)| elf)
    });
    if found.is_none() {
        problems.append(&mut refused);
        problems.push(Problem::LeftOut {
            module: search.module.file_name().to_owned(),
            path: of.to_owned(),
            what: "names shared with other files",
            reason: format!(
                "`{}` with build-id {} (.gnu_debugaltlink) was not found",
                link.path, link.build_id
            ),
        });
    }
    found
}

/// Debian, Fedora and others: `.build-id/ab/cdef.debug` below each folder.
fn by_build_id(search: &Search<'_>) -> Vec<Candidate> {
    let Some(id) = search.build_id.map(ToString::to_string) else {
        return Vec::new();
    };
    let Some((first, rest)) = id.split_at_checked(2).filter(|(_, rest)| !rest.is_empty()) else {
        return Vec::new();
    };
    let dirs = search.options.debug_dirs.iter();
    dirs.map(|dir| Candidate {
        path: dir
            .join(".build-id")
            .join(first)
            .join(format!("{rest}.debug")),
        on_host: true,
        crc: None,
        is_shared: false,
    })
    .collect()
}

/// The places that GDB searches (manual, "Separate Debug Files").
fn by_debug_link(search: &Search<'_>) -> Vec<Candidate> {
    let (Some(link), Some(dir)) = (search.link, Path::new(&search.module.path).parent()) else {
        return Vec::new();
    };
    let beside = [
        dir.join(&link.file_name),
        dir.join(".debug").join(&link.file_name),
    ];
    let below = search.options.debug_dirs.iter().map(|debug_dir| {
        let dir = dir.strip_prefix("/").unwrap_or(dir);
        debug_dir.join(dir).join(&link.file_name)
    });
    let candidate = |on_host| {
        move |path| Candidate {
            path,
            on_host,
            crc: Some(link.crc),
            is_shared: false,
        }
    };
    beside
        .into_iter()
        .map(candidate(false))
        .chain(below.map(candidate(true)))
        .filter(|c| c.path != Path::new(&search.module.path))
        .collect()
}

/// Files of the module's name below each folder: `DIR/path/name`, `DIR/name`, and with `.debug`
/// behind. Only a build-id tells whether they belong to the module.
fn by_name(search: &Search<'_>) -> Vec<Candidate> {
    if search.build_id.is_none() {
        return Vec::new();
    }
    let path = search.module.path.trim_start_matches('/');
    let name = search.module.file_name();
    if name.is_empty() || path.split('/').any(|part| part == "..") {
        return Vec::new();
    }
    let mut paths = Vec::new();
    for dir in &search.options.debug_dirs {
        for file in [path, name] {
            for suffix in [".debug", ""] {
                let path = dir.join(format!("{file}{suffix}"));
                if !paths.contains(&path) && path != Path::new(&search.module.path) {
                    paths.push(path);
                }
            }
        }
    }
    let candidate = |path| Candidate {
        path,
        on_host: true,
        crc: None,
        is_shared: false,
    };
    paths.into_iter().map(candidate).collect()
}

/// Another copy of the module itself, with its code, for machines that do not have it at its path:
/// by name, or `.build-id/ab/cdef` as Fedora installs it.
pub(crate) fn find_copy(
    search: &Search<'_>,
    files: &dyn ModuleFiles,
) -> Option<(ElfFile, PathBuf)> {
    let links = by_build_id(search).into_iter().flat_map(|candidate| {
        let link = candidate.path.with_extension("");
        let link = Candidate {
            path: link,
            ..candidate
        };
        // A whole copy that was not stripped may stand there too.
        let debug = Candidate {
            path: link.path.with_extension("debug"),
            on_host: true,
            crc: None,
            is_shared: false,
        };
        [link, debug]
    });
    links.chain(by_name(search)).find_map(|candidate| {
        // Those that do not fit are reported when debug files are searched.
        let elf = open(search, files, &candidate).ok()??;
        let has_code = elf
            .sections
            .iter()
            .any(|s| s.is_executable() && s.has_data());
        has_code.then_some((elf, candidate.path))
    })
}

/// Opens a candidate and compares it with the module; `Ok(None)` when it is not there.
fn open(
    search: &Search<'_>,
    files: &dyn ModuleFiles,
    candidate: &Candidate,
) -> Result<Option<ElfFile>, Problem> {
    let module = || search.module.file_name().to_owned();
    let path = || candidate.path.clone();
    let unusable = |reason: String| Problem::DebugUnusable {
        module: module(),
        path: path(),
        reason,
    };
    let host = candidate.on_host.then(|| open_regular(&candidate.path));
    let opened = match host {
        Some(Err(error)) if error.is_not_found() => None,
        other => other,
    }
    .unwrap_or_else(|| files.open_path(search.module, &candidate.path));
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(unusable(error.to_string())),
    };
    let elf = match candidate.is_shared {
        true => ElfFile::from_shared_dwarf(file),
        false => ElfFile::from_file(file),
    }
    .map_err(|e| unusable(e.to_string()))?;
    let found = elf.build_id();
    let proven = match (search.build_id, &found) {
        (Some(wanted), Some(found)) if found == wanted => true,
        // A checksum can stand in for a missing note, not for a different one.
        (Some(_), None) | (None, _) if candidate.crc.is_some() => true,
        _ => false,
    };
    if !proven {
        return Err(Problem::DebugMismatch {
            module: module(),
            path: path(),
            found,
            wanted: search.build_id.cloned(),
        });
    }
    if let Some(wanted) = candidate.crc {
        let mut hasher = crc32fast::Hasher::new();
        elf.for_each_chunk(|chunk| hasher.update(chunk))
            .map_err(|e| unusable(e.to_string()))?;
        let found = hasher.finalize();
        if found != wanted {
            return Err(Problem::DebugChecksum {
                module: module(),
                path: path(),
                found,
                wanted,
            });
        }
    }
    Ok(Some(elf))
}
