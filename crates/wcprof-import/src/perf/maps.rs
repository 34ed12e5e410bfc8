//! Mappings of processes, and addresses to frames.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use wcprof_symbols::elf::ElfFile;
use wcprof_trace::model::{Frame, Module, ModuleId, ProcessId};
use wcprof_types::{Avma, BuildId, FileOffset, LoadBias, Mapping, RelativeAddress, Svma, VDSO};
use wcprof_unwind::Loads;

use super::jit::is_anonymous;
use crate::builder::{Builder, cut};
use crate::code::{CodeFiles, SeenFile, WantedFile};
use crate::error::Result;

/// A file mapping.
#[derive(Clone, Debug)]
pub(super) struct Map {
    pub(super) end: u64,
    pub(super) offset: u64,
    /// A process that is forked shares it.
    pub(super) path: Arc<str>,
    pub(super) build_id: Option<BuildId>,
    /// Which file it is, where perf says that in place of the build-id.
    pub(super) seen: Option<SeenFile>,
    /// Once an address in it was met.
    module: Option<(ModuleId, LoadBias, Svma)>,
}

impl Map {
    pub(super) fn new(end: u64, offset: u64, path: &[u8], build_id: Option<BuildId>) -> Self {
        Self {
            end,
            offset,
            path: cut(&String::from_utf8_lossy(path)).into(),
            build_id,
            seen: None,
            module: None,
        }
    }

    /// As the kernel would list it; it is of code.
    pub(super) fn mapping(&self, start: u64) -> Mapping {
        Mapping {
            start: Avma(start),
            end: Avma(self.end),
            readable: true,
            mutable: false,
            executable: true,
            offset: FileOffset(self.offset),
            device: (0, 0),
            inode: 0,
            path: "".into(),
        }
    }
}

/// Mappings of a process, by begin.
#[derive(Clone, Debug, Default)]
pub(super) struct Maps {
    pub(super) by_start: BTreeMap<u64, Map>,
    /// Begins of those that came or were cut since this was last taken, in that order.
    pub(super) changes: Vec<u64>,
}

impl Maps {
    /// Adds a mapping; what it covers is gone.
    pub(super) fn add(&mut self, start: u64, map: Map) {
        if start >= map.end {
            return;
        }
        let covered: Vec<u64> = self
            .by_start
            .range(..map.end)
            .rev()
            .take_while(|(_, old)| old.end > start)
            .map(|(&at, _)| at)
            .collect();
        // The new one first: it takes the place of what it covers a part of.
        self.changes.push(start);
        for at in covered {
            if at >= start {
                self.by_start.remove(&at);
            } else if let Some(old) = self.by_start.get_mut(&at) {
                old.end = start;
                self.changes.push(at);
            }
        }
        self.by_start.insert(start, map);
    }

    /// For a child: the same mappings, whose modules are its own.
    pub(super) fn inherited(&self) -> Self {
        let mut maps = self.clone();
        maps.by_start.values_mut().for_each(|map| map.module = None);
        maps
    }

    /// The frame of a lookup address in user space.
    pub(super) fn frame(
        &mut self,
        address: u64,
        process: ProcessId,
        builder: &mut Builder,
        files: &mut Files,
        code: &mut dyn CodeFiles,
    ) -> Result<Frame> {
        let found = self.by_start.range_mut(..=address).next_back();
        let Some((&start, map)) = found.filter(|(_, map)| address < map.end) else {
            return Ok(Frame::Unmapped(Avma(address)));
        };
        if is_anonymous(&map.path) && &*map.path != VDSO {
            return Ok(Frame::Unmapped(Avma(address)));
        }
        let (module, bias, base) = match map.module {
            Some(known) => known,
            None => {
                let (bias, base) = files.bias(start, map, code);
                let module = builder.module(Module {
                    process,
                    path: map.path.to_string(),
                    build_id: map.build_id.clone(),
                    start: Avma(start),
                    end: Avma(map.end),
                    offset: FileOffset(map.offset),
                    bias,
                    base,
                    deleted: false,
                })?;
                *map.module.insert((module, bias, base))
            }
        };
        let svma = bias.to_svma(Avma(address));
        Ok(Frame::Native {
            module,
            address: RelativeAddress(svma.0.wrapping_sub(base.0)),
            function: None,
        })
    }
}

