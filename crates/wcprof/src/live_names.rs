//! Names of functions while a recording runs: looked up once, and within a part of the time alone.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use wcprof_export::Strings;
use wcprof_host::clock::{children_cpu_ns, thread_cpu_ns};
use wcprof_profile::model::{Detail, Profile};
use wcprof_profile::{ProfileBuilder, Rules};
use wcprof_record::{NamedSnapshot, TargetFiles};
use wcprof_symbols::SymbolOptions;
use wcprof_trace::model::{Frame, FrameId, Module, ProcessId, SymbolFrame, SymbolTable, Tables};
use wcprof_trace::ring::Cut;
use wcprof_types::{Avma, BuildId, Pid, RelativeAddress, TimeNs};

use crate::args::SymbolArgs;
use crate::failure::Failure;
use crate::local_names::{Origin, jit_names, place_of_jit};
use crate::names;

/// After a look-up as many times its time pass without one: a debug file that takes a second to read
/// is read every twentieth second at most. Time for which a busy machine let it wait does not count, or
/// names of what happens now would be late.
const PAUSE: u32 = 20;
/// JIT code without a name is asked for again after this.
const JIT_AGAIN: Duration = Duration::from_secs(10);
/// Names remembered; beyond it those that are not in use are forgotten.
const MAX_NAMES: usize = 1 << 18;

/// CPU time of this thread and of the processes that read symbols for it.
fn cpu() -> Duration {
    Duration::from_nanos(thread_cpu_ns() + children_cpu_ns())
}

/// When names may be looked up again.
#[derive(Debug)]
struct Pauses {
    /// The next one, and the longest, in times of what the last look-up took.
    next: u32,
    longest: u32,
    /// When the last look-up ended, and the CPU time that it took.
    last: Option<(Instant, Duration)>,
}

impl Pauses {
    fn up_to(longest: u32) -> Self {
        Self {
            next: PAUSE,
            longest,
            last: None,
        }
    }

    fn may_ask(&self, now: Instant, has_new_module: bool) -> bool {
        let pause = if has_new_module { PAUSE } else { self.next };
        let is_over = |(end, took): (Instant, Duration)| {
            now.saturating_duration_since(end) >= took.saturating_mul(pause)
        };
        self.last.is_none_or(is_over)
    }

    /// A look-up has ended. What is not named yet of modules that are known is less and less, and each look-up costs
    /// the same: the pauses grow.
    fn begin(&mut self, now: Instant, took: Duration, has_new_module: bool) {
        self.last = Some((now, took));
        self.next = match has_new_module {
            true => PAUSE,
            false => self.next.saturating_mul(2).min(self.longest),
        };
    }
}

/// A [`SymbolFrame`] with numbers for its texts: thousands of addresses have the same long names.
#[derive(Copy, Clone, Debug)]
struct NumberedFrame {
    name: u32,
    file: Option<u32>,
    line: Option<u32>,
    inlined: bool,
    resolved: bool,
}

impl NumberedFrame {
    fn new(frame: &SymbolFrame, texts: &mut Strings) -> Self {
        // There are fewer texts than names.
        let mut number = |text: &str| u32::try_from(texts.number(text)).unwrap_or(u32::MAX);
        Self {
            name: number(&frame.name),
            file: frame.file.as_deref().map(number),
            line: frame.line,
            inlined: frame.inlined,
            resolved: frame.resolved,
        }
    }

    fn to_symbol(self, texts: &Strings) -> SymbolFrame {
        let text = |number: u32| texts.text(number as usize).unwrap_or_default().to_owned();
        SymbolFrame {
            name: text(self.name),
            file: self.file.map(text),
            line: self.line,
            inlined: self.inlined,
            resolved: self.resolved,
        }
    }
}

/// A file, whatever processes loaded it; without a build-id one of a process.
type ModuleKey = (Option<(Pid, Avma)>, Option<BuildId>, String);

