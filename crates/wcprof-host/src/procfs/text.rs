//! Paths of `/proc` and `/sys` to bytes and text, within limits: the kernel answers at once, but a process decides how
//! much it says.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use wcprof_types::Pid;

/// Largest single-line file read (`stat`, `schedstat`, `syscall`, `comm`).
const LINE_BYTES: usize = 1024;
/// Bytes read of a longer file.
const MAX_TEXT: u64 = 1 << 16;
/// Most files of `/proc` are shorter.
const USUAL_BYTES: usize = 1024;

/// Opens a file of `/proc` or `/sys`, for what is read in pieces.
pub fn open(path: impl AsRef<Path>) -> io::Result<File> {
    File::open(path)
}

/// At most `limit` bytes of a file of `/proc` or `/sys`.
pub fn read_bytes(path: impl AsRef<Path>, limit: u64) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    // Files of `/proc` say that they are empty. One of megabytes is not moved as it grows.
    let len = file.metadata().map_or(0, |m| m.len()).min(limit);
    // Into a small buffer it would be read in pieces of 32 and 64 bytes, a call each.
    let mut bytes = Vec::with_capacity((len as usize).max(USUAL_BYTES));
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The text of a file of `/proc` or `/sys`: at most 64 KiB of it, bytes that are not UTF-8 replaced.
pub fn read_file(path: impl AsRef<Path>) -> io::Result<String> {
    let bytes = read_bytes(path, MAX_TEXT)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The text of a file of a process, such as `cmdline` or `task/TID/comm`; see [`read_file`].
pub fn read_text(pid: Pid, name: &str) -> io::Result<String> {
    read_file(format!("/proc/{pid}/{name}"))
}

/// Reads a small file of one line that is held open, from its beginning.
pub fn read_line<'b>(file: &File, buffer: &'b mut [u8; LINE_BYTES]) -> io::Result<&'b str> {
    std::str::from_utf8(read_line_bytes(file, buffer)?).map_err(io::Error::other)
}

/// The same of `stat`, whose name of the thread may hold any byte.
pub fn read_line_bytes<'b>(file: &File, buffer: &'b mut [u8; LINE_BYTES]) -> io::Result<&'b [u8]> {
    let n = file.read_at(buffer, 0)?;
    Ok(&buffer[..n])
}

/// A zeroed buffer for [`read_line`].
pub const fn line_buffer() -> [u8; LINE_BYTES] {
    [0; LINE_BYTES]
}
