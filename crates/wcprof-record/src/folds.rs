//! Children of targets to processes of a trace: when many have ended, those of one program are one process there.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use wcprof_host::Target;
use wcprof_trace::model::{Module, ModuleId, Process, ProcessId, ThreadId};
use wcprof_trace::{TraceError, TraceSink};
use wcprof_types::BuildId;

use crate::files::{NewModule, TargetFiles};
use crate::threads::Resting;

/// Processes that end are kept apart up to so many.
const MAX_APART: usize = 64;
/// Programs that are told apart; what is beyond is one more.
const MAX_PROGRAMS: usize = 64;
/// Names of threads that are told apart in a program; what is beyond is one more.
const MAX_NAMES: usize = 64;
/// Modules that are told apart in a program; what is beyond is one more.
const MAX_MODULES: usize = 1024;
/// Files that are held open for the names of processes that have ended.
const MAX_HELD: usize = 128;
/// Stands for what is beyond a limit.
const OTHERS: &str = "[others]";

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Folds {
    /// Whole command lines are kept, with what they hold of secrets.
    pub(crate) full_command_lines: bool,
    /// Processes that are kept apart, those that were forgotten not among them.
    n_apart: usize,
    by_name: BTreeMap<String, FoldId>,
    list: Vec<Fold>,
    n_held: usize,
}

/// Index of a [`Fold`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct FoldId(usize);

/// Processes of one program that are one process of the trace: that of the first.
#[derive(Debug)]
pub(crate) struct Fold {
    pub(crate) process: ProcessId,
    n: u32,
    modules: HashMap<FoldedModule, ModuleId>,
    /// By name: threads of which no member has one at the moment.
    resting: BTreeMap<String, Vec<Resting>>,
    names: HashMap<ThreadId, String>,
    /// The pseudo-thread for those that nobody saw.
    pub(crate) exited: Option<ThreadId>,
    pub(crate) files: TargetFiles,
}

/// What makes modules of two processes the same: the build-id, else the file.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum FoldedModule {
    Known(String, BuildId),
    Unknown(String, (u32, u32), u64),
    /// Those beyond [`MAX_MODULES`].
    Others,
}

impl FoldedModule {
    fn of(new: &NewModule<'_>) -> Self {
        let (path, mapping) = (new.module.path.clone(), new.mapping);
        match &new.module.build_id {
            Some(build_id) => Self::Known(path, build_id.clone()),
            None => Self::Unknown(path, mapping.device, mapping.inode),
        }
    }
}

impl Folds {
    /// Notes the end of a process. Gives whether it is one of those that are kept apart.
    pub(crate) fn ended(&mut self) -> bool {
        let is_apart = self.n_apart < MAX_APART;
        self.n_apart += usize::from(is_apart);
        is_apart
    }

    /// Notes that so many of those that are kept apart are no longer part of what is recorded.
    pub(crate) fn forgotten(&mut self, n: usize) {
        self.n_apart = self.n_apart.saturating_sub(n);
    }

    /// What the trace says of a process.
    pub(crate) fn described(&self, target: &Target) -> Process {
        Process {
            pid: target.pid(),
            comm: target.comm().to_owned(),
            cmdline: if self.full_command_lines {
                target.full_cmdline()
            } else {
                target.cmdline()
            },
            cgroup: target.cgroup(),
            birth: target.birth(),
        }
    }

    /// Where a new process belongs; `None` for one of its own.
    pub(crate) fn enter(
        &mut self,
        target: &Target,
        sink: &mut impl TraceSink,
    ) -> Result<Option<FoldId>, TraceError> {
        if self.n_apart < MAX_APART {
            return Ok(None);
        }
        let mut name = target.title().to_owned();
        let is_over = self.by_name.len() >= MAX_PROGRAMS && !self.by_name.contains_key(&name);
        if is_over {
            OTHERS.clone_into(&mut name);
        }
        if let Some(&id) = self.by_name.get(&name) {
            let fold = &mut self.list[id.0];
            fold.n = fold.n.saturating_add(1);
            sink.process_folded(fold.process, fold.n)?;
            return Ok(Some(id));
        }
        let process = match is_over {
            true => Process {
                pid: target.pid(),
                comm: OTHERS.to_owned(),
                ..Process::default()
            },
            false => self.described(target),
        };
        let process = sink.add_process(process)?;
        let id = FoldId(self.list.len());
        self.by_name.insert(name, id);
        self.list.push(Fold {
            process,
            n: 1,
            modules: HashMap::new(),
            resting: BTreeMap::new(),
            names: HashMap::new(),
            exited: None,
            files: TargetFiles::new(process, target),
        });
        Ok(Some(id))
    }

    pub(crate) fn get(&mut self, id: FoldId) -> &mut Fold {
        &mut self.list[id.0]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Fold> {
        self.list.iter()
    }

    /// The trace's module for one that a member maps.
    pub(crate) fn module(
        &mut self,
        id: FoldId,
        new: &NewModule<'_>,
        sink: &mut impl TraceSink,
    ) -> Result<ModuleId, TraceError> {
        let fold = &mut self.list[id.0];
        let mut key = FoldedModule::of(new);
        let mut module = Module {
            process: fold.process,
            ..new.module.clone()
        };
        let is_over = fold.modules.len() >= MAX_MODULES && !fold.modules.contains_key(&key);
        if is_over {
            key = FoldedModule::Others;
            OTHERS.clone_into(&mut module.path);
            module.build_id = None;
        }
        if let Some(known) = fold.modules.get(&key) {
            return Ok(*known);
        }
        let module = sink.add_module(module)?;
        fold.modules.insert(key, module);
        if is_over {
            return Ok(module);
        }
        if let (Some(handle), Some(build_id)) = (new.handle, &new.module.build_id)
            && self.n_held < MAX_HELD
        {
            self.n_held += 1;
            let key = (new.module.start, Some(build_id.clone()));
            fold.files.handles.insert(key, Arc::clone(handle));
        }
        Ok(module)
    }
}

impl Fold {
    /// Whether it stands for one process so far.
    pub(crate) fn is_single(&self) -> bool {
        self.n == 1
    }

