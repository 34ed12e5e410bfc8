//! Mapped programs and libraries, and the version texts inside two of them.

use std::io::Read;

use wcprof_types::snapshot::{Library, ProcessSetup};
use wcprof_types::{Mapping, Pid};

use super::malloc;
use super::tree::{Absent, Tree};
use crate::open::LiveFiles;
use crate::procfs::parse_mappings;

const MAX_LIBRARIES: usize = 1024;
/// Bytes of a library that are searched for its version.
const MAX_SEARCHED: u64 = 64 << 20;
/// Bytes of a version text.
const MAX_VERSION: usize = 40;

pub(super) fn read(tree: &Tree, pid: Pid, setup: &mut ProcessSetup) {
    let path = format!("/proc/{pid}/maps");
    let Some(mappings) = tree.parse(&path, Absent::Noted, parse_mappings) else {
        return;
    };
    if mappings.n_left_out > 0 {
        let n = mappings.n_left_out;
        tree.left_out(&path, format!("{n} of its lines exceed a limit"));
    }
    let mut libraries: Vec<Library> = Vec::new();
    let code = mappings.iter().filter(|m| m.executable && is_file(m));
    for mapping in code {
        let (path, deleted) = match mapping.path.strip_suffix(" (deleted)") {
            Some(path) => (path, true),
            None => (mapping.path.as_str(), false),
        };
        if libraries.len() >= MAX_LIBRARIES || libraries.iter().any(|l| l.path == path) {
            continue;
        }
        libraries.push(Library {
            path: path.to_owned(),
            deleted,
            version: version(tree, pid, mapping),
        });
    }
    if mappings.iter().any(|m| m.path.starts_with("/[aio]")) {
        setup
            .fds
            .get_or_insert_default()
            .anonymous
            .insert("[aio]".into(), 1);
    }
    if tree.is_live() {
        setup.malloc = malloc::find(pid, &mappings);
    }
    setup.libraries = Some(libraries);
}

/// The version of Ceph that a live process runs: in its library, or in the program, which has that library's code in
/// itself (`ceph-osd`).
pub(super) fn ceph_version(tree: &Tree, pid: Pid) -> Option<String> {
    let mappings = tree.parse(&format!("/proc/{pid}/maps"), Absent::Noted, parse_mappings)?;
    let code = mappings.iter().filter(|m| m.executable && is_file(m));
    let mut of_ceph = code.filter(|m| is_ceph_common(&m.path) || is_ceph_program(&m.path));
    of_ceph.find_map(|mapping| ceph(&content(tree, pid, mapping)?))
}

fn is_ceph_common(path: &str) -> bool {
    let name = path.rsplit('/').next();
    name.is_some_and(|name| name.starts_with("libceph-common.so"))
}

fn is_ceph_program(path: &str) -> bool {
    let name = path.rsplit('/').next();
    name.is_some_and(|name| name.starts_with("ceph-"))
}

fn is_file(mapping: &Mapping) -> bool {
    mapping.inode != 0 && mapping.path.starts_with('/')
}

/// The version text inside a library of OpenSSL or Ceph.
fn version(tree: &Tree, pid: Pid, mapping: &Mapping) -> Option<String> {
    let name = mapping.path.rsplit('/').next()?;
    if name.starts_with("libcrypto.so") || name.starts_with("libcrypto-") {
        openssl(&content(tree, pid, mapping)?)
    } else if is_ceph_common(name) {
        ceph(&content(tree, pid, mapping)?)
    } else {
        None
    }
}

fn content(tree: &Tree, pid: Pid, mapping: &Mapping) -> Option<Vec<u8>> {
    if !tree.is_live() {
        let path = format!("/proc/{pid}/root{}", mapping.path);
        let (bytes, _) = tree.bytes(&path, MAX_SEARCHED as usize, Absent::Noted)?;
        return Some(bytes);
    }
    let files = LiveFiles::new(pid);
    if files.may_hang(mapping) {
        tree.left_out(&mapping.path, "on a network file system");
        return None;
    }
    let mut bytes = Vec::new();
    let read = files.open_mapping(mapping).map_err(|e| e.reason);
    let read = read.and_then(|file| Ok(file.take(MAX_SEARCHED).read_to_end(&mut bytes)?));
    read.map_err(|reason| tree.left_out(&mapping.path, reason.to_string()))
        .ok()?;
    Some(bytes)
}

