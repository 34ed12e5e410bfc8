//! Tests on folders, links and pipes in a folder of their own.

use std::fs::{self, Permissions, metadata, symlink_metadata};
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, chown, symlink};

use nix::sys::stat::Mode;
use tempfile::TempDir;

use super::*;

const NO: ForceArgs = ForceArgs { force: false };
const FORCE: ForceArgs = ForceArgs { force: true };
/// Neither root nor the user.
const OTHER: u32 = 65534;

/// How an output is made, and what it writes.
type Way = fn(&Path, ForceArgs) -> Result<(), Failure>;

fn report(path: &Path, force: ForceArgs) -> Result<(), Failure> {
    write_whole(path, force, b"new")
}

fn trace(path: &Path, force: ForceArgs) -> Result<(), Failure> {
    let (_, mut file) = create(path, force)?;
    Ok(file.write_all(b"new")?)
}

/// A trace that is made from others.
fn made(path: &Path, force: ForceArgs) -> Result<(), Failure> {
    write_trace(path, force, |mut file| Ok(file.write_all(b"new")?))
}

const WAYS: [Way; 3] = [report, trace, made];

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// The folder that other users can write, and what lies in it.
fn open_folder() -> TempDir {
    let folder = folder();
    fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
    folder
}

fn names(folder: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort_unstable();
    names
}

#[track_caller]
fn assert_refused(result: Result<(), Failure>, part: &str) {
    let text = result.unwrap_err().to_string();
    assert!(text.contains(part), "{text}");
}

/// Gives a file or a link to another user, if this one may.
fn is_given_away(path: &Path) -> bool {
    let given = std::os::unix::fs::lchown(path, Some(OTHER), None);
    if given.is_err() {
        eprintln!("SKIPPED test: only root can give files away");
    }
    given.is_ok()
}

/// Check that a new file is private, and that a file that is there is replaced with `--force`
/// alone, by one that is private, too.
#[test]
fn private_and_not_overwritten() {
    for way in WAYS {
        let folder = folder();
        let path = folder.path().join("a");
        way(&path, NO).unwrap();
        assert_eq!(
            metadata(&path).unwrap().permissions().mode() & 0o7777,
            0o600
        );
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        assert_refused(check(&path, NO), "--force");
        assert_refused(way(&path, NO), "--force");
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        let before = File::open(&path).unwrap();
        check(&path, FORCE).unwrap();
        way(&path, FORCE).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(
            metadata(&path).unwrap().permissions().mode() & 0o7777,
            0o600
        );
        // Who has it open, or another name for it, keeps what was there.
        let mut kept = String::new();
        (&before).read_to_string(&mut kept).unwrap();
        assert_eq!(kept, "old");
        assert_eq!(names(&folder), ["a"]);
    }
}

/// Check that neither a link to a file nor one that leads nowhere is written through; `--force` replaces the link.
#[test]
fn links_to_files() {
    for way in WAYS {
        for target in ["private", "none", "none/none"] {
            let folder = folder();
            let private = folder.path().join("private");
            fs::write(&private, "old").unwrap();
            fs::set_permissions(&private, Permissions::from_mode(0o600)).unwrap();
            let link = folder.path().join("link");
            symlink(target, &link).unwrap();
            assert_refused(check(&link, NO), "exists");
            assert_refused(way(&link, NO), "exists");
            assert_eq!(names(&folder), ["link", "private"]);
            way(&link, FORCE).unwrap();
            assert!(symlink_metadata(&link).unwrap().is_file());
            assert_eq!(fs::read_to_string(&private).unwrap(), "old");
            assert_eq!(names(&folder), ["link", "private"]);
        }
    }
}

/// Check that a link of another user is not followed: neither to a device, nor on the way to the file if it may be
/// planted. Links of the user are followed on the way.
#[test]
fn links_of_others() {
    let target = folder();
    for way in WAYS {
        let folder = open_folder();
        let link = folder.path().join("link");
        symlink(target.path(), &link).unwrap();
        let path = link.join("file");
        way(&path, NO).unwrap();
        fs::remove_file(&path).unwrap();
        if !is_given_away(&link) {
            return;
        }
        // It may be planted also where its owner alone can write.
        for mode in [0o777, 0o755] {
            fs::set_permissions(&folder, Permissions::from_mode(mode)).unwrap();
            assert_refused(way(&path, NO), "another user");
            chown(&folder, Some(OTHER), None).unwrap();
        }
    }
    let device = open_folder();
    let link = device.path().join("link");
    symlink("/dev/null", &link).unwrap();
    report(&link, NO).unwrap();
    assert!(is_given_away(&link));
    assert_refused(report(&link, NO), "exists");
}

/// Check that a file that another user made beforehand is not written; `--force` makes one of the user's own.
#[test]
fn file_of_another_user() {
    for way in WAYS {
        let folder = open_folder();
        let path = folder.path().join("a");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        if !is_given_away(&path) {
            return;
        }
        assert_refused(way(&path, NO), "exists");
        let mut theirs = File::open(&path).unwrap();
        way(&path, FORCE).unwrap();
        let (new, old) = (metadata(&path).unwrap(), theirs.metadata().unwrap());
        assert_eq!(
            std::os::unix::fs::MetadataExt::uid(&new),
            nix::unistd::geteuid().as_raw()
        );
        assert_eq!(std::os::unix::fs::MetadataExt::uid(&old), OTHER);
        let mut text = String::new();
        theirs.read_to_string(&mut text).unwrap();
        assert_eq!(text, "old");
    }
}

