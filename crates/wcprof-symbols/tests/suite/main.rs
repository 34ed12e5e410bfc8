//! Symbolization of ELF files that are built for the tests with `gcc` and binutils.

mod common;
mod debug_files;
mod dwarf;
mod dwz;
mod hostile;
mod mini_debug_info;
mod naming;
mod system;
