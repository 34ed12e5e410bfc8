//! Bytes of tables and string tables to their entries.

use std::ffi::CStr;

use object::pod::{Pod, slice_from_bytes};

/// Longest string that is read to its end, bytes: entries of a table may all point into one that never ends.
const MAX_STRING: usize = (64 << 10) + 1;

/// The entries of a table; bytes behind the last whole entry are left out.
pub fn entries<T: Pod>(bytes: &[u8]) -> &[T] {
    let n = bytes.len() / size_of::<T>().max(1);
    slice_from_bytes(bytes, n).map_or(&[], |(entries, _)| entries)
}

/// The zero-terminated string at an offset of a string table; empty when out of range, cut behind 64 KiB.
pub fn c_string(strings: &[u8], at: u32) -> &[u8] {
    let rest = strings.get(at as usize..).unwrap_or_default();
    let rest = rest.get(..MAX_STRING).unwrap_or(rest);
    CStr::from_bytes_until_nul(rest).map_or(rest, CStr::to_bytes)
}
