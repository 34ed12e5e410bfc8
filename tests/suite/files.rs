//! The files and sockets that threads wait for.

use std::process::Command;

use crate::common::{Attach, Engine, Folded, RemoteProcess, Variant, fixture, quiet, tolerance};

pub(crate) fn files(engine: Engine) {
    let _load = quiet();
    let folder = tempfile::tempdir_in(crate::common::output_folder()).expect("temporary folder");
    let mut target = RemoteProcess::start_command(
        Command::new(fixture("files.c", Variant::NoFramePointers)).arg(folder.path()),
    );
    let before = target.mark();
    let recording = Attach::new(engine, target.pid()).seconds(4.0).run();
    let after = target.mark();
    recording.assert_sound(engine);
    let base = folder
        .path()
        .canonicalize()
        .expect("folder exists")
        .join(format!("files-{}", target.pid()));
    let base = base.to_string_lossy();
    let text = recording.report(&[
        "--format", "folded", "--states", "--idle", "show", "--files",
    ]);
    let folded = Folded::parse(&text);
    let key = |name| target.keys[name];
    for (comm, frame) in [
        (
            "f-tcp",
            format!(
                "[recvfrom: tcp 127.0.0.1:{} -> 127.0.0.1:{}]",
                key("own"),
                key("peer")
            ),
        ),
        (
            "f-accept",
            format!("[accept: unix files-{}.sock]", target.pid()),
        ),
        // What would end a frame, a line, or drive a terminal is replaced.
        ("f-pipe", format!("[read: {base} ?[31m:x?y]")),
    ] {
        let thread = folded.thread(comm);
        let right = with_frame(&thread, &frame);
        assert!(
            right.share_of(&thread) > 0.99,
            "{comm} waits for {frame}:\n{}",
            thread.show()
        );
    }
    // The same descriptor, by turns another file.
    let thread = folded.thread("f-sync");
    let of = |name| with_frame(&thread, &format!("[fdatasync: {base}-{name}]")).total() as f64;
    let (first, second) = (of("first"), of("second"));
    let truth = after.since(&before, "first") as f64;
    let truth = truth / (truth + after.since(&before, "second") as f64);
    let got = first / (first + second);
    assert!(
        (got - truth).abs() <= tolerance(truth, 200),
        "first file: {got:.3}, truth {truth:.3}:\n{}",
        thread.show()
    );
    // Without the flag there are no such frames.
    assert!(!recording.folded().lines.iter().any(|l| {
        let mut frames = l.frames.iter();
        frames.any(|f| f.starts_with("[recvfrom"))
    }));
}

fn with_frame(folded: &Folded, frame: &str) -> Folded {
    let frames = folded
        .lines
        .iter()
        .filter(|line| line.frames.iter().any(|f| f == frame));
    Folded {
        lines: frames.cloned().collect(),
    }
}
