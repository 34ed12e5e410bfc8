//! Lookups in files that no compiler writes.

mod child;
mod image;
mod lists;
mod memory;
mod work;
