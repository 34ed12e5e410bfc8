//! The files and sockets that threads wait for.

use std::process::Command;

use wcprof_testkit::{Attach, Engine, Folded, RemoteProcess, Variant, fixture};

pub(crate) fn files(engine: Engine) {
    let folder = tempfile::tempdir_in(wcprof_testkit::output_folder()).expect("temporary folder");
    let target = RemoteProcess::start_command(
        Command::new(fixture("files.c", Variant::NoFramePointers)).arg(folder.path()),
    );
    let recording = Attach::new(engine, target.pid()).seconds(4.0).run();
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
    // The same descriptor, by turns another file: the function tells which one a wait is for.
    for (comm, call, wait, name) in [
        ("f-sync", "sync", "fdatasync", "first"),
        ("f-sync", "sync", "fdatasync", "second"),
        ("f-turns", "read", "read", "third"),
        ("f-turns", "read", "read", "fourth"),
    ] {
        let thread = folded.thread(comm);
        let waits = thread.chain(&[&format!("{call}_{name}")]);
        let of = |file: &str| with_frame(&waits, &format!("[{wait}: {file}")).total();
        let named = of(&format!("{base}-{name}]"));
        // It ran, or had closed the file, before the name was read.
        let unknown = of("an unknown file]") + of("a file that could not be read]");
        // Waits for a disk are as many and as long as it likes.
        let is_seen = named > 0 || comm == "f-sync";
        assert!(
            is_seen && named + unknown == of(""),
            "{name} file: {named} named right and {unknown} unknown of {}:\n{}",
            of(""),
            thread.show()
        );
    }
    // Without the flag there are no such frames.
    assert!(!recording.folded().lines.iter().any(|l| {
        let mut frames = l.frames.iter();
        frames.any(|f| f.starts_with("[recvfrom"))
    }));
}

/// Lines with a frame that begins so.
fn with_frame(folded: &Folded, frame: &str) -> Folded {
    let frames = folded
        .lines
        .iter()
        .filter(|line| line.frames.iter().any(|f| f.starts_with(frame)));
    Folded {
        lines: frames.cloned().collect(),
    }
}
