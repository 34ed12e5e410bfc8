//! Builds the fixture, runs one of its scenarios, and loads what it dumped.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use object::{Object, ObjectSymbol};
use wcprof_types::{Avma, LoadBias, Mapping, Svma, UserRegs, parse_maps_line};
use wcprof_unwind::{ModuleCode, ReadError, StackMemory, Unwinder, UnwoundStack};

/// A compiled fixture in its own temporary folder.
pub struct Fixture {
    folder: tempfile::TempDir,
    binary: PathBuf,
}

impl Fixture {
    /// Compiles `fixture.c` with `cc`.
    pub fn build(flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let binary = folder.path().join("fixture");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixture.c");
        let output = Command::new("cc")
            .args([
                "-g0",
                "-pthread",
                "-fno-optimize-sibling-calls",
                "-fno-stack-protector",
            ])
            .args(flags)
            .arg("-o")
            .arg(&binary)
            .arg(source)
            .output()
            .expect("cc is installed");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Self { folder, binary }
    }

    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// Runs a scenario to its dump.
    pub fn run(&self, scenario: &str) -> Dump {
        let file = self.folder.path().join(scenario);
        let status = Command::new(&self.binary)
            .arg(scenario)
            .arg(&file)
            .status()
            .unwrap();
        assert!(status.success(), "{scenario}: {status}");
        Dump::parse(&std::fs::read(file).unwrap())
    }
}

/// What the fixture wrote.
pub struct Dump {
    pub regs: UserRegs,
    /// First addresses of the functions that were called, leaf first.
    pub chain: Vec<Avma>,
    pub mappings: Vec<Mapping>,
    pub memory: Regions,
}

impl Dump {
    fn parse(bytes: &[u8]) -> Self {
        let mark = b"\nregions\n";
        let at = bytes.windows(mark.len()).position(|w| w == mark).unwrap();
        let hex = |s: &str| u64::from_str_radix(s, 16).unwrap();
        let (mut regs, mut chain, mut mappings) = (None::<UserRegs>, Vec::new(), Vec::new());
        for line in std::str::from_utf8(&bytes[..at]).unwrap().lines() {
            match line.split_once(' ').unwrap() {
                ("regs", rest) => {
                    let r: Vec<u64> = rest.split(' ').map(hex).collect();
                    regs = Some(UserRegs {
                        ip: Avma(r[0]),
                        sp: Avma(r[1]),
                        bp: Some(r[2]),
                        ..UserRegs::default()
                    });
                }
                ("chain", rest) => chain.push(Avma(hex(rest))),
                ("map", rest) => mappings.push(parse_maps_line(rest).unwrap()),
                other => panic!("{other:?}"),
            }
        }
        let mut rest = &bytes[at + mark.len()..];
        let mut regions = Vec::new();
        while let Some((head, tail)) = rest.split_at_checked(16) {
            let number = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().unwrap());
            let (data, tail) = tail.split_at(number(8) as usize);
            regions.push((number(0), data.to_vec()));
            rest = tail;
        }
        let sp = regs.unwrap().sp.0;
        regions.sort_by_key(|(base, _)| *base != sp);
        Self {
            regs: regs.unwrap(),
            chain,
            mappings,
            memory: Regions(regions),
        }
    }

    /// Every file of the dump, and an unwinder for it.
    pub fn unwinder(&self) -> (Unwinder, Files) {
        let mut files = Files::default();
        for mapping in self
            .mappings
            .iter()
            .filter(|m| m.executable && m.path.starts_with('/'))
        {
            let bytes = std::fs::read(&mapping.path).unwrap();
            let code = Arc::new(ModuleCode::parse(&bytes[..]).unwrap());
            let bias = code.load_bias(mapping).unwrap();
            files
                .0
                .push((mapping.start.0..mapping.end.0, bias, code, bytes));
        }
        (files.unwinder(), files)
    }

    /// The vdso's mapping and bytes.
    pub fn vdso(&self) -> (&Mapping, &[u8]) {
        let mapping = self.mappings.iter().find(|m| m.path == "[vdso]").unwrap();
        let region = self
            .memory
            .0
            .iter()
            .find(|(base, _)| *base == mapping.start.0)
            .unwrap();
        (mapping, &region.1)
    }

    /// The range of the executable's own code.
    pub fn executable(&self, binary: &Path) -> Range<Avma> {
        let binary = binary.to_str().unwrap();
        let m = self
            .mappings
            .iter()
            .find(|m| m.executable && m.path == binary)
            .unwrap();
        m.start..m.end
    }
}

