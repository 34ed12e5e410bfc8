//! Lines of `/proc/PID/maps` (`fs/proc/task_mmu.c`, `show_map_vma`).

use thiserror::Error;

use crate::{Avma, FileOffset};

/// Path of the kernel's image that every process has mapped.
pub const VDSO: &str = "[vdso]";

/// One line of `/proc/PID/maps`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// First address.
    pub start: Avma,
    /// First address after the mapping.
    pub end: Avma,
    /// Readable.
    pub readable: bool,
    /// What is there may change: it is writable, or shared with others who may write to the file.
    pub mutable: bool,
    /// Executable.
    pub executable: bool,
    /// Where in the file `start` is.
    pub offset: FileOffset,
    /// Device (major, minor) of the file; (0, 0) without one.
    pub device: (u32, u32),
    /// Inode of the file; 0 without one.
    pub inode: u64,
    /// The path as the kernel prints it: `\012` for a newline, ` (deleted)` after an unlinked
    /// file, `[stack]`, `[vdso]`; empty for anonymous memory.
    pub path: String,
}

/// The last part of a path.
pub fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// A path without what the kernel writes after that of an unlinked file.
pub fn undeleted(path: &str) -> &str {
    path.strip_suffix(" (deleted)").unwrap_or(path)
}

impl Mapping {
    /// Whether no file backs it: one can have the inode 0 (a FUSE server chooses it), but then has a device.
    pub fn is_anonymous(&self) -> bool {
        self.inode == 0 && self.device == (0, 0)
    }

    /// Whether `address` is in this mapping.
    pub fn contains(&self, address: Avma) -> bool {
        (self.start..self.end).contains(&address)
    }
}

/// A line that is not a mapping.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("malformed line in proc maps: {0:?}")]
pub struct MapsError(pub String);

/// Parses one line (without its newline).
pub fn parse_maps_line(line: &str) -> Result<Mapping, MapsError> {
    parse(line).ok_or_else(|| MapsError(line.chars().take(200).collect()))
}

/// Parses the whole file. Stops at the first malformed line.
pub fn parse_maps(text: &str) -> Result<Vec<Mapping>, MapsError> {
    text.lines().map(parse_maps_line).collect()
}

fn parse(line: &str) -> Option<Mapping> {
    let hex = |s: &str| u64::from_str_radix(s, 16).ok();
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let permissions = fields.next()?.as_bytes();
    let offset = hex(fields.next()?)?;
    let (major, minor) = fields.next()?.split_once(':')?;
    let inode = fields.next()?.parse().ok()?;
    let path = fields.next().unwrap_or("").trim_start_matches(' ');
    let (start, end) = (hex(start)?, hex(end)?);
    if permissions.len() != 4 || start >= end {
        return None;
    }
    Some(Mapping {
        start: Avma(start),
        end: Avma(end),
        readable: permissions[0] == b'r',
        mutable: permissions[1] == b'w' || permissions[3] == b's',
        executable: permissions[2] == b'x',
        offset: FileOffset(offset),
        device: (
            u32::from_str_radix(major, 16).ok()?,
            u32::from_str_radix(minor, 16).ok()?,
        ),
        inode,
        path: path.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check a file mapping whose path holds spaces and the deleted mark.
    #[test]
    fn file_with_spaces() {
        let m = parse_maps_line(
            "55d0c0a00000-55d0c0a21000 r-xp 00002000 fe:01 131 /opt/my app/x (deleted)",
        )
        .unwrap();
        assert_eq!(m.path, "/opt/my app/x (deleted)");
        assert_eq!((m.device, m.inode), ((0xfe, 1), 131));
        assert!(m.executable && m.readable);
        assert_eq!(m.offset, FileOffset(0x2000));
        assert!(m.contains(Avma(0x55d0_c0a0_0000)) && !m.contains(Avma(0x55d0_c0a2_1000)));
    }

    /// Check that a file of a server that chose the inode 0 is no anonymous memory.
    #[test]
    fn anonymous() {
        let is_anonymous = |line| parse_maps_line(line).unwrap().is_anonymous();
        assert!(is_anonymous("7f00-7f10 rw-p 00000000 00:00 0 [stack]"));
        assert!(!is_anonymous(
            "7f00-7f10 rw-p 00000000 00:2f 0 /mnt/fuse/stack"
        ));
    }

    /// Check anonymous memory, which has no path, and the padding before a special name.
    #[test]
    fn anonymous_and_special() {
        assert_eq!(
            parse_maps_line("7f00-7f10 rw-p 00000000 00:00 0 ")
                .unwrap()
                .path,
            ""
        );
        let vdso =
            "7fff00000000-7fff00002000 r-xp 00000000 00:00 0                          [vdso]";
        assert_eq!(parse_maps_line(vdso).unwrap().path, "[vdso]");
    }

    /// Check that malformed lines are errors, never panics.
    #[test]
    fn malformed() {
        for bad in [
            "",
            "zz-10 r-xp 0 0:0 0",
            "10-10 r-xp 0 0:0 0",
            "10-20 rx 0 0:0 0",
            "10-20 r-xp 0 0 0",
            "10-20",
        ] {
            assert!(parse_maps_line(bad).is_err(), "{bad}");
        }
    }
}