/// The rest of a C string of printable characters.
fn c_string(bytes: &[u8]) -> Option<&str> {
    let end = bytes.iter().take(80).position(|&b| b == 0)?;
    let text = std::str::from_utf8(bytes.get(..end)?).ok()?;
    (!text.contains(char::is_control)).then_some(text)
}

/// `OpenSSL 3.0.15 3 Sep 2024` (`OPENSSL_VERSION_TEXT`): a string of its own.
fn openssl(bytes: &[u8]) -> Option<String> {
    const BEGIN: &[u8] = b"OpenSSL ";
    let mut strings = bytes.split_inclusive(|&b| b == 0);
    let found = strings.find(|string| {
        string.starts_with(BEGIN) && string.get(BEGIN.len()).is_some_and(u8::is_ascii_digit)
    });
    c_string(found?).map(str::to_owned)
}

/// `CEPH_GIT_NICE_VER`: `16.2.15`, `19.2.1-222.el9cp`. The one before the text that Ceph prints before it
/// (`src/common/version.cc`; so in Debian's `ceph-osd` 14.2.21, 16.2.15 and 18.2.7), else a string of its own. `None` when there
/// are several different ones.
fn ceph(bytes: &[u8]) -> Option<String> {
    version_before(bytes, b"\0ceph version \0").or_else(|| only_version(bytes))
}

/// The version that ends there; what the linker puts before a string need not end with a zero byte.
fn version_before(bytes: &[u8], next: &[u8]) -> Option<String> {
    let end = bytes.windows(next.len()).position(|bytes| bytes == next)?;
    let before = bytes.get(end.saturating_sub(MAX_VERSION)..end)?;
    let is_number = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
    let mut begins = (0..before.len()).filter(|&at| at == 0 || !is_number(&before[at - 1]));
    begins.find_map(|at| {
        let text = std::str::from_utf8(&before[at..]).ok()?;
        is_version(text).then(|| text.to_owned())
    })
}

/// The strings that are a version.
fn only_version(bytes: &[u8]) -> Option<String> {
    let strings = bytes
        .split(|&b| b == 0)
        .filter(|s| (5..=MAX_VERSION).contains(&s.len()));
    let mut versions =
        strings.filter_map(|s| std::str::from_utf8(s).ok().filter(|t| is_version(t)));
    let first = versions.next()?;
    versions
        .all(|other| other == first)
        .then(|| first.to_owned())
}

/// `16.2.15` and `19.2.1-222.el9cp`; Ceph's major numbers began at 9 when it took three numbers.
fn is_version(text: &str) -> bool {
    let (numbers, rest) = text.split_once(['-', '+', '~']).unwrap_or((text, "x"));
    let numbers: Vec<Option<u32>> = numbers
        .split('.')
        .map(|n| n.parse().ok().filter(|_| n.len() < 4))
        .collect();
    matches!(numbers.as_slice(), [Some(9..=99), Some(0..=9), Some(_)])
        && !rest.is_empty()
        && text.chars().all(|c| c.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check version texts among look-alikes.
    #[test]
    fn versions() {
        let crypto = b"junk\0OpenSSL CMAC\0OpenSSL 3.0.15 3 Sep 2024\0more";
        assert_eq!(openssl(crypto).unwrap(), "OpenSSL 3.0.15 3 Sep 2024");
        assert_eq!(openssl(b"OpenSSL 3 without an end"), None);
        assert_eq!(ceph(b"\x001.2.13\0\x0016.2.15\0x").unwrap(), "16.2.15");
        assert_eq!(
            ceph(b"\0\x0019.2.1-222.el9cp\0").unwrap(),
            "19.2.1-222.el9cp"
        );
        assert_eq!(ceph(b"\x0016.2.15\0\x0017.2.6\0"), None);
        assert_eq!(ceph(b"\x00127.0.0.1\0\x0010.0.0.300.1\0"), None);
        let program = b"\x0012.0.1\0_cgroup_limit16.2.15\0ceph version \0\x0013.2.1\0";
        assert_eq!(ceph(program).unwrap(), "16.2.15");
        assert_eq!(ceph(b"10.0.0.16.2.15\0ceph version \0"), None);
    }
}
