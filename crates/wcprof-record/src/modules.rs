//! The modules of the target: what is mapped, how to unwind it, and how the trace names it.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use wcprof_host::Target;
use wcprof_trace::model::{Module, ModuleId, ProcessId};
use wcprof_types::{Avma, BuildId, LoadBias, Mapping, Svma};
use wcprof_unwind::{ModuleCode, ModuleKey, Unwinder};

use crate::files::{Handle, NewModule, TargetFiles};
use crate::shared::{FileIdentity, SharedFiles};

/// Modules that are mapped no more whose files are held for their names.
const MAX_UNMAPPED: usize = 128;
/// Modules of one process; programs have hundreds.
const MAX_IMAGES: usize = 2048;
/// Problems of one process that are remembered.
const MAX_PROBLEMS: usize = 64;

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

/// What the trace has of a module.
struct TraceModule {
    id: ModuleId,
    bias: LoadBias,
    base: Svma,
    build_id: Option<BuildId>,
}

/// What is different since the modules were last taken over.
#[derive(Debug)]
pub(crate) struct Changes {
    /// Modules that are mapped no more.
    pub(crate) gone: Vec<ModuleId>,
    /// An address can mean something else now.
    pub(crate) any: bool,
}

/// Modules of a process by address; its unwinder and the trace know the same ones.
pub(crate) struct Modules {
    process: ProcessId,
    files: TargetFiles,
    /// What is known of each image, by its first address.
    known: HashMap<u64, (Image, ModuleKey)>,
    /// Those whose files are held though they are mapped no more.
    unmapped: VecDeque<(Avma, Option<BuildId>)>,
    ids: HashMap<ModuleKey, TraceModule>,
    problems: Vec<ModuleProblem>,
}

impl Modules {
    pub(crate) fn new(process: ProcessId, target: &Target) -> Self {
        Self {
            process,
            files: TargetFiles::new(process, target),
            known: HashMap::new(),
            unmapped: VecDeque::new(),
            ids: HashMap::new(),
            problems: Vec::new(),
        }
    }

    pub(crate) fn files(&self) -> &TargetFiles {
        &self.files
    }

    /// Holds the modules' files no more.
    pub(crate) fn into_files(self) -> TargetFiles {
        self.files
    }

    /// What went wrong since this was last asked.
    pub(crate) fn take_problems(&mut self) -> Vec<ModuleProblem> {
        std::mem::take(&mut self.problems)
    }

    /// The trace's module of an unwound frame, its load bias and its base.
    pub(crate) fn id(&self, key: ModuleKey) -> Option<(ModuleId, LoadBias, Svma)> {
        let known = self.ids.get(&key)?;
        Some((known.id, known.bias, known.base))
    }

    /// Notes that mappings were left out.
    pub(crate) fn note_left_out(&mut self, n: u64) {
        if n > 0 {
            self.note_maps(format!("{n} of its lines exceed a limit and were left out"));
        }
    }

