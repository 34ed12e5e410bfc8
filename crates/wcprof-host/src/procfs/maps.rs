//! `/proc/PID/maps` to mappings, a line at a time and within limits: a process decides how many mappings it has, and
//! how long their paths are.

use std::io::{self, BufRead, BufReader, Read};
use std::ops::Deref;

use wcprof_types::{Mapping, Pid, parse_maps_line};

use super::live_task::live_folder;
use super::text::open;

/// Four times the kernel's default limit (`vm.max_map_count`, 65 530).
const MAX_MAPPINGS: usize = 1 << 18;
/// Bytes of a line: four times the longest path that can be mapped by its name.
const MAX_LINE: usize = 16 << 10;
/// Bytes of all paths together.
const MAX_PATHS: usize = 16 << 20;

/// Mappings of a process, by address.
#[derive(Debug, Default)]
pub struct Mappings {
    list: Vec<Mapping>,
    /// Lines that exceeded a limit, or have another form.
    pub n_left_out: u64,
}

impl Deref for Mappings {
    type Target = [Mapping];

    fn deref(&self) -> &[Mapping] {
        &self.list
    }
}

/// Reads `/proc/PID/maps`.
pub fn read_mappings(pid: Pid) -> io::Result<Mappings> {
    parse_mappings(open(format!("{}/maps", live_folder(pid)))?)
}

/// Reads text in the form of `/proc/PID/maps`, in pieces.
pub(crate) fn parse_mappings(text: impl Read) -> io::Result<Mappings> {
    let mut text = BufReader::with_capacity(1 << 16, text);
    let mut mappings = Mappings::default();
    let (mut line, mut n_path_bytes) = (Vec::new(), 0);
    loop {
        line.clear();
        (&mut text)
            .take(MAX_LINE as u64)
            .read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(mappings);
        }
        let is_whole = line.pop_if(|byte| *byte == b'\n').is_some() || line.len() < MAX_LINE;
        if !is_whole {
            text.skip_until(b'\n')?;
        }
        let is_wanted = is_whole && mappings.list.len() < MAX_MAPPINGS;
        let mapping = is_wanted.then(|| parse_maps_line(&String::from_utf8_lossy(&line)).ok());
        match mapping.flatten() {
            Some(mapping) if n_path_bytes + mapping.path.len() <= MAX_PATHS => {
                n_path_bytes += mapping.path.len();
                mappings.list.push(mapping);
            }
            _ => mappings.n_left_out += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text of this many copies of a line, which nobody holds in memory.
    fn repeated(line: &str, n: usize) -> impl Read {
        struct Copies(Vec<u8>, usize, usize);
        impl Read for Copies {
            fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
                if self.2 == self.0.len() {
                    (self.1, self.2) = (self.1.saturating_sub(1), 0);
                }
                let rest = if self.1 == 0 { &[] } else { &self.0[self.2..] };
                let n = rest.len().min(to.len());
                to[..n].copy_from_slice(&rest[..n]);
                self.2 += n;
                Ok(n)
            }
        }
        Copies(line.as_bytes().to_vec(), n, 0)
    }

    const LINE: &str = "7f00-7f10 r-xp 00000000 fe:01 7 ";

    /// Check that of a million mappings those within the limit are kept, and the others are counted.
    #[test]
    fn many() {
        let mappings = parse_mappings(repeated(&format!("{LINE}/lib/x.so\n"), 1_000_000)).unwrap();
        assert_eq!(mappings.len(), MAX_MAPPINGS);
        assert_eq!(mappings.n_left_out, 1_000_000 - MAX_MAPPINGS as u64);
        assert_eq!(mappings[MAX_MAPPINGS - 1].path, "/lib/x.so");
    }

    /// Check that a gigabyte of paths is not held.
    #[test]
    fn long_paths() {
        let line = format!("{LINE}/{}\n", "x".repeat(10_000));
        let mappings = parse_mappings(repeated(&line, 100_000)).unwrap();
        let bytes: usize = mappings.iter().map(|m| m.path.len()).sum();
        assert!(bytes <= MAX_PATHS && bytes > MAX_PATHS - 10_001, "{bytes}");
        assert_eq!(mappings.len() as u64 + mappings.n_left_out, 100_000);
    }

    /// Check that a line without end, and one of another form, leave the next ones alone.
    #[test]
    fn bad_lines() {
        let long = format!("{LINE}/{}\n", "x".repeat(1 << 20));
        let text = format!("{long}rubbish\n{LINE}/a\n\n{long}{LINE}/last");
        let mappings = parse_mappings(text.as_bytes()).unwrap();
        let paths: Vec<&str> = mappings.iter().map(|m| m.path.as_str()).collect();
        assert_eq!(paths, ["/a", "/last"]);
        assert_eq!(mappings.n_left_out, 4);
        let exact = format!("{LINE}/{}", "x".repeat(MAX_LINE - LINE.len() - 1));
        assert_eq!(parse_mappings(exact.as_bytes()).unwrap().n_left_out, 1);
    }
}
