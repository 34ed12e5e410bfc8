//! Names of functions while a recording runs: looked up once, and within a part of the time alone.

mod pauses;
mod remembered;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use wcprof_host::clock::children_cpu_ns;
use wcprof_host::work_cpu_ns;
use wcprof_profile::model::{Detail, Profile};
use wcprof_profile::{LockTimes, ProfileBuilder, Rules};
use wcprof_record::{NamedSnapshot, TargetFiles};
use wcprof_symbols::SymbolOptions;
use wcprof_trace::model::{Frame, FrameId, SymbolFrame, SymbolTable, Tables};
use wcprof_trace::ring::Cut;
use wcprof_types::{Avma, Pid, TimeNs};

use crate::args::SymbolArgs;
use crate::failure::Failure;
use crate::local_names::{Origin, jit_names, place_of_code, place_of_jit};
use crate::names;
use pauses::{PAUSE, Pauses};
use remembered::{Place, Remembered};

/// JIT code without a name is asked for again after this.
const JIT_AGAIN: Duration = Duration::from_secs(10);
/// Names remembered; beyond it those that are not in use are forgotten.
const MAX_NAMES: usize = 1 << 18;

/// CPU time of this thread and of the processes that read symbols for it.
fn cpu() -> Duration {
    Duration::from_nanos(work_cpu_ns() + children_cpu_ns())
}

/// JIT code of a process.
type JitPlace = (Pid, Avma);

/// Names of frames.
#[derive(Debug)]
pub(crate) struct LiveNames {
    remembered: Remembered,
    /// How many files there were at the last look-up.
    n_asked: u32,
    /// Of JIT code, which may be replaced: as it was at the last look-up. Empty without a name.
    jit: HashMap<JitPlace, Vec<SymbolFrame>>,
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

/// Frames of a recording, by whether they have a name.
#[derive(Default)]
struct Sorted {
    known: SymbolTable,
    /// Without a name, or with that of their function alone.
    new: Vec<(FrameId, Place, Frame)>,
    jit: Vec<(FrameId, JitPlace)>,
}

impl LiveNames {
    /// Of profiles in which frames of one function are kept apart like this. Pauses between look-ups grow to so many
    /// times what one takes.
    pub(crate) fn new(detail: Detail, longest_pause: u32) -> Self {
        Self {
            remembered: Remembered::default(),
            n_asked: 0,
            jit: HashMap::new(),
            jit_asked: None,
            pauses: Pauses::up_to(longest_pause),
            spent: Duration::ZERO,
            detail,
        }
    }

    /// The first profile has no names that must be looked up.
    pub(crate) fn first_without_names(mut self) -> Self {
        self.pauses.put_off_first();
        self
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
            .with_locks(LockTimes::from_tables(tables))
            .with_window(TimeNs(0), to)
            .with_detail(self.detail);
        cut.for_each_span(|span| {
            builder.add_span(span);
            Ok(())
        })?;
        Ok(builder.finish(tables, Some(&symbols), rules))
    }

    /// Names that are known by now, of frames in `tables`.
    fn known(
        &mut self,
        tables: &Tables,
        recorded: &Origin<'_>,
        args: &SymbolArgs,
        options: &SymbolOptions,
    ) -> Result<SymbolTable, Failure> {
        self.forget_if_many();
        let Sorted {
            mut known,
            new,
            jit,
        } = self.sort(tables, recorded);
        let has_new_file = new.iter().any(|(_, (file, _), _)| *file >= self.n_asked);
        let (begin, cpu_before) = (Instant::now(), cpu());
        let may_ask = self.pauses.may_ask(begin, has_new_file);
        // A compiler may write the name after the code ran.
        let ask_again = self.jit_asked.is_none_or(|at| begin - at > JIT_AGAIN);
        let is_new = |(_, place): &(FrameId, JitPlace)| match self.jit.get(place) {
            Some(names) => names.is_empty() && ask_again,
            None => true,
        };
        let (has_new, has_new_jit) = (!new.is_empty(), jit.iter().any(is_new));
        if has_new_jit && may_ask {
            self.jit_asked = Some(begin);
            self.note_jit(jit_names(tables, recorded, &options.cancel), &jit);
        }
        for (id, place) in &jit {
            let names = self.jit.get(place).filter(|names| !names.is_empty());
            let frame = tables.frames.get(id.0 as usize);
            let stand_in = || place_of_code(&recorded.unmapped, *id, frame?);
            let names = names.cloned().or_else(|| Some(vec![stand_in()?]));
            known.frames.extend(names.map(|names| (*id, names)));
        }
        if has_new && may_ask {
            self.ask(tables, new, &recorded.files, (args, options), &mut known)?;
        }
        if (has_new || has_new_jit) && may_ask {
            let took = cpu().saturating_sub(cpu_before);
            self.spent += took;
            self.pauses.begin(Instant::now(), took, has_new_file);
            self.n_asked = self.remembered.n_files();
        }
        Ok(known)
    }

    fn forget_if_many(&mut self) {
        if self.remembered.n_places() + self.jit.len() > MAX_NAMES {
            self.remembered = Remembered::default();
            self.jit.clear();
            self.n_asked = 0;
        }
    }

    /// Takes the names that are known.
    fn sort(&mut self, tables: &Tables, recorded: &Origin<'_>) -> Sorted {
        let modules = tables.modules.iter();
        let files: Vec<u32> = modules
            .map(|module| self.remembered.file(tables, module))
            .collect();
        let mut sorted = Sorted::default();
        for (id, frame) in (0..).map(FrameId).zip(&tables.frames) {
            if let Some((process, address)) = place_of_jit(&recorded.unmapped, id, frame)
                && let Some(process) = tables.processes.get(process.0 as usize)
            {
                sorted.jit.push((id, (process.pid, address)));
                continue;
            }
            let Frame::Native {
                module,
                address,
                function,
            } = frame
            else {
                continue;
            };
            let Some(&file) = files.get(module.0 as usize) else {
                continue;
            };
            let place = (file, *address);
            if let Some(names) = self.remembered.names(place) {
                sorted.known.frames.insert(id, names);
                continue;
            }
            let function = function.and_then(|start| self.remembered.function((file, start)));
            if let Some(function) = function {
                sorted.known.frames.insert(id, vec![function]);
            }
            sorted.new.push((id, place, frame.clone()));
        }
        sorted
    }

    /// Notes the names of JIT code, empty ones where there are none, and were none before.
    fn note_jit(&mut self, mut found: SymbolTable, jit: &[(FrameId, JitPlace)]) {
        for (id, place) in jit {
            let names = found.frames.remove(id).unwrap_or_default();
            let known = self.jit.entry(*place).or_default();
            if !names.is_empty() {
                *known = names;
            }
        }
    }

    /// Looks up names of frames in files.
    fn ask(
        &mut self,
        tables: &Tables,
        new: Vec<(FrameId, Place, Frame)>,
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
        let (mut found, report) = names::of_recording(&asked, files, args, options)?;
        for (at, (id, place, frame)) in (0..).map(FrameId).zip(new) {
            // One without a name is not asked for again, unless its file may be read later.
            let names = found.frames.remove(&at).unwrap_or_default();
            let start = match frame {
                Frame::Native { function, .. } => function,
                _ => None,
            };
            if !report.unfinished.contains(&at) {
                self.remembered.note(place, start, &names);
            }
            if !names.is_empty() {
                known.frames.insert(id, names);
            }
        }
        Ok(())
    }
}