/// Names of frames, by module and address.
#[derive(Debug)]
pub(crate) struct LiveNames {
    modules: HashMap<ModuleKey, u32>,
    /// How many of these there were at the last look-up.
    n_asked: u32,
    names: HashMap<(u32, RelativeAddress), Box<[NumberedFrame]>>,
    texts: Strings,
    /// Of functions by their start, without what is inlined there: for places in them that were not looked up yet.
    functions: HashMap<(u32, RelativeAddress), NumberedFrame>,
    /// Of JIT code, which may be replaced: as it was at the last look-up. Empty without a name.
    jit: HashMap<(Pid, Avma), Vec<SymbolFrame>>,
    jit_asked: Option<Instant>,
    pauses: Pauses,
    /// CPU time that look-ups took so far.
    pub(crate) spent: Duration,
    /// Which frames of one function are kept apart in profiles.
    detail: Detail,
}

impl Default for LiveNames {
    fn default() -> Self {
        Self::new(Detail::default(), PAUSE)
    }
}

impl LiveNames {
    /// Of profiles in which frames of one function are kept apart like this. Pauses between look-ups grow to so many
    /// times what one takes.
    pub(crate) fn new(detail: Detail, longest_pause: u32) -> Self {
        Self {
            modules: HashMap::new(),
            n_asked: 0,
            names: HashMap::new(),
            texts: Strings::default(),
            functions: HashMap::new(),
            jit: HashMap::new(),
            jit_asked: None,
            pauses: Pauses::up_to(longest_pause),
            spent: Duration::ZERO,
            detail,
        }
    }

    /// The names of the tables' frames, as far as they are known by now.
    fn known(
        &mut self,
        tables: &Tables,
        recorded: &Origin<'_>,
        args: &SymbolArgs,
        options: &SymbolOptions,
    ) -> Result<SymbolTable, Failure> {
        self.forget_if_many();
        let modules: Vec<u32> = tables
            .modules
            .iter()
            .map(|module| self.module(tables, module))
            .collect();
        let key = |frame: &Frame| match frame {
            Frame::Native {
                module,
                address,
                function,
            } => Some(((*modules.get(module.0 as usize)?, *address), *function)),
            Frame::Unmapped(_) | Frame::Kernel(_) | Frame::KernelCode(_) | Frame::Unknown(_) => {
                None
            }
        };
        let mut known = SymbolTable::default();
        let mut new = Vec::new();
        let mut jit = Vec::new();
        for (id, frame) in (0..).map(FrameId).zip(&tables.frames) {
            if let Some((process, address)) = place_of_jit(tables, &recorded.unmapped, id, frame)
                && let Some(process) = tables.processes.get(process.0 as usize)
            {
                jit.push((id, (process.pid, address)));
                continue;
            }
            let Some((key, function)) = key(frame) else {
                continue;
            };
            if let Some(names) = self.named(key) {
                known.frames.insert(id, names);
                continue;
            }
            if let Some(function) = self.function(key.0, function) {
                known.frames.insert(id, vec![function]);
            }
            new.push((id, key, frame.clone()));
        }
        let mut of_new = new.iter().map(|(_, (module, _), _)| *module);
        let has_new_module = of_new.any(|module| module >= self.n_asked);
        let (begin, cpu_before) = (Instant::now(), cpu());
        let may_ask = self.pauses.may_ask(begin, has_new_module);
        // A compiler may write the name after the code ran.
        let ask_again = self.jit_asked.is_none_or(|at| begin - at > JIT_AGAIN);
        let is_new = |(_, key): &(FrameId, (Pid, Avma))| match self.jit.get(key) {
            Some(names) => names.is_empty() && ask_again,
            None => true,
        };
        let has_new_jit = jit.iter().any(is_new);
        if has_new_jit && may_ask {
            self.jit_asked = Some(begin);
            self.note_jit(jit_names(tables, recorded, &options.cancel), &jit);
        }
        let jit = jit
            .iter()
            .filter_map(|(id, key)| Some((*id, self.jit.get(key)?.clone())));
        known
            .frames
            .extend(jit.filter(|(_, names)| !names.is_empty()));
        let has_new = !new.is_empty();
        if has_new && may_ask {
            self.ask(tables, new, &recorded.files, (args, options), &mut known)?;
        }
        if (has_new || has_new_jit) && may_ask {
            let took = cpu().saturating_sub(cpu_before);
            self.spent += took;
            self.pauses.begin(Instant::now(), took, has_new_module);
            self.n_asked = u32::try_from(self.modules.len()).unwrap_or(u32::MAX);
        }
        Ok(known)
    }

