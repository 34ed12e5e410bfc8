//! ELF images, DWARF, names: all that symbolizing reads of a module's files.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use dwarf_stream::elf::ElfFile;
use dwarf_stream::go::GoFunctions;
use dwarf_stream::{Budget, DwarfFiles, look_up};
use nix::sys::memfd::{MFdFlags, memfd_create};
use wcprof_symbols::{
    FunctionStarts, Inlines, JitCode, JitNames, MAX_NAME_CHARS, ModuleFile, ModuleFiles,
    ModuleIdentity, ModuleQuery, ModuleReport, NoFile, OpenError, SymbolOptions, TargetFile,
    jitdump_names, kernel_names, perf_map_names, short_name, symbolize_one, without_clone_suffix,
};
use wcprof_types::{Avma, Svma};

use crate::bytes::Bytes;
use crate::image::{self, COMPRESSED, Part};

/// Bytes that a section may have when it is read whole.
const MAX_SECTION: u64 = 8 << 20;
/// Addresses looked up in each executable section.
const N_ADDRESSES: u64 = 48;
/// Addresses that are looked up in DWARF at once: few, and as many as a recording has of a large program.
const FEW_ADDRESSES: u64 = 64;
const MANY_ADDRESSES: u64 = 512;
const MAX_MEMORY: u64 = 16 << 20;

/// Serves one image for every module, and perhaps one for the files that it names.
struct Image {
    module: Vec<u8>,
    split: Option<Split>,
}

/// Split DWARF.
struct Split {
    image: Vec<u8>,
    /// Many units and an index of them; else those of one file.
    is_package: bool,
}

impl Image {
    fn alone(module: Vec<u8>) -> Self {
        Self {
            module,
            split: None,
        }
    }
}

impl ModuleFiles for Image {
    fn open(&self, _module: &ModuleIdentity) -> Result<ModuleFile, OpenError> {
        Ok(ModuleFile::Bytes(self.module.clone()))
    }

    fn open_path(&self, _module: &ModuleIdentity, path: &Path) -> Result<TargetFile, OpenError> {
        let is_package = path.extension().is_some_and(|e| e == "dwp");
        let split = self.split.as_ref().filter(|s| s.is_package == is_package);
        let image = split.ok_or_else(|| NoFile::NotFound.at(path))?;
        let failed = |error: std::io::Error| NoFile::from(error).at(path);
        let file = memfd_create(c"split", MFdFlags::MFD_CLOEXEC).map_err(|e| failed(e.into()))?;
        let mut file = File::from(file);
        file.write_all(&image.image).map_err(failed)?;
        Ok(TargetFile::own(file))
    }
}

/// Names addresses all over the image; each gets a name of some kind.
fn symbolize(image: Vec<u8>, inlines: bool) {
    let _ = symbolize_all(&Image::alone(image), inlines);
}

/// What was used and what was missing.
fn symbolize_all(image: &Image, inlines: bool) -> ModuleReport {
    let mut addresses = vec![0, 1, 0x1000, u64::MAX];
    if let Ok(elf) = ElfFile::from_bytes(image.module.clone()) {
        for section in elf.sections.iter().filter(|s| s.is_executable()).take(4) {
            let step = (section.size / N_ADDRESSES).max(1);
            let all = (0..N_ADDRESSES).map(|i| section.address.wrapping_add(i * step));
            addresses.extend(all);
        }
    }
    let query = ModuleQuery {
        module: ModuleIdentity {
            path: "/fuzz/module".to_owned(),
            build_id: None,
            pid: None,
            start: None,
        },
        base: Svma(0),
        addresses: addresses.iter().map(|a| Svma(*a).into()).collect(),
    };
    let options = SymbolOptions {
        inlines: match inlines {
            true => Inlines::All,
            false => Inlines::No,
        },
        debug_dirs: Vec::new(),
        max_memory: MAX_MEMORY,
        ..SymbolOptions::default()
    };
    // A thread for each input would take most of the time.
    let module = symbolize_one(&query, image, &options);
    assert_eq!(module.frames.len(), addresses.len());
    for chain in module.frames {
        assert!(chain.last().is_some_and(|f| !f.inlined));
        assert!(chain.iter().all(|f| !f.name.is_empty()));
    }
    module.report
}

/// An ELF file as it is.
pub(crate) fn elf(data: &[u8]) {
    if let Ok(elf) = ElfFile::from_bytes(data.to_vec()) {
        let _ = (elf.build_id(), elf.debug_link(), elf.has_dwarf());
        for section in elf.sections.iter().take(64) {
            if let Ok(bytes) = elf.read(section, MAX_SECTION) {
                assert!(bytes.len() as u64 <= MAX_SECTION);
            }
        }
        if let Ok(starts) = FunctionStarts::read(&elf) {
            for address in [0, 0x1000, 0x1100, 0x2000] {
                if let Some((start, end)) = starts.function_at(Svma(address)) {
                    assert!(start.0 <= address && address < end.0);
                }
            }
        }
    }
    if let Ok(code) = wcprof_unwind::ModuleCode::parse(data) {
        let _ = (code.n_fdes(), code.heap_bytes());
        for address in [0, 0x1000, 0x1100, 0x2000] {
            let _ = (code.is_code(Svma(address)), code.file_offset(Svma(address)));
            if let Some(start) = code.fde_start(Svma(address)) {
                assert!(start.0 <= address);
            }
        }
    }
}

