//! A module of a recording to the file with its code: where an import asks for it.

use std::fs::File;
use std::os::unix::fs::FileExt;

use wcprof_symbols::{
    ModuleFile, ModuleFiles, ModuleIdentity, Problem, SymbolOptions, TargetFile, code_from_server,
    in_memory,
};
use wcprof_types::{BuildId, Mapping, file_name, parse_maps};

/// Path of the kernel's image that every process has mapped.
pub(crate) const VDSO: &str = "[vdso]";
const MAX_VDSO_BYTES: usize = 1 << 20;

/// Opens files with code. Whether one has the build-id is for the caller to compare.
pub trait CodeFiles {
    /// The file at a module's path; of `[vdso]`, that of the running kernel. `None` when there is none.
    fn open(&mut self, path: &str, build_id: &BuildId) -> Option<TargetFile>;

    /// The file with this build-id from elsewhere, asked for when [`open`](Self::open) has not given it. `None` when there is none.
    fn fetch(&mut self, path: &str, build_id: &BuildId) -> Option<TargetFile>;
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
}

/// Files of this machine or below a root, and those of debuginfod servers that the options name.
pub struct MachineCode<'m> {
    files: &'m dyn ModuleFiles,
    options: &'m SymbolOptions,
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
            problems: Vec::new(),
        }
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
