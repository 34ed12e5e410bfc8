//! Files made to harm the reader.

use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::OnceLock;

use proptest::prelude::{ProptestConfig, any, prop, proptest};
use wcprof_symbols::elf::{ElfError, ElfFile};
use wcprof_symbols::{
    FunctionStarts, LocalFiles, ModuleFile, ModuleFiles, ModuleIdentity, NoFile, OpenError,
    SymbolOptions, TargetFile, open_regular,
};

use crate::common::{Fixture, symbolize};

/// Serves one image for every module.
struct Image(Vec<u8>);

impl ModuleFiles for Image {
    fn open(&self, _module: &ModuleIdentity) -> Result<ModuleFile, OpenError> {
        Ok(ModuleFile::Bytes(self.0.clone()))
    }

    fn open_path(&self, _module: &ModuleIdentity, path: &Path) -> Result<TargetFile, OpenError> {
        Err(NoFile::NotFound.at(path))
    }
}

fn options() -> SymbolOptions {
    SymbolOptions {
        debug_dirs: Vec::new(),
        max_memory: 16 << 20,
        ..SymbolOptions::default()
    }
}

/// Symbolizes addresses all over an image; every one gets a name of some kind.
fn exercise(image: Vec<u8>) {
    let identity = ModuleIdentity {
        path: "/fixture/module".to_owned(),
        build_id: None,
        pid: None,
        start: None,
    };
    let addresses: Vec<u64> = (0x1000..0x1400).step_by(7).chain([0, u64::MAX]).collect();
    let result = symbolize(&identity, &Image(image), &options(), &addresses);
    assert_eq!(result.frames.len(), addresses.len());
    for frames in result.frames {
        let last = frames.last().unwrap();
        assert!(!last.name.is_empty() && !last.inlined);
    }
}

/// A program with all sections that are read, and where its section headers are. Its DWARF is
/// not compressed, so that a changed byte reaches the DWARF parser and not only the checksum.
fn image() -> &'static (Vec<u8>, usize) {
    static IMAGE: OnceLock<(Vec<u8>, usize)> = OnceLock::new();
    IMAGE.get_or_init(|| build(&["-O2", "-g", "-gz=none", "-pie"]))
}

fn build(flags: &[&str]) -> (Vec<u8>, usize) {
    let fixture = Fixture::build("g++", "inline.cc", flags);
    let bytes = std::fs::read(&fixture.path).unwrap();
    let headers = u64::from_le_bytes(bytes[40..48].try_into().unwrap());
    (bytes, usize::try_from(headers).unwrap())
}

/// Check that a FIFO in place of a module or debug file is refused and does not hang.
#[test]
fn fifo() {
    let fixture = Fixture::build("gcc", "sizes.s", &["-shared"]);
    let (identity, address) = (fixture.identity(), fixture.address("sized"));
    let mode = nix::sys::stat::Mode::S_IRWXU;
    std::fs::remove_file(&fixture.path).unwrap();
    nix::unistd::mkfifo(&fixture.path, mode).unwrap();
    let debug = fixture.build_id_path(identity.build_id.as_ref().unwrap());
    std::fs::create_dir_all(debug.parent().unwrap()).unwrap();
    nix::unistd::mkfifo(&debug, mode).unwrap();
    let result = symbolize(&identity, &LocalFiles, &fixture.options, &[address]);
    let problems: Vec<String> = result
        .report
        .problems
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(
        problems.iter().all(|p| p.contains("it is a FIFO")),
        "{problems:?}"
    );
}

/// Check that a file which becomes shorter after it was opened, at any place, costs an error that names
/// what is missing: its owner may do that at any time, and must not be able to kill the reader.
#[test]
fn shortened_while_open() {
    let (bytes, _) = image();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("module");
    let whole = ElfFile::from_bytes(bytes.clone()).unwrap();
    for section in whole.sections.iter().filter(|s| s.has_data()) {
        std::fs::write(&path, bytes).unwrap();
        let elf = ElfFile::from_file(open_regular(&path).unwrap()).unwrap();
        let writer = File::options().write(true).open(&path).unwrap();
        writer.set_len(section.offset + section.size / 2).unwrap();
        let error = elf.read(section, u64::MAX).unwrap_err();
        let expected = format!("section {} ends beyond the file", section.name);
        assert!(error.to_string().contains(&expected), "{error}");
    }
}

