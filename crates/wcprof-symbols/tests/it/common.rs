//! Builds fixtures and symbolizes them.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use wcprof_symbols::elf::ElfFile;
use wcprof_symbols::{
    LocalFiles, ModuleFiles, ModuleIdentity, ModuleQuery, ModuleSymbols, SymbolOptions,
    open_regular, symbolize_modules,
};
use wcprof_trace::model::SymbolFrame;
use wcprof_types::{BuildId, Svma};

/// Runs a tool and returns what it prints.
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| {
        panic!("failed to run {command:?}: {e}; the tests need gcc, g++ and binutils")
    });
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// A source file of the fixtures.
pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

/// A folder with one built module in it.
pub struct Fixture {
    pub dir: TempDir,
    pub path: PathBuf,
    pub options: SymbolOptions,
}

impl Fixture {
    /// Builds `source` with `compiler` and `flags`.
    pub fn build(compiler: &str, source: &str, flags: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("module");
        run(Command::new(compiler)
            .args(flags)
            .arg("-Wl,--build-id=sha1")
            .arg("-o")
            .args([&path, &data(source)]));
        let options = SymbolOptions {
            debug_dirs: vec![dir.path().join("debug")],
            ..SymbolOptions::default()
        };
        Self { dir, path, options }
    }

    /// Addresses of symbols by `nm`.
    pub fn address(&self, symbol: &str) -> u64 {
        nm(&self.path, &[])
            .into_iter()
            .find_map(|(address, name)| (name == symbol).then_some(address))
            .unwrap_or_else(|| panic!("no symbol {symbol}"))
    }

    /// Moves the debug information to `to`, as distributions do, and strips the module.
    pub fn split_debug(&self, to: &Path) {
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        run(Command::new("objcopy")
            .arg("--only-keep-debug")
            .args([&self.path, to]));
        run(Command::new("objcopy").arg("--strip-all").arg(&self.path));
    }

    /// Where the build-id tree keeps the debug file of `id`.
    pub fn build_id_path(&self, id: &BuildId) -> PathBuf {
        let id = id.to_string();
        let dir = self.dir.path().join("debug/.build-id");
        dir.join(&id[..2]).join(format!("{}.debug", &id[2..]))
    }

    pub fn build_id(&self) -> BuildId {
        build_id(&self.path)
    }

    pub fn identity(&self) -> ModuleIdentity {
        ModuleIdentity {
            path: self.path.to_str().unwrap().to_owned(),
            build_id: Some(self.build_id()),
            pid: None,
            start: None,
        }
    }

    /// Symbolizes addresses with the fixture's options.
    pub fn symbolize(&self, addresses: &[u64]) -> ModuleSymbols {
        symbolize(&self.identity(), &LocalFiles, &self.options, addresses)
    }

    /// The frames at one address.
    pub fn frames(&self, address: u64) -> Vec<SymbolFrame> {
        self.symbolize(&[address]).frames.remove(0)
    }

    /// The name of the function at one address, without those inlined into it.
    pub fn name(&self, address: u64) -> String {
        self.frames(address).pop().unwrap().name
    }
}

/// Symbolizes addresses of one module.
pub fn symbolize(
    module: &ModuleIdentity,
    files: &dyn ModuleFiles,
    options: &SymbolOptions,
    addresses: &[u64],
) -> ModuleSymbols {
    let query = ModuleQuery {
        module: module.clone(),
        base: Svma(0),
        addresses: addresses.iter().map(|a| Svma(*a).into()).collect(),
    };
    symbolize_modules(&[query], files, options).remove(0)
}

/// The build-id of a file.
pub fn build_id(path: &Path) -> BuildId {
    let elf = ElfFile::from_file(open_regular(path).unwrap()).unwrap();
    BuildId::new(&elf.build_id().unwrap()).unwrap()
}

/// Defined symbols by `nm`.
pub fn nm(path: &Path, flags: &[&str]) -> Vec<(u64, String)> {
    let text = run(Command::new("nm")
        .arg("--defined-only")
        .args(flags)
        .arg(path));
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split_whitespace();
            let address = u64::from_str_radix(fields.next()?, 16).ok()?;
            Some((address, fields.nth(1)?.to_owned()))
        })
        .collect()
}

/// The line (from 1) of a source that holds `mark`.
pub fn line_of(source: &str, mark: &str) -> u32 {
    let text = std::fs::read_to_string(data(source)).unwrap();
    let i = text.lines().position(|line| line.contains(mark)).unwrap();
    u32::try_from(i).unwrap() + 1
}
