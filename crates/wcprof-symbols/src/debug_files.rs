//! Where separate debug files may be, and whether one belongs to the module.

use std::path::{Path, PathBuf};

use dwarf_stream::elf::{AltLink, DebugLink, ElfFile, Kind, Section, Source};
use wcprof_types::BuildId;

use crate::build_id::build_id_of;
use crate::context::Context;
use crate::debuginfod::Artifact;
use crate::report::{Problem, SourceKind};

/// A file that may be the module's debug file.
struct Candidate {
    path: PathBuf,
    /// Also searched on this machine, not only where the module was loaded.
    on_host: bool,
    /// Checksum that the file must have.
    crc: Option<u32>,
}

impl Candidate {
    fn on_host(path: PathBuf) -> Self {
        Self {
            path,
            on_host: true,
            crc: None,
        }
    }
}

/// A debug file that belongs to the module.
#[derive(Debug)]
pub(crate) struct DebugFile {
    pub(crate) elf: ElfFile,
    pub(crate) kind: SourceKind,
    pub(crate) path: PathBuf,
    /// It is one of this machine, and not only where the module was loaded.
    pub(crate) on_host: bool,
}

/// The first debug file that belongs to the module. `build_id` is that of the loaded image, `link` the
/// `.gnu_debuglink` of its file. Files that were refused are added to `problems`.
pub(crate) fn find(
    context: Context<'_>,
    build_id: Option<&BuildId>,
    link: Option<&DebugLink>,
    problems: &mut Vec<Problem>,
) -> Option<DebugFile> {
    let sources = [
        (SourceKind::BuildIdFile, by_build_id(context, build_id)),
        (SourceKind::DebugLink, by_debug_link(context, link)),
        (SourceKind::DebugDir, by_name(context, build_id)),
    ];
    for (kind, candidates) in sources {
        for candidate in candidates {
            match open(context, build_id, Kind::Linked, &candidate) {
                // A stripped copy of the module has nothing new.
                Ok(Some(elf)) if elf.section(".symtab").is_none() && !elf.has_dwarf() => {}
                Ok(Some(elf)) => {
                    return Some(DebugFile {
                        elf,
                        kind,
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

/// The file that `.gnu_debugaltlink` or `.debug_sup` of the file `of` names, where GDB searches it: at its path, then by
/// build-id, then in the folder `.dwz` that distributions use.
pub(crate) fn find_supplementary(
    context: Context<'_>,
    of: &Path,
    link: &AltLink,
    problems: &mut Vec<Problem>,
) -> Option<ElfFile> {
    let Some(build_id) = BuildId::new(&link.build_id) else {
        problems.push(context.left_out(of, link.section, "its build-id is malformed"));
        return None;
    };
    let mut candidates = vec![Candidate {
        path: of.parent().unwrap_or(Path::new("/")).join(&link.path),
        // The owner of the module chose this path: it must not lead out of a container.
        on_host: false,
        crc: None,
    }];
    candidates.extend(by_build_id(context, Some(&build_id)));
    if let Some(name) = Path::new(&link.path).file_name() {
        let dirs = context.options.debug_dirs.iter();
        candidates.extend(dirs.map(|dir| Candidate::on_host(dir.join(".dwz").join(name))));
    }
    let mut refused = Vec::new();
    for candidate in &candidates {
        match open(context, Some(&build_id), Kind::DwarfOnly, candidate) {
            Ok(Some(elf)) => return Some(elf),
            Ok(None) => {}
            Err(problem) => refused.push(problem),
        }
    }
    let wanted = (context.module.file_name(), &build_id);
    let surroundings = context.surroundings;
    if let Some((elf, _)) = surroundings.fetch(wanted, Artifact::SharedDwarf, &mut refused) {
        return Some(elf);
    }
    problems.append(&mut refused);
    let reason = format!(
        "`{}` with build-id {build_id} ({}) was not found",
        link.path, link.section
    );
    problems.push(context.left_out(of, "names shared with other files", reason));
    None
}

/// Debian, Fedora and others: `.build-id/ab/cdef.debug` below each folder.
fn by_build_id(context: Context<'_>, build_id: Option<&BuildId>) -> Vec<Candidate> {
    let id = build_id.map(ToString::to_string).unwrap_or_default();
    let Some((first, rest)) = id.split_at_checked(2).filter(|(_, rest)| !rest.is_empty()) else {
        return Vec::new();
    };
    let path = format!(".build-id/{first}/{rest}.debug");
    let dirs = context.options.debug_dirs.iter();
    dirs.map(|dir| Candidate::on_host(dir.join(&path)))
        .collect()
}

/// The places that GDB searches (manual, "Separate Debug Files").
fn by_debug_link(context: Context<'_>, link: Option<&DebugLink>) -> Vec<Candidate> {
    let module = Path::new(&context.module.path);
    let (Some(link), Some(dir)) = (link, module.parent()) else {
        return Vec::new();
    };
    let beside = [dir.to_owned(), dir.join(".debug")];
    let below = context.options.debug_dirs.iter();
    let below = below.map(|debug_dir| debug_dir.join(dir.strip_prefix("/").unwrap_or(dir)));
    let folders = beside.into_iter().map(|dir| (dir, false));
    folders
        .chain(below.map(|dir| (dir, true)))
        .map(|(dir, on_host)| Candidate {
            path: dir.join(&link.file_name),
            on_host,
            crc: Some(link.crc),
        })
        .filter(|candidate| candidate.path != module)
        .collect()
}

/// Files of the module's name below each folder: `DIR/path/name`, `DIR/name`, and with `.debug`
/// behind. Only a build-id proves that they belong to the module.
fn by_name(context: Context<'_>, build_id: Option<&BuildId>) -> Vec<Candidate> {
    let path = context.module.path.trim_start_matches('/');
    let name = context.module.file_name();
    if build_id.is_none() || name.is_empty() || path.split('/').any(|part| part == "..") {
        return Vec::new();
    }
    let mut paths = Vec::new();
    for dir in &context.options.debug_dirs {
        for file in [path, name] {
            for suffix in [".debug", ""] {
                let path = dir.join(format!("{file}{suffix}"));
                if !paths.contains(&path) && path != Path::new(&context.module.path) {
                    paths.push(path);
                }
            }
        }
    }
    paths.into_iter().map(Candidate::on_host).collect()
}

/// Another copy of the module itself, with its code, for machines that do not have it at its path:
/// by name, or `.build-id/ab/cdef` as Fedora installs it.
pub(crate) fn find_copy(context: Context<'_>) -> Option<(ElfFile, PathBuf)> {
    let build_id = Some(context.module.build_id.as_ref()?);
    // A whole copy that was not stripped may stand beside the link, too.
    let links = by_build_id(context, build_id).into_iter();
    let links = links.flat_map(|debug| [Candidate::on_host(debug.path.with_extension("")), debug]);
    let mut candidates = links.chain(by_name(context, build_id));
    candidates.find_map(|candidate| {
        // Those that do not fit are reported when debug files are searched.
        let elf = open(context, build_id, Kind::Linked, &candidate).ok()??;
        let is_code = |s: &Section| s.is_executable() && s.has_data();
        let has_code = elf.sections.iter().any(is_code);
        has_code.then_some((elf, candidate.path))
    })
}

/// Opens a candidate and compares it with the module; `Ok(None)` when it is not there.
fn open(
    context: Context<'_>,
    build_id: Option<&BuildId>,
    kind: Kind,
    candidate: &Candidate,
) -> Result<Option<ElfFile>, Problem> {
    let (module, path) = (context.module.file_name(), &candidate.path);
    let unusable = |reason: &dyn std::fmt::Display| Problem::unusable(module, path, reason);
    let on_host = candidate.on_host.then(|| context.open(path, true));
    let opened = on_host.flatten();
    let Some(opened) = opened.or_else(|| context.open(path, false)) else {
        return Ok(None);
    };
    let file = opened.map_err(|error| unusable(&error))?;
    let elf = Source::from_file(file).and_then(|source| ElfFile::parse(source, kind));
    let elf = elf.map_err(|error| unusable(&error))?;
    let found = build_id_of(&elf);
    let is_proven = match (build_id, &found) {
        (Some(wanted), Some(found)) if found == wanted => true,
        // A checksum can stand in for a missing note, not for a different one.
        (Some(_), None) | (None, _) => candidate.crc.is_some(),
        _ => false,
    };
    if !is_proven {
        return Err(Problem::mismatch(module, path, found.as_ref(), build_id));
    }
    let elf = elf.with_cancel(&context.options.cancel);
    if let Some(wanted) = candidate.crc {
        let mut hasher = crc32fast::Hasher::new();
        elf.for_each_chunk(|chunk| hasher.update(chunk))
            .map_err(|error| unusable(&error))?;
        let found = hasher.finalize();
        if found != wanted {
            return Err(context.problem(format!(
                "debug file `{}` has CRC-32 {found:#010x}, the module wants {wanted:#010x}",
                path.display()
            )));
        }
    }
    Ok(Some(elf))
}
