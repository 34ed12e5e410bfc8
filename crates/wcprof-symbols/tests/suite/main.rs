//! Symbolization of ELF files that are built for the tests with `gcc` and binutils.

mod common;
mod debug_files;
mod dwarf;
mod hostile;
mod naming;
mod system;