/// An ELF file with all that is made of it: names of addresses all over it.
pub(crate) fn module(data: &[u8]) {
    symbolize(data.to_vec(), true);
}

/// A section of any of the compressed forms: the form, the size that its header states, the
/// compressed bytes.
pub(crate) fn compressed_section(data: &[u8]) {
    let mut input = Bytes(data);
    let form = input.u8() % 3;
    let size = u64::from(input.u32());
    let mut stored = Vec::new();
    let (name, flags) = match form {
        0 | 1 => {
            stored.extend((u32::from(form) + 1).to_le_bytes());
            stored.extend([0; 4]);
            stored.extend(size.to_le_bytes());
            stored.extend(1_u64.to_le_bytes());
            (".debug_info", COMPRESSED)
        }
        _ => {
            stored.extend(b"ZLIB");
            stored.extend(size.to_be_bytes());
            (".zdebug_info", 0)
        }
    };
    stored.extend(input.0);
    let part = Part {
        flags,
        ..Part::plain(name, &stored)
    };
    let Ok(elf) = ElfFile::from_bytes(image::build(&[part])) else {
        return;
    };
    if let Some(section) = elf.debug_section("debug_info")
        && let Ok(bytes) = elf.read(section, MAX_SECTION)
    {
        assert_eq!(bytes.len() as u64, size);
    }
    // As a stream, of any size.
    look_up_in(&elf, 1);
}

/// An xz file in `.gnu_debugdata`.
pub(crate) fn mini_debug_info(data: &[u8]) {
    let parts = [
        Part {
            address: 0x1000,
            ..Part::plain(".text", &[0x90; 64])
        },
        Part::plain(".gnu_debugdata", data),
    ];
    symbolize(image::build(&parts), false);
}

/// A table of Go's functions: whether a section names it and which layout it has (`u8`), and what follows the begin of its
/// header.
pub(crate) fn go_functions(data: &[u8]) {
    let mut input = Bytes(data);
    let flags = input.u8();
    let layout = [0xfa, 0xf0, 0xf1][usize::from(flags >> 1) % 3];
    let mut table = vec![layout, 0xff, 0xff, 0xff, 0, 0, 1, 8];
    table.extend(input.0);
    let name = match flags & 1 {
        0 => ".gopclntab",
        _ => ".data.rel.ro",
    };
    let parts = [
        Part {
            address: 0x1000,
            ..Part::plain(".text", &[0x90; 4096])
        },
        Part {
            address: 0x4000,
            ..Part::plain(name, &table)
        },
        Part::plain(".note.go.buildid", &[0]),
    ];
    let image = image::build(&parts);
    if let Ok(elf) = ElfFile::from_bytes(image.clone())
        && let Ok(Some(functions)) = GoFunctions::read(&elf, MAX_SECTION)
    {
        let mut end = 0;
        for function in functions.iter() {
            assert!(end <= function.start && function.start < function.end);
            end = function.end;
            let sizes = functions.frame_sizes(function.sizes);
            assert!(sizes.count() <= table.len());
        }
    }
    if let Ok(code) = wcprof_unwind::ModuleCode::parse(&image) {
        assert!(code.heap_bytes() <= 64 * image.len() + (64 << 10));
        for address in (0x1000..0x2000).step_by(64) {
            let start = code.fde_start(Svma(address));
            assert!(start.is_none_or(|start| start.0 <= address));
        }
    }
    symbolize(image, false);
}

/// Links to other files, and notes: a size of the first (`u16`), the first, the second.
pub(crate) fn debug_links(data: &[u8]) {
    let mut input = Bytes(data);
    let which = input.u8();
    let size = input.u16().into();
    let first = input.take(size);
    let link = match which % 3 {
        0 => ".gnu_debuglink",
        1 => ".gnu_debugaltlink",
        _ => ".debug_sup",
    };
    let parts = [
        Part::plain(link, first),
        Part::plain(".note.gnu.build-id", input.0),
    ];
    let Ok(elf) = ElfFile::from_bytes(image::build(&parts)) else {
        return;
    };
    let _ = elf.build_id();
    if let Ok(Some(link)) = elf.debug_link() {
        assert!(!link.file_name.contains('/') && !link.file_name.is_empty());
    }
    if let Ok(Some(link)) = elf.alt_link() {
        assert!(!link.path.is_empty());
    }
}

/// Sections of DWARF (see [`image`]).
pub(crate) fn dwarf(data: &[u8]) {
    dwarf_of(data, FEW_ADDRESSES);
}

