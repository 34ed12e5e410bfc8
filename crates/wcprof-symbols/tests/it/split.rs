//! Split DWARF: single files and packages, of both versions, found and refused.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use wcprof_symbols::elf::ElfFile;
use wcprof_symbols::{LocalFiles, ModuleSymbols, Root, SourceKind, SymbolOptions, open_regular};
use wcprof_trace::model::SymbolFrame;

use crate::common::{Fixture, data, run, symbolize};

const SECOND: &str = r#"
static inline __attribute__((always_inline)) int twice(volatile int *x) { return *x * 2; }
__attribute__((noinline)) int second(volatile int *x) { return twice(x) + 1; }
__attribute__((cold, noinline)) int third(volatile int *x) { return twice(x) / second(x); }
"#;

/// Two units compiled and linked in one folder.
struct Split {
    fixture: Fixture,
    addresses: Vec<u64>,
    /// What is found when nothing is split off.
    expected: Vec<Vec<SymbolFrame>>,
}

impl Split {
    fn build(flags: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::copy(data("inline.cc"), dir.path().join("inline.cc")).unwrap();
        std::fs::write(dir.path().join("second.c"), SECOND).unwrap();
        let path = dir.path().join("module");
        let options = SymbolOptions {
            debug_dirs: vec![dir.path().join("debug")],
            ..SymbolOptions::default()
        };
        let fixture = Fixture { dir, path, options };
        compile(fixture.dir.path(), flags);
        let elf = ElfFile::from_file(open_regular(&fixture.path).unwrap()).unwrap();
        let text = elf.section(".text").unwrap();
        let addresses: Vec<u64> = (text.address..text.end()).collect();
        let expected = fixture.symbolize(&addresses).frames;
        let code = elf.read(text, 1 << 20).unwrap();
        compile(fixture.dir.path(), &[flags, &["-gsplit-dwarf"]].concat());
        let elf = ElfFile::from_file(open_regular(&fixture.path).unwrap()).unwrap();
        let text = elf.section(".text").unwrap();
        assert_eq!(elf.read(text, 1 << 20).unwrap(), code);
        assert!(expected.iter().any(|chain| chain.len() == 3));
        Self {
            fixture,
            addresses,
            expected,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.fixture.dir.path().join(name)
    }

    fn symbolize(&self) -> ModuleSymbols {
        self.fixture.symbolize(&self.addresses)
    }

    /// All names, inline frames and lines, from files of this kind.
    fn check(&self, kind: SourceKind, path: &Path) {
        let result = self.symbolize();
        assert_eq!(result.report.problems, []);
        for ((address, found), expected) in self
            .addresses
            .iter()
            .zip(&result.frames)
            .zip(&self.expected)
        {
            assert_eq!(found, expected, "{address:#x}");
        }
        let split: Vec<_> = result.report.sources.iter().skip(1).collect();
        assert_eq!(split.len(), 1, "{split:?}");
        assert_eq!((split[0].kind, &*split[0].path), (kind, path));
        assert!(result.report.sources[0].dwarf && split[0].dwarf);
    }

    /// Functions keep their names and lines, and lose inline frames; the report says why.
    fn check_without(&self, reason: &str) {
        let result = self.symbolize();
        let text = result.report.problems[0].to_string();
        assert!(text.contains("left out inline frames"), "{text}");
        assert!(text.contains(reason), "{text}");
        assert_eq!(result.report.problems.len(), 1);
        for (found, expected) in result.frames.iter().zip(&self.expected) {
            let (found, expected) = (found.last().unwrap(), expected.last().unwrap());
            assert_eq!(found.name, expected.name);
        }
        assert!(result.frames.iter().flatten().any(|f| f.line.is_some()));
    }

    fn remove_objects(&self) {
        for name in ["inline.dwo", "second.dwo"] {
            std::fs::remove_file(self.path(name)).unwrap();
        }
    }

    /// Makes a package with a tool that is given the linked file.
    fn pack(&self, tool: &str) -> PathBuf {
        let package = self.path("module.dwp");
        run(Command::new(tool)
            .current_dir(self.fixture.dir.path())
            .args(["-e", "module", "-o", "module.dwp"]));
        self.remove_objects();
        package
    }
}

fn compile(dir: &Path, flags: &[&str]) {
    let compiler = |c: bool| match flags.first() {
        Some(&"clang") if c => "clang-14",
        Some(&"clang") => "clang++-14",
        _ if c => "gcc",
        _ => "g++",
    };
    let flags = flags.iter().filter(|flag| flag.starts_with('-'));
    for (is_c, source) in [(false, "inline.cc"), (true, "second.c")] {
        run(Command::new(compiler(is_c))
            .current_dir(dir)
            .args(["-O2", "-g", "-c", "-ffunction-sections"])
            .args(flags.clone())
            .arg(source));
    }
    run(Command::new("g++").current_dir(dir).args([
        "-Wl,--build-id=sha1",
        "-o",
        "module",
        "inline.o",
        "second.o",
    ]));
}

const VERSIONS: [&[&str]; 4] = [
    &["-gdwarf-4"],
    &["-gdwarf-5"],
    &["clang", "-gdwarf-4"],
    &["clang", "-gdwarf-5"],
];

/// Check every address of a program whose units have files of their own.
#[test]
fn objects() {
    for flags in VERSIONS {
        let split = Split::build(flags);
        split.check(SourceKind::SplitObject, &split.path("inline.dwo"));
    }
    // Types in units of their own, which lie before the one that is searched.
    let split = Split::build(&["-gdwarf-5", "-fdebug-types-section"]);
    split.check(SourceKind::SplitObject, &split.path("inline.dwo"));
}

/// Check every address of a program whose units are in a package, as each tool makes it, and
/// compressed.
#[test]
fn packages() {
    for flags in VERSIONS {
        // That of binutils 2.40 cannot read DWARF 5.
        let tools: &[&str] = match flags.last() {
            Some(&"-gdwarf-4") => &["dwp", "llvm-dwp-14"],
            _ => &["llvm-dwp-14"],
        };
        for tool in tools {
            let split = Split::build(flags);
            let package = split.pack(tool);
            split.check(SourceKind::SplitPackage, &package);
            for compression in ["zlib", "zlib-gnu"] {
                run(Command::new("objcopy")
                    .arg(format!("--compress-debug-sections={compression}"))
                    .arg(&package));
                split.check(SourceKind::SplitPackage, &package);
            }
        }
    }
}

/// Check that a stripped module's package is found beside its debug file, beside the module, and
/// below the folders of debug files; and single files below those.
#[test]
fn places() {
    let split = Split::build(&["-gdwarf-4"]);
    let debug = split.fixture.build_id_path(&split.fixture.build_id());
    split.fixture.split_debug(&debug);
    let check = |kind, place: &Path| {
        let result = split.symbolize();
        assert_eq!(result.report.problems, []);
        assert_eq!(result.frames, split.expected);
        let source = result.report.sources.last().unwrap();
        assert_eq!((source.kind, &*source.path), (kind, place));
    };
    check(SourceKind::SplitObject, &split.path("inline.dwo"));
    let below = |path: &Path| {
        split
            .path("debug")
            .join(path.strip_prefix("/").unwrap_or(path))
    };
    for place in [below(split.fixture.dir.path()), split.path("debug")] {
        std::fs::create_dir_all(&place).unwrap();
        for name in ["inline.dwo", "second.dwo"] {
            std::fs::copy(split.path(name), place.join(name)).unwrap();
            std::fs::rename(split.path(name), split.path("kept")).unwrap();
            std::fs::rename(split.path("kept"), split.path(&format!("{name}.kept"))).unwrap();
        }
        check(SourceKind::SplitObject, &place.join("inline.dwo"));
        for name in ["inline.dwo", "second.dwo"] {
            std::fs::remove_file(place.join(name)).unwrap();
            std::fs::rename(split.path(&format!("{name}.kept")), split.path(name)).unwrap();
        }
    }
    // Packing needs the linked file, which names its units.
    let module = std::fs::read(&split.fixture.path).unwrap();
    std::fs::copy(&debug, &split.fixture.path).unwrap();
    let package = split.pack("dwp");
    std::fs::write(&split.fixture.path, module).unwrap();
    check(SourceKind::SplitPackage, &package);
    let beside_debug = PathBuf::from(format!("{}.dwp", debug.display()));
    for place in [beside_debug, split.path("debug/module.dwp")] {
        std::fs::rename(&package, &place).unwrap();
        check(SourceKind::SplitPackage, &place);
        std::fs::rename(&place, &package).unwrap();
    }
}

/// Check that missing files, files of another build, and what is no such file cost inline frames
/// alone and are named.
#[test]
fn refused() {
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let split = Split::build(&[version]);
        let other = Split::build(&[version, "-O1"]);
        for name in ["inline.dwo", "second.dwo"] {
            std::fs::copy(other.path(name), split.path(name)).unwrap();
        }
        split.check_without("it has no unit ");
        for name in ["inline.dwo", "second.dwo"] {
            std::fs::write(split.path(name), "no ELF file").unwrap();
        }
        split.check_without("not an ELF file");
        split.remove_objects();
        let first = split.path("inline.dwo").display().to_string();
        split.check_without(&format!("`{first}` (split DWARF) was not found"));
        std::fs::write(split.path("module.dwp"), b"\x7fELF").unwrap();
        split.check_without("module.dwp` (split DWARF): not an ELF file");
        // Neither opened nor waited for.
        std::fs::remove_file(split.path("module.dwp")).unwrap();
        run(Command::new("mkfifo").arg(split.path("inline.dwo")));
        split.check_without("it is a FIFO");
    }
}

