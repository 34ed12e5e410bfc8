//! DWARF of many kinds, compared with addr2line's reading of it.

use std::process::Command;

use addr2line::Context;
use addr2line::gimli::{DwarfSections, EndianSlice, LittleEndian};
use wcprof_symbols::demangle;
use wcprof_symbols::elf::ElfFile;

use crate::common::{Fixture, run};

/// Name, file and line, innermost first.
type Frames = Vec<(String, String, u32)>;

fn by_addr2line(image: &[u8], addresses: &[u64]) -> Vec<Frames> {
    let elf = ElfFile::from_bytes(image.to_vec()).unwrap();
    let sections = DwarfSections::load(|id| match elf.debug_section(&id.name()[1..]) {
        Some(section) => elf.read(section, 1 << 30),
        None => Ok(Vec::new()),
    })
    .unwrap();
    let dwarf = sections.borrow(|bytes: &Vec<u8>| EndianSlice::new(bytes, LittleEndian));
    let context = Context::from_dwarf(dwarf).unwrap();
    let frames_at = |address: &u64| {
        let mut frames = context.find_frames(*address).skip_all_loads().unwrap();
        let mut found = Vec::new();
        while let Some(frame) = frames.next().unwrap() {
            let name = frame.function.map(|f| demangle(f.name.slice()));
            let place = frame.location.as_ref();
            found.push((
                name.unwrap_or_default(),
                place.and_then(|l| l.file).unwrap_or_default().to_owned(),
                place.and_then(|l| l.line).unwrap_or(0),
            ));
        }
        found
    };
    addresses.iter().map(frames_at).collect()
}

fn check(flags: &[&str]) {
    let fixture = Fixture::build("g++", "inline.cc", flags);
    let image = std::fs::read(&fixture.path).unwrap();
    let elf = ElfFile::from_bytes(image.clone()).unwrap();
    let text = elf.section(".text").unwrap();
    let addresses: Vec<u64> = (text.address..text.end()).collect();
    let expected = by_addr2line(&image, &addresses);
    let result = fixture.symbolize(&addresses);
    assert_eq!(result.report.problems, [], "{flags:?}");
    let mut n_inlined = 0;
    for ((address, expected), frames) in addresses.iter().zip(expected).zip(result.frames) {
        if expected.is_empty() {
            assert!(
                frames.len() == 1 && frames[0].line.is_none(),
                "{address:#x}"
            );
            continue;
        }
        let mut found: Frames = frames
            .into_iter()
            .map(|f| (f.name, f.file.unwrap_or_default(), f.line.unwrap_or(0)))
            .collect();
        n_inlined += found.len() - 1;
        // The symbol table names the function itself, and knows clones and cold parts.
        let (outer, expected_outer) = (found.pop().unwrap(), expected.last().unwrap());
        assert_eq!(
            found,
            expected[..expected.len() - 1],
            "{flags:?} {address:#x}"
        );
        let plain = outer.0.split(" [.").next().unwrap();
        assert!(
            expected_outer.0.is_empty() || plain == expected_outer.0,
            "{plain} {}",
            expected_outer.0
        );
        assert_eq!((&outer.1, outer.2), (&expected_outer.1, expected_outer.2));
    }
    assert!(n_inlined > 10, "{n_inlined} inline frames with {flags:?}");
}

/// Check every address of a program, for each version of DWARF and each kind of compression.
#[test]
fn versions_and_compression() {
    for version in ["-gdwarf-3", "-gdwarf-4", "-gdwarf-5"] {
        for compression in ["-gz=none", "-gz=zlib", "-gz=zlib-gnu"] {
            check(&["-O2", "-g", version, compression, "-pie"]);
        }
    }
    check(&[
        "-O2",
        "-g",
        "-gdwarf-5",
        "-gno-variable-location-views",
        "-no-pie",
    ]);
    check(&["-O2", "-g", "-fdebug-types-section"]);
}

/// Check functions whose names lie in other units: of a program optimized when it was linked.
#[test]
fn names_in_other_units() {
    check(&["-O2", "-g", "-flto"]);
}

/// Check sections compressed with zstd: by this test, and by objcopy where it was built to do that.
#[test]
fn zstd() {
    let fixture = Fixture::build("g++", "inline.cc", &["-O2", "-g", "-gz=none"]);
    let total = fixture.address("_ZN4shop5totalERVlRKNS_4ItemE");
    let addresses: Vec<u64> = (total..total + 12).collect();
    let expected = fixture.symbolize(&addresses).frames;
    assert!(expected.iter().any(|chain| chain.len() == 3));
    let plain = std::fs::read(&fixture.path).unwrap();
    let packed = with_zstd(plain.clone());
    std::fs::write(&fixture.path, packed).unwrap();
    let result = fixture.symbolize(&addresses);
    assert_eq!(result.frames, expected);
    assert_eq!(result.report.problems, []);

    std::fs::write(&fixture.path, plain).unwrap();
    let objcopy = Command::new("objcopy")
        .arg("--compress-debug-sections=zstd")
        .arg(&fixture.path)
        .output()
        .unwrap();
    if !objcopy.status.success() {
        println!("SKIPPED dwarf::zstd with objcopy: it cannot compress with zstd");
        return;
    }
    let sections = run(Command::new("readelf").arg("-tW").arg(&fixture.path));
    assert!(sections.contains("ZSTD"), "{sections}");
    assert_eq!(fixture.symbolize(&addresses).frames, expected);
}

/// Compresses the DWARF of an image with zstd: each section gets a place behind the end.
fn with_zstd(mut image: Vec<u8>) -> Vec<u8> {
    /// `SHF_COMPRESSED`, `ELFCOMPRESS_ZSTD`.
    const COMPRESSED: (u64, u32) = (0x800, 2);
    let elf = ElfFile::from_bytes(image.clone()).unwrap();
    let headers = usize::try_from(u64::from_le_bytes(image[40..48].try_into().unwrap())).unwrap();
    for (i, section) in elf.sections.iter().enumerate() {
        if !section.name.starts_with(".debug_") {
            continue;
        }
        let bytes = elf.read(section, 1 << 30).unwrap();
        let packed = zstd::encode_all(&bytes[..], 3).unwrap();
        let offset = image.len() as u64;
        let put = [
            (8, section.flags | COMPRESSED.0),
            (24, offset),
            (32, 24 + packed.len() as u64),
        ];
        for (at, value) in put {
            let at = headers + 64 * i + at;
            image[at..at + 8].copy_from_slice(&u64::to_le_bytes(value));
        }
        // Elf64_Chdr: type, reserved, size, alignment.
        image.extend(COMPRESSED.1.to_le_bytes());
        image.extend([0; 4]);
        image.extend(section.size.to_le_bytes());
        image.extend(1_u64.to_le_bytes());
        image.extend(packed);
    }
    image
}
