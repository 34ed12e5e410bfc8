//! The modules of the target: what is mapped, how to unwind it, and how the trace names it.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;

use wcprof_host::Target;
use wcprof_host::open::{HeldFile, LiveFiles, OpenError, REMOTE_TIMEOUT};
use wcprof_host::procfs::read_status;
use wcprof_trace::model::{Module, ModuleId, ProcessId};
use wcprof_types::{Avma, BuildId, LoadBias, Mapping, Pid, Svma};
use wcprof_unwind::{CodeError, ModuleCode, ModuleKey, SharedModules, Unwinder};

/// Jitdumps of one process; runtimes write one.
const MAX_JITDUMPS: usize = 16;

/// A module that stacks cannot be unwound through.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ModuleProblem {
    /// Path in the target.
    pub path: String,
    /// What went wrong.
    pub reason: String,
}

/// One ELF image as it is mapped.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Image {
    /// The mapping with the lowest address.
    first: Mapping,
    /// The executable one.
    code: Mapping,
    end: Avma,
}

/// The files of a process's modules, held open: names can be read after it has exited. A clone has
/// the same open files.
#[derive(Clone, Debug)]
pub struct TargetFiles {
    pid: Pid,
    files: Arc<LiveFiles>,
    handles: HashMap<u64, Arc<Handle>>,
    /// Its numbers, as processes in its pid namespaces see it, the innermost first.
    pids: Vec<i32>,
    uid: u32,
    jitdumps: Vec<Arc<HeldFile>>,
    /// Device and inode of these.
    known_dumps: HashSet<((u32, u32), u64)>,
}

/// What a module was read from.
#[derive(Debug)]
pub enum Handle {
    /// Its file.
    File(File),
    /// A copy of the vdso.
    Bytes(Vec<u8>),
}

impl TargetFiles {
    /// The process.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// What the module with this first address was read from.
    pub fn module(&self, start: Avma) -> Option<&Handle> {
        self.handles.get(&start.0).map(AsRef::as_ref)
    }

    /// The jitdumps that it has mapped (`jit-PID.dump`).
    pub fn jitdumps(&self) -> impl Iterator<Item = Result<File, OpenError>> {
        self.jitdumps.iter().map(|file| self.files.open_held(file))
    }

    /// Its perf maps: `/tmp/perf-PID.map` in its mount namespace, if they belong to it or to root. A
    /// file that is not there is left out.
    pub fn perf_maps(&self) -> Vec<Result<File, OpenError>> {
        let open = |pid: &i32| {
            let path = format!("/tmp/perf-{pid}.map");
            self.files.open_owned(Path::new(&path), self.uid)
        };
        let is_there = |opened: &Result<File, OpenError>| match opened {
            Err(error) => !error.is_not_found(),
            Ok(_) => true,
        };
        let pids = self.pids.iter().filter(|_| self.files.has_root());
        pids.map(open).filter(is_there).collect()
    }

    /// Holds a mapped jitdump open: it may be unlinked before the recording ends.
    fn hold_jitdump(&mut self, mapping: &Mapping) {
        let id = (mapping.device, mapping.inode);
        if self.known_dumps.len() < MAX_JITDUMPS
            && self.known_dumps.insert(id)
            && let Ok(file) = self.files.hold(mapping)
        {
            self.jitdumps.push(Arc::new(file));
        }
    }

    /// Opens another regular file of the target's mount namespace.
    pub fn open(&self, path: &Path) -> Result<File, OpenError> {
        self.files.open_regular(path)
    }
}

/// What makes two open files the same file with the same content.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
struct FileIdentity {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl FileIdentity {
    fn of(file: &File) -> Option<Self> {
        let m = file.metadata().ok()?;
        Some(Self {
            device: m.dev(),
            inode: m.ino(),
            size: m.size(),
            changed: (m.ctime(), m.ctime_nsec()),
        })
    }
}

/// Files that several processes map: opened and read once.
#[derive(Debug, Default)]
pub(crate) struct SharedFiles {
    modules: SharedModules,
    known: HashMap<FileIdentity, (Arc<ModuleCode>, Arc<Handle>)>,
}

/// Modules of a process by address; its unwinder and the trace know the same ones.
pub(crate) struct Modules {
    process: ProcessId,
    files: TargetFiles,
    /// What is known of each image, by its first address.
    known: HashMap<u64, (Image, ModuleKey)>,
    ids: HashMap<ModuleKey, (ModuleId, LoadBias, Svma)>,
    problems: Vec<ModuleProblem>,
}

impl Modules {
    pub(crate) fn new(process: ProcessId, target: &Target) -> Self {
        let status = read_status(target.pid()).unwrap_or_default();
        let mut pids: Vec<i32> = status.ns_pids.into_iter().rev().collect();
        pids.push(target.pid().0);
        pids.dedup();
        let uid = status.uids.map_or(0, |(_, effective)| effective);
        Self {
            process,
            files: TargetFiles {
                pid: target.pid(),
                files: Arc::new(LiveFiles::new(target.pid())),
                handles: HashMap::new(),
                pids,
                uid,
                jitdumps: Vec::new(),
                known_dumps: HashSet::new(),
            },
            known: HashMap::new(),
            ids: HashMap::new(),
            problems: Vec::new(),
        }
    }