/// What is inlined from another source file.
const CALLERS: &str = "int second(volatile int *); int main(int c, char **v) { volatile int x = c; return second(&x); }";

/// Links two sources of C with link-time optimization; gives the text of `readelf` on its split units.
fn link_time(compiler: &str, flags: &[&str]) -> (Fixture, String) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("callers.c"), CALLERS).unwrap();
    std::fs::write(
        dir.path().join("second.c"),
        SECOND.replace("(noinline)", "(always_inline)"),
    )
    .unwrap();
    let linker = match compiler {
        "gcc" => vec![],
        _ => vec!["-fuse-ld=gold", "-Wl,-plugin-opt=dwo_dir=units"],
    };
    run(Command::new(compiler)
        .current_dir(dir.path())
        .args([
            "-O2",
            "-g",
            "-flto",
            "-o",
            "module",
            "callers.c",
            "second.c",
        ])
        .args(linker)
        .args(flags));
    let folders = [dir.path().to_owned(), dir.path().join("units")];
    let files = folders.iter().filter_map(|f| std::fs::read_dir(f).ok());
    let units: Vec<PathBuf> = files
        .flatten()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "dwo"))
        .collect();
    let text = match units.as_slice() {
        [] => String::new(),
        units => run(Command::new("readelf")
            .args(["--debug-dump=abbrev,info", "--wide"])
            .args(units)),
    };
    let path = dir.path().join("module");
    let options = SymbolOptions::default();
    (Fixture { dir, path, options }, text)
}

