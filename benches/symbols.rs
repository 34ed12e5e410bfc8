//! Time to demangle a name, to look names up in a symbol table, and to find inline frames and lines in
//! a small debug file.

use std::hint::black_box;
use std::path::Path;
use std::process::Command;

use criterion::{Criterion, criterion_group, criterion_main};
use wcprof_symbols::elf::ElfFile;
use wcprof_symbols::{
    AddressQuery, Inlines, LocalFiles, ModuleIdentity, ModuleQuery, SymbolOptions, demangle,
    open_regular, symbolize_modules,
};
use wcprof_types::{BuildId, Svma};

const NAMES: [(&str, &str); 3] = [
    ("C++, short", "_ZN4ceph6buffer7v15_2_04list6appendEPKcj"),
    (
        "C++, long",
        "_ZNSt8_Rb_treeINSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEESt4pairIKS5_S5_ESt10_Select1stIS8_ESt4lessIS5_ESaIS8_EE22_M_emplace_hint_uniqueIJRKSt21piecewise_construct_tSt5tupleIJRS7_EESJ_IJEEEEESt17_Rb_tree_iteratorIS8_ESt23_Rb_tree_const_iteratorIS8_EDpOT_",
    ),
    ("Rust", "_ZN4core3fmt9Formatter3pad17h1f2e3d4c5b6a7988E"),
];

fn names(c: &mut Criterion) {
    for (what, name) in NAMES {
        c.bench_function(&format!("demangle, {what}"), |b| {
            b.iter(|| demangle(black_box(name.as_bytes())));
        });
    }
}

fn query(path: &Path) -> ModuleQuery {
    let file = open_regular(path).expect("a regular file");
    let elf = ElfFile::from_file(file).expect("an ELF file");
    let text = elf.section(".text").expect("code");
    let address = |i: u64| AddressQuery {
        address: Svma(text.address + i * (text.size / 100).max(1)),
        function: None,
    };
    ModuleQuery {
        module: ModuleIdentity {
            path: path.to_string_lossy().into_owned(),
            build_id: elf.build_id().and_then(|id| BuildId::new(&id)),
            pid: None,
            start: None,
        },
        base: Svma(0),
        addresses: (0..100).map(address).collect(),
    }
}

fn modules(c: &mut Criterion) {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().join("module");
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/wcprof-symbols/tests/data/inline.cc");
    let status = Command::new("g++")
        .args(["-O2", "-g", "-gz=zlib", "-o"])
        .arg(&path)
        .arg(source)
        .status();
    assert!(status.is_ok_and(|s| s.success()), "g++ is needed");
    let queries = [query(&path)];
    for (what, inlines) in [
        ("symbol table", Inlines::No),
        ("symbol table and DWARF", Inlines::All),
    ] {
        let options = SymbolOptions {
            inlines,
            debug_dirs: Vec::new(),
            ..SymbolOptions::default()
        };
        c.bench_function(&format!("100 addresses, {what}"), |b| {
            b.iter(|| symbolize_modules(black_box(&queries), &LocalFiles, &options));
        });
    }
}

criterion_group!(benches, names, modules);
criterion_main!(benches);