/// Loadable segments of the files of this machine that have the recorded build-id.
#[derive(Debug, Default)]
pub(super) struct Files(HashMap<(String, BuildId), Option<Loads>>);

impl Files {
    /// The load bias of a mapping, and the base that relative addresses count from. Without the file, addresses are
    /// taken to be offsets.
    fn bias(&mut self, start: u64, map: &Map, code: &mut dyn CodeFiles) -> (LoadBias, Svma) {
        let loads = map.build_id.as_ref().and_then(|build_id| {
            let key = (map.path.to_string(), build_id.clone());
            let known = self.0.entry(key);
            let loads = known.or_insert_with(|| loads(&map.path, build_id, code));
            loads.as_ref()
        });
        let base = loads.map_or(Svma(0), Loads::base);
        let bias = loads.and_then(|loads| loads.bias(&map.mapping(start)));
        let as_offset = LoadBias(start.wrapping_sub(map.offset));
        (bias.unwrap_or(as_offset), base)
    }
}

fn loads(path: &str, build_id: &BuildId, code: &mut dyn CodeFiles) -> Option<Loads> {
    let file = code.open(&WantedFile::AtPath(path.to_owned(), build_id.clone()))?;
    let elf = ElfFile::from_file(file).ok()?;
    match elf.build_id().as_deref() == Some(build_id.as_bytes()) {
        true => Loads::of(&elf).ok(),
        false => None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use wcprof_symbols::{LocalFiles, SymbolOptions, open_regular_in_time};

    use super::*;
    use crate::code::MachineCode;

    /// Check the load bias of the code of this program, with its file and without: the first mapping of a program
    /// that can lie anywhere shows where it was loaded.
    #[test]
    fn own_bias() {
        let path = std::env::current_exe().expect("own path");
        let path = path.to_str().expect("UTF-8");
        let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
        let own: Vec<Vec<&str>> = (maps.lines().filter(|line| line.ends_with(path)))
            .map(|line| line.split_whitespace().collect())
            .collect();
        let hex = |text: &str| u64::from_str_radix(text, 16).expect("hexadecimal");
        let start = |fields: &[&str]| hex(fields[0].split_once('-').expect("a range").0);
        let code = own.iter().find(|fields| fields[1].contains('x'));
        let code = code.expect("code");
        let elf = ElfFile::from_file(open_regular_in_time(Path::new(path)).expect("own file"));
        let build_id = elf.expect("an ELF file").build_id();
        let build_id = BuildId::new(&build_id.expect("a build-id")).expect("a build-id");
        let options = SymbolOptions::default();
        let bias = |build_id| {
            let map = Map::new(u64::MAX, hex(code[2]), path.as_bytes(), build_id);
            let mut here = MachineCode::new(&LocalFiles, &options);
            Files::default().bias(start(code), &map, &mut here)
        };
        assert_eq!(bias(Some(build_id)), (LoadBias(start(&own[0])), Svma(0)));
        let offset = LoadBias(start(code) - hex(code[2]));
        assert_eq!(bias(None), (offset, Svma(0)));
    }

    /// Check that a new mapping takes the place of what it covers.
    #[test]
    fn covers() {
        let mut maps = Maps::default();
        let map = |end, path: &str| Map::new(end, 0, path.as_bytes(), None);
        maps.add(0x1000, map(0x5000, "/a"));
        maps.add(0x3000, map(0x4000, "/b"));
        maps.add(0x3800, map(0x6000, "/c"));
        let found: Vec<_> = maps
            .by_start
            .iter()
            .map(|(start, map)| (*start, map.end, &*map.path))
            .collect();
        let expected = [
            (0x1000, 0x3000, "/a"),
            (0x3000, 0x3800, "/b"),
            (0x3800, 0x6000, "/c"),
        ];
        assert_eq!(found, expected);
        assert_eq!(maps.changes, [0x1000, 0x3000, 0x1000, 0x3800, 0x3000]);
    }
}