/// The functions of addresses of `main`, with file names in place of paths.
fn main_of(fixture: &Fixture) -> ModuleSymbols {
    let main = fixture.address("main");
    let mut found = fixture.symbolize(&(main..main + 12).collect::<Vec<_>>());
    for frame in found.frames.iter_mut().flatten() {
        let name = frame
            .file
            .as_deref()
            .and_then(|path| path.rsplit('/').next());
        frame.file = name.map(str::to_owned);
    }
    found
}

/// Check link-time optimization, where functions are inlined from other units: Clang describes them in
/// each unit anew, so that no reference leads out of one; GCC, which does not support the two together,
/// writes references that nobody fills in, which must name nothing.
#[test]
fn link_time_optimization() {
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let (whole, _) = link_time("clang-14", &[version]);
        let (split, text) = link_time("clang-14", &[version, "-gsplit-dwarf"]);
        assert!(text.contains("DW_TAG_inlined_subroutine"), "{text}");
        assert!(!text.contains("DW_FORM_ref_addr"), "{text}");
        let (expected, found) = (main_of(&whole), main_of(&split));
        assert!(expected.frames.iter().any(|chain| chain.len() == 3));
        assert_eq!(found.frames, expected.frames);
        assert_eq!(found.report.problems, []);

        let (split, text) = link_time("gcc", &[version, "-gsplit-dwarf"]);
        assert!(text.contains("DW_FORM_ref_addr"), "{text}");
        let origins = text
            .lines()
            .filter(|line| line.contains("DW_AT_abstract_origin:"));
        let references: Vec<&str> = origins.filter(|line| line.ends_with("<0>")).collect();
        assert!(!references.is_empty(), "{text}");
        for chain in main_of(&split).frames {
            let names: Vec<&str> = chain.iter().map(|frame| &*frame.name).collect();
            assert_eq!(names, ["main"]);
        }
    }
}

