//! Mapped files of a core to loaded images: their build-ids by memory, their code by the files that have these build-ids.

use std::collections::HashMap;
use std::sync::Arc;

use wcprof_trace::model::{Frame, Module, ModuleId, ProcessId};
use wcprof_types::{
    Avma, BuildId, FileOffset, LoadBias, Mapping, RelativeAddress, StackEnd, Svma, VDSO, undeleted,
};
use wcprof_unwind::{TextMemory, Unwinder};

use super::elf::build_id;
use super::memory::CoreMemory;
use crate::builder::{Builder, cut};
use crate::code::CodeFiles;
use crate::error::Result;
use crate::identified_file::IdentifiedFile;

/// Bytes of call frame information in memory, of all images.
const MAX_CODE_BYTES: usize = 128 << 20;

/// A file as it is loaded: its mappings one behind the other.
#[derive(Debug)]
pub(super) struct Image {
    /// The first is that of its beginning.
    maps: Vec<Mapping>,
    build_id: Option<BuildId>,
    code: Option<(LoadBias, Arc<IdentifiedFile>)>,
    /// Once an address in it was met.
    module: Option<ModuleId>,
}

impl Image {
    fn start(&self) -> Avma {
        self.maps[0].start
    }

    fn end(&self) -> Avma {
        self.maps.last().map_or(Avma(0), |map| map.end)
    }

    fn path(&self) -> &str {
        undeleted(&self.maps[0].path)
    }

    /// Load bias, and the base that relative addresses count from. Without the file, addresses are taken to be offsets in it.
    fn bias(&self) -> (LoadBias, Svma) {
        let start = &self.maps[0];
        let as_offset = LoadBias(start.start.0.wrapping_sub(start.offset.0));
        self.code
            .as_ref()
            .map_or((as_offset, Svma(0)), |(bias, file)| {
                (*bias, file.code.base())
            })
    }
}

/// The images of a process, by address.
#[derive(Debug, Default)]
pub(super) struct Images {
    all: Vec<Image>,
    /// Files with the build-ids that are in memory, but not on this machine.
    pub(super) missing: Vec<String>,
    /// Files whose build-id is not in the core, so that none can be compared with it.
    pub(super) unidentified: Vec<String>,
}

impl Images {
    /// Those of mapped files, in the order of their addresses. Mappings of one file belong together where no other one is between
    /// them and their places in the file grow.
    pub(super) fn new(files: Vec<Mapping>) -> Self {
        let mut all: Vec<Image> = Vec::new();
        for map in files {
            match all.last_mut() {
                Some(image)
                    if image.maps.last().is_some_and(|before| {
                        before.path == map.path && before.offset < map.offset
                    }) =>
                {
                    image.maps.push(map);
                }
                _ => all.push(Image {
                    maps: vec![map],
                    build_id: None,
                    code: None,
                    module: None,
                }),
            }
        }
        Self {
            all,
            ..Self::default()
        }
    }

    /// The addresses where images begin.
    pub(super) fn starts(&self) -> impl Iterator<Item = u64> {
        let begins = self.all.iter().filter(|image| image.maps[0].offset.0 == 0);
        begins.map(|image| image.start().0)
    }

    /// Finds the files of those whose build-id is in memory. `is_code`: whether a mapping was dumped, or left out, as code.
    pub(super) fn find(
        &mut self,
        memory: &CoreMemory,
        is_code: impl Fn(&Mapping) -> bool,
        code: &mut dyn CodeFiles,
    ) {
        let mut known: HashMap<(String, BuildId), Option<Arc<IdentifiedFile>>> = HashMap::new();
        let mut room = MAX_CODE_BYTES;
        for image in &mut self.all {
            let path = image.path().to_owned();
            image.build_id = build_id(memory.from(image.start().0));
            let Some(build_id) = &image.build_id else {
                // gdb leaves segments with code out, so that a core of it does not tell which files have some.
                if image.maps.iter().any(&is_code) {
                    self.unidentified.push(path);
                }
                continue;
            };
            let key = (path, build_id.clone());
            let found = known.entry(key).or_insert_with_key(|(path, build_id)| {
                let found = IdentifiedFile::find(code, path, build_id, room);
                room -= found.as_ref().map_or(0, |file| file.code.heap_bytes());
                found.map(Arc::new)
            });
            let loaded = found.as_ref().and_then(|file| {
                let bias = image.maps.iter().find_map(|map| file.code.load_bias(map))?;
                Some((bias, Arc::clone(file)))
            });
            if loaded.is_none() {
                self.missing.push(image.path().to_owned());
            }
            image.code = loaded;
        }
    }

