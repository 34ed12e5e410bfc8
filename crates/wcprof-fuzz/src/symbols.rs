//! ELF images, DWARF, names: all that symbolizing reads of a module's files.

use std::fs::File;
use std::path::Path;

use wcprof_symbols::elf::ElfFile;
use wcprof_symbols::{
    AddressQuery, FunctionStarts, MAX_NAME_CHARS, ModuleFile, ModuleFiles, ModuleIdentity,
    ModuleQuery, OpenError, SymbolOptions, fuzz, short_name, symbolize_modules,
    without_clone_suffix,
};
use wcprof_types::Svma;

use crate::bytes::Bytes;
use crate::image::{self, COMPRESSED, Part};

/// Bytes that a section may have when it is read whole.
const MAX_SECTION: u64 = 8 << 20;
/// Addresses looked up in each executable section.
const N_ADDRESSES: u64 = 48;
const MAX_MEMORY: u64 = 16 << 20;

/// Serves one image for every module.
struct Image(Vec<u8>);

impl ModuleFiles for Image {
    fn open(&self, _module: &ModuleIdentity) -> Result<ModuleFile, OpenError> {
        Ok(ModuleFile::Bytes(self.0.clone()))
    }

    fn open_path(&self, _module: &ModuleIdentity, path: &Path) -> Result<File, OpenError> {
        Err(OpenError::NotFound(path.to_owned()))
    }
}

/// Names addresses all over the image; each gets a name of some kind.
fn symbolize(image: Vec<u8>, inlines: bool) {
    let mut addresses = vec![0, 1, 0x1000, u64::MAX];
    if let Ok(elf) = ElfFile::from_bytes(image.clone()) {
        for section in elf.sections.iter().filter(|s| s.is_executable()).take(4) {
            let step = (section.size / N_ADDRESSES).max(1);
            let all = (0..N_ADDRESSES).map(|i| section.address.0.wrapping_add(i * step));
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
        addresses: addresses
            .iter()
            .map(|address| AddressQuery {
                address: Svma(*address),
                function: None,
            })
            .collect(),
    };
    let options = SymbolOptions {
        inlines,
        debug_dirs: Vec::new(),
        max_memory: MAX_MEMORY,
        threads: 1,
        ..SymbolOptions::default()
    };
    let symbols = symbolize_modules(&[query], &Image(image), &options);
    assert_eq!(symbols.len(), 1);
    for symbols in symbols {
        assert_eq!(symbols.frames.len(), addresses.len());
        for chain in symbols.frames {
            assert!(chain.last().is_some_and(|f| !f.inlined));
            assert!(chain.iter().all(|f| !f.name.is_empty()));
        }
    }
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
        let _ = (code.n_fdes(), code.n_bad_fdes(), code.heap_bytes());
        for address in [0, 0x1000, 0x1100, 0x2000] {
            let _ = (code.is_code(Svma(address)), code.file_offset(Svma(address)));
            if let Some(start) = code.fde_start(Svma(address)) {
                assert!(start.0 <= address);
            }
        }
    }
    symbolize(data.to_vec(), false);
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
    let image = image::build(&[part]);
    let Ok(elf) = ElfFile::from_bytes(image.clone()) else {
        return;
    };
    if let Some(section) = elf.debug_section("debug_info")
        && let Ok(bytes) = elf.read(section, MAX_SECTION)
    {
        assert_eq!(bytes.len() as u64, size);
    }
    // As a stream, of any size.
    symbolize(image, true);
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

/// Links to other files, and notes: a size of the first (`u16`), the first, the second.
pub(crate) fn debug_links(data: &[u8]) {
    let mut input = Bytes(data);
    let which = input.u8();
    let size = input.u16().into();
    let first = input.take(size);
    let link = match which % 2 {
        0 => ".gnu_debuglink",
        _ => ".gnu_debugaltlink",
    };
    let parts = [
        Part::plain(link, first),
        Part::plain(".note.gnu.build-id", input.0),
        // Something to look for a supplementary file for.
        Part::plain(".debug_info", &[0; 4]),
    ];
    let image = image::build(&parts);
    if let Ok(elf) = ElfFile::from_bytes(image.clone())
        && let Ok(Some(link)) = elf.debug_link()
    {
        assert!(!link.file_name.contains('/') && !link.file_name.is_empty());
    }
    symbolize(image, true);
}

/// Sections of DWARF (see [`image`]).
pub(crate) fn dwarf(data: &[u8]) {
    let parts = image::parts(&mut Bytes(data));
    symbolize(image::build(&parts), true);
}

/// A cache file behind its identity, with the right checksum.
pub(crate) fn names_cache(data: &[u8]) {
    fuzz::names_cache(data);
}

/// A linkage name.
pub(crate) fn demangle(data: &[u8]) {
    let name = wcprof_symbols::demangle(data);
    // An escape of a control character is longer than it.
    assert!(name.chars().count() <= 10 * (MAX_NAME_CHARS + 1));
    assert!(!name.chars().any(char::is_control));
    let short = short_name(&name);
    assert!(short.len() <= 2 * name.len() + 64);
    let _ = without_clone_suffix(&name);
}
