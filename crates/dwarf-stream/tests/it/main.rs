//! Lookups in files that no compiler writes.

mod child;
mod go;
mod image;
mod lists;
mod memory;
mod work;
