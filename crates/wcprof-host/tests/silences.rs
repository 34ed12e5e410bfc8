//! A process of its own: its threads wait for what never answers.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io;
use std::thread;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use wcprof_host::{new_silences, read_in_time};
use wcprof_types::Pid;

/// Check that when a hundred threads were left behind nothing is asked any more, that this is said once, and that it is asked
/// again when they have returned.
#[test]
fn exhausted() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("hangs");
    // Nobody writes to it.
    mkfifo(&path, Mode::S_IRWXU).expect("a pipe");
    let path = path.to_str().expect("its name is text");
    let answers = || read_in_time(Pid(0), "/proc/version").is_ok();
    assert!(answers());
    thread::scope(|scope| {
        for pid in 1..=100 {
            scope.spawn(move || {
                let read = read_in_time(Pid(pid), path);
                assert_eq!(read.map_err(|e| e.kind()), Err(io::ErrorKind::TimedOut));
            });
        }
    });
    let new_thread = || thread::spawn(answers).join().expect("no panic");
    assert!(!new_thread());
    let said = new_silences();
    assert!(
        said.len() == 1 && said[0].starts_with("100 questions"),
        "{said:?}"
    );
    assert!(!new_thread() && new_silences().is_empty());
    drop(File::options().write(true).open(path).expect("they read"));
    while !new_thread() {
        thread::yield_now();
    }
}
