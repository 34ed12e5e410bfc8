//! Names of functions while a recording runs: looked up once, and within a part of the time alone.

mod look_up;
mod pauses;
mod remembered;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use wcprof_profile::model::{Detail, Profile};
use wcprof_profile::{LockTimes, ProfileBuilder, Rules};
use wcprof_record::{NamedSnapshot, UnmappedFrames};
use wcprof_symbols::SymbolOptions;
use wcprof_trace::model::{Frame, FrameId, SymbolFrame, SymbolTable, Tables};
use wcprof_trace::ring::Cut;
use wcprof_types::TimeNs;

use crate::args::SymbolArgs;
use crate::failure::Failure;
use crate::local_names::{Origin, place_of_code, place_of_jit};
use look_up::{LookUp, WantedNames};
use pauses::{PAUSE, Pauses};
use remembered::{JitPlace, Place, Remembered};

/// JIT code without a name is asked for again after this.
const JIT_AGAIN: Duration = Duration::from_secs(10);
/// Names remembered; beyond it those that are not in use are forgotten.
const MAX_NAMES: usize = 1 << 18;

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
    under_way: Option<LookUp>,
    /// How long a profile waits for a look-up; a later one has its names, or the one after that.
    patience: Duration,
    /// CPU time that look-ups took so far.
    pub(crate) spent: Duration,
    /// Which frames of one function are kept apart in profiles.
    detail: Detail,
}

/// Frames of a recording, by whether they have a name.
#[derive(Default)]
struct Sorted {
    known: SymbolTable,
    /// Without a name, or with that of their function alone.
    new: Vec<(FrameId, Place)>,
    jit: Vec<(FrameId, JitPlace)>,
}

impl LiveNames {
    /// For profiles that each wait up to `patience` for a look-up that begins with them.
    pub(crate) fn new(patience: Duration) -> Self {
        Self {
            remembered: Remembered::default(),
            n_asked: 0,
            jit: HashMap::new(),
            jit_asked: None,
            pauses: Pauses::up_to(PAUSE),
            under_way: None,
            patience,
            spent: Duration::ZERO,
            detail: Detail::default(),
        }
    }

    /// The same of profiles in which frames of one function are kept apart like this.
    pub(crate) fn with_detail(self, detail: Detail) -> Self {
        Self { detail, ..self }
    }

    /// The same with pauses between look-ups that grow to so many times what one takes.
    pub(crate) fn with_longest_pause(self, longest: u32) -> Self {
        let pauses = Pauses::up_to(longest);
        Self { pauses, ..self }
    }

    /// Whether names of the last profile are still looked up.
    pub(crate) fn is_late(&self) -> bool {
        self.under_way.is_some()
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
        let symbols = self.known(tables, Origin::of_cut(kept, cut), args, options)?;
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
        recorded: Origin<'static>,
        args: &SymbolArgs,
        options: &SymbolOptions,
    ) -> Result<SymbolTable, Failure> {
        self.take_answer(Duration::ZERO)?;
        self.forget_if_many();
        let unmapped = recorded.unmapped.clone();
        let mut sorted = self.sort(tables, &unmapped);
        if let Some(question) = self.question(&sorted, tables, recorded) {
            self.n_asked = self.remembered.n_files();
            self.under_way = Some(LookUp::begin(question, args, options)?);
            self.take_answer(self.patience)?;
            sorted = self.sort(tables, &unmapped);
        }
        let Sorted { mut known, jit, .. } = sorted;
        for (id, place) in &jit {
            let names = self.jit.get(place).filter(|names| !names.is_empty());
            let frame = tables.frames.get(id.0 as usize);
            let stand_in = || place_of_code(&unmapped, *id, frame?);
            let names = names.cloned().or_else(|| Some(vec![stand_in()?]));
            known.frames.extend(names.map(|names| (*id, names)));
        }
        Ok(known)
    }