    /// Adds the vdso, whose image is in the core.
    pub(super) fn add_vdso(&mut self, start: u64, bytes: &[u8]) {
        let Some(file) = IdentifiedFile::of_image(bytes.to_vec()) else {
            return;
        };
        let map = Mapping {
            start: Avma(start),
            end: Avma(start.saturating_add(bytes.len() as u64)),
            readable: true,
            mutable: false,
            executable: true,
            offset: FileOffset(0),
            device: (0, 0),
            inode: 0,
            path: VDSO.to_owned(),
        };
        let bias = file.code.load_bias(&map).unwrap_or(LoadBias(start));
        let at = self.all.partition_point(|image| image.start() < map.start);
        let image = Image {
            build_id: file.code.build_id().cloned(),
            code: Some((bias, Arc::new(file))),
            maps: vec![map],
            module: None,
        };
        self.all.insert(at, image);
    }

    /// An unwinder that knows them.
    pub(super) fn unwinder(&self) -> Unwinder {
        let mut unwinder = Unwinder::default();
        for image in &self.all {
            let file = image.code.as_ref();
            let bias = file.map_or(LoadBias(0), |(bias, _)| *bias);
            let code = file.map(|(_, file)| Arc::clone(&file.code));
            let code = code.ok_or(StackEnd::ModuleUnreadable);
            unwinder.add_module(image.start(), image.end(), bias, code);
        }
        unwinder
    }

    /// Which image an address is in.
    fn at(&self, address: Avma) -> Option<usize> {
        let after = self.all.partition_point(|image| image.start() <= address);
        let at = after.checked_sub(1)?;
        (address < self.all[at].end()).then_some(at)
    }

    /// The frame of a lookup address.
    ///
    /// # Errors
    /// When there are more modules than a trace holds.
    pub(super) fn frame(
        &mut self,
        address: Avma,
        process: ProcessId,
        builder: &mut Builder,
    ) -> Result<Frame> {
        let Some(at) = self.at(address) else {
            return Ok(Frame::Unmapped(address));
        };
        let image = &mut self.all[at];
        let (bias, base) = image.bias();
        let module = match image.module {
            Some(module) => module,
            None => {
                let module = builder.module(Module {
                    process,
                    path: cut(image.path()).to_owned(),
                    build_id: image.build_id.clone(),
                    start: image.start(),
                    end: image.end(),
                    offset: image.maps[0].offset,
                    bias,
                    base,
                    deleted: image.maps[0].path.ends_with(" (deleted)"),
                })?;
                *image.module.insert(module)
            }
        };
        let svma = bias.to_svma(address);
        let relative = |svma: Svma| RelativeAddress(svma.0.wrapping_sub(base.0));
        let function = image
            .code
            .as_ref()
            .and_then(|(_, file)| file.code.fde_start(svma));
        Ok(Frame::Native {
            module,
            address: relative(svma),
            function: function.map(relative),
        })
    }
}

/// Code bytes: a core has none of files, as they are there.
impl TextMemory for &Images {
    fn read_text(&mut self, address: Avma, bytes: &mut [u8]) -> bool {
        let code = self.at(address).and_then(|at| self.all[at].code.as_ref());
        code.is_some_and(|(bias, file)| file.read_text(*bias, address, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that mappings of a file are one image, and two images of a file are two.
    #[test]
    fn grouped() {
        let map = |start: u64, offset: u64, path: &str| Mapping {
            start: Avma(start),
            end: Avma(start + 0x1000),
            readable: true,
            mutable: false,
            executable: false,
            offset: FileOffset(offset),
            device: (0, 0),
            inode: 0,
            path: path.to_owned(),
        };
        let images = Images::new(vec![
            map(0x1000, 0, "/a"),
            map(0x2000, 0x1000, "/a"),
            map(0x5000, 0x2000, "/a"),
            map(0x6000, 0, "/a"),
            map(0x8000, 0, "/b"),
        ]);
        let seen: Vec<_> = images
            .all
            .iter()
            .map(|i| (i.start().0, i.end().0))
            .collect();
        assert_eq!(seen, [(0x1000, 0x6000), (0x6000, 0x7000), (0x8000, 0x9000)]);
    }
}
