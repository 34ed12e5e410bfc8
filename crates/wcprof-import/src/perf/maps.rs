//! Mappings of processes, and addresses to frames.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use wcprof_symbols::elf::{ElfFile, Segment};
use wcprof_symbols::open_regular_in_time;
use wcprof_trace::model::{Frame, Module, ModuleId, ProcessId};
use wcprof_types::{Avma, BuildId, FileOffset, LoadBias, Mapping, RelativeAddress, Svma};
use wcprof_unwind::load_bias;

use crate::builder::{Builder, cut};
use crate::error::Result;

const PT_LOAD: u32 = 1;

/// A file mapping.
#[derive(Clone, Debug)]
pub(super) struct Map {
    pub(super) end: u64,
    pub(super) offset: u64,
    /// A process that is forked shares it.
    pub(super) path: Arc<str>,
    pub(super) build_id: Option<BuildId>,
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
            module: None,
        }
    }

    /// As the kernel would list it; it is of code.
    pub(super) fn mapping(&self, start: u64) -> Mapping {
        Mapping {
            start: Avma(start),
            end: Avma(self.end),
            readable: true,
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
    ) -> Result<Frame> {
        let found = self.by_start.range_mut(..=address).next_back();
        let Some((&start, map)) = found.filter(|(_, map)| address < map.end) else {
            return Ok(Frame::Unmapped(Avma(address)));
        };
        if !map.path.starts_with('/') && &*map.path != "[vdso]" {
            return Ok(Frame::Unmapped(Avma(address)));
        }
        let (module, bias, base) = match map.module {
            Some(known) => known,
            None => {
                let (bias, base) = files.bias(start, map);
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
pub(super) struct Files(HashMap<(String, BuildId), Option<Vec<Segment>>>);

impl Files {
    /// The load bias of a mapping, and the base that relative addresses count from. Without the file, addresses are
    /// taken to be offsets.
    fn bias(&mut self, start: u64, map: &Map) -> (LoadBias, Svma) {
        let loads = map.build_id.as_ref().and_then(|build_id| {
            let key = (map.path.to_string(), build_id.clone());
            let known = self.0.entry(key);
            let loads = known.or_insert_with(|| loads(&map.path, build_id));
            loads.as_deref()
        });
        let base = loads
            .and_then(<[_]>::first)
            .map_or(0, |s| s.address & !0xfff);
        let bias = loads.and_then(|loads| load_bias(loads, &map.mapping(start)));
        let as_offset = LoadBias(start.wrapping_sub(map.offset));
        (bias.unwrap_or(as_offset), Svma(base))
    }
}

fn loads(path: &str, build_id: &BuildId) -> Option<Vec<Segment>> {
    let file = open_regular_in_time(Path::new(path)).ok()?;
    let elf = ElfFile::from_file(file).ok()?;
    if elf.build_id().as_deref() != Some(build_id.as_bytes()) {
        return None;
    }
    let loads = elf.segments.into_iter();
    Some(loads.filter(|s| s.kind == PT_LOAD).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that code that shares a page of the file with what is before it (as LLD lays it out) has its own bias.
    #[test]
    fn shared_page() {
        let load = |flags, offset, address| Segment {
            kind: PT_LOAD,
            flags,
            offset,
            address,
            file_size: 0x1140,
            memory_size: 0x1140,
            align: 0x1000,
        };
        let build_id = BuildId::new(&[1; 20]).expect("a build-id");
        let key = ("/a".to_owned(), build_id.clone());
        let loads = vec![load(4, 0, 0), load(5, 0x1140, 0x2140)];
        let mut files = Files(HashMap::from([(key, Some(loads))]));
        let mut bias = |offset, build_id| {
            files
                .bias(0x7000, &Map::new(0x9000, offset, b"/a", build_id))
                .0
        };
        assert_eq!(bias(0x1000, Some(build_id)), LoadBias(0x5000));
        assert_eq!(bias(0x1000, None), LoadBias(0x6000));
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
