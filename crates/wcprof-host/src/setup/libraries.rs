//! Mapped programs and libraries, and the version texts inside two of them.

use std::collections::{BTreeSet, HashSet};
use std::io::{self, BufRead, BufReader, Read};

use wcprof_types::snapshot::{Library, ProcessSetup, limits};
use wcprof_types::{Mapping, Pid, file_name, undeleted};

use super::malloc;
use super::tree::{Absent, Tree};
use crate::deadline::Awaited;
use crate::open::{LiveFiles, TargetFile, do_in_time};
use crate::procfs::parse_mappings;

/// Libraries that are searched for their version, and bytes of each.
const MAX_SEARCHES: usize = 8;
const MAX_SEARCHED: u64 = 64 << 20;
/// Files that are searched for the version of Ceph.
const MAX_OF_CEPH: usize = 2;
/// Bytes of a version text of Ceph, from and to, and what one of OpenSSL stays below.
const MIN_VERSION: usize = "9.0.0".len();
const MAX_VERSION: usize = 40;
const MAX_OPENSSL: usize = 80;

/// What finds a version text in a file.
type Find = fn(&mut dyn BufRead) -> io::Result<Option<String>>;

pub(super) fn read(tree: &Tree, pid: Pid, setup: &mut ProcessSetup) {
    let Some(mappings) = tree.parse_locked(pid, "maps", Absent::Noted, parse_mappings) else {
        return;
    };
    if mappings.n_left_out > 0 {
        let n = mappings.n_left_out;
        let path = format!("/proc/{pid}/maps");
        tree.left_out(&path, format!("{n} of its lines exceed a limit"));
    }
    let mut libraries = Vec::new();
    let mut n_searches = 0;
    for mapping in with_code(&mappings).take(limits::LIBRARIES) {
        let path = undeleted(&mapping.path);
        let version = version_in(&mapping.path).and_then(|find| {
            n_searches += 1;
            if n_searches > MAX_SEARCHES {
                let reason = format!("not searched for its version: {MAX_SEARCHES} others were");
                tree.left_out(path, reason);
                return None;
            }
            search(tree, pid, mapping, find)
        });
        libraries.push(Library {
            path: path.to_owned(),
            deleted: path.len() < mapping.path.len(),
            version,
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
    let mappings = tree.parse_locked(pid, "maps", Absent::Noted, parse_mappings)?;
    let of_ceph =
        with_code(&mappings).filter(|m| is_ceph_common(&m.path) || is_ceph_program(&m.path));
    let mut searched = of_ceph.take(MAX_OF_CEPH);
    searched.find_map(|mapping| search(tree, pid, mapping, ceph))
}

/// The first mapping of each file with code: a process may map the same one as often as it likes.
fn with_code(mappings: &[Mapping]) -> impl Iterator<Item = &Mapping> {
    let mut seen = HashSet::new();
    let code = mappings.iter().filter(|m| m.executable && is_file(m));
    code.filter(move |m| seen.insert(undeleted(&m.path)))
}

fn is_ceph_common(path: &str) -> bool {
    file_name(path).starts_with("libceph-common.so")
}

fn is_ceph_program(path: &str) -> bool {
    file_name(path).starts_with("ceph-")
}

fn is_file(mapping: &Mapping) -> bool {
    mapping.inode != 0 && mapping.path.starts_with('/')
}

/// What finds the version text inside a library of OpenSSL or Ceph; `None` for others.
fn version_in(path: &str) -> Option<Find> {
    let name = file_name(path);
    if name.starts_with("libcrypto.so") || name.starts_with("libcrypto-") {
        Some(openssl)
    } else {
        is_ceph_common(name).then_some(ceph)
    }
}

/// What a search finds in a mapped file. A program of Ceph has 30 MB: it is not held whole.
fn search(tree: &Tree, pid: Pid, mapping: &Mapping, find: Find) -> Option<String> {
    if !tree.is_live() {
        let path = format!("/proc/{pid}/root{}", mapping.path);
        let (bytes, _) = tree.bytes(&path, MAX_SEARCHED as usize, Absent::Noted)?;
        return find(&mut &*bytes).ok()?;
    }
    let files = LiveFiles::new(pid);
    if files.may_hang(mapping) {
        tree.left_out(
            &mapping.path,
            "on a network file system, or on one that wcprof does not know",
        );
        return None;
    }
    let file = files.open_mapping(mapping).map_err(|e| e.reason);
    let found = file.and_then(|file| {
        let find = move |file: TargetFile| {
            let content = (&*file).take(MAX_SEARCHED);
            find(&mut BufReader::with_capacity(1 << 16, content))
        };
        Ok(do_in_time(Awaited::Facts(pid), &file, find)??)
    });
    let not_opened = |reason| tree.not_opened(&mapping.path, &reason);
    found.map_err(not_opened).ok()?
}

/// Goes through what ends with a zero byte, until `is_enough`.
fn for_each_string(
    content: &mut dyn BufRead,
    mut is_enough: impl FnMut(&[u8]) -> bool,
) -> io::Result<()> {
    let mut string = Vec::new();
    while content.read_until(0, &mut string)? > 0 {
        if string.strip_suffix(&[0]).is_none_or(&mut is_enough) {
            break;
        }
        string.clear();
    }
    Ok(())
}

/// `OpenSSL 3.0.15 3 Sep 2024` (`OPENSSL_VERSION_TEXT`): a string of its own.
fn openssl(content: &mut dyn BufRead) -> io::Result<Option<String>> {
    let mut found = None;
    for_each_string(content, |string| {
        let version = string.strip_prefix(b"OpenSSL ").unwrap_or_default();
        if version.first().is_some_and(u8::is_ascii_digit) && string.len() < MAX_OPENSSL {
            found = String::from_utf8(string.to_vec()).ok();
        }
        found.is_some()
    })?;
    Ok(found.filter(|text| !text.contains(char::is_control)))
}

/// `CEPH_GIT_NICE_VER`: `16.2.15`, `19.2.1-222.el9cp`. The one before the text that Ceph prints before it
/// (`src/common/version.cc`; so in Debian's `ceph-osd` 14.2.21, 16.2.15 and 18.2.7), else a string of its own. `None` when there
/// are several different ones.
fn ceph(content: &mut dyn BufRead) -> io::Result<Option<String>> {
    let (mut last, mut before, mut alone) = (Vec::new(), None, BTreeSet::new());
    for_each_string(content, |string| {
        if string == b"ceph version " {
            before = version_at_end(&last);
        }
        last.clear();
        last.extend_from_slice(&string[string.len().saturating_sub(MAX_VERSION)..]);
        if alone.len() < 2
            && (MIN_VERSION..=MAX_VERSION).contains(&string.len())
            && let Ok(text) = std::str::from_utf8(string)
            && is_version(text)
        {
            alone.insert(text.to_owned());
        }
        before.is_some()
    })?;
    let only = (alone.len() == 1).then(|| alone.pop_first()).flatten();
    Ok(before.or(only))
}

/// What the linker puts before a string need not end with a zero byte.
fn version_at_end(end: &[u8]) -> Option<String> {
    let is_number = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
    let mut begins = (0..end.len()).filter(|&at| at == 0 || !is_number(&end[at - 1]));
    begins.find_map(|at| {
        let text = std::str::from_utf8(&end[at..]).ok()?;
        is_version(text).then(|| text.to_owned())
    })
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
        let openssl = |mut bytes: &[u8]| openssl(&mut bytes).unwrap();
        let ceph = |mut bytes: &[u8]| ceph(&mut bytes).unwrap();
        let crypto = b"junk\0OpenSSL CMAC\0OpenSSL 3.0.15 3 Sep 2024\0more";
        assert_eq!(openssl(crypto).unwrap(), "OpenSSL 3.0.15 3 Sep 2024");
        assert_eq!(openssl(b"OpenSSL 3 without an end"), None);
        assert_eq!(openssl(b"OpenSSL 3.0\nand more\0"), None);
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
