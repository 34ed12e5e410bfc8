//! `wcprof import` of what perf records of a live target.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::odd::compile;
use wcprof_testkit::{
    Folded, RemoteProcess, Variant, copy_program, fixture, has_capability, is_function, skip, text,
    wcprof,
};

/// Bytes of a user stack that perf is told to copy, less than 500 frames of the fixture have.
const COPY: usize = 8192;

/// Samples of a copy of `frames.c`, with copies of its user stacks; `None` where that can not be.
fn record(test: &str) -> Option<(TempDir, PathBuf, PathBuf)> {
    let without_frame_pointers = |program: &Path| {
        copy_program(&fixture("frames.c", Variant::NoFramePointers), program);
    };
    record_of(test, without_frame_pointers, &["--buildid-all"])
}

/// The same of a program that `make` makes, with other options of perf.
fn record_of(
    test: &str,
    make: impl FnOnce(&Path),
    options: &[&str],
) -> Option<(TempDir, PathBuf, PathBuf)> {
    let perf = Command::new("perf").arg("--version").output();
    if !perf.is_ok_and(|output| output.status.success()) {
        skip(test, "needs perf");
        return None;
    }
    if !has_capability() {
        skip(test, "needs CAP_SYS_ADMIN to record another process");
        return None;
    }
    let folder = tempfile::tempdir().expect("temporary folder");
    let (program, data) = (
        folder.path().join("frames"),
        folder.path().join("perf.data"),
    );
    make(&program);
    let target = RemoteProcess::start(&program);
    let output = Command::new("perf")
        .args(["record", "-e", "cpu-clock", "-F", "997"])
        .args(options)
        .args(["--call-graph", &format!("dwarf,{COPY}")])
        .args(["-p", &target.pid().to_string(), "-o"])
        .arg(&data)
        .args(["--", "sleep", "2"])
        .output()
        .expect("perf starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    Some((folder, program, data))
}

/// The imported file's folded output, and its headline.
fn import(folder: &Path, data: &Path) -> (Folded, String) {
    let trace = folder.join("imported.wct");
    let output = wcprof()
        .arg("import")
        .arg(data)
        .arg("-o")
        .arg(&trace)
        .arg("--force")
        .output()
        .expect("wcprof starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = |flags: &[&str]| {
        let output = wcprof()
            .arg("report")
            .arg(&trace)
            .args(flags)
            .output()
            .expect("wcprof starts");
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).to_owned()
    };
    let folded = Folded::parse(&report(&["--format", "folded", "--states"]));
    (folded, report(&["--tree"]))
}

/// Check that copies of user stacks are unwound: below a function that only one chain of calls reaches
/// is that chain, whatever frames of a size known at run time are in it; and that a stack that is
/// longer than its copy has all frames that the copy holds, each in its place, and says so.
#[test]
fn copies_of_stacks() {
    let Some((folder, _, data)) = record("copies_of_stacks") else {
        return;
    };
    assert_whole(folder.path(), &data);
}

/// Check the same where code is at other addresses than its places in the file.
#[test]
fn copies_of_moved_code() {
    let make = |program: &Path| {
        let flags = ["-fomit-frame-pointer", "-no-pie", "-Wl,-Ttext=0x10001000"];
        compile("frames.c", &flags, program);
    };
    let Some((folder, _, data)) = record_of("copies_of_moved_code", make, &["--buildid-all"])
    else {
        return;
    };
    assert_whole(folder.path(), &data);
}

/// Check the same where perf says which files were mapped in place of their build-ids, as it does by default.
#[test]
fn copies_by_inode() {
    let make = |program: &Path| {
        copy_program(&fixture("frames.c", Variant::NoFramePointers), program);
    };
    let Some((folder, program, data)) = record_of("copies_by_inode", make, &["-B"]) else {
        return;
    };
    assert_whole(folder.path(), &data);
    let (folded, _) = import(folder.path(), &data);
    // Nor does perf save the build-id of the vdso.
    assert!(
        !folded.show().contains("module unreadable"),
        "{}",
        folded.show()
    );
    assert!(!folded.show().contains("[vdso]+0x"), "{}", folded.show());
    // The same bytes in another file: nothing says that they are the same.
    fs::remove_file(&program).expect("the program is there");
    copy_program(&fixture("frames.c", Variant::NoFramePointers), &program);
    let (folded, _) = import(folder.path(), &data);
    let busy = folded.thread("f-alloca-cpu").chain(&["alloca_work"]);
    assert_eq!(busy.total(), 0, "{}", folded.show());
}

/// Fails unless stacks of the fixture are those that its code makes.
fn assert_whole(folder: &Path, data: &Path) {
    let (folded, headline) = import(folder, data);
    let busy = folded.thread("f-alloca-cpu").chain(&["alloca_work"]);
    let chain = [
        "f_alloca_cpu",
        "alloca_root",
        "alloca_middle",
        "alloca_leaf",
        "alloca_work",
    ];
    assert!(busy.total() > 0, "{}", folded.show());
    assert_eq!(busy.chain(&chain), busy, "{}", busy.show());
    for line in &busy.lines {
        let fixtures = |frame: &&String| chain.iter().any(|f| is_function(frame, f));
        assert_eq!(
            line.frames.iter().filter(fixtures).count(),
            chain.len(),
            "{line:?}"
        );
        assert!(!line.frames[0].starts_with("[truncated"), "{line:?}");
    }
    let deep = folded.thread("f-deep-cpu").chain(&["deep_work"]);
    assert!(deep.total() > 0, "{}", folded.show());
    for line in &deep.lines {
        assert_eq!(
            line.frames[0], "[truncated: stack copy too short]",
            "{line:?}"
        );
        let is_step = |frame: &&String| is_function(frame, "deep_step");
        let n_steps = line.frames.iter().filter(is_step).count();
        // Each has 160 bytes of its own and an address to return to.
        assert!((10..=COPY / 168).contains(&n_steps), "{n_steps}: {line:?}");
        let at = line.frames.iter().position(|f| is_step(&f));
        let rest = &line.frames[at.expect("there are some") + n_steps..];
        assert!(is_function(&rest[0], "deep_rounds") && is_function(&rest[1], "deep_work"));
    }
    assert!(
        headline.contains("copies of user stacks were unwound"),
        "{headline}"
    );
}

/// Check that without the program, and with another one in its place, its frames are not guessed:
/// stacks have the address where execution was, and the headline names the file.
#[test]
fn copies_without_their_file() {
    let Some((folder, program, data)) = record("copies_without_their_file") else {
        return;
    };
    for has_other in [false, true] {
        fs::remove_file(&program).expect("the program is there");
        if has_other {
            copy_program(&fixture("frames.c", Variant::FramePointers), &program);
        }
        let (folded, headline) = import(folder.path(), &data);
        let busy = folded.thread("f-alloca-cpu");
        let own = |frame: &String| frame.starts_with("frames+0x");
        let mut busy = busy.lines.into_iter().filter(|l| l.frames.iter().any(own));
        let first = busy.next().expect("samples in the program");
        for line in [first].into_iter().chain(busy) {
            assert_eq!(line.frames[0], "[truncated: module unreadable]", "{line:?}");
            assert_eq!(line.frames.iter().filter(|f| own(f)).count(), 1, "{line:?}");
        }
        assert!(
            headline.contains("are not on this machine with the recorded build-id")
                && headline.contains(&program.display().to_string()),
            "{headline}"
        );
        if !has_other {
            copy_program(&fixture("frames.c", Variant::NoFramePointers), &program);
        }
    }
}