/// Stack memory in pieces.
#[derive(Clone)]
pub struct Regions(pub Vec<(u64, Vec<u8>)>);

impl StackMemory for Regions {
    fn read(&mut self, address: u64) -> Result<u64, ReadError> {
        self.0
            .iter()
            .find_map(|(base, bytes)| {
                let at = usize::try_from(address.checked_sub(*base)?).ok()?;
                Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
            })
            .ok_or(ReadError::Unreadable)
    }

    fn searchable(&self) -> Range<u64> {
        let (base, bytes) = &self.0[0];
        *base..base + bytes.len() as u64
    }
}

/// The files' contents.
#[derive(Default)]
pub struct Files(pub Vec<File>);

type File = (Range<u64>, LoadBias, Arc<ModuleCode>, Vec<u8>);

impl Files {
    pub fn unwinder(&self) -> Unwinder {
        let mut unwinder = Unwinder::default();
        for (range, bias, code, _) in &self.0 {
            let (start, end) = (Avma(range.start), Avma(range.end));
            unwinder
                .add_module(start, end, *bias, Ok(Arc::clone(code)))
                .unwrap();
        }
        unwinder
    }

    pub fn read(&self, address: Avma, buffer: &mut [u8]) -> bool {
        self.0
            .iter()
            .filter(|f| f.0.contains(&address.0))
            .any(|(_, bias, code, bytes)| {
                code.file_offset(bias.to_svma(address))
                    .and_then(|o| bytes.get(o.0 as usize..)?.get(..buffer.len()))
                    .map(|found| buffer.copy_from_slice(found))
                    .is_some()
            })
    }
}

/// A library that was made of assembler.
pub struct Assembled {
    bytes: Vec<u8>,
    symbols: BTreeMap<String, u64>,
}

impl Assembled {
    /// Address of its first byte.
    const BASE: u64 = 0x10_0000_0000;

    pub fn build(assembler: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (source, library) = (folder.path().join("a.s"), folder.path().join("a.so"));
        std::fs::write(&source, assembler).unwrap();
        let mut gcc = Command::new("gcc");
        gcc.args(["-shared", "-nostdlib", "-Wl,-Bsymbolic", "-o"]);
        let status = gcc.args([&library, &source]).status();
        assert!(status.expect("gcc starts").success());
        let bytes = std::fs::read(library).unwrap();
        let file = object::File::parse(&bytes[..]).unwrap();
        let symbols = file.symbols();
        let symbols = symbols.map(|s| (s.name().unwrap().to_owned(), s.address()));
        Self {
            symbols: symbols.collect(),
            bytes,
        }
    }

    pub fn address(&self, symbol: &str) -> u64 {
        Self::BASE + self.symbols[symbol]
    }

    pub fn unwind<M: StackMemory>(
        &self,
        regs: &UserRegs,
        memory: &mut M,
    ) -> (Unwinder, UnwoundStack) {
        let code = Arc::new(ModuleCode::parse(&self.bytes).unwrap());
        let mut unwinder = Unwinder::default();
        let end = Avma(Self::BASE + code.end().0);
        let bias = LoadBias(Self::BASE);
        unwinder.add_module(Avma(Self::BASE), end, bias, Ok(Arc::clone(&code)));
        let mut text = |address: Avma, buffer: &mut [u8]| {
            let offset = address.0.checked_sub(Self::BASE).map(Svma);
            let offset = offset.and_then(|svma| code.file_offset(svma));
            let found = offset.and_then(|o| self.bytes.get(o.0 as usize..)?.get(..buffer.len()));
            found.map(|found| buffer.copy_from_slice(found)).is_some()
        };
        let mut stack = UnwoundStack::default();
        unwinder.unwind(regs, memory, &mut text, &mut stack);
        (unwinder, stack)
    }
}

/// Code that cannot be read.
pub fn no_text(_: Avma, _: &mut [u8]) -> bool {
    false
}