/// The same for inputs that make much work: of many ranges, units, addresses.
pub(crate) fn dwarf_many(data: &[u8]) {
    dwarf_of(data, MANY_ADDRESSES);
}

fn dwarf_of(data: &[u8], n_addresses: u64) {
    let parts = image::parts(&mut Bytes(data));
    if let Ok(elf) = ElfFile::from_bytes(image::build(&parts)) {
        look_up_in(&elf, n_addresses);
    }
}

fn look_up_in(elf: &ElfFile, n_addresses: u64) {
    let files = DwarfFiles {
        main: elf,
        supplementary: None,
        split: None,
    };
    let addresses: Vec<u64> = (0x1000..0x1000 + n_addresses).collect();
    if let Ok(found) = look_up(files, &addresses, &Budget::new(MAX_MEMORY)) {
        assert_eq!(found.frames.len(), addresses.len());
    }
}

/// A module and the split DWARF that it names: whether that is a package (`u8`), bytes of the module's
/// sections (`u16`), its sections, those of the other file (see [`image`]).
pub(crate) fn split_dwarf(data: &[u8]) {
    let _ = symbolize_all(&split_image(data), true);
}

fn split_image(data: &[u8]) -> Image {
    let mut input = Bytes(data);
    let is_package = input.u8() % 2 == 1;
    let size = input.u16().into();
    let module = image::parts(&mut Bytes(input.take(size)));
    let split = image::parts(&mut input);
    Image {
        module: image::build(&module),
        split: Some(Split {
            image: image::build(&split),
            is_package,
        }),
    }
}

/// What names code that is in no file: which (`u8`), and a perf map, the records of a jitdump, or the
/// kernel's list.
pub(crate) fn runtime_names(data: &[u8]) {
    const KERNEL: u64 = 0xffff_ffff_8100_0000;
    let Some((which, rest)) = data.split_first() else {
        return;
    };
    let near = (0..64).map(|i| 0x1000 + i);
    let addresses: Vec<Avma> = [0, 1, KERNEL, KERNEL + 0x100, u64::MAX]
        .into_iter()
        .chain(near)
        .map(Avma)
        .collect();
    let of_jit = |found: JitNames| {
        let functions = |code: JitCode| [Some(code.function.name), code.function.file];
        let of_address = |codes: Vec<JitCode>| codes.into_iter().flat_map(functions).collect();
        found.codes.into_iter().map(of_address).collect()
    };
    let names: Option<Vec<Vec<Option<String>>>> = match which % 3 {
        0 => perf_map_names(rest, &addresses).ok().map(of_jit),
        1 => jitdump_names(jitdump(rest).as_slice(), &addresses)
            .ok()
            .map(of_jit),
        _ => kernel_names(rest, &addresses)
            .ok()
            .map(|names| names.into_iter().map(|name| vec![name]).collect()),
    };
    let Some(names) = names else {
        return;
    };
    assert_eq!(names.len(), addresses.len());
    let names = names.into_iter().flatten().flatten();
    for name in names {
        assert!(!name.chars().any(char::is_control));
        assert!(name.chars().count() <= 10 * (MAX_NAME_CHARS + 1));
    }
}

/// Records behind a header of version 1, whose times are of `CLOCK_MONOTONIC`.
fn jitdump(records: &[u8]) -> Vec<u8> {
    let mut dump = Vec::new();
    for word in [0x4a69_5444_u32, 1, 40, 62, 0, 1, 0, 0, 0, 0] {
        dump.extend(word.to_ne_bytes());
    }
    dump.extend(records);
    dump
}

/// A linkage name.
pub(crate) fn demangle(data: &[u8]) {
    if let Ok(name) = std::str::from_utf8(data) {
        let text = itanium_demangle::demangle(name);
        assert!(text.is_none() || name.starts_with("_Z"));
    }
    let name = wcprof_symbols::demangle(data);
    assert_eq!(name.is_empty(), data.is_empty());
    // An escape of a control character is longer than it.
    assert!(name.chars().count() <= 10 * (MAX_NAME_CHARS + 1));
    assert!(!name.chars().any(char::is_control));
    let short = short_name(&name);
    assert!(short.len() <= 2 * name.len() + 64);
    let _ = without_clone_suffix(&name);
}

#[cfg(test)]
mod tests {
    use wcprof_symbols::SourceKind;

    use super::*;

    /// Check that inputs of the corpus lead to the other file of split DWARF, of each kind.
    #[test]
    fn reaches_split_dwarf() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/split_dwarf");
        let mut found = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let data = std::fs::read(entry.unwrap().path()).unwrap();
            let report = symbolize_all(&split_image(&data), true);
            found.extend(report.sources.into_iter().map(|source| source.kind));
        }
        for kind in [SourceKind::SplitPackage, SourceKind::SplitObject] {
            assert!(found.contains(&kind), "{kind}");
        }
    }
}
