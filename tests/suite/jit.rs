//! Code that is in no file.

use std::process::Command;

use crate::common::{Attach, Engine, RemoteProcess, Variant, assert_share, fixture, quiet};

pub(crate) fn code_without_a_file(engine: Engine) {
    let _load = quiet();
    let folder = tempfile::tempdir().expect("temporary folder");
    let program = fixture("jit.c", Variant::FramePointers);
    let mut target = RemoteProcess::start_command(Command::new(program).arg(folder.path()));
    let before = target.mark();
    // Names of such code are in the trace even when no others are.
    let recording = Attach::new(engine, target.pid())
        .seconds(4.0)
        .flags(&["--raw"])
        .run();
    let after = target.mark();
    target.tell("END");
    target.answer("MARK");
    recording.assert_sound(engine);

    let folded = recording.folded();
    let mapped = folded.thread("j-map");
    let right = mapped.chain(&["jit_mapped(int)", "sleep_long"]);
    assert!(right.share_of(&mapped) > 0.99, "{}", mapped.show());

    let dumped = folded.thread("j-dump");
    let (first, second) = (
        dumped.chain(&["jit_first", "nap"]),
        dumped.chain(&["jit_second", "nap"]),
    );
    let truth = ["first", "second"].map(|key| after.since(&before, key) as f64);
    let share = truth[0] / (truth[0] + truth[1]);
    let measured = first.total() as f64 / (first.total() + second.total()).max(1) as f64;
    assert_share("jit_first", measured, share, 400);
    let both = (first.total() + second.total()) as f64 / dumped.total().max(1) as f64;
    assert!(both > 0.95, "{}", dumped.show());

    let local = recording.trace().0.tables.local_names;
    let lines = local
        .names
        .frames
        .values()
        .flatten()
        .chain(local.later.iter().flat_map(|l| &l.functions));
    let of_first: Vec<_> = lines.filter(|f| f.name == "jit_first").collect();
    assert!(!of_first.is_empty());
    for function in of_first {
        assert_eq!(
            (function.file.as_deref(), function.line),
            (Some("/srv/app.js"), Some(42))
        );
    }
}
