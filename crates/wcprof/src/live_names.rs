//! Names of functions while a recording runs: looked up once, and within a part of the time alone.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use wcprof_record::TargetFiles;
use wcprof_symbols::SymbolOptions;
use wcprof_trace::model::{Frame, FrameId, Module, SymbolFrame, SymbolTable, Tables};
use wcprof_types::{Avma, BuildId, Pid, RelativeAddress};

use crate::cli::SymbolArgs;
use crate::failure::Failure;
use crate::names;

/// After a look-up as many times its time pass without one: a debug file that takes a second to read
/// is read every twentieth second at most.
const PAUSE: u32 = 20;
/// Names remembered; beyond it those that are not in use are forgotten.
const MAX_NAMES: usize = 1 << 18;

/// A loaded file, however a trace numbers it.
type ModuleKey = (Pid, Avma, Option<BuildId>, String);

/// Names of frames, by module and address.
#[derive(Debug)]
pub(crate) struct LiveNames {
    modules: HashMap<ModuleKey, u32>,
    names: HashMap<(u32, RelativeAddress), Vec<SymbolFrame>>,
    /// When names may be looked up again.
    not_before: Option<Instant>,
    spent: Duration,
}

impl LiveNames {
    pub(crate) fn new() -> Self {
        Self {
            modules: HashMap::new(),
            names: HashMap::new(),
            not_before: None,
            spent: Duration::ZERO,
        }
    }

    /// The names of the tables' frames, as far as they are known by now. `files` are those of its
    /// processes.
    pub(crate) fn of(
        &mut self,
        tables: &Tables,
        files: &[TargetFiles],
        args: &SymbolArgs,
        options: &SymbolOptions,
    ) -> Result<SymbolTable, Failure> {
        if self.names.len() > MAX_NAMES {
            self.names.clear();
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
            Frame::Unmapped(_) | Frame::Kernel(_) | Frame::KernelCode(_) => None,
        };
        let mut known = SymbolTable::default();
        let mut new = Vec::new();
        for (id, frame) in (0..).map(FrameId).zip(&tables.frames) {
            let Some(key) = key(frame) else { continue };
            match self.names.get(&key) {
                Some(names) => {
                    known.frames.insert(id, names.clone());
                }
                None => new.push((id, key, frame.clone())),
            }
        }
        if new.is_empty() || self.not_before.is_some_and(|at| Instant::now() < at) {
            return Ok(known);
        }
        let begin = Instant::now();
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
        let taken = begin.elapsed();
        self.spent += taken;
        self.not_before = Some(Instant::now() + taken * PAUSE);
        Ok(known)
    }

    /// Time that look-ups took so far.
    pub(crate) fn spent(&self) -> Duration {
        self.spent
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