/// Serves a module from a file that it cuts to `len` bytes as soon as another file is looked for: its
/// headers and symbols are read by then, its DWARF and call frame information are not.
struct Shrinks<'p> {
    path: &'p Path,
    len: u64,
}

impl ModuleFiles for Shrinks<'_> {
    fn open(&self, _module: &ModuleIdentity) -> Result<ModuleFile, OpenError> {
        open_regular(self.path).map(|file| ModuleFile::File(file.into()))
    }

    fn open_path(&self, _module: &ModuleIdentity, path: &Path) -> Result<TargetFile, OpenError> {
        let writer = File::options().write(true).open(self.path).unwrap();
        writer.set_len(self.len).unwrap();
        Err(NoFile::NotFound.at(path))
    }
}

/// Check that a module which is cut while it is symbolized still gives names of some kind, and that the
/// report says what was lost.
#[test]
fn shortened_while_symbolizing() {
    // Without symbols, so that a debug file is looked for; what remains is in the DWARF.
    let fixture = Fixture::build("g++", "inline.cc", &["-O2", "-g", "-gz=none", "-pie"]);
    let address = fixture.address("_ZN4shop5totalERVlRKNS_4ItemE");
    crate::common::run(
        std::process::Command::new("objcopy")
            .args(["--strip-all", "--wildcard", "--keep-section=.debug_*"])
            .arg(&fixture.path),
    );
    let bytes = std::fs::read(&fixture.path).unwrap();
    let elf = ElfFile::from_bytes(bytes.clone()).unwrap();
    let mut n_told = 0;
    for section in elf.sections.iter().filter(|s| s.has_data()) {
        std::fs::write(&fixture.path, &bytes).unwrap();
        let files = Shrinks {
            path: &fixture.path,
            len: section.offset + section.size / 2,
        };
        let result = symbolize(&fixture.identity(), &files, &fixture.options, &[address]);
        assert!(!result.frames[0][0].name.is_empty());
        let has_line = result.frames[0].iter().any(|frame| frame.line.is_some());
        let problems = result.report.problems.iter().map(ToString::to_string);
        let told = problems
            .filter(|p| p.contains("ends beyond the file"))
            .count();
        assert!(
            has_line || told > 0,
            "{}: {:?}",
            section.name,
            result.report
        );
        n_told += usize::from(told > 0);
    }
    assert!(n_told > 5, "{n_told}");
}

/// Check that a module and its debug file behind links that go round, or to a device, are refused.
#[test]
fn links_to_nowhere() {
    for (target, reason) in [
        ("module", "Too many levels of symbolic links"),
        ("/dev/zero", "it is a character device"),
        ("/proc/self/fd", "it is a directory"),
    ] {
        let fixture = Fixture::build("gcc", "sizes.s", &["-shared"]);
        let (identity, address) = (fixture.identity(), fixture.address("sized"));
        let debug = fixture.build_id_path(identity.build_id.as_ref().unwrap());
        std::fs::create_dir_all(debug.parent().unwrap()).unwrap();
        std::fs::remove_file(&fixture.path).unwrap();
        symlink(target, &fixture.path).unwrap();
        symlink(&fixture.path, &debug).unwrap();
        let result = symbolize(&identity, &LocalFiles, &fixture.options, &[address]);
        let problems: Vec<String> = result
            .report
            .problems
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(
            problems.iter().all(|p| p.contains(reason)),
            "{reason}: {problems:?}"
        );
        assert!(!result.frames[0][0].resolved);
    }
}

/// Check that what is handed over as a file must be a regular one.
#[test]
fn not_a_regular_file() {
    let device = File::open("/dev/null").unwrap();
    assert!(matches!(
        ElfFile::from_file(device),
        Err(ElfError::NotRegular)
    ));
}

