//! Bytes to each parser of what others wrote: the bodies of the fuzz targets.
//!
//! `fuzz/` holds a program for each of them, for libFuzzer (`cargo xtask fuzz`), and the corpus:
//! inputs that reach much of a parser, and all that ever broke one. `tests/it/corpus.rs` runs the
//! corpus again as an ordinary test, each input within [`Target::memory`] and [`Target::cpu`].
//!
//! A body asserts what must hold of any input, beyond that the parser returns. Where a checksum or
//! a header would keep all but the luckiest input out, the body puts right ones around it.
#![forbid(unsafe_code)]

mod bytes;
mod captured;
mod files;
mod image;
mod imports;
mod symbols;
mod traces;
mod unwinding;

/// A parser, or several that belong together.
#[derive(Copy, Clone, Debug)]
pub struct Target {
    /// Name of its program and of its folder in the corpus.
    pub name: &'static str,
    /// Hands the bytes to the parser.
    pub run: fn(&[u8]),
    /// Memory that an input may take beyond what the process has before it, MiB.
    pub memory: u64,
    /// CPU time that an input may take, seconds: far more than any takes, far less than forever.
    pub cpu: u64,
}

const fn target(name: &'static str, run: fn(&[u8]), memory: u64) -> Target {
    Target {
        name,
        run,
        memory,
        cpu: 10,
    }
}

/// All targets.
pub const TARGETS: &[Target] = &[
    target("elf", symbols::elf, 128),
    target("compressed_section", symbols::compressed_section, 192),
    target("mini_debug_info", symbols::mini_debug_info, 384),
    target("go_functions", symbols::go_functions, 128),
    target("debug_links", symbols::debug_links, 64),
    target("dwarf", symbols::dwarf, 192),
    target("dwarf_many", symbols::dwarf_many, 192),
    target("module", symbols::module, 128),
    target("split_dwarf", symbols::split_dwarf, 256),
    target("runtime_names", symbols::runtime_names, 128),
    target("demangle", symbols::demangle, 64),
    target("unwind", unwinding::unwind, 64),
    target("trace", traces::trace, 192),
    target("trace_blocks", traces::trace_blocks, 192),
    target("trace_views", traces::trace_views, 192),
    target("import_text", imports::import_text, 192),
    target("import_perf", imports::import_perf, 192),
    target("import_core", imports::import_core, 320),
    target("import_views", imports::import_views, 192),
    target("procfs", captured::procfs, 64),
    target("counters", captured::counters, 64),
    target("perf_record", captured::perf_record, 64),
    target("task_records", captured::task_records, 64),
    target("crypto_module", captured::crypto_module, 64),
    target("state_rules", files::state_rules, 128),
    target("hotspot_rules", files::hotspot_rules, 128),
    target("crypto_files", files::crypto_files, 64),
];

/// Runs the body of the target of that name; for the programs in `fuzz/`.
///
/// # Panics
/// When there is no such target, or it found a bug.
pub fn run(name: &str, data: &[u8]) {
    match TARGETS.iter().find(|target| target.name == name) {
        Some(target) => (target.run)(data),
        None => panic!("no fuzz target `{name}`"),
    }
}
