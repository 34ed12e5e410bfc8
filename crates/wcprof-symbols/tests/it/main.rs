//! Symbolization of ELF files that are built for the tests with `gcc` and binutils.

#[path = "../../../dwarf-stream/tests/it/child.rs"]
mod child;
mod common;
mod debug_files;
mod debuginfod;
mod dwarf;
mod dwz;
mod exported;
mod hostile;
mod large;
mod mini_debug_info;
mod naming;
mod split;
mod system;