    /// What is to be looked up now, if anything is.
    fn question(
        &mut self,
        sorted: &Sorted,
        tables: &Tables,
        recorded: Origin<'static>,
    ) -> Option<WantedNames> {
        let new = &sorted.new;
        let has_new_file = new.iter().any(|(_, (file, _))| *file >= self.n_asked);
        let now = Instant::now();
        // A compiler may write the name after the code ran.
        let ask_again = self.jit_asked.is_none_or(|at| now - at > JIT_AGAIN);
        let is_new = |(_, place): &(FrameId, JitPlace)| match self.jit.get(place) {
            Some(names) => names.is_empty() && ask_again,
            None => true,
        };
        let has_new_jit = sorted.jit.iter().any(is_new);
        let has_new = !new.is_empty() || has_new_jit;
        if !has_new || self.under_way.is_some() || !self.pauses.may_ask(now, has_new_file) {
            return None;
        }
        if has_new_jit {
            self.jit_asked = Some(now);
        }
        Some(WantedNames {
            tables: Tables {
                nodes: Vec::new(),
                stacks: Vec::new(),
                ..tables.clone()
            },
            recorded,
            places: new.clone(),
            jit: if has_new_jit {
                sorted.jit.clone()
            } else {
                Vec::new()
            },
            has_new_file,
        })
    }

    /// Notes what the look-up that is under way found, if that is within `patience`.
    fn take_answer(&mut self, patience: Duration) -> Result<(), Failure> {
        let answer = self.under_way.as_ref();
        let Some(answer) = answer.and_then(|look_up| look_up.wait(patience)) else {
            return Ok(());
        };
        self.under_way = None;
        let answer = answer?;
        for found in &answer.places {
            self.remembered.note(found.place, found.start, &found.names);
        }
        for (place, names) in answer.jit {
            let known = self.jit.entry(place).or_default();
            // What has no name any more keeps the one that it had.
            if !names.is_empty() {
                *known = names;
            }
        }
        self.spent += answer.took;
        self.pauses
            .begin(Instant::now(), answer.took, answer.has_new_file);
        Ok(())
    }

    fn forget_if_many(&mut self) {
        // A look-up that is under way has the numbers of files.
        let may_forget = self.under_way.is_none();
        if may_forget && self.remembered.n_places() + self.jit.len() > MAX_NAMES {
            self.remembered = Remembered::default();
            self.jit.clear();
            self.n_asked = 0;
        }
    }

    /// Takes the names that are known.
    fn sort(&mut self, tables: &Tables, unmapped: &UnmappedFrames) -> Sorted {
        let modules = tables.modules.iter();
        let files: Vec<u32> = modules
            .map(|module| self.remembered.file(tables, module))
            .collect();
        let mut sorted = Sorted::default();
        for (id, frame) in (0..).map(FrameId).zip(&tables.frames) {
            if let Some((process, address)) = place_of_jit(unmapped, id, frame)
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
            sorted.new.push((id, place));
        }
        sorted
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use wcprof_types::RelativeAddress;

    use super::look_up::{FoundNames, NamedPlace};
    use super::*;

    /// Check that nothing waits for a look-up beyond its patience, that what it finds is known afterwards, and that one that
    /// ends without an answer is an error once.
    #[test]
    fn late_answer() {
        let mut names = LiveNames::new(Duration::ZERO);
        let (found, look_up) = channel();
        names.under_way = Some(LookUp(look_up));
        names.take_answer(Duration::ZERO).unwrap();
        assert!(names.is_late());
        let place = (0, RelativeAddress(0x123));
        let symbol = SymbolFrame {
            name: "f".to_owned(),
            ..SymbolFrame::default()
        };
        let answer = FoundNames {
            places: vec![NamedPlace {
                place,
                start: None,
                names: vec![symbol.clone()],
            }],
            took: Duration::from_millis(7),
            ..FoundNames::default()
        };
        found.send(Ok(answer)).unwrap();
        names.take_answer(Duration::ZERO).unwrap();
        assert!(!names.is_late());
        assert_eq!(names.remembered.names(place), Some(vec![symbol]));
        assert_eq!(names.spent, Duration::from_millis(7));
        names.under_way = Some(LookUp(channel().1));
        let panicked = names.take_answer(Duration::ZERO).unwrap_err();
        assert!(panicked.to_string().contains("panicked"), "{panicked}");
        names.take_answer(Duration::ZERO).unwrap();
    }
}
