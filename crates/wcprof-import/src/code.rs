//! A module of a recording to the file with its code: where an import asks for it.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::stat::{major, minor};
use serde::{Deserialize, Serialize};
use wcprof_symbols::{
    ModuleFile, ModuleFiles, ModuleIdentity, OpenError, Problem, SymbolOptions, TargetFile,
    code_from_server, in_memory,
};
use wcprof_types::jit_files::{is_jitdump, is_perf_map};
use wcprof_types::{BuildId, Mapping, VDSO, file_name, parse_maps};

const MAX_VDSO_BYTES: usize = 1 << 20;

/// Opens files that an import asks for.
pub trait CodeFiles {
    /// Whether a file with code has the build-id is for the caller to compare. `None` when there is none.
    fn open(&mut self, wanted: &WantedFile) -> Option<TargetFile>;
}

/// A file that an import asks for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum WantedFile {
    /// That at a module's path, which may have the build-id; of `[vdso]`, that of the running kernel.
    AtPath(String, BuildId),
    /// That of a module with this build-id from elsewhere, when there is none at its path.
    Fetched(String, BuildId),
    /// That at the path of a module whose build-id the recording lacks, if it is still the file that was seen.
    Seen(String, SeenFile),
    /// The vdso of the kernel that runs here, if a recording is of it.
    Vdso {
        /// The kernel's release in the recording.
        kernel: String,
        /// The host's name there.
        host: String,
    },
    /// That in which a process said what code it made: its perf map or its jitdump.
    Jit(String),
}

/// Which file a recording saw at a path (`stat(2)`).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct SeenFile {
    /// Major and minor number of its device.
    pub device: (u32, u32),
    /// Its number there.
    pub inode: u64,
}

/// No files.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct NoCode;

impl CodeFiles for NoCode {
    fn open(&mut self, _: &WantedFile) -> Option<TargetFile> {
        None
    }
}

/// Whether a kernel's release and a host's name are those of the kernel that runs here. Its functions are where they were only until
/// the next boot, which nobody can see in a recording.
pub fn is_running_kernel(kernel: &str, host: &str) -> bool {
    let here = |file: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/kernel/{file}"));
        text.unwrap_or_default().trim().to_owned()
    };
    here("osrelease") == kernel && here("hostname") == host
}

/// Files of this machine or below a root, and those of debuginfod servers that the options name.
pub struct MachineCode<'m> {
    files: &'m dyn ModuleFiles,
    options: &'m SymbolOptions,
    /// When the recording was written: a file that was changed since is another one, whatever number it has.
    pub written: Option<SystemTime>,
    /// Files of servers that were refused.
    pub problems: Vec<Problem>,
}

impl fmt::Debug for MachineCode<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MachineCode")
            .field("problems", &self.problems)
            .finish_non_exhaustive()
    }
}

impl<'m> MachineCode<'m> {
    /// Files that `files` opens, and servers of `options`.
    pub fn new(files: &'m dyn ModuleFiles, options: &'m SymbolOptions) -> Self {
        Self {
            files,
            options,
            written: None,
            problems: Vec::new(),
        }
    }
}

impl MachineCode<'_> {
    fn at_path(&self, path: &str) -> Option<TargetFile> {
        self.files
            .open_path(&identity(path, None), Path::new(path))
            .ok()
    }

    /// The file at a path, if it is that which was seen, and was not changed since.
    fn seen(&self, path: &str, seen: SeenFile) -> Option<TargetFile> {
        let file = self.at_path(path)?;
        let now = file.metadata().ok()?;
        let device = (major(now.dev()), minor(now.dev()));
        let seen_device = (u64::from(seen.device.0), u64::from(seen.device.1));
        let is_it = device == seen_device && now.ino() == seen.inode;
        let since_1970 = Duration::new(
            u64::try_from(now.ctime()).ok()?,
            u32::try_from(now.ctime_nsec()).ok()?,
        );
        // Numbers of files that are gone are given to new ones.
        let is_old = UNIX_EPOCH + since_1970 <= self.written?;
        (is_it && is_old).then_some(file)
    }
}

fn identity(path: &str, build_id: Option<&BuildId>) -> ModuleIdentity {
    ModuleIdentity {
        path: path.to_owned(),
        build_id: build_id.cloned(),
        pid: None,
        start: None,
    }
}

impl CodeFiles for MachineCode<'_> {
    fn open(&mut self, wanted: &WantedFile) -> Option<TargetFile> {
        match wanted {
            WantedFile::AtPath(path, build_id) => {
                match self.files.open(&identity(path, Some(build_id))).ok()? {
                    ModuleFile::File(file) => Some(file),
                    ModuleFile::Bytes(bytes) => in_memory(&bytes).ok(),
                }
            }
            WantedFile::Fetched(path, build_id) => {
                let module = (file_name(path), build_id);
                code_from_server(module, self.options, &mut self.problems)
            }
            WantedFile::Seen(path, seen) => self.seen(path, *seen),
            WantedFile::Vdso { kernel, host } if is_running_kernel(kernel, host) => {
                in_memory(&own_vdso()?).ok()
            }
            // The path is as hostile as the file that has it: no other file of this machine is given away by its name.
            WantedFile::Jit(path) if may_be_jit(path) => self.at_path(path),
            WantedFile::Vdso { .. } | WantedFile::Jit(_) => None,
        }
    }
}

fn may_be_jit(path: &str) -> bool {
    is_perf_map(path) || path.starts_with('/') && is_jitdump(path)
}

/// Files, and the vdso of the kernel that runs here.
#[derive(Copy, Clone)]
pub struct WithVdso<'f>(pub &'f dyn ModuleFiles);

impl fmt::Debug for WithVdso<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithVdso").finish_non_exhaustive()
    }
}

impl ModuleFiles for WithVdso<'_> {
    fn open(&self, module: &ModuleIdentity) -> Result<ModuleFile, OpenError> {
        match module.path == VDSO {
            true => {
                own_vdso().map_or_else(|| self.0.open(module), |vdso| Ok(ModuleFile::Bytes(vdso)))
            }
            false => self.0.open(module),
        }
    }

    fn open_path(&self, module: &ModuleIdentity, path: &Path) -> Result<TargetFile, OpenError> {
        self.0.open_path(module, path)
    }
}

/// The vdso of this kernel, which all its processes share.
fn own_vdso() -> Option<Vec<u8>> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let maps = parse_maps(&maps).ok()?;
    let Mapping { start, end, .. } = maps.iter().find(|mapping| mapping.path == VDSO)?;
    let len = usize::try_from(end.0.checked_sub(start.0)?).ok()?;
    let mut bytes = vec![0; len.min(MAX_VDSO_BYTES)];
    let memory = File::open("/proc/self/mem").ok()?;
    memory.read_exact_at(&mut bytes, start.0).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check which paths of a hostile file are opened as those of a JIT compiler.
    #[test]
    fn jit_paths() {
        for path in ["/tmp/perf-4711.map", "/home/u/.debug/jit/x/jit-1.dump"] {
            assert!(may_be_jit(path), "{path}");
        }
        for path in ["/etc/perf-1.map", "/etc/shadow", "jit-1.dump"] {
            assert!(!may_be_jit(path), "{path}");
        }
    }
}
