//! Symbolization of ELF files that are built for the tests with `gcc` and binutils.

mod common;
mod debug_files;
mod hostile;
mod naming;
mod system;
