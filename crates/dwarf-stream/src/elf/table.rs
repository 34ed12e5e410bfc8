//! Bytes of tables and string tables to their entries.

use std::ffi::CStr;

use object::pod::{Pod, slice_from_bytes};

/// The entries of a table; bytes behind the last whole entry are left out.
pub fn entries<T: Pod>(bytes: &[u8]) -> &[T] {
    let n = bytes.len() / size_of::<T>().max(1);
    slice_from_bytes(bytes, n).map_or(&[], |(entries, _)| entries)
}

/// The zero-terminated string at an offset of a string table; empty when out of range.
pub fn c_string(strings: &[u8], at: u32) -> &[u8] {
    let rest = strings.get(at as usize..).unwrap_or_default();
    CStr::from_bytes_until_nul(rest).map_or(rest, CStr::to_bytes)
}