    pub(crate) fn files(&self) -> &TargetFiles {
        &self.files
    }

    pub(crate) fn problems(&self) -> &[ModuleProblem] {
        &self.problems
    }

    /// The trace's module of an unwound frame, its load bias and its base.
    pub(crate) fn id(&self, key: ModuleKey) -> Option<(ModuleId, LoadBias, Svma)> {
        self.ids.get(&key).copied()
    }

    /// Notes that mappings were left out.
    pub(crate) fn note_left_out(&mut self, n: u64) {
        let path = format!("/proc/{}/maps", self.files.pid);
        if n > 0 && self.problems.iter().all(|problem| problem.path != path) {
            let reason = format!("{n} of its lines exceed a limit and were left out");
            self.problems.push(ModuleProblem { path, reason });
        }
    }

    /// Opens jitdumps among the mappings.
    pub(crate) fn hold_jitdumps(&mut self, mappings: &[Mapping]) {
        for mapping in mappings.iter().filter(|m| is_jitdump(m)) {
            self.files.hold_jitdump(mapping);
        }
    }

    /// Takes over the target's mappings; `add` puts a module into the trace.
    pub(crate) fn update(
        &mut self,
        mappings: &[Mapping],
        unwinder: &mut Unwinder,
        shared: &mut SharedFiles,
        mut add: impl FnMut(Module) -> ModuleId,
    ) {
        self.hold_jitdumps(mappings);
        let images = images(mappings);
        unwinder.set_foreign_code(foreign_code(mappings, &images));
        let current: HashSet<u64> = images.iter().map(|i| i.first.start.0).collect();
        self.known.retain(|start, (image, _)| {
            let stays = current.contains(start) && images.contains(image);
            if !stays {
                unwinder.remove_module(Avma(*start));
            }
            stays
        });
        for image in images {
            let start = image.first.start;
            if self.known.contains_key(&start.0) {
                continue;
            }
            let code = self.read(&image, shared);
            let bias = code
                .as_ref()
                .and_then(|c| c.load_bias(&image.code))
                .unwrap_or_else(|| {
                    LoadBias(image.first.start.0.wrapping_sub(image.first.offset.0))
                });
            let base = code.as_ref().map_or(Svma(0), |c| c.base());
            let build_id: Option<BuildId> = code.as_ref().and_then(|c| c.build_id().cloned());
            let Some(key) = unwinder.add_module(start, image.end, bias, code) else {
                continue;
            };
            let path = &image.first.path;
            let id = add(Module {
                process: self.process,
                path: path.strip_suffix(" (deleted)").unwrap_or(path).to_owned(),
                build_id,
                start,
                end: image.end,
                offset: image.first.offset,
                bias,
                base,
                deleted: path.ends_with(" (deleted)"),
            });
            self.ids.insert(key, (id, bias, base));
            self.known.insert(start.0, (image, key));
        }
    }

    fn read(&mut self, image: &Image, shared: &mut SharedFiles) -> Option<Arc<ModuleCode>> {
        match self.try_read(image, shared) {
            Ok(code) => Some(code),
            Err(reason) => {
                self.problems.push(ModuleProblem {
                    path: image.first.path.clone(),
                    reason,
                });
                None
            }
        }
    }

    fn try_read(
        &mut self,
        image: &Image,
        shared: &mut SharedFiles,
    ) -> Result<Arc<ModuleCode>, String> {
        let TargetFiles { files, handles, .. } = &mut self.files;
        let start = image.first.start.0;
        if image.first.path == "[vdso]" {
            let bytes = files.vdso(&image.first).ok_or("unreadable")?;
            let code = ModuleCode::parse(&bytes).map_err(|e| e.to_string());
            handles.insert(start, Arc::new(Handle::Bytes(bytes)));
            return Ok(shared.modules.intern(code?));
        }
        let file = files
            .open_mapping(&image.first)
            .map_err(|e| e.to_string())?;
        let may_hang = files.may_hang(&image.first);
        let identity = (!may_hang).then(|| FileIdentity::of(&file)).flatten();
        if let Some((code, handle)) = identity.and_then(|id| shared.known.get(&id)) {
            handles.insert(start, Arc::clone(handle));
            return Ok(Arc::clone(code));
        }
        let (code, file) = read_code(file, may_hang)?;
        let handle = Arc::new(Handle::File(file));
        handles.insert(start, Arc::clone(&handle));
        let code = shared.modules.intern(code.map_err(|e| e.to_string())?);
        if let Some(identity) = identity {
            shared.known.insert(identity, (Arc::clone(&code), handle));
        }
        Ok(code)
    }
}

/// Fails where the file's server does not answer in time.
fn read_code(
    file: File,
    may_hang: bool,
) -> Result<(Result<ModuleCode, CodeError>, File), &'static str> {
    let read = move || (ModuleCode::read(&file), file);
    if !may_hang {
        return Ok(read());
    }
    let (tx, rx) = mpsc::channel();
    // Left behind when the server does not answer: it holds one file and nothing else.
    std::thread::spawn(move || drop(tx.send(read())));
    rx.recv_timeout(REMOTE_TIMEOUT)
        .map_err(|_| "its file system did not answer within 2 s")
}

