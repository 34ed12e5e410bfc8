//! A module of a recording to the file with its code: where an import asks for it.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::stat::{major, minor};
use serde::{Deserialize, Serialize};
use wcprof_symbols::{
    ModuleFile, ModuleFiles, ModuleIdentity, Problem, SymbolOptions, TargetFile, code_from_server,
    in_memory,
};
use wcprof_types::{BuildId, Mapping, file_name, parse_maps};

/// Path of the kernel's image that every process has mapped.
pub const VDSO: &str = "[vdso]";
const MAX_VDSO_BYTES: usize = 1 << 20;

/// Opens files with code. Whether one has the build-id is for the caller to compare.
pub trait CodeFiles {
    /// The file at a module's path; of `[vdso]`, that of the running kernel. `None` when there is none.
    fn open(&mut self, path: &str, build_id: &BuildId) -> Option<TargetFile>;

    /// The file with this build-id from elsewhere, asked for when [`open`](Self::open) has not given it. `None` when there is none.
    fn fetch(&mut self, path: &str, build_id: &BuildId) -> Option<TargetFile>;

    /// The file at a module's path of which the recording has no build-id, if it is still the one that it saw.
    fn same_file(&mut self, path: &str, seen: SeenFile) -> Option<TargetFile>;

    /// The vdso of the kernel that runs here, if a recording is of it: by the kernel's release and the host's name.
    fn vdso_of(&mut self, kernel: &str, host: &str) -> Option<TargetFile>;

    /// A file in which a process said what code it made: its perf map or its jitdump. `None` when there is none.
    fn jit_file(&mut self, path: &str) -> Option<TargetFile>;
}

/// Which file a recording saw at a path (`stat(2)`).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct SeenFile {
    /// Major and minor number of its device.
    pub device: (u32, u32),
    /// Its number there.
    pub inode: u64,
}

/// Whether a path is that of a jitdump, `jit-PID.dump` in any folder.
pub(crate) fn is_jitdump(path: &str) -> bool {
    path.starts_with('/') && has_number(file_name(path), "jit-", ".dump")
}

/// Whether a path is that of a perf map, `/tmp/perf-PID.map`.
fn is_perf_map(path: &str) -> bool {
    has_number(path, "/tmp/perf-", ".map")
}

/// Whether there is a number between two parts of a name, and nothing else.
fn has_number(name: &str, begin: &str, end: &str) -> bool {
    let number = name
        .strip_prefix(begin)
        .and_then(|name| name.strip_suffix(end));
    number.is_some_and(|number| number.parse::<u32>().is_ok())
}

/// No files.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct NoCode;

impl CodeFiles for NoCode {
    fn open(&mut self, _: &str, _: &BuildId) -> Option<TargetFile> {
        None
    }

    fn fetch(&mut self, _: &str, _: &BuildId) -> Option<TargetFile> {
        None
    }

    fn same_file(&mut self, _: &str, _: SeenFile) -> Option<TargetFile> {
        None
    }

    fn vdso_of(&mut self, _: &str, _: &str) -> Option<TargetFile> {
        None
    }

    fn jit_file(&mut self, _: &str) -> Option<TargetFile> {
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

impl std::fmt::Debug for MachineCode<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
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
        let module = ModuleIdentity {
            path: path.to_owned(),
            build_id: None,
            pid: None,
            start: None,
        };
        self.files.open_path(&module, Path::new(path)).ok()
    }
}

impl CodeFiles for MachineCode<'_> {
    fn open(&mut self, path: &str, build_id: &BuildId) -> Option<TargetFile> {
        if path == VDSO {
            return in_memory(&own_vdso()?).ok();
        }
        let identity = ModuleIdentity {
            path: path.to_owned(),
            build_id: Some(build_id.clone()),
            pid: None,
            start: None,
        };
        match self.files.open(&identity).ok()? {
            ModuleFile::File(file) => Some(file),
            ModuleFile::Bytes(bytes) => in_memory(&bytes).ok(),
        }
    }

    fn fetch(&mut self, path: &str, build_id: &BuildId) -> Option<TargetFile> {
        let module = (file_name(path), build_id);
        code_from_server(module, self.options, &mut self.problems)
    }

    fn same_file(&mut self, path: &str, seen: SeenFile) -> Option<TargetFile> {
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

    fn vdso_of(&mut self, kernel: &str, host: &str) -> Option<TargetFile> {
        match is_running_kernel(kernel, host) {
            true => in_memory(&own_vdso()?).ok(),
            false => None,
        }
    }

    fn jit_file(&mut self, path: &str) -> Option<TargetFile> {
        // The path is as hostile as the file that has it: no other file of this machine is given away by its name.
        match is_jitdump(path) || is_perf_map(path) {
            true => self.at_path(path),
            false => None,
        }
    }
}

/// The vdso of this kernel, which all its processes share.
pub fn own_vdso() -> Option<Vec<u8>> {
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
        let opened = |path: &str| is_jitdump(path) || is_perf_map(path);
        assert!(opened("/tmp/perf-4711.map") && opened("/home/u/.debug/jit/x/jit-1.dump"));
        for path in [
            "/tmp/perf-.map",
            "/tmp/perf-1/../../etc/x.map",
            "/etc/perf-1.map",
            "/etc/shadow",
            "jit-1.dump",
            "/tmp/jit-1.dump/x",
        ] {
            assert!(!opened(path), "{path}");
        }
    }
}
