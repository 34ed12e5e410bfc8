//! A debug file that expands to far more than memory: it takes time, not memory.

use std::collections::HashMap;
use std::io::Write;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use nix::sys::resource::{Resource, setrlimit};
use wcprof_symbols::ModuleSymbols;
use wcprof_symbols::elf::ElfFile;
use wcprof_trace::model::SymbolFrame;

use crate::child::within_memory;
use crate::common::Fixture;

/// Expanded bytes of a unit that is only there to be skipped.
const FILLER: usize = 4 << 20;
const SHF_COMPRESSED: u64 = 0x800;
/// Memory for what is read, as its limit says, and for the test itself, bytes.
const MOST: u64 = 64 << 20;

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Replaces `.debug_info` of `image` by one that is stored as `stored` and expands to `size`
/// bytes, and takes `.debug_aranges` away, so that every unit must be looked at.
fn with_debug_info(mut image: Vec<u8>, stored: &[u8], size: u64) -> Vec<u8> {
    let headers = usize::try_from(u64::from_le_bytes(image[40..48].try_into().unwrap())).unwrap();
    let sections: HashMap<String, usize> = {
        let elf = ElfFile::from_bytes(image.clone()).unwrap();
        let at = |i| headers + 64 * i;
        let names = elf.sections.iter().map(|s| s.name.clone());
        names.enumerate().map(|(i, name)| (name, at(i))).collect()
    };
    let put = |image: &mut Vec<u8>, at: usize, value: u64| {
        image[at..at + 8].copy_from_slice(&value.to_le_bytes());
    };
    let offset = image.len() as u64;
    let info = sections[".debug_info"];
    put(&mut image, info + 8, SHF_COMPRESSED);
    put(&mut image, info + 24, offset);
    put(&mut image, info + 32, 24 + stored.len() as u64);
    put(&mut image, sections[".debug_aranges"] + 32, 0);
    // Elf64_Chdr: ELFCOMPRESS_ZLIB, reserved, size, alignment.
    image.extend(1_u32.to_le_bytes());
    image.extend(0_u32.to_le_bytes());
    image.extend(size.to_le_bytes());
    image.extend(1_u64.to_le_bytes());
    image.extend(stored);
    image
}

/// A unit of zeros: its root entry is null.
fn filler() -> Vec<u8> {
    let mut unit = vec![0; FILLER];
    unit[..4].copy_from_slice(&u32::try_from(FILLER - 4).unwrap().to_le_bytes());
    // DWARF 5, DW_UT_compile, addresses of 8 bytes.
    unit[4..8].copy_from_slice(&[5, 0, 1, 8]);
    unit
}

/// A program, an address with inline frames, and their names.
struct Program {
    fixture: Fixture,
    image: Vec<u8>,
    /// Its `.debug_info`: one unit.
    unit: Vec<u8>,
    address: u64,
    frames: Vec<SymbolFrame>,
}

impl Program {
    fn build() -> Self {
        let flags = ["-O2", "-gdwarf-5", "-gz=none", "-pie"];
        let fixture = Fixture::build("g++", "inline.cc", &flags);
        let image = std::fs::read(&fixture.path).unwrap();
        let elf = ElfFile::from_bytes(image.clone()).unwrap();
        let section = elf.debug_section("debug_info").unwrap();
        let unit = elf.read(section, 1 << 20).unwrap();
        let total = fixture.address("_ZN4shop5totalERVlRKNS_4ItemE");
        let addresses: Vec<u64> = (total..total + 16).collect();
        let named = fixture.symbolize(&addresses).frames;
        let mut named = addresses.into_iter().zip(named);
        let (address, frames) = named.find(|(_, frames)| frames.len() > 1).unwrap();
        Self {
            fixture,
            image,
            unit,
            address,
            frames,
        }
    }

    /// Names the address with such a `.debug_info` instead.
    fn with(&mut self, stored: &[u8], size: usize, max_memory: u64) -> ModuleSymbols {
        let image = with_debug_info(self.image.clone(), stored, size as u64);
        assert!(image.len() < 8 << 20);
        std::fs::write(&self.fixture.path, image).unwrap();
        self.fixture.options.max_memory = max_memory;
        self.fixture.symbolize(&[self.address])
    }
}

/// Check that inline frames behind a gigabyte of other units are found in little memory.
#[test]
fn time_not_memory() {
    // For the compiler first.
    within_memory("large::time_not_memory", 512 << 20, || {
        let mut program = Program::build();
        setrlimit(Resource::RLIMIT_DATA, MOST, MOST).unwrap();
        let n_fillers = 256;
        let mut stored = zlib(&filler()).repeat(n_fillers);
        stored.extend(zlib(&program.unit));
        let size = n_fillers * FILLER + program.unit.len();
        let result = program.with(&stored, size, 64 << 20);
        assert_eq!(result.frames[0], program.frames);
        assert_eq!(result.report.problems, []);
    });
}

/// Check that a unit that does not fit is left out, with a reason, while its functions keep their names.
#[test]
fn unit_beyond_the_limit() {
    let mut program = Program::build();
    // The same unit, with 100 MB of null entries behind those that it had.
    let mut large = program.unit.clone();
    large.resize(100 << 20, 0);
    let length = u32::try_from(large.len() - 4).unwrap();
    large[..4].copy_from_slice(&length.to_le_bytes());
    let stored = zlib(&large);
    let result = program.with(&stored, large.len(), 64 << 20);
    assert_eq!(result.frames[0].len(), 1);
    assert_eq!(
        result.frames[0][0].name,
        program.frames.last().unwrap().name
    );
    assert!(result.report.missing_dwarf);
    let text = result.report.problems[0].to_string();
    assert!(text.contains("of the memory limit"), "{text}");
    let result = program.with(&stored, large.len(), 1 << 30);
    assert_eq!(result.report.problems, []);
    assert_eq!(result.frames[0], program.frames);
}
