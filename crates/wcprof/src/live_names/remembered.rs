//! Names that were looked up, by file and address.

use std::collections::HashMap;

use wcprof_export::Strings;
use wcprof_trace::model::{Module, ProcessId, SymbolFrame, Tables};
use wcprof_types::{Avma, BuildId, Pid, RelativeAddress};

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
type FileKey = (Option<(Pid, Avma)>, Option<BuildId>, String);

/// An address in a file, by the file's number.
pub(super) type Place = (u32, RelativeAddress);

/// JIT code of a process.
pub(super) type JitPlace = (Pid, Avma);

/// Names of places.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    files: HashMap<FileKey, u32>,
    names: HashMap<Place, Box<[NumberedFrame]>>,
    /// Of functions by their start, without what is inlined there: for places in them that were not looked up yet.
    functions: HashMap<Place, NumberedFrame>,
    texts: Strings,
}

impl Remembered {
    /// The number of the file that a module is mapped from.
    pub(super) fn file(&mut self, tables: &Tables, module: &Module) -> u32 {
        let pid = |id: ProcessId| tables.processes.get(id.0 as usize).map(|p| p.pid);
        let mapped = module.build_id.is_none().then_some(module);
        let key = (
            mapped.and_then(|module| Some((pid(module.process)?, module.start))),
            module.build_id.clone(),
            module.path.clone(),
        );
        let next = self.n_files();
        *self.files.entry(key).or_insert(next)
    }

    pub(super) fn n_files(&self) -> u32 {
        u32::try_from(self.files.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn n_places(&self) -> usize {
        self.names.len()
    }

    /// What the look-up of a place gave, which may be no name; `None` before.
    pub(super) fn names(&self, place: Place) -> Option<Vec<SymbolFrame>> {
        let names = self.names.get(&place)?.iter();
        Some(names.map(|frame| frame.to_symbol(&self.texts)).collect())
    }

    /// The function that starts there.
    pub(super) fn function(&self, start: Place) -> Option<SymbolFrame> {
        Some(self.functions.get(&start)?.to_symbol(&self.texts))
    }

    /// Notes the names of a place, and the function that it is in, by its start. Only debug information says that it is
    /// one: a table of stubs has one entry of call frame information, too.
    pub(super) fn note(
        &mut self,
        place: Place,
        start: Option<RelativeAddress>,
        names: &[SymbolFrame],
    ) {
        let numbered = names
            .iter()
            .map(|frame| NumberedFrame::new(frame, &mut self.texts));
        let numbered: Box<[_]> = numbered.collect();
        if let (Some(start), Some(name), Some(function)) = (start, names.last(), numbered.last())
            && name.file.is_some()
        {
            let function = NumberedFrame {
                line: None,
                ..*function
            };
            self.functions.insert((place.0, start), function);
        }
        self.names.insert(place, numbered);
    }
}

#[cfg(test)]
mod tests {
    use wcprof_trace::model::Process;

    use super::*;

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
        let mut names = Remembered::default();
        let numbers: Vec<_> = tables
            .modules
            .iter()
            .map(|module| names.file(&tables, module))
            .collect();
        assert_eq!(numbers, [0, 0, 1, 2]);
    }

    /// Check that a function is known by its start if debug information named it, without what is inlined at one place.
    #[test]
    fn function_of_new_place() {
        let mut names = Remembered::default();
        let symbol = |name: &str, file: Option<&str>, inlined| SymbolFrame {
            name: name.to_owned(),
            file: file.map(str::to_owned),
            line: Some(7),
            inlined,
            resolved: true,
        };
        let inlined = symbol("inlined", Some("a.h"), true);
        let outer = symbol("outer", Some("a.cc"), false);
        let [place, known, stub] = [0x123, 0x100, 0x200].map(RelativeAddress);
        names.note((5, place), Some(known), &[inlined.clone(), outer.clone()]);
        names.note((5, stub), Some(stub), &[symbol("stub@plt", None, false)]);
        assert_eq!(names.names((5, place)), Some(vec![inlined, outer.clone()]));
        let without_line = SymbolFrame {
            line: None,
            ..outer
        };
        assert_eq!(names.function((5, known)), Some(without_line));
        for start in [(5, stub), (6, known)] {
            assert_eq!(names.function(start), None);
        }
    }
}