/// Check that a package that lacks a unit leaves it to a single file, and a broken index likewise.
#[test]
fn package_and_objects() {
    let split = Split::build(&["-gdwarf-4"]);
    run(Command::new("dwp")
        .current_dir(split.fixture.dir.path())
        .args(["-o", "module.dwp", "second.dwo"]));
    let result = split.symbolize();
    assert_eq!(result.frames, split.expected);
    let kinds: Vec<_> = result.report.sources.iter().map(|s| s.kind).collect();
    assert_eq!(
        kinds,
        [
            SourceKind::Module,
            SourceKind::SplitPackage,
            SourceKind::SplitObject
        ]
    );
    let index = split.path("index");
    std::fs::write(&index, [0xff; 64]).unwrap();
    run(Command::new("objcopy")
        .arg(format!(
            "--update-section=.debug_cu_index={}",
            index.display()
        ))
        .arg(split.path("module.dwp")));
    assert_eq!(split.symbolize().frames, split.expected);
}

/// Check that the paths mean files inside the root that the module is in, and that no symbolic link
/// leads out of it.
#[test]
fn inside_root() {
    let split = Split::build(&["-gdwarf-4"]);
    let root = tempfile::tempdir().unwrap();
    let inside = root
        .path()
        .join(split.fixture.dir.path().strip_prefix("/").unwrap());
    std::fs::create_dir_all(&inside).unwrap();
    std::fs::copy(&split.fixture.path, inside.join("module")).unwrap();
    let files = Root::new(root.path()).unwrap();
    let frames = |files: &dyn wcprof_symbols::ModuleFiles| {
        let identity = split.fixture.identity();
        symbolize(&identity, files, &split.fixture.options, &split.addresses).frames
    };
    assert_eq!(frames(&LocalFiles), split.expected);
    assert_ne!(frames(&files), split.expected);
    for name in ["inline.dwo", "second.dwo"] {
        symlink(split.path(name), inside.join("link")).unwrap();
        std::fs::rename(inside.join("link"), inside.join(name)).unwrap();
    }
    assert_ne!(frames(&files), split.expected);
    for name in ["inline.dwo", "second.dwo"] {
        std::fs::remove_file(inside.join(name)).unwrap();
        std::fs::copy(split.path(name), inside.join(name)).unwrap();
    }
    assert_eq!(frames(&files), split.expected);
}

/// Check function, inline chain and line of each address against llvm-symbolizer.
#[test]
fn like_llvm() {
    for flags in VERSIONS {
        let split = Split::build(flags);
        let second = split.fixture.address("second");
        let total = split.fixture.address("_ZN4shop5totalERVlRKNS_4ItemE");
        let addresses: Vec<u64> = (second..second + 5).chain(total..total + 12).collect();
        let text = run(Command::new("llvm-symbolizer-14")
            .args(["--inlines", "--functions=linkage", "--no-demangle", "-e"])
            .arg(&split.fixture.path)
            .args(addresses.iter().map(|a| format!("{a:#x}"))));
        let blocks: Vec<Vec<(String, String)>> = text
            .trim_end()
            .split("\n\n")
            .map(|block| {
                let lines: Vec<&str> = block.lines().collect();
                let pairs = lines.chunks(2).map(|pair| {
                    let place = pair[1].rsplit_once(':').unwrap().0;
                    (
                        wcprof_symbols::demangle(pair[0].as_bytes()),
                        place.to_owned(),
                    )
                });
                pairs.collect()
            })
            .collect();
        let found: Vec<Vec<(String, String)>> = split
            .fixture
            .symbolize(&addresses)
            .frames
            .into_iter()
            .map(|chain| {
                let pairs = chain.into_iter().map(|frame| {
                    let file = frame.file.unwrap_or_default();
                    (frame.name, format!("{file}:{}", frame.line.unwrap_or(0)))
                });
                pairs.collect()
            })
            .collect();
        assert_eq!(found, blocks, "{flags:?}");
    }
}