    /// Whether it is known how a thread is called.
    fn group_of<'n>(&self, name: &'n str) -> &'n str {
        let is_over = self.resting.len() >= MAX_NAMES && !self.resting.contains_key(name);
        if is_over { OTHERS } else { name }
    }

    /// A thread of this name that no member has at the moment; else the name for a new one.
    pub(crate) fn wake<'n>(&mut self, name: &'n str) -> Result<Resting, &'n str> {
        let name = self.group_of(name);
        let resting = self.resting.entry(name.to_owned()).or_default();
        resting.pop().ok_or(name)
    }

    /// A new thread of this name.
    pub(crate) fn add_thread(&mut self, id: ThreadId, name: &str) {
        self.names.insert(id, name.to_owned());
    }

    /// The member that had it has it no more.
    pub(crate) fn rest(&mut self, thread: Resting) {
        if let Some(name) = self.names.get(&thread.id)
            && let Some(resting) = self.resting.get_mut(name)
        {
            resting.push(thread);
        }
    }
}

#[cfg(test)]
mod tests {
    use wcprof_trace::TraceWriter;
    use wcprof_trace::model::Header;
    use wcprof_types::{Mapping, Pid, parse_maps_line};

    use super::*;

    fn sink() -> TraceWriter<Vec<u8>> {
        TraceWriter::new(Vec::new(), &Header::default()).unwrap()
    }

    fn own() -> Target {
        Target::open(Pid(std::process::id() as i32)).unwrap()
    }

    /// After so many ends that processes are folded.
    fn folding() -> Folds {
        let mut folds = Folds::default();
        let is_apart: Vec<bool> = (0..=MAX_APART).map(|_| folds.ended()).collect();
        assert_eq!(is_apart.iter().filter(|is| **is).count(), MAX_APART);
        folds
    }

    /// Check that processes stay apart until many have ended, and then are one, with a thread of each name that is
    /// there at a time.
    #[test]
    fn same_program() {
        let (mut sink, target) = (sink(), own());
        assert_eq!(Folds::default().enter(&target, &mut sink).unwrap(), None);
        let mut freed = folding();
        freed.forgotten(1);
        assert_eq!(freed.enter(&target, &mut sink).unwrap(), None);
        let mut folds = folding();
        let first = folds.enter(&target, &mut sink).unwrap().unwrap();
        assert!(folds.get(first).is_single());
        let second = folds.enter(&target, &mut sink).unwrap().unwrap();
        assert_eq!(first, second);
        let fold = folds.get(first);
        assert!(!fold.is_single());
        assert_eq!(fold.wake("a"), Err("a"));
        fold.add_thread(ThreadId(3), "a");
        assert_eq!(fold.wake("a"), Err("a"), "it is in use");
        let resting = Resting {
            id: ThreadId(3),
            first_time: 5,
            n_ticks: 7,
        };
        fold.rest(resting);
        assert_eq!(fold.wake("b"), Err("b"));
        assert_eq!(fold.wake("a"), Ok(resting));
        assert_eq!(fold.wake("a"), Err("a"));
        for i in 0..2 * MAX_NAMES {
            let _ = fold.wake(&format!("t{i}"));
        }
        assert_eq!(fold.resting.len(), MAX_NAMES + 1);
        assert_eq!(fold.wake("one more"), Err(OTHERS));
    }

    fn module(path: &str, build_id: Option<&[u8]>) -> Module {
        Module {
            path: path.to_owned(),
            build_id: build_id.and_then(BuildId::new),
            ..Module::default()
        }
    }

    /// Check that a library is one module wherever it is mapped, and another file of its path is another one; and
    /// that those beyond a limit are one.
    #[test]
    fn modules() {
        let (mut sink, target) = (sink(), own());
        let mut folds = folding();
        let id = folds.enter(&target, &mut sink).unwrap().unwrap();
        let mapping = |inode: u64| -> Mapping {
            let line = format!("1000-2000 r-xp 00000000 fe:01 {inode} /lib/x.so");
            parse_maps_line(&line).unwrap()
        };
        let mut found = |build_id: Option<&[u8]>, inode, start| {
            let new = NewModule {
                module: Module {
                    start: wcprof_types::Avma(start),
                    ..module("/lib/x.so", build_id)
                },
                mapping: &mapping(inode),
                handle: None,
            };
            folds.module(id, &new, &mut sink).unwrap()
        };
        let first = found(Some(&[1]), 7, 0x1000);
        assert_eq!(found(Some(&[1]), 8, 0x9000), first);
        assert_ne!(found(Some(&[2]), 7, 0x1000), first);
        let unknown = found(None, 7, 0x1000);
        assert_eq!(found(None, 7, 0x9000), unknown);
        assert_ne!(found(None, 8, 0x9000), unknown);
        let all = (0..2 * MAX_MODULES as u64).map(|inode| found(None, inode, 0x1000));
        let others = all.last().unwrap();
        assert_eq!(found(Some(&[3]), 7, 0x1000), others);
        assert_eq!(found(Some(&[1]), 9, 0x1000), first);
        assert_eq!(folds.get(id).modules.len(), MAX_MODULES + 1);
    }
}
