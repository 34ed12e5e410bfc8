//! The modules of the target: what is mapped, how to unwind it, and how the trace names it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use wcprof_capture::MAX_MODULES;
use wcprof_host::Target;
use wcprof_host::clock::monotonic_ns;
use wcprof_host::open::{LiveFiles, NoFile, OpenError, TargetFile};
use wcprof_trace::model::{Module, ModuleId, ProcessId};
use wcprof_types::{Avma, BuildId, FileOffset, LoadBias, Mapping, StackEnd, Svma, VDSO, undeleted};
use wcprof_unwind::{CodeError, ModuleCode, ModuleKey, Unwinder};

use crate::debug_frames;
use crate::files::{Handle, NewModule, TargetFiles};
use crate::images::{
    Image, RETURN_PROBES, Text, images, is_jitdump, keep_largest, moved_code_offset,
};
use crate::registered::RegisteredCode;
use crate::shared::{Place, SharedFiles};
use crate::taking_in::Turn;
use crate::text_pages::TextPages;

/// Modules that are mapped no more whose files are held for their names.
const MAX_UNMAPPED: usize = 128;
/// Problems of one process that are remembered.
const MAX_PROBLEMS: usize = 64;
/// What did not answer is tried again after this: longer than it takes to give up, and than it is left alone.
const RETRY_NS: u64 = 100_000_000_000;

const TOO_SLOW: &str =
    "files on layered, network or unknown file systems took too long to read: it was put off";

/// A module that stacks cannot be unwound through.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ModuleProblem {
    /// Path in the target.
    pub path: String,
    /// What went wrong.
    pub reason: String,
}

/// What is known of an image.
struct Known {
    image: Image,
    /// `None`: it is code of a runtime, in a file that is no ELF file, or in memory beside mappings of one.
    key: Option<ModuleKey>,
    /// Its file did not answer.
    retry: bool,
}

/// The code of a module, or why stacks end there.
type ReadCode = Result<Arc<ModuleCode>, StackEnd>;

/// Why a module could not be read.
struct Unread {
    reason: String,
    retry: bool,
    /// Why stacks end there.
    end: StackEnd,
}

impl Unread {
    fn for_good(reason: impl ToString) -> Self {
        Self {
            reason: reason.to_string(),
            retry: false,
            end: StackEnd::ModuleUnreadable,
        }
    }
}

impl From<CodeError> for Unread {
    fn from(error: CodeError) -> Self {
        let end = match error.is_no_elf_file() {
            true => StackEnd::NotInModule,
            false => StackEnd::ModuleUnreadable,
        };
        Self {
            end,
            ..Self::for_good(error)
        }
    }
}

impl From<OpenError> for Unread {
    fn from(error: OpenError) -> Self {
        Self {
            retry: error.reason.is_silence(),
            ..Self::for_good(error)
        }
    }
}

/// What the trace has of a module.
struct TraceModule {
    id: ModuleId,
    bias: LoadBias,
    base: Svma,
    build_id: Option<BuildId>,
    code_bytes: usize,
}

/// What is different since the modules were last taken over.
#[derive(Debug)]
pub(crate) struct Changes {
    /// Modules that are mapped no more.
    pub(crate) gone: Vec<ModuleId>,
    /// An address can mean something else now.
    pub(crate) any: bool,
    /// Some are not taken in yet.
    pub(crate) more_wait: bool,
}

/// Modules of a process by address; its unwinder and the trace know the same ones.
pub(crate) struct Modules {
    process: ProcessId,
    files: TargetFiles,
    /// What is known of each image, by its first address.
    known: BTreeMap<u64, Known>,
    /// When those are to be tried again whose files did not answer, `CLOCK_MONOTONIC` ns. `None`: at the next update.
    retry_at: Option<u64>,
    /// Those whose files are held though they are mapped no more.
    unmapped: VecDeque<(Avma, Option<BuildId>)>,
    ids: HashMap<ModuleKey, TraceModule>,
    problems: Vec<ModuleProblem>,
    text_pages: TextPages,
    registered: RegisteredCode,
}