/// Check that nothing is left of a report that could not be written whole, and that the old one stays.
#[test]
fn nothing_is_left_of_a_failure() {
    let folder = folder();
    let path = folder.path().join("a");
    let fail = |force| {
        write_with(&path, force, |out| {
            out.write_all(b"half")?;
            anyhow::bail!("no more")
        })
    };
    assert_refused(fail(NO), "no more");
    assert!(names(&folder).is_empty());
    fs::write(&path, "old").unwrap();
    assert_refused(fail(FORCE), "no more");
    assert_eq!(fs::read_to_string(&path).unwrap(), "old");
    // One that appears meanwhile stays, too.
    fs::remove_file(&path).unwrap();
    let overtaken = write_with(&path, NO, |_| Ok(fs::write(&path, "theirs")?));
    assert_refused(overtaken, "exists");
    assert_eq!(fs::read_to_string(&path).unwrap(), "theirs");
    assert_eq!(names(&folder), ["a"]);
}

/// Check that a file has no name before it is whole, so that `kill -9` leaves nothing of it.
#[test]
fn no_name_before_the_end() {
    for (force, before) in [(NO, &[][..]), (FORCE, &["a"])] {
        let folder = folder();
        let path = folder.path().join("a");
        if force.force {
            fs::write(&path, "old").unwrap();
        }
        write_with(&path, force, |out| {
            out.write_all(b"new")?;
            match names(&folder).iter().any(|name| name.ends_with(".tmp")) {
                true => {
                    eprintln!("SKIPPED no_name_before_the_end: this file system has no O_TMPFILE")
                }
                false => assert_eq!(names(&folder), before),
            }
            Ok(())
        })
        .unwrap();
        assert_eq!(names(&folder), ["a"]);
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }
}

/// Check that reports go to devices and pipes, which no trace goes to; that a pipe of another user is refused where it
/// may be planted.
#[test]
fn devices() {
    for device in ["/dev/null", "/dev/../dev/null"] {
        report(Path::new(device), NO).unwrap();
        assert_refused(trace(Path::new(device), FORCE), "not a regular file");
    }
    let folder = open_folder();
    let path = folder.path().join("pipe");
    nix::unistd::mkfifo(&path, Mode::S_IRWXU).unwrap();
    check(&path, NO).unwrap();
    // Opened for both: neither waits for the other.
    let mut pipe = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    report(&path, NO).unwrap();
    let mut bytes = [0; 3];
    pipe.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"new");
    if is_given_away(&path) {
        assert_refused(report(&path, NO), "another user");
        chown(&folder, Some(OTHER), None).unwrap();
        assert_refused(report(&path, NO), "another user");
    }
}

/// Check that an open file is written to where it is, and folders and missing folders are refused.
#[test]
fn open_files_and_folders() {
    use std::os::fd::AsRawFd;
    let folder = folder();
    let path = folder.path().join("a");
    let mut file = File::create(&path).unwrap();
    file.write_all(b"old ").unwrap();
    for base in ["/dev/fd", "/proc/self/fd", "/proc/thread-self/fd"] {
        report(&Path::new(base).join(file.as_raw_fd().to_string()), NO).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), "old newnewnew");
    for way in WAYS {
        for path in [
            folder.path(),
            Path::new("/"),
            Path::new(".."),
            Path::new("/proc/self"),
        ] {
            assert!(way(path, FORCE).is_err(), "{path:?}");
        }
        for path in ["", "/none/a", "/proc/none"] {
            assert_refused(way(Path::new(path), FORCE), "No such file");
        }
        assert_refused(way(&path.join("b"), FORCE), "Not a directory");
        let circle = folder.path().join("circle");
        symlink("circle", &circle).unwrap();
        assert_refused(way(&circle, NO), "symbolic links");
        fs::remove_file(circle).unwrap();
    }
    assert_eq!(names(&folder), ["a"]);
}

/// Check that a trace that another recording writes to is not replaced, and that numbers are taken once.
#[test]
fn traces() {
    let folder = folder();
    let path = folder.path().join("a");
    let first = create(&path, NO).unwrap();
    for way in WAYS {
        assert_refused(way(&path, FORCE), "another wcprof");
    }
    drop(first);
    trace(&path, FORCE).unwrap();
    symlink("none", folder.path().join("b")).unwrap();
    let all = ["a", "b", "c"].map(|name| folder.path().join(name));
    let (taken, _) = create_first_free(all.clone()).unwrap();
    assert_eq!(taken, all[2]);
    assert!(create_first_free(all).is_err());
}

/// Check that a trace that cannot be made leaves the one that is there, and nothing else.
#[test]
fn failed_traces() {
    let folder = folder();
    let path = folder.path().join("a");
    fs::write(&path, "old").unwrap();
    let made = write_trace(&path, FORCE, |mut file| -> anyhow::Result<()> {
        file.write_all(b"half")?;
        anyhow::bail!("it broke")
    });
    assert_refused(made, "it broke");
    assert_eq!(fs::read_to_string(&path).unwrap(), "old");
    assert_eq!(names(&folder), ["a"]);
}