/// Check files cut within each section header, and at each section's begin and end.
#[test]
fn truncated() {
    let (bytes, headers) = image();
    let elf = ElfFile::from_bytes(bytes.clone()).unwrap();
    let mut cuts: Vec<usize> = (0..elf.sections.len())
        .map(|i| headers + 64 * i + 32)
        .collect();
    for section in &elf.sections {
        for cut in [section.offset, section.offset + section.size / 2] {
            cuts.push(usize::try_from(cut).unwrap());
        }
    }
    for cut in cuts {
        exercise(bytes[..cut.min(bytes.len())].to_vec());
    }
}

/// Check that a section whose size lies is an error that names it, and reserves no memory.
#[test]
fn sizes_that_lie() {
    let (bytes, headers) = build(&["-O2", "-g", "-gz=zlib", "-pie"]);
    let elf = ElfFile::from_bytes(bytes.clone()).unwrap();
    let find = |name| elf.sections.iter().position(|s| s.name == name).unwrap();

    let mut image = bytes.clone();
    let at = headers + 64 * find(".symtab") + 32;
    image[at..at + 8].copy_from_slice(&(1_u64 << 60).to_le_bytes());
    let lying = ElfFile::from_bytes(image.clone()).unwrap();
    let section = lying.section(".symtab").unwrap();
    let error = lying.read(section, u64::MAX).unwrap_err();
    assert!(
        error.to_string().contains("section .symtab ends beyond"),
        "{error}"
    );
    exercise(image);

    // A compressed section that is larger than it may be, and one that claims to expand to an exabyte.
    let section = elf.section(".debug_info").unwrap();
    let error = elf.read(section, 100).unwrap_err();
    assert!(
        matches!(error, ElfError::TooLarge { limit: 100, .. }),
        "{error}"
    );
    let mut image = bytes.clone();
    let info = usize::try_from(section.offset).unwrap();
    image[info + 8..info + 16].copy_from_slice(&(1_u64 << 60).to_le_bytes());
    let lying = ElfFile::from_bytes(image.clone()).unwrap();
    let error = lying
        .read(lying.section(".debug_info").unwrap(), u64::MAX)
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("cannot expand to 1152921504606846976"),
        "{error}"
    );
    exercise(image);
}

/// Check that debug information nested deeper than any stack is read.
#[test]
fn deep_nesting() {
    let fixture = Fixture::build("gcc", "deep.s", &["-shared"]);
    let result = fixture.symbolize(&[fixture.address("deep")]);
    assert_eq!(result.frames[0][0].name, "deep");
    assert_eq!(result.report.problems, []);
    assert!(result.report.sources[0].dwarf);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Check that flipped bytes anywhere never panic and always leave a name of some kind.
    #[test]
    fn flipped_bytes(flips in prop::collection::vec((any::<prop::sample::Index>(), 1_u8..), 1..20)) {
        let mut bytes = image().0.clone();
        for (index, mask) in flips {
            let i = index.index(bytes.len());
            bytes[i] ^= mask;
        }
        exercise(bytes);
    }

    /// Check the same for bytes of the section headers, where they do most harm.
    #[test]
    fn flipped_headers(flips in prop::collection::vec((any::<prop::sample::Index>(), 1_u8..), 1..6)) {
        let (mut bytes, headers) = image().clone();
        for (index, mask) in flips {
            let i = headers + index.index(bytes.len() - headers);
            bytes[i] ^= mask;
        }
        exercise(bytes);
    }

    /// Check that call frame information with flipped bytes never panics and that a function found
    /// holds the address asked for.
    #[test]
    fn flipped_cfi(flips in prop::collection::vec((any::<prop::sample::Index>(), 1_u8..), 1..20)) {
        let mut bytes = image().0.clone();
        let elf = ElfFile::from_bytes(bytes.clone()).unwrap();
        let section = elf.section(".eh_frame").unwrap();
        let (start, size) = (section.offset as usize, section.size as usize);
        for (index, mask) in flips {
            bytes[start + index.index(size)] ^= mask;
        }
        let starts = FunctionStarts::read(&ElfFile::from_bytes(bytes).unwrap()).unwrap();
        for address in (0x1000..0x1400).map(wcprof_types::Svma) {
            if let Some((start, end)) = starts.function_at(address) {
                assert!(start <= address && address < end);
            }
        }
    }
}
