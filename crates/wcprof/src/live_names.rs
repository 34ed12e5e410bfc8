//! Names of functions while a recording runs: looked up once, and within a part of the time alone.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use wcprof_host::clock::{children_cpu_ns, own_cpu_ns};
use wcprof_profile::model::{Detail, Profile};
use wcprof_profile::{ProfileBuilder, Rules};
use wcprof_record::{NamedSnapshot, TargetFiles};
use wcprof_symbols::SymbolOptions;
use wcprof_trace::model::{Frame, FrameId, Module, SymbolFrame, SymbolTable, Tables};
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

/// CPU time of wcprof and of the processes that read symbols for it, ns.
fn cpu_ns() -> u64 {
    own_cpu_ns() + children_cpu_ns()
}

/// A loaded file, however a trace numbers it.
type ModuleKey = (Pid, Avma, Option<BuildId>, String);

/// Names of frames, by module and address.
#[derive(Debug, Default)]
pub(crate) struct LiveNames {
    modules: HashMap<ModuleKey, u32>,
    names: HashMap<(u32, RelativeAddress), Vec<SymbolFrame>>,
    /// Of JIT code, which may be replaced: as it was at the last look-up. Empty without a name.
    jit: HashMap<(Pid, Avma), Vec<SymbolFrame>>,
    jit_asked: Option<Instant>,
    /// When names may be looked up again.
    not_before: Option<Instant>,
    /// Time that look-ups took so far.
    pub(crate) spent: Duration,
    /// Which frames of one function are kept apart in profiles.
    detail: Detail,
}

impl LiveNames {
    /// Of profiles in which frames of one function are kept apart like this.
    pub(crate) fn with_detail(detail: Detail) -> Self {
        Self {
            detail,
            ..Self::default()
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
        if self.names.len() + self.jit.len() > MAX_NAMES {
            self.names.clear();
            self.jit.clear();
            self.modules.clear();
        }
        let modules: Vec<u32> = tables
            .modules
            .iter()
            .map(|module| self.module(tables, module))
            .collect();
        let key = |frame: &Frame| match frame {
            Frame::Native {
                module, address, ..
            } => Some((*modules.get(module.0 as usize)?, *address)),
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
            let Some(key) = key(frame) else { continue };
            match self.names.get(&key) {
                Some(names) => {
                    known.frames.insert(id, names.clone());
                }
                None => new.push((id, key, frame.clone())),
            }
        }
        let may_ask = self.not_before.is_none_or(|at| Instant::now() >= at);
        let (begin, cpu_before) = (Instant::now(), cpu_ns());
        // A compiler may write the name after the code ran.
        let ask_again = self.jit_asked.is_none_or(|at| begin - at > JIT_AGAIN);
        let is_new = |(_, key): &(FrameId, (Pid, Avma))| match self.jit.get(key) {
            Some(names) => names.is_empty() && ask_again,
            None => true,
        };
        let has_new_jit = jit.iter().any(is_new);
        if has_new_jit && may_ask {
            self.jit_asked = Some(begin);
            let mut found = jit_names(tables, recorded, &options.cancel);
            for (id, key) in &jit {
                let names = found.frames.remove(id).unwrap_or_default();
                self.jit.insert(*key, names);
            }
        }
        for (id, key) in jit {
            if let Some(names) = self.jit.get(&key).filter(|names| !names.is_empty()) {
                known.frames.insert(id, names.clone());
            }
        }
        let has_new = !new.is_empty();
        if has_new && may_ask {
            self.ask(tables, new, &recorded.files, (args, options), &mut known)?;
        }
        if (has_new || has_new_jit) && may_ask {
            let cpu = Duration::from_nanos(cpu_ns() - cpu_before);
            let taken = begin.elapsed().min(cpu);
            self.spent += taken;
            self.not_before = Some(Instant::now() + taken * PAUSE);
        }
        Ok(known)
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
        for (at, (id, key, _)) in (0..).map(FrameId).zip(new) {
            // One without a name is not asked for again.
            let names = found.frames.remove(&at).unwrap_or_default();
            if !names.is_empty() {
                known.frames.insert(id, names.clone());
            }
            self.names.insert(key, names);
        }
        Ok(())
    }

    fn module(&mut self, tables: &Tables, module: &Module) -> u32 {
        let process = tables.processes.get(module.process.0 as usize);
        let key = (
            process.map_or(Pid(0), |p| p.pid),
            module.start,
            module.build_id.clone(),
            module.path.clone(),
        );
        let next = u32::try_from(self.modules.len()).unwrap_or(u32::MAX);
        *self.modules.entry(key).or_insert(next)
    }
}
