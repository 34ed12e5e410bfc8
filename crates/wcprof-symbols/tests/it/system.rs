//! Files that every Linux machine has: libc and the vdso.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use wcprof_symbols::{
    LocalFiles, ModuleFile, ModuleFiles, ModuleIdentity, NoFile, OpenError, SymbolOptions,
    TargetFile,
};
use wcprof_types::{Mapping, parse_maps_line};

use crate::common::{build_id, nm, symbolize};

fn own_mappings() -> Vec<Mapping> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().map(|l| parse_maps_line(l).unwrap()).collect()
}

fn without_debug_files() -> SymbolOptions {
    SymbolOptions {
        debug_dirs: Vec::new(),
        ..SymbolOptions::default()
    }
}

/// Check exported functions of libc against `nm -D`: the public name is taken, also inside the
/// function, and every exported function gets a name that is exported for its address, an old version with its version.
#[test]
fn libc() {
    let mappings = own_mappings();
    let libc = mappings
        .iter()
        .find(|m| m.path.rsplit('/').next() == Some("libc.so.6"))
        .expect("tests are linked to libc.so.6");
    let path = PathBuf::from(&libc.path);
    let exported: Vec<(u64, String)> = nm(&path, &["-D"])
        .into_iter()
        // Of today's versions the name alone.
        .map(|(address, name)| (address, name.split("@@").next().unwrap().to_owned()))
        .collect();
    let identity = ModuleIdentity {
        path: libc.path.clone(),
        build_id: Some(build_id(&path)),
        pid: None,
        start: None,
    };
    let name_at = |address| {
        let options = without_debug_files();
        let result = symbolize(&identity, &LocalFiles, &options, &[address]);
        result.frames[0][0].name.clone()
    };
    for name in [
        "malloc",
        "free",
        "poll",
        "write",
        "epoll_wait",
        "pthread_mutex_lock",
        "fdatasync",
    ] {
        let (address, _) = exported.iter().find(|(_, n)| n == name).unwrap();
        assert_eq!(name_at(*address), name);
        assert_eq!(name_at(*address + 3), name);
    }
    let addresses: Vec<u64> = exported.iter().map(|(address, _)| *address).collect();
    let result = symbolize(&identity, &LocalFiles, &without_debug_files(), &addresses);
    let mut checked = 0;
    for (address, frames) in addresses.iter().zip(&result.frames) {
        if frames[0].resolved {
            let found = (*address, frames[0].name.clone());
            assert!(exported.contains(&found), "{found:x?}");
            checked += 1;
        }
    }
    assert!(checked > 1000, "{checked}");
    assert!(result.report.missing_symtab && result.report.missing_dwarf);
}

/// Check that functions which a linker has folded because their code is the same are shown as such, and that
/// constructors, which have two linkage names, are not.
#[test]
fn folded() {
    const SOURCE: &str = "struct A { int a; A(); __attribute__((noinline)) int f(int); };
        struct B { int b; __attribute__((noinline)) int g(int); };
        A::A() { a = 3; }
        int A::f(int n) { return a * n + 7; }
        int B::g(int n) { return b * n + 7; }
        int main(int n, char **) { A a; B b = {2}; return a.f(n) + b.g(n); }";
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("f.cc"), folder.path().join("f"));
    std::fs::write(&source, SOURCE).unwrap();
    let built = std::process::Command::new("g++")
        .args([
            "-O1",
            "-ffunction-sections",
            "-fuse-ld=gold",
            "-Wl,--icf=all,--build-id",
            "-o",
        ])
        .args([&program, &source])
        .output()
        .unwrap();
    assert!(built.status.success(), "{built:?}");
    let identity = ModuleIdentity {
        path: program.display().to_string(),
        build_id: Some(build_id(&program)),
        pid: None,
        start: None,
    };
    let functions = nm(&program, &[]);
    let name_of = |linkage_name: &str| {
        let (address, _) = functions
            .iter()
            .find(|(_, name)| name == linkage_name)
            .unwrap();
        let result = symbolize(&identity, &LocalFiles, &without_debug_files(), &[*address]);
        result.frames[0][0].name.clone()
    };
    assert_eq!(name_of("_ZN1A1fEi"), name_of("_ZN1B1gEi"));
    assert_eq!(name_of("_ZN1A1fEi"), "A::f(int) [or 1 other]");
    assert_eq!(name_of("_ZN1AC1Ev"), "A::A()");
}

/// Serves a copy of the vdso.
struct Vdso(Vec<u8>);

impl ModuleFiles for Vdso {
    fn open(&self, _module: &ModuleIdentity) -> Result<ModuleFile, OpenError> {
        Ok(ModuleFile::Bytes(self.0.clone()))
    }

    fn open_path(&self, _module: &ModuleIdentity, path: &Path) -> Result<TargetFile, OpenError> {
        Err(NoFile::NotFound.at(path))
    }
}

/// Check that the vdso is named from a copy of its image.
#[test]
fn vdso() {
    let mappings = own_mappings();
    let vdso = mappings.iter().find(|m| m.path == "[vdso]").unwrap();
    let mut image = vec![0; usize::try_from(vdso.end.0 - vdso.start.0).unwrap()];
    let memory = std::fs::File::open("/proc/self/mem").unwrap();
    memory.read_exact_at(&mut image, vdso.start.0).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("vdso.so");
    std::fs::write(&copy, &image).unwrap();
    let (address, _) = nm(&copy, &["-D"])
        .into_iter()
        .find(|(_, name)| name.split('@').next() == Some("__vdso_clock_gettime"))
        .unwrap();
    let identity = ModuleIdentity {
        path: "[vdso]".to_owned(),
        build_id: None,
        pid: None,
        start: None,
    };
    let files = Vdso(image);
    let result = symbolize(&identity, &files, &without_debug_files(), &[address + 1]);
    let name = &result.frames[0][0].name;
    assert!(name.ends_with("clock_gettime"), "{name}");
}
