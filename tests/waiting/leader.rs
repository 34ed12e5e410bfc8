//! Processes whose main thread has ended, or ends.

use std::fs;
use std::process::Command;

use wcprof_testkit::{
    Attach, Engine, RemoteProcess, Variant, copy_program, fixture, output_folder, text, thread_ids,
    wcprof,
};

use super::stopped::{Event, border, ticks};

pub(crate) fn leader_has_ended(engine: Engine) {
    // Its name is that of no process of another test.
    let folder = tempfile::tempdir_in(output_folder()).expect("temporary folder");
    let program = folder.path().join(format!("ended-{}", engine.name()));
    copy_program(&fixture("leader.c", Variant::NoFramePointers), &program);
    let mut command = Command::new(program);
    let target = RemoteProcess::start_command(command.arg("ended"));
    let pid = target.pid();
    let recording = Attach::new(engine, pid).run();
    recording.assert_sound(engine);
    let folded = recording.folded();
    let thread = folded.thread("ld-nap");
    let napping = thread.chain(&["take_naps"]).states(&["[sleep]"]);
    assert!(
        napping.share_of(&thread.waits()) > 0.99,
        "{}",
        thread.show()
    );
    if engine.sees_running() {
        let busy = folded.thread("ld-busy").states(&["[on-cpu]"]);
        let named = busy.chain(&["be_busy"]);
        assert!(named.share_of(&busy) > 0.8, "{}", busy.show());
    }
    let comm = fs::read_to_string(format!("/proc/{pid}/comm")).expect("it lives");
    let comm = comm.trim();
    // It is listed by its name, and everything that is said of a process is said of it.
    for args in [
        &["check", "--name", comm][..],
        &["check", &pid.to_string()],
        &["doctor", &pid.to_string(), "--all"],
    ] {
        let output = wcprof().args(args).output().expect("wcprof starts");
        let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
        assert!(said.contains(&pid.to_string()), "{args:?}: {said}");
        assert!(!said.contains("zombie"), "{args:?}: {said}");
        // It has ended: its state is Z.
        assert!(!said.contains("main thread runs"), "{args:?}: {said}");
    }
    let tid = thread_ids(pid).into_keys().find(|tid| *tid != pid);
    let tid = tid.expect("it has threads").to_string();
    let output = wcprof()
        .args(["attach", &tid])
        .output()
        .expect("wcprof starts");
    let message = format!("{tid} is a thread of process {pid}");
    assert!(text(&output.stderr).contains(&message), "{output:?}");
}

pub(crate) fn leader_ends(engine: Engine) {
    let mut target = RemoteProcess::start(&fixture("leader.c", Variant::NoFramePointers));
    let pid = target.pid();
    let recording = Attach::new(engine, pid).run_around(|| {
        target.send_line("END");
        target.answer("MARK");
    });
    recording.assert_sound(engine);
    let mark = target.mark();
    let (before, after) = (mark.get("end_before"), mark.get("end_after"));
    let (trace, _) = recording.trace();
    let begin = trace.tables.header.started_unix_ns;
    let mut threads = trace.tables.threads.iter();
    let main = threads
        .find(|thread| thread.tid.0 == pid)
        .expect("it was seen");
    let others = trace
        .tables
        .threads
        .iter()
        .filter(|thread| thread.tid.0 != pid);
    let last = others.map(|thread| begin + thread.end.0).max();
    assert!(last > Some(after), "the others go on");
    if !recording.stood_still("leader_ends", engine) {
        let event = Event {
            before: before - begin,
            after: after - begin,
        };
        assert!(
            border(event, &ticks(&trace)).contains(&main.end.0),
            "it ended from {before} to {after}, and was seen until {}",
            begin + main.end.0
        );
    }
}