impl Modules {
    pub(crate) fn new(process: ProcessId, target: &Target) -> Self {
        Self {
            process,
            files: TargetFiles::new(process, target),
            known: BTreeMap::new(),
            retry_at: None,
            unmapped: VecDeque::new(),
            ids: HashMap::new(),
            problems: Vec::new(),
            text_pages: TextPages::default(),
            registered: RegisteredCode::default(),
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

    /// What is known of its code.
    pub(crate) fn text_pages(&mut self) -> &mut TextPages {
        &mut self.text_pages
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

    /// When modules are to be tried again.
    pub(crate) fn retry_at(&self) -> Option<u64> {
        self.retry_at
    }

    /// Tries them again at the next update.
    pub(crate) fn retry(&mut self) {
        self.retry_at = None;
    }

    /// As if no file had answered.
    #[cfg(test)]
    pub(crate) fn forget_answers(&mut self) {
        let known = self.known.values_mut();
        known.for_each(|known| known.retry = true);
        self.retry_at = Some(0);
    }

    /// There is no update now.
    pub(crate) fn put_off(&mut self, now: u64) {
        if self.known.values().any(|known| known.retry) {
            self.retry_at.get_or_insert(now.saturating_add(RETRY_NS));
        }
    }

    /// Takes over the target's mappings; `add` puts a module into the trace. Of new ones at least one is taken in, and as
    /// many as the CPU time `turn` suffices for.
    pub(crate) fn update(
        &mut self,
        now: u64,
        mappings: &[Mapping],
        unwinder: &mut Unwinder,
        (shared, turn): (&mut SharedFiles, &Turn),
        mut add: impl FnMut(&mut SharedFiles, &NewModule<'_>) -> ModuleId,
    ) -> Changes {
        self.text_pages.set_mappings(mappings);
        self.hold_jitdumps(mappings);
        let images = self.images(mappings);
        let retries = self.retry_at.is_none();
        let mut gone = Vec::new();
        let mut any = self.unmap_others(&images, unwinder, &mut gone);
        let (mut has_read, mut more_wait) = (false, false);
        for image in images {
            let start = image.start;
            let before = self.known.get(&start.0);
            if before.is_some_and(|before| !(before.retry && retries)) {
                continue;
            }
            if has_read && turn.is_over() {
                more_wait = true;
                break;
            }
            has_read = true;
            let (code, retry) = self.read(&image, shared);
            if retry {
                self.retry_at.get_or_insert(now.saturating_add(RETRY_NS));
            }
            if let Some(before) = self.known.get_mut(&start.0) {
                before.retry = retry;
                if code.is_err() {
                    continue;
                }
                if let Some(key) = before.key {
                    gone.extend(self.unmap((start, key), unwinder));
                }
            }
            let key = match code {
                // What lies beside mappings of some file is code of a JIT compiler.
                Ok(code) if !self.has_code(&image, &code) => {
                    let file = (start, code.build_id().cloned());
                    self.files.handles.remove(&file);
                    None
                }
                Err(end)
                    if end == StackEnd::NotInModule || matches!(image.code, Text::Moved(_)) =>
                {
                    self.files.handles.remove(&(start, None));
                    None
                }
                code => {
                    any = true;
                    let key = self.map(&image, code, unwinder, |new| add(shared, new));
                    if key.is_none() {
                        continue;
                    }
                    key
                }
            };
            self.known.insert(start.0, Known { image, key, retry });
        }
        // What waits looks like code of no module.
        any |= !more_wait && self.take_foreign_code(mappings, unwinder);
        Changes {
            gone,
            any,
            more_wait,
        }
    }

    /// The images of mappings, the largest ones of too many.
    fn images(&mut self, mappings: &[Mapping]) -> Vec<Image> {
        let mut images = images(mappings);
        if let Some(n @ 1..) = images.len().checked_sub(MAX_MODULES) {
            self.note_maps(format!(
                "{n} of its modules, the smallest ones, exceed a limit and were left out"
            ));
            keep_largest(&mut images);
        }
        images
    }

    /// Forgets modules that are not among these. Whether an address can mean something else now.
    fn unmap_others(
        &mut self,
        images: &[Image],
        unwinder: &mut Unwinder,
        gone: &mut Vec<ModuleId>,
    ) -> bool {
        let current = images.iter().map(|image| (image.start.0, image));
        let current: HashMap<u64, &Image> = current.collect();
        let mut unmapped = Vec::new();
        self.known.retain(|start, known| {
            let stays = current.get(start) == Some(&&known.image);
            if !stays {
                unmapped.extend(known.key.map(|key| (Avma(*start), key)));
            }
            stays
        });
        let any = !unmapped.is_empty();
        for module in unmapped {
            gone.extend(self.unmap(module, unwinder));
        }
        any
    }

    /// Tells the unwinder of code that is of no module. Whether that has changed.
    fn take_foreign_code(&mut self, mappings: &[Mapping], unwinder: &mut Unwinder) -> bool {
        let foreign = self.foreign_code(mappings);
        let is_new = unwinder.set_foreign_code(foreign.iter().cloned());
        if !foreign.is_empty() {
            self.find_registered();
        }
        let pid = self.files.pid;
        is_new | self.registered.update(pid, &foreign, is_new, unwinder)
    }

    /// Looks for the list of code that the program registers for debuggers, in modules that were not looked at.
    fn find_registered(&mut self) {
        for (start, known) in &self.known {
            let module = known.key.and_then(|key| self.ids.get(&key));
            let Some(module) = module.filter(|_| self.registered.wants(*start)) else {
                continue;
            };
            let file = (Avma(*start), module.build_id.clone());
            let handle = self.files.handles.get(&file).map(|handle| &**handle);
            if let Some(Handle::File(file)) = handle {
                let read = |file: TargetFile| ModuleCode::jit_descriptor(file);
                let found = self
                    .files
                    .files
                    .read_in_time(&known.image.first, file, read);
                let found = found.ok().flatten();
                self.registered.descriptor = found.map(|svma| module.bias.to_avma(svma));
            }
        }
    }

    /// Whether the code of an image is that of its file.
    fn has_code(&self, image: &Image, code: &Arc<ModuleCode>) -> bool {
        let Text::Moved(range) = &image.code else {
            return true;
        };
        let file = (image.start, code.build_id().cloned());
        let handle = self.files.handles.get(&file).map(|handle| &**handle);
        let (Some(FileOffset(offset)), Some(Handle::File(target_file))) =
            (moved_code_offset(code, &image.located, range), handle)
        else {
            return false;
        };
        let read = move |file: TargetFile| {
            let mut page = vec![0; 4096];
            let n = file.read_at(&mut page, offset).unwrap_or(0);
            page.truncate(n);
            page
        };
        let files = &self.files.files;
        let page = files.read_in_time(&image.first, target_file, read);
        page.is_ok_and(|page| files.has_bytes(&page, range.start) == Some(true))
    }

    /// Path of the file that code of no module is in; `None` for memory of no file.
    pub(crate) fn file_of_code(&self, address: Avma) -> Option<&str> {
        let (_, known) = self.known.range(..=address.0).next_back()?;
        let image = Some(&known.image).filter(|image| address < image.end)?;
        let is_file = known.key.is_none() && !matches!(image.code, Text::Moved(_));
        is_file.then(|| undeleted(&image.first.path))
    }

    /// Executable memory that is of no module.
    fn foreign_code(&self, mappings: &[Mapping]) -> Vec<Range<Avma>> {
        let modules = self.known.values().filter(|known| known.key.is_some());
        let modules = modules.map(|known| (known.image.start, known.image.end));
        let modules: BTreeMap<Avma, Avma> = modules.collect();
        let is_of_module = |mapping: &&Mapping| {
            let before = modules.range(..=mapping.start).next_back();
            before.is_some_and(|(_, end)| mapping.start < *end)
        };
        let executable = mappings.iter().filter(|mapping| mapping.executable);
        let foreign = executable.filter(|mapping| !is_of_module(mapping));
        foreign.map(|mapping| mapping.start..mapping.end).collect()
    }

    /// Puts a module into the unwinder and the trace.
    fn map(
        &mut self,
        image: &Image,
        code: ReadCode,
        unwinder: &mut Unwinder,
        add: impl FnOnce(&NewModule<'_>) -> ModuleId,
    ) -> Option<ModuleKey> {
        let start = image.start;
        let read = code.as_ref().ok();
        let bias = read.and_then(|c| c.load_bias(&image.located));
        let bias = bias.unwrap_or_else(|| LoadBias(start.0.wrapping_sub(image.first.offset.0)));
        let base = read.map_or(Svma(0), |c| c.base());
        let build_id = read.and_then(|c| c.build_id().cloned());
        let code_bytes = read.map_or(0, |c| c.heap_bytes());
        let path = &image.first.path;
        let key = unwinder.add_module(start, image.end, bias, code)?;
        let handle = self.files.handles.get(&(start, build_id.clone()));
        let module = Module {
            process: self.process,
            path: undeleted(path).to_owned(),
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
        let known = TraceModule {
            id: add(&new),
            bias,
            base,
            build_id: new.module.build_id,
            code_bytes,
        };
        self.ids.insert(key, known);
        Some(key)
    }

    /// Forgets a module. Its file is held for a while, since the trace has frames of it.
    fn unmap(
        &mut self,
        (start, key): (Avma, ModuleKey),
        unwinder: &mut Unwinder,
    ) -> Option<ModuleId> {
        unwinder.remove_module(start);
        let gone = self.ids.remove(&key)?;
        let file = (start, gone.build_id);
        if self.files.handles.contains_key(&file) {
            self.unmapped.push_back(file);
        }
        while self.unmapped.len() > MAX_UNMAPPED
            && let Some(file) = self.unmapped.pop_front()
        {
            // It can be mapped again.
            let known = self.known.get(&file.0.0);
            let known = known.and_then(|known| self.ids.get(&known.key?));
            if known.is_none_or(|known| known.build_id != file.1) {
                self.files.handles.remove(&file);
            }
        }
        Some(gone.id)
    }

    /// The code of an image, and whether it is to be tried again.
    fn read(&mut self, image: &Image, shared: &mut SharedFiles) -> (ReadCode, bool) {
        let began = monotonic_ns();
        let is_local = self.files.files.is_local(&image.first);
        let code = match is_local || shared.patience.is_left(began) {
            true => self.try_read(image, shared),
            false => Err(Unread {
                retry: true,
                ..Unread::for_good(TOO_SLOW)
            }),
        };
        if !is_local {
            let took = monotonic_ns().saturating_sub(began);
            shared.patience.spend(began, took);
        }
        match code {
            Ok(code) => (Ok(code), false),
            // It is said where stacks end there.
            Err(_) if image.first.path == RETURN_PROBES => (Err(StackEnd::ReturnProbe), false),
            // The file holds code of a runtime, as memory of no file does.
            Err(Unread {
                end: end @ StackEnd::NotInModule,
                ..
            }) => (Err(end), false),
            // What cannot be read has no code that was moved.
            Err(Unread {
                retry: false, end, ..
            }) if matches!(image.code, Text::Moved(_)) => (Err(end), false),
            Err(Unread { reason, retry, end }) => {
                let path = image.first.path.clone();
                let problem = ModuleProblem { path, reason };
                if self.problems.len() < MAX_PROBLEMS && !self.problems.contains(&problem) {
                    self.problems.push(problem);
                }
                (Err(end), retry)
            }
        }
    }

    fn try_read(
        &mut self,
        image: &Image,
        shared: &mut SharedFiles,
    ) -> Result<Arc<ModuleCode>, Unread> {
        let files = &self.files.files;
        let mapping = &image.first;
        let (code, handle) = if mapping.path == VDSO {
            let bytes = files.vdso(mapping);
            let bytes = bytes.ok_or_else(|| Unread::for_good("unreadable"))?;
            let code = ModuleCode::parse(&bytes).map(|code| shared.modules.intern(code));
            (code, Arc::new(Handle::Bytes(bytes)))
        } else if mapping.path == RETURN_PROBES {
            return Err(Unread::for_good("the kernel's"));
        } else {
            let opened = files.open_identified(mapping);
            let known = match &opened {
                Ok((file, identity)) => shared
                    .find(*identity)
                    .filter(|(_, of)| !identity.is_copy || of.begins_like(file)),
                Err(error) if matches!(error.reason, NoFile::NotMapped) => {
                    known_to_others(files, mapping, shared)
                }
                Err(_) => None,
            };
            match known {
                Some((code, handle)) => (Ok(code), handle),
                None => {
                    let (file, identity) = opened?;
                    let own = self.ids.values().map(|known| known.code_bytes).sum();
                    let uid = self.files.uid;
                    let room = shared.room(own, uid, identity).map_err(Unread::for_good)?;
                    // Without room it has its names.
                    let read = move |file| ModuleCode::read(file, room);
                    let mut code = files.read_in_time(mapping, &file, read)?;
                    if let Ok(code) = &mut code {
                        debug_frames::add(code, files, mapping, room);
                    }
                    if let Err(CodeError::NoRoom) = code {
                        shared.refuse(identity, room);
                    }
                    let handle = shared.hold(file, uid);
                    let code = code.map(|code| shared.modules.intern(code));
                    if let Ok(code) = &code {
                        let is_remote = identity.is_copy || files.may_hang(mapping);
                        // What a server says of a file does not show that a copy is of it.
                        let place = (!identity.is_copy)
                            .then(|| Place::of(files, mapping))
                            .flatten();
                        shared.add(identity, place, (code, &handle), is_remote);
                    }
                    (code, handle)
                }
            }
        };
        // A file that stacks cannot be unwound through may have names.
        let build_id = code.as_ref().ok().and_then(|code| code.build_id().cloned());
        let key = (image.start, build_id);
        self.files.handles.insert(key, handle);
        Ok(code?)
    }
}

/// The file of a mapping that is no more, since its process has ended: one that another process had there, which is
/// held since, so that no other file got its inode, and has not changed.
fn known_to_others(
    files: &LiveFiles,
    mapping: &Mapping,
    shared: &SharedFiles,
) -> Option<(Arc<ModuleCode>, Arc<Handle>)> {
    let handle = shared.at(&Place::of(files, mapping)?)?;
    let Handle::File(file) = &*handle else {
        return None;
    };
    let now = files.identify(mapping, file).ok()?;
    shared.find(now)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};
    use std::process::{Child, Command, Stdio};

    use wcprof_types::{Pid, parse_maps};

    use super::*;

    /// Takes over mappings at time 0, with time for all modules, each of which becomes this one of the trace.
    fn take_over(
        modules: &mut Modules,
        maps: &[Mapping],
        unwinder: &mut Unwinder,
        shared: &mut SharedFiles,
        id: ModuleId,
    ) -> Changes {
        modules.update(0, maps, unwinder, (shared, &Turn::LONG), |_, _| id)
    }

    /// Check that files of a process that has ended are those that another one had there, but not one that has changed.
    #[test]
    fn known_after_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("cat");
        std::fs::copy("/bin/cat", &program).unwrap();
        let mut shared = SharedFiles::default();
        let mut without_code = |after: &dyn Fn(&mut Child)| {
            let mut cat = Command::new(&program)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            // It is loaded when it answers.
            cat.stdin.as_mut().unwrap().write_all(b"x").unwrap();
            cat.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
            let target = Target::open(Pid(cat.id().cast_signed())).unwrap();
            let maps = target.mappings().unwrap();
            let mut modules = Modules::new(ProcessId(0), &target);
            after(&mut cat);
            let mut unwinder = Unwinder::default();
            take_over(&mut modules, &maps, &mut unwinder, &mut shared, ModuleId(0));
            cat.kill().unwrap();
            cat.wait().unwrap();
            let problems = modules.take_problems();
            let paths = problems.into_iter().map(|problem| problem.path);
            paths.filter(|path| path != "[vdso]").collect::<Vec<_>>()
        };
        let end = |cat: &mut Child| {
            cat.kill().unwrap();
            cat.wait().unwrap();
        };
        assert_eq!(without_code(&|_| ()), [""; 0]);
        assert_eq!(without_code(&end), [""; 0]);
        let changes = |cat: &mut Child| {
            end(cat);
            let mut file = File::options().append(true).open(&program).unwrap();
            file.write_all(b"\n").unwrap();
        };
        assert_eq!(without_code(&changes), [program.to_str().unwrap()]);
    }

    /// Check that modules which are not on a local disk are put off when others took long.
    #[test]
    fn put_off() {
        let own = Target::open(Pid(std::process::id() as i32)).unwrap();
        let mut maps = parse_maps("1000-2000 r-xp 00000000 fe:ff 1 /x").unwrap();
        maps.extend_from_slice(&own.mappings().unwrap());
        let mut modules = Modules::new(ProcessId(0), &own);
        let (mut unwinder, mut shared) = (Unwinder::default(), SharedFiles::default());
        let hour = 3_600_000_000_000;
        shared.patience.spend(monotonic_ns(), hour);
        take_over(&mut modules, &maps, &mut unwinder, &mut shared, ModuleId(0));
        let is_local = |image: &&Image| modules.files.files.is_local(&image.first);
        let images = images(&maps);
        let n_others = images.len() - images.iter().filter(is_local).count();
        let problems = modules.take_problems();
        let of_x = problems.iter().find(|problem| problem.path == "/x");
        assert_eq!(of_x.map(|problem| problem.reason.as_str()), Some(TOO_SLOW));
        assert_eq!(modules.retry_at(), Some(RETRY_NS));
        let waits = |known: &&Known| known.retry;
        assert_eq!(modules.known.values().filter(waits).count(), n_others);
    }

    /// Check that of modules that come and go the last ones' files are held, and the trace is told of each.
    #[test]
    fn coming_and_going() {
        let own = Target::open(Pid(std::process::id() as i32)).unwrap();
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
                || take_over(&mut modules, &maps, &mut unwinder, &mut shared, ModuleId(n));
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

    /// Check that of a hundred thousand modules so many are taken in as programs have, the largest ones, and that this
    /// is said.
    #[test]
    fn many() {
        let own = Target::open(Pid(std::process::id() as i32)).unwrap();
        let mut modules = Modules::new(ProcessId(0), &own);
        let (mut unwinder, mut shared) = (Unwinder::default(), SharedFiles::default());
        let line = |n: u64| {
            let start = n * 0x1000;
            let end = start + 0x1000 * (1 + n / 100_000);
            format!("{start:x}-{end:x} r-xp 00000000 fe:ff {n} /x\n")
        };
        let vdso = "7ffff000-80000000 r-xp 00000000 00:00 0 [vdso]\n";
        let lines = (1..=100_000).map(line).chain([vdso.to_owned()]);
        let maps = parse_maps(&lines.collect::<String>()).unwrap();
        for _ in 0..2 {
            take_over(&mut modules, &maps, &mut unwinder, &mut shared, ModuleId(0));
            assert_eq!(modules.known.len(), MAX_MODULES);
            // No ELF file is where the vdso is said to be.
            assert_eq!(modules.ids.len(), MAX_MODULES - 1);
            let largest = 100_000 * 0x1000;
            assert!(modules.known.contains_key(&largest));
            assert!(modules.known.contains_key(&0x7fff_f000));
        }
        let problems = modules.take_problems();
        let said = |problem: &ModuleProblem| problem.reason.starts_with("97953 of its modules");
        assert!(problems.iter().any(said), "{problems:?}");
    }

    /// Check that what all modules take is limited, and that those beyond have a reason: by their call frame
    /// information (with no room, or too little), and by their number. Then, as if they had not answered, that they are
    /// tried again when that is asked for.
    #[test]
    fn no_room() {
        let own = Target::open(Pid(std::process::id() as i32)).unwrap();
        let maps = own.mappings().unwrap();
        let limits = [
            (0, 1000, "memory"),
            (8192, 1000, "memory"),
            (1 << 30, 0, "other files"),
        ];
        for (max_code_bytes, max_files, reason) in limits {
            let mut shared = SharedFiles::default();
            (shared.max_code_bytes, shared.max_files) = (max_code_bytes, max_files);
            let mut modules = Modules::new(ProcessId(0), &own);
            let mut unwinder = Unwinder::default();
            let mut update = |modules: &mut Modules, shared: &mut SharedFiles, now| {
                let add = |_: &mut SharedFiles, _: &NewModule<'_>| ModuleId(0);
                let changes = modules.update(now, &maps, &mut unwinder, (shared, &Turn::LONG), add);
                let with_code = |known: &&TraceModule| known.code_bytes > 0;
                (
                    changes.gone.len(),
                    modules.ids.values().filter(with_code).count(),
                )
            };
            assert_eq!(
                update(&mut modules, &mut shared, 0),
                (0, 1),
                "only the vdso"
            );
            (shared.max_files, shared.max_code_bytes) = (1000, 1 << 30);
            assert_eq!(update(&mut modules, &mut shared, RETRY_NS), (0, 1));
            modules.forget_answers();
            assert_eq!(update(&mut modules, &mut shared, RETRY_NS), (0, 1));
            modules.retry();
            let (n_gone, n_read) = update(&mut modules, &mut shared, RETRY_NS);
            assert!(n_gone > 1 && n_read == n_gone, "{n_gone} {n_read}");
            assert!(modules.retry_at.is_none());
            let said = modules.take_problems();
            assert!(!said.is_empty());
            assert!(said.iter().all(|problem| problem.reason.contains(reason)));
        }
    }
}
