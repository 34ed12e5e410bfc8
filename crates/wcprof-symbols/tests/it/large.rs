//! A debug file that expands to far more than memory: it takes time, not memory.
//!
//! In a program of its own, so that its peak memory is that of this test alone.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use wcprof_symbols::elf::ElfFile;
use wcprof_symbols::{
    AddressQuery, LocalFiles, ModuleIdentity, ModuleQuery, ModuleSymbols, SymbolOptions,
    open_regular, symbolize_modules,
};
use wcprof_types::{BuildId, Svma};

/// Expanded bytes of a unit that is only there to be skipped.
const FILLER: usize = 4 << 20;
const SHF_COMPRESSED: u64 = 0x800;

fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("failed to run {command:?}: {e}; the tests need g++"));
    assert!(output.status.success(), "{command:?}");
    String::from_utf8(output.stdout).unwrap()
}

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

fn symbolize(path: &Path, address: u64, options: &SymbolOptions) -> ModuleSymbols {
    let elf = ElfFile::from_file(open_regular(path).unwrap()).unwrap();
    let query = ModuleQuery {
        module: ModuleIdentity {
            path: path.to_str().unwrap().to_owned(),
            build_id: elf.build_id().and_then(|id| BuildId::new(&id)),
            pid: None,
            start: None,
        },
        base: Svma(0),
        addresses: vec![AddressQuery::from(Svma(address))],
    };
    symbolize_modules(&[query], &LocalFiles, options).remove(0)
}

/// Peak resident memory of this process, bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib << 10
}

/// Check that inline frames behind a gigabyte of other units are found in little memory, and that
/// a unit that does not fit is left out, with a reason, while its functions keep their names.
#[test]
fn time_not_memory() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("module");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/inline.cc");
    run(Command::new("g++")
        .args([
            "-O2",
            "-gdwarf-5",
            "-gz=none",
            "-pie",
            "-Wl,--build-id=sha1",
            "-o",
        ])
        .args([&path, &source]));
    let image = std::fs::read(&path).unwrap();
    let symbols = run(Command::new("nm").args(["--defined-only", "-n"]).arg(&path));
    let elf = ElfFile::from_bytes(image.clone()).unwrap();
    let unit = elf
        .read(elf.debug_section("debug_info").unwrap(), 1 << 20)
        .unwrap();
    let mut options = SymbolOptions {
        debug_dirs: Vec::new(),
        ..SymbolOptions::default()
    };
    // An address with inline frames, by what the file says as it was built.
    let candidates = symbols
        .lines()
        .filter(|line| line.contains(" T ") || line.contains(" t "))
        .filter_map(|line| u64::from_str_radix(line.split(' ').next()?, 16).ok());
    let (address, expected) = candidates
        .flat_map(|start| start..start + 64)
        .map(|address| {
            (
                address,
                symbolize(&path, address, &options).frames.remove(0),
            )
        })
        .find(|(_, frames)| frames.len() > 1)
        .unwrap();

    let n_fillers = 256;
    let mut stored = zlib(&filler()).repeat(n_fillers);
    stored.extend(zlib(&unit));
    let size = (n_fillers * FILLER + unit.len()) as u64;
    std::fs::write(&path, with_debug_info(image.clone(), &stored, size)).unwrap();
    assert!(std::fs::metadata(&path).unwrap().len() < 8 << 20);
    options.max_memory = 64 << 20;
    let before = peak();
    let result = symbolize(&path, address, &options);
    assert_eq!(result.frames[0], expected);
    assert_eq!(result.report.problems, []);
    let more = peak() - before;
    assert!(more < 64 << 20, "{more} bytes more");

    // The same unit, with 100 MB of null entries behind those that it had.
    let mut large = unit.clone();
    large.resize(100 << 20, 0);
    let length = u32::try_from(large.len() - 4).unwrap();
    large[..4].copy_from_slice(&length.to_le_bytes());
    let stored = zlib(&large);
    let size = large.len() as u64;
    drop(large);
    std::fs::write(&path, with_debug_info(image, &stored, size)).unwrap();
    let result = symbolize(&path, address, &options);
    assert_eq!(result.frames[0].len(), 1);
    assert_eq!(result.frames[0][0].name, expected.last().unwrap().name);
    assert!(result.report.missing_dwarf);
    let text = result.report.problems[0].to_string();
    assert!(text.contains("of the memory limit"), "{text}");
    options.max_memory = 1 << 30;
    let result = symbolize(&path, address, &options);
    assert_eq!(result.report.problems, []);
    assert_eq!(result.frames[0], expected);
}
