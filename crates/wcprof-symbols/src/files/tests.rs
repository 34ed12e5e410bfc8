//! Tests of opening files that others chose.

use std::io::Read;
use std::os::unix::fs::symlink;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::*;

/// Check that a FIFO, a device and a directory are refused by kind, without hanging.
#[test]
fn refuses_special_files() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    mkfifo(&fifo, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
    for (path, expected) in [
        (fifo.as_path(), "FIFO"),
        (Path::new("/dev/zero"), "character device"),
        (dir.path(), "directory"),
    ] {
        match open_regular(path) {
            Err(OpenError::NotRegular { kind, .. }) => assert_eq!(kind, expected),
            other => panic!("{other:?}"),
        }
    }
}

/// Check that a missing file, also below a file, is told apart from other failures.
#[test]
fn missing() {
    assert!(
        open_regular(Path::new("/nonexistent/x"))
            .unwrap_err()
            .is_not_found()
    );
    assert!(
        open_regular(Path::new("/proc/version/x"))
            .unwrap_err()
            .is_not_found()
    );
}

/// Check that below a root absolute paths, absolute links and `..` stay inside.
#[test]
fn stays_below_root() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    std::fs::create_dir(&root).unwrap();
    std::fs::write(dir.path().join("secret"), "outside").unwrap();
    std::fs::write(root.join("secret"), "inside").unwrap();
    symlink("/secret", root.join("absolute")).unwrap();
    symlink("../secret", root.join("parent")).unwrap();
    let files = RootedFiles::new(OwnedFd::from(File::open(&root).unwrap()));
    for path in ["/secret", "/absolute", "/parent", "/../secret"] {
        let mut text = String::new();
        let mut file = files.open_regular(Path::new(path)).unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "inside", "{path}");
    }
}

/// Check that magic links are not followed below a root.
#[test]
fn no_magic_links() {
    let files = RootedFiles::new(OwnedFd::from(File::open("/").unwrap()));
    assert!(files.open_regular(Path::new("/proc/self/exe")).is_err());
}

/// Check that without a build-id the file on this machine is not trusted.
#[test]
fn local_needs_build_id() {
    let mut module = ModuleIdentity {
        path: "/proc/version".to_owned(),
        build_id: None,
        pid: None,
        start: None,
    };
    assert!(matches!(
        LocalFiles.open(&module),
        Err(OpenError::Unverifiable(_))
    ));
    module.path = "[vdso]".to_owned();
    assert!(matches!(
        LocalFiles.open(&module),
        Err(OpenError::NotAFile(_))
    ));
}