    /// Notes the names of JIT code, empty ones where there are none.
    fn note_jit(&mut self, mut found: SymbolTable, jit: &[(FrameId, (Pid, Avma))]) {
        for (id, key) in jit {
            let names = found.frames.remove(id).unwrap_or_default();
            self.jit.insert(*key, names);
        }
    }

    fn forget_if_many(&mut self) {
        if self.names.len() + self.jit.len() > MAX_NAMES {
            self.names.clear();
            self.texts = Strings::default();
            self.functions.clear();
            self.jit.clear();
            self.modules.clear();
            self.n_asked = 0;
        }
    }

    /// What happened in a part of a recording until `to`, a time of the recording, with the names that
    /// are known by now.
    pub(crate) fn profile(
        &mut self,
        kept: &NamedSnapshot,
        cut: &Cut<'_>,
        to: TimeNs,
        (args, options): (&SymbolArgs, &SymbolOptions),
        rules: &Rules,
    ) -> Result<Profile, Failure> {
        let tables = cut.tables();
        let symbols = self.known(tables, &Origin::of_cut(kept, cut), args, options)?;
        let to = TimeNs(to.0.saturating_sub(cut.from().0));
        let mut builder = ProfileBuilder::new()
            .with_window(TimeNs(0), to)
            .with_detail(self.detail);
        cut.for_each_span(|span| {
            builder.add_span(span);
            Ok(())
        })?;
        Ok(builder.finish(tables, Some(&symbols), rules))
    }

    /// Looks up names of frames in files.
    fn ask(
        &mut self,
        tables: &Tables,
        new: Vec<(FrameId, (u32, RelativeAddress), Frame)>,
        files: &[TargetFiles],
        (args, options): (&SymbolArgs, &SymbolOptions),
        known: &mut SymbolTable,
    ) -> Result<(), Failure> {
        let asked = Tables {
            frames: new.iter().map(|(.., frame)| frame.clone()).collect(),
            nodes: Vec::new(),
            stacks: Vec::new(),
            ..tables.clone()
        };
        let (mut found, _) = names::of_recording(&asked, files, args, options)?;
        for (at, (id, key, frame)) in (0..).map(FrameId).zip(new) {
            // One without a name is not asked for again.
            let names = found.frames.remove(&at).unwrap_or_default();
            self.note_function(key.0, &frame, &names);
            let numbered = names
                .iter()
                .map(|frame| NumberedFrame::new(frame, &mut self.texts));
            self.names.insert(key, numbered.collect());
            if !names.is_empty() {
                known.frames.insert(id, names);
            }
        }
        Ok(())
    }

    fn named(&self, key: (u32, RelativeAddress)) -> Option<Vec<SymbolFrame>> {
        let names = self.names.get(&key)?.iter();
        Some(names.map(|frame| frame.to_symbol(&self.texts)).collect())
    }

    /// The function that starts there.
    fn function(&self, module: u32, start: Option<RelativeAddress>) -> Option<SymbolFrame> {
        let function = self.functions.get(&(module, start?))?;
        Some(function.to_symbol(&self.texts))
    }

    /// Notes the function that a frame is in. Only debug information says that it is one: a table of stubs has one
    /// entry of call frame information, too.
    fn note_function(&mut self, module: u32, frame: &Frame, names: &[SymbolFrame]) {
        if let Frame::Native {
            function: Some(start),
            ..
        } = frame
            && let Some(function) = names.last().filter(|function| function.file.is_some())
        {
            let function = NumberedFrame {
                line: None,
                ..NumberedFrame::new(function, &mut self.texts)
            };
            self.functions.insert((module, *start), function);
        }
    }

    fn module(&mut self, tables: &Tables, module: &Module) -> u32 {
        let pid = |id: ProcessId| {
            tables
                .processes
                .get(id.0 as usize)
                .map(|process| process.pid)
        };
        let mapped = module.build_id.is_none().then_some(module);
        let key = (
            mapped.and_then(|module| Some((pid(module.process)?, module.start))),
            module.build_id.clone(),
            module.path.clone(),
        );
        let next = u32::try_from(self.modules.len()).unwrap_or(u32::MAX);
        *self.modules.entry(key).or_insert(next)
    }
}

