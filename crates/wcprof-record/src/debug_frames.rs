//! Call frame information in separate debug files, of modules that have little of their own.

use std::path::{Path, PathBuf};

use wcprof_host::open::{LiveFiles, TargetFile, open_regular_in_time};
use wcprof_types::Mapping;
use wcprof_unwind::{DebugFrames, ModuleCode};

/// Where distributions install debug files.
const DEBUG_FOLDER: &str = "/usr/lib/debug";

/// Adds what the debug file of a mapping's module has, by its build-id: in the target's files, else in the host's.
/// Without it, or where it does not answer, stacks end in code without call frame information, which is said there.
pub(crate) fn add(code: &mut ModuleCode, files: &LiveFiles, mapping: &Mapping, room: usize) {
    if !code.lacks_frames() {
        return;
    }
    for path in candidates(code, &mapping.path) {
        let is_installed = path.starts_with(DEBUG_FOLDER);
        let of_host = || is_installed.then(|| open_regular_in_time(&path).ok())?;
        let Some(file) = files.open_regular(&path).ok().or_else(of_host) else {
            continue;
        };
        let read = move |file: TargetFile| DebugFrames::read(file, room);
        let frames = files.read_in_time(mapping, &file, read);
        if let Ok(Ok(Some(frames))) = frames
            && code.add_debug_frames(frames)
        {
            return;
        }
    }
}

/// Where GDB searches debug files (its manual, "Separate Debug Files").
fn candidates(code: &ModuleCode, module: &str) -> Vec<PathBuf> {
    let Some(id) = code.build_id().map(ToString::to_string) else {
        return Vec::new();
    };
    let mut paths = Vec::new();
    if let Some((first, rest)) = id.split_at_checked(2) {
        paths.push(format!("{DEBUG_FOLDER}/.build-id/{first}/{rest}.debug").into());
    }
    let folder = Path::new(module).parent();
    if let (Some(name), Some(folder)) = (code.debug_link(), folder) {
        let installed = Path::new(DEBUG_FOLDER).join(folder.strip_prefix("/").unwrap_or(folder));
        for folder in [folder.to_owned(), folder.join(".debug"), installed] {
            paths.push(folder.join(name));
        }
    }
    paths
}
