//! One look-up of names, on a thread of its own: what is to be shown waits for it only as long as its caller wants.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use wcprof_capture::add_lump_cpu;
use wcprof_host::clock::children_cpu_ns;
use wcprof_host::work_cpu_ns;
use wcprof_record::TargetFiles;
use wcprof_symbols::SymbolOptions;
use wcprof_trace::model::{Frame, FrameId, SymbolFrame, Tables};
use wcprof_types::RelativeAddress;

use super::remembered::{JitPlace, Place};
use crate::args::SymbolArgs;
use crate::failure::Failure;
use crate::local_names::{Origin, jit_names};
use crate::names;

/// What is looked up.
pub(super) struct WantedNames {
    /// Of the recording, with all frames, without stacks.
    pub(super) tables: Tables,
    pub(super) recorded: Origin<'static>,
    /// Frames in files.
    pub(super) places: Vec<(FrameId, Place)>,
    /// Frames of JIT code; empty when it is not looked up.
    pub(super) jit: Vec<(FrameId, JitPlace)>,
    /// Whether one of the files was never looked into.
    pub(super) has_new_file: bool,
}

/// What a look-up found.
#[derive(Debug, Default)]
pub(super) struct FoundNames {
    /// Without those whose files may be read later.
    pub(super) places: Vec<NamedPlace>,
    /// Names of JIT code, empty ones where there are none.
    pub(super) jit: Vec<(JitPlace, Vec<SymbolFrame>)>,
    pub(super) has_new_file: bool,
    /// CPU time that it took, with that of the process that reads symbols.
    pub(super) took: Duration,
}

/// The names of a place in a file.
#[derive(Debug)]
pub(super) struct NamedPlace {
    pub(super) place: Place,
    /// Where its function starts.
    pub(super) start: Option<RelativeAddress>,
    /// From the innermost inlined function outwards; empty when there are none, which is not asked again.
    pub(super) names: Vec<SymbolFrame>,
}

/// A look-up that is under way. When it is dropped the look-up goes on, and nobody hears of it.
#[derive(Debug)]
pub(super) struct LookUp(pub(super) Receiver<Result<FoundNames, Failure>>);

impl LookUp {
    pub(super) fn begin(
        question: WantedNames,
        args: &SymbolArgs,
        options: &SymbolOptions,
    ) -> Result<Self, Failure> {
        let (args, options) = (args.clone(), options.clone());
        let (found, answer) = channel();
        let look_up = move || {
            // Nobody may listen any more.
            let _ = found.send(question.answer(&args, &options));
        };
        let thread = thread::Builder::new().name("names".to_owned());
        thread
            .spawn(look_up)
            .context("failed to start a thread that looks up names")?;
        Ok(Self(answer))
    }

    /// What was found, if that is within `patience`.
    pub(super) fn wait(&self, patience: Duration) -> Option<Result<FoundNames, Failure>> {
        match self.0.recv_timeout(patience) {
            Ok(answer) => Some(answer),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                let error = anyhow::anyhow!("the thread that looks up names panicked");
                Some(Err(Failure::from(error).hint("please report this")))
            }
        }
    }
}

impl WantedNames {
    fn answer(self, args: &SymbolArgs, options: &SymbolOptions) -> Result<FoundNames, Failure> {
        let (own, children) = (work_cpu_ns(), children_cpu_ns());
        let jit = self.jit_names(options);
        let has_new_file = self.has_new_file;
        let places = self.place_names(args, options)?;
        let own = work_cpu_ns().saturating_sub(own);
        add_lump_cpu(own);
        Ok(FoundNames {
            places,
            jit,
            has_new_file,
            took: Duration::from_nanos(own + children_cpu_ns().saturating_sub(children)),
        })
    }

    fn jit_names(&self, options: &SymbolOptions) -> Vec<(JitPlace, Vec<SymbolFrame>)> {
        if self.jit.is_empty() {
            return Vec::new();
        }
        let mut found = jit_names(&self.tables, &self.recorded, &options.cancel);
        let jit = self.jit.iter();
        jit.map(|(id, place)| (*place, found.frames.remove(id).unwrap_or_default()))
            .collect()
    }

    fn place_names(
        self,
        args: &SymbolArgs,
        options: &SymbolOptions,
    ) -> Result<Vec<NamedPlace>, Failure> {
        if self.places.is_empty() {
            return Ok(Vec::new());
        }
        let frame = |id: &FrameId| self.tables.frames.get(id.0 as usize);
        let asked: Vec<(Place, &Frame)> = self
            .places
            .iter()
            .filter_map(|(id, place)| Some((*place, frame(id)?)))
            .collect();
        let tables = Tables {
            frames: asked.iter().map(|(_, frame)| (*frame).clone()).collect(),
            ..self.tables.clone()
        };
        let files: &[TargetFiles] = &self.recorded.files;
        let (mut found, report) = names::of_recording(&tables, files, args, options)?;
        let answers = (0..).map(FrameId).zip(asked);
        let finished = answers.filter(|(at, _)| !report.unfinished.contains(at));
        Ok(finished
            .map(|(at, (place, frame))| {
                let start = match frame {
                    Frame::Native { function, .. } => *function,
                    _ => None,
                };
                let names = found.frames.remove(&at).unwrap_or_default();
                NamedPlace {
                    place,
                    start,
                    names,
                }
            })
            .collect())
    }
}