#[cfg(test)]
mod tests {
    use wcprof_trace::model::Process;

    use super::*;

    /// Check that look-ups are dense at first, take a small part of the time in the long run, and that another module is
    /// not waited for as long.
    #[test]
    fn pauses() {
        const TOOK: Duration = Duration::from_secs(3);
        let start = Instant::now();
        let mut pauses = Pauses::up_to(400);
        let mut asked = Vec::new();
        for interval in 0..24 * 120 {
            let now = Duration::from_secs(30 * interval);
            if pauses.may_ask(start + now, false) {
                asked.push(now.as_secs());
                pauses.begin(start + now, TOOK, false);
            }
        }
        assert_eq!(asked[..4], [0, 120, 360, 840]);
        assert!(
            asked.len() as u64 * TOOK.as_secs() < 24 * 3600 / 300,
            "{asked:?}"
        );
        let last = start + Duration::from_secs(*asked.last().unwrap());
        assert!(!pauses.may_ask(last + TOOK * 19, true));
        assert!(pauses.may_ask(last + TOOK * 21, true) && !pauses.may_ask(last + TOOK * 21, false));
        pauses.begin(last, TOOK, true);
        assert!(pauses.may_ask(last + TOOK * 21, false));
    }

    /// Check that a frame comes back as it was, and that frames share their texts.
    #[test]
    fn numbered_frames() {
        let mut texts = Strings::default();
        let frames = [7, 8].map(|line| SymbolFrame {
            name: "f".to_owned(),
            file: Some("a.cc".to_owned()),
            line: Some(line),
            inlined: line == 7,
            resolved: true,
        });
        let numbered = frames
            .each_ref()
            .map(|frame| NumberedFrame::new(frame, &mut texts));
        assert_eq!(numbered.map(|frame| frame.to_symbol(&texts)), frames);
        assert_eq!(texts.into_list(), ["f", "a.cc"]);
    }

    /// Check that a file with a build-id is one for all processes, and one without is not.
    #[test]
    fn files_of_processes() {
        let process = |pid| Process {
            pid: Pid(pid),
            ..Process::default()
        };
        let mut tables = Tables {
            processes: vec![process(1), process(2)],
            ..Tables::default()
        };
        let mut modules = Vec::new();
        for build_id in [Some(BuildId::new(&[7; 20]).unwrap()), None] {
            modules.extend([0, 1].map(|process| Module {
                process: ProcessId(process),
                build_id: build_id.clone(),
                path: "/usr/bin/ceph-osd".to_owned(),
                ..Module::default()
            }));
        }
        tables.modules = modules;
        let mut names = LiveNames::default();
        let numbers: Vec<_> = tables
            .modules
            .iter()
            .map(|module| names.module(&tables, module))
            .collect();
        assert_eq!(numbers, [0, 0, 1, 2]);
    }

    /// Check that a function is known by its start if debug information named it, without what is inlined at one place.
    #[test]
    fn function_of_new_place() {
        let mut names = LiveNames::new(Detail::Frames, PAUSE);
        let symbol = |name: &str, file: Option<&str>, inlined| SymbolFrame {
            name: name.to_owned(),
            file: file.map(str::to_owned),
            line: Some(7),
            inlined,
            resolved: true,
        };
        let inlined = symbol("inlined", Some("a.h"), true);
        let outer = symbol("outer", Some("a.cc"), false);
        let start = [0x100, 0x200].map(|start| Some(RelativeAddress(start)));
        let frame = start.map(|function| Frame::Native {
            module: wcprof_trace::model::ModuleId(0),
            address: RelativeAddress(0x123),
            function,
        });
        names.note_function(5, &frame[0], &[inlined, outer.clone()]);
        names.note_function(5, &frame[1], &[symbol("stub@plt", None, false)]);
        let without_line = SymbolFrame {
            line: None,
            ..outer
        };
        assert_eq!(names.function(5, start[0]), Some(without_line));
        for (module, start) in [(5, start[1]), (6, start[0]), (5, None)] {
            assert_eq!(names.function(module, start), None);
        }
    }
}