    /// Notes what is wrong with the list of mappings, the first time.
    pub(crate) fn note_maps(&mut self, reason: String) {
        let path = format!("/proc/{}/maps", self.files.pid);
        if self.problems.iter().all(|problem| problem.path != path) {
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
        mut add: impl FnMut(&mut SharedFiles, &NewModule<'_>) -> ModuleId,
    ) -> Changes {
        self.hold_jitdumps(mappings);
        let mut images = images(mappings);
        if let Some(n @ 1..) = images.len().checked_sub(MAX_IMAGES) {
            self.note_maps(format!(
                "{n} of its modules exceed a limit and were left out"
            ));
            images.truncate(MAX_IMAGES);
        }
        let mut any = unwinder.set_foreign_code(foreign_code(mappings, &images));
        let current = images.iter().map(|image| (image.first.start.0, image));
        let current: HashMap<u64, &Image> = current.collect();
        let mut unmapped = Vec::new();
        self.known.retain(|start, (image, key)| {
            let stays = current.get(start) == Some(&&*image);
            if !stays {
                unwinder.remove_module(Avma(*start));
                unmapped.push((Avma(*start), *key));
            }
            stays
        });
        any |= !unmapped.is_empty();
        let gone = self.unmap(unmapped);
        for image in images {
            let start = image.first.start;
            if self.known.contains_key(&start.0) {
                continue;
            }
            any = true;
            let code = self.read(&image, shared);
            let bias = code
                .as_ref()
                .and_then(|c| c.load_bias(&image.code))
                .unwrap_or_else(|| {
                    LoadBias(image.first.start.0.wrapping_sub(image.first.offset.0))
                });
            let base = code.as_ref().map_or(Svma(0), |c| c.base());
            let build_id = code.as_ref().and_then(|c| c.build_id().cloned());
            let Some(key) = unwinder.add_module(start, image.end, bias, code) else {
                continue;
            };
            let path = &image.first.path;
            let handle = self.files.handles.get(&(start, build_id.clone()));
            let module = Module {
                process: self.process,
                path: path.strip_suffix(" (deleted)").unwrap_or(path).to_owned(),
                build_id,
                start,
                end: image.end,
                offset: image.first.offset,
                bias,
                base,
                deleted: path.ends_with(" (deleted)"),
            };
            let mapping = &image.first;
            let new = NewModule {
                module,
                mapping,
                handle,
            };
            let id = add(shared, &new);
            let known = TraceModule {
                id,
                bias,
                base,
                build_id: new.module.build_id,
            };
            self.ids.insert(key, known);
            self.known.insert(start.0, (image, key));
        }
        Changes { gone, any }
    }

    /// Forgets modules. Their files are held for a while, since the trace has frames of them.
    fn unmap(&mut self, modules: Vec<(Avma, ModuleKey)>) -> Vec<ModuleId> {
        let mut gone = Vec::new();
        for (start, key) in modules {
            if let Some(known) = self.ids.remove(&key) {
                gone.push(known.id);
                self.unmapped.push_back((start, known.build_id));
            }
        }
        while self.unmapped.len() > MAX_UNMAPPED
            && let Some(file) = self.unmapped.pop_front()
        {
            // It can be mapped again.
            let known = self.known.get(&file.0.0);
            let known = known.and_then(|(_, key)| self.ids.get(key));
            if known.is_none_or(|known| known.build_id != file.1) {
                self.files.handles.remove(&file);
            }
        }
        gone
    }

    fn read(&mut self, image: &Image, shared: &mut SharedFiles) -> Option<Arc<ModuleCode>> {
        match self.try_read(image, shared) {
            Ok(code) => Some(code),
            Err(reason) => {
                let path = image.first.path.clone();
                let problem = ModuleProblem { path, reason };
                if self.problems.len() < MAX_PROBLEMS && !self.problems.contains(&problem) {
                    self.problems.push(problem);
                }
                None
            }
        }
    }

    fn try_read(
        &mut self,
        image: &Image,
        shared: &mut SharedFiles,
    ) -> Result<Arc<ModuleCode>, String> {
        let files = &self.files.files;
        let (code, handle) = if image.first.path == "[vdso]" {
            let bytes = files.vdso(&image.first).ok_or("unreadable")?;
            let code = ModuleCode::parse(&bytes).map(|code| shared.modules.intern(code));
            (code, Arc::new(Handle::Bytes(bytes)))
        } else {
            let file = files.open_mapping(&image.first);
            let file = file.map_err(|e| e.to_string())?;
            let may_hang = files.may_hang(&image.first);
            let identity = (!may_hang).then(|| FileIdentity::of(&file)).flatten();
            match identity.and_then(|id| shared.find(id)) {
                Some((code, handle)) => (Ok(code), handle),
                None => {
                    shared.room()?;
                    let read = move || (ModuleCode::read(&file), file);
                    let (code, file) = match may_hang {
                        true => files.in_time(read).map_err(|reason| reason.to_string())?,
                        false => read(),
                    };
                    let handle = shared.hold(file);
                    let code = code.map(|code| shared.modules.intern(code));
                    if let (Some(identity), Ok(code)) = (identity, &code) {
                        shared.add(identity, code, &handle);
                    }
                    (code, handle)
                }
            }
        };
        // A file that stacks cannot be unwound through may have names.
        let build_id = code.as_ref().ok().and_then(|code| code.build_id().cloned());
        let key = (image.first.start, build_id);
        self.files.handles.insert(key, handle);
        code.map_err(|e| e.to_string())
    }
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

    /// Check that of modules that come and go the last ones' files are held, and the trace is told of each.
    #[test]
    fn coming_and_going() {
        let own = Target::open(wcprof_types::Pid(std::process::id() as i32)).unwrap();
        let mut modules = Modules::new(ProcessId(0), &own);
        let (mut unwinder, mut shared) = (Unwinder::default(), SharedFiles::default());
        let mut gone = Vec::new();
        for n in 0..2 * MAX_UNMAPPED as u32 {
            let start = 0x1000 * (u64::from(n) + 1);
            let line = format!("{start:x}-{:x} r-xp 00000000 fe:ff {} /x", start + 1, n + 1);
            let maps = parse_maps(&line).unwrap();
            let key = (Avma(start), None);
            let handle = Arc::new(Handle::Bytes(Vec::new()));
            modules.files.handles.insert(key, handle);
            let mut update =
                || modules.update(&maps, &mut unwinder, &mut shared, |_, _| ModuleId(n));
            let changes = update();
            assert!(changes.any);
            gone.extend(changes.gone);
            let again = update();
            assert!(!again.any && again.gone.is_empty());
            assert_eq!(modules.ids.len(), 1);
        }
        let n_gone = 2 * MAX_UNMAPPED as u32 - 1;
        assert_eq!(gone, (0..n_gone).map(ModuleId).collect::<Vec<_>>());
        assert_eq!(modules.files.handles.len(), MAX_UNMAPPED + 1);
    }

    /// Check that of a hundred thousand modules so many are taken in as programs have, and that this is said.
    #[test]
    fn many() {
        let own = Target::open(wcprof_types::Pid(std::process::id() as i32)).unwrap();
        let mut modules = Modules::new(ProcessId(0), &own);
        let (mut unwinder, mut shared) = (Unwinder::default(), SharedFiles::default());
        let line = |n: u64| {
            let start = n * 0x1000;
            format!(
                "{start:x}-{:x} r-xp 00000000 fe:ff {n} /x\n",
                start + 0x1000
            )
        };
        let maps = parse_maps(&(1..=100_000).map(line).collect::<String>()).unwrap();
        for _ in 0..2 {
            modules.update(&maps, &mut unwinder, &mut shared, |_, _| ModuleId(0));
            assert_eq!(modules.known.len(), MAX_IMAGES);
            assert_eq!(modules.ids.len(), MAX_IMAGES);
        }
        let problems = modules.take_problems();
        let said = |problem: &ModuleProblem| problem.reason.starts_with("97952 of its modules");
        assert!(problems.iter().any(said), "{problems:?}");
    }

    /// Check that what all modules take is limited, and that those beyond have a reason: by their call frame
    /// information, and by their number.
    #[test]
    fn no_room() {
        let own = Target::open(wcprof_types::Pid(std::process::id() as i32)).unwrap();
        let maps = own.mappings().unwrap();
        let problems = |shared: &mut SharedFiles| {
            let mut modules = Modules::new(ProcessId(0), &own);
            let mut unwinder = Unwinder::default();
            modules.update(&maps, &mut unwinder, shared, |_, _| ModuleId(0));
            assert_eq!(modules.files.handles.len(), 2, "a file and the vdso");
            modules.take_problems()
        };
        let mut shared = SharedFiles::default();
        shared.max_code_bytes = 1;
        let said = problems(&mut shared);
        assert!(!said.is_empty());
        assert!(said.iter().all(|problem| problem.reason.contains("memory")));
        let mut shared = SharedFiles::default();
        shared.max_files = 1;
        let said = problems(&mut shared);
        assert!(!said.is_empty());
        assert!(
            said.iter()
                .all(|problem| problem.reason.contains("other files"))
        );
    }
}
