//! Tests of what is kept, for whom, and of what is refused.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::Arc;

use proptest::prelude::*;

use super::*;

fn frame(name: &str, line: u32) -> DwarfFrame {
    DwarfFrame {
        name: Some(Arc::from(name)),
        file: Some(Arc::from("a.cc")),
        line: Some(line).filter(|line| *line > 0),
    }
}

fn entries() -> Entries {
    Entries::from([
        (0x10, vec![frame("inner", 3), frame("outer", 7)]),
        (0x20, vec![DwarfFrame::default()]),
        (0x30, Vec::new()),
        (0x40, vec![frame("outer", 0)]),
    ])
}

fn slot(dir: &Path) -> Slot {
    Slot {
        dir: dir.to_owned(),
        path: dir.join(format!("abcd.{SUFFIX}")),
        identity: "this file".to_owned(),
    }
}

/// Check that what was written is read, by its owner alone, and only for the same debug file.
#[test]
fn written_and_read() {
    let dir = tempfile::tempdir().unwrap();
    let slot = slot(&dir.path().join("made/here"));
    assert_eq!(slot.read(), None);
    slot.write(&entries()).unwrap();
    assert_eq!(slot.read(), Some(entries()));
    let mode = fs::metadata(&slot.path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let other = Slot {
        identity: "another file".to_owned(),
        ..slot
    };
    assert_eq!(other.read(), None);
    assert_eq!(fs::read_dir(&other.dir).unwrap().count(), 1);
}

/// Check that a file that others can write is not taken, nor a folder of others used.
#[test]
fn of_others() {
    let dir = tempfile::tempdir().unwrap();
    let slot = slot(dir.path());
    slot.write(&entries()).unwrap();
    fs::set_permissions(&slot.path, fs::Permissions::from_mode(0o622)).unwrap();
    assert_eq!(slot.read(), None);
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    assert!(slot.write(&entries()).is_err());
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
}

/// Check that neither a FIFO nor a link to a device in place of the file is opened.
#[test]
fn special_files() {
    let dir = tempfile::tempdir().unwrap();
    let slot = slot(dir.path());
    nix::unistd::mkfifo(&slot.path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert_eq!(slot.read(), None);
    fs::remove_file(&slot.path).unwrap();
    symlink("/dev/zero", &slot.path).unwrap();
    assert_eq!(slot.read(), None);
    // It is replaced, not written through.
    slot.write(&entries()).unwrap();
    assert_eq!(slot.read(), Some(entries()));
}

/// Check that the files that were used last stay, and that other files are left alone.
#[test]
fn least_recently_used() {
    let dir = tempfile::tempdir().unwrap();
    let now = SystemTime::now();
    for (name, age) in [("a", 30), ("b", 10), ("c", 20)] {
        let path = dir.path().join(format!("{name}.{SUFFIX}"));
        fs::write(&path, [0; 100]).unwrap();
        let file = fs::File::open(&path).unwrap();
        file.set_modified(now - Duration::from_secs(age)).unwrap();
    }
    fs::write(dir.path().join("mine"), [0; 1000]).unwrap();
    let abandoned = dir.path().join(format!(".1-0.{SUFFIX}"));
    fs::write(&abandoned, []).unwrap();
    let file = fs::File::open(&abandoned).unwrap();
    file.set_modified(now - 2 * ABANDONED).unwrap();
    shrink(dir.path(), 200).unwrap();
    let mut left: Vec<String> = fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort_unstable();
    let names = |name: &str| format!("{name}.{SUFFIX}");
    assert_eq!(left, [names("b"), names("c"), "mine".to_owned()]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Check that a damaged file is refused, also when its checksum was made to fit, or gives
    /// entries of some kind, and never a panic.
    #[test]
    fn damaged(flips in prop::collection::vec((any::<prop::sample::Index>(), 1_u8..), 1..8)) {
        let good = format::encode(&entries(), "id").unwrap();
        let mut bytes = good.clone();
        for (index, mask) in &flips {
            let i = index.index(bytes.len());
            bytes[i] ^= mask;
        }
        if bytes != good {
            prop_assert_eq!(format::decode(&bytes, "id"), None);
        }
        let end = bytes.len() - 4;
        let checksum = crc32fast::hash(&bytes[..end]);
        bytes[end..].copy_from_slice(&checksum.to_le_bytes());
        let _ = format::decode(&bytes, "id");
        prop_assert_eq!(format::decode(&good[..end], "id"), None);
    }
}