/// Whether a mapping is the mark that a runtime makes of its jitdump: executable, so that perf notices
/// it, but no code.
fn is_jitdump(mapping: &Mapping) -> bool {
    let name = mapping.path.rsplit('/').next().unwrap_or_default();
    let name = name.strip_suffix(" (deleted)").unwrap_or(name);
    let pid = name
        .strip_prefix("jit-")
        .and_then(|n| n.strip_suffix(".dump"));
    mapping.executable
        && mapping.inode != 0
        && pid.is_some_and(|pid| !pid.is_empty() && pid.bytes().all(|b| b.is_ascii_digit()))
}

/// Executable memory that is of no image.
fn foreign_code<'m>(
    mappings: &'m [Mapping],
    images: &'m [Image],
) -> impl Iterator<Item = Range<Avma>> + 'm {
    let is_of_image = |mapping: &Mapping| {
        let n_before = images.partition_point(|image| image.first.start <= mapping.start);
        let before = n_before.checked_sub(1).and_then(|at| images.get(at));
        before.is_some_and(|image| mapping.start < image.end)
    };
    let executable = mappings.iter().filter(|mapping| mapping.executable);
    executable
        .filter(move |mapping| !is_of_image(mapping))
        .map(|mapping| mapping.start..mapping.end)
}

/// Groups mappings into ELF images: neighbours of one file with rising offsets, at least one of
/// them executable.
fn images(mappings: &[Mapping]) -> Vec<Image> {
    let mut images = Vec::new();
    let mut group: Vec<&Mapping> = Vec::new();
    let mut close = |group: &mut Vec<&Mapping>| {
        if let (Some(first), Some(last), Some(code)) = (
            group.first(),
            group.last(),
            group.iter().find(|m| m.executable),
        ) {
            images.push(Image {
                first: (*first).clone(),
                code: (*code).clone(),
                end: last.end,
            });
        }
        group.clear();
    };
    for mapping in mappings {
        let is_file = (mapping.inode != 0 && !is_jitdump(mapping)) || mapping.path == "[vdso]";
        let goes_on = group.last().is_some_and(|last| {
            last.inode == mapping.inode
                && last.device == mapping.device
                && last.path == mapping.path
                && last.offset < mapping.offset
        });
        if !goes_on {
            // Zeroed memory behind a segment (.bss) has no file; what follows it may be of the
            // same image.
            let same_file = group.last().is_some_and(|last| {
                mapping.inode == 0 && mapping.path.is_empty() && last.end == mapping.start
            });
            if same_file {
                continue;
            }
            close(&mut group);
        }
        if is_file {
            group.push(mapping);
        }
    }
    close(&mut group);
    images
}

#[cfg(test)]
mod tests {
    use wcprof_types::parse_maps;

    use super::*;

    /// Check grouping: an image with data and .bss, the same file mapped twice, data files,
    /// anonymous memory and jitdumps left out, the vdso.
    #[test]
    fn grouping() {
        let maps = parse_maps(
            "1000-2000 r--p 00000000 fe:01 7 /bin/x\n\
             2000-3000 r-xp 00001000 fe:01 7 /bin/x\n\
             3000-4000 rw-p 00002000 fe:01 7 /bin/x\n\
             4000-5000 rw-p 00000000 00:00 0 \n\
             6000-7000 r--p 00000000 fe:01 8 /lib/y.so (deleted)\n\
             7000-8000 r-xp 00001000 fe:01 8 /lib/y.so (deleted)\n\
             8000-9000 r--p 00000000 fe:01 8 /lib/y.so (deleted)\n\
             9000-a000 r-xp 00001000 fe:01 8 /lib/y.so (deleted)\n\
             a000-b000 r--s 00000000 fe:01 9 /data/file\n\
             b000-c000 rwxp 00000000 00:00 0 \n\
             c000-d000 r-xp 00000000 00:00 0 [vdso]\n\
             d000-e000 r-xp 00000000 fe:01 10 /tmp/jit-7.dump\n",
        )
        .unwrap();
        let images = images(&maps);
        let foreign: Vec<_> = foreign_code(&maps, &images).map(|r| r.start.0).collect();
        assert_eq!(foreign, [0xb000, 0xd000]);
        let images: Vec<(u64, u64, u64)> = images
            .iter()
            .map(|i| (i.first.start.0, i.code.start.0, i.end.0))
            .collect();
        assert_eq!(
            images,
            [
                (0x1000, 0x2000, 0x4000),
                (0x6000, 0x7000, 0x8000),
                (0x8000, 0x9000, 0xa000),
                (0xc000, 0xc000, 0xd000),
            ]
        );
    }
}
