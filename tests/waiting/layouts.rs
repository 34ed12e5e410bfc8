//! Targets whose files are not where, or not what, they usually are.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use wcprof_testkit::{
    Attach, Engine, RemoteProcess, Variant, children, copy_program, fixture, has_capability,
    output_folder, skip,
};

pub(crate) fn layouts(engine: Engine) {
    thread::scope(|scope| {
        scope.spawn(|| linked(engine, Variant::Static));
        scope.spawn(|| linked(engine, Variant::NonPie));
        scope.spawn(|| deleted(engine));
        scope.spawn(|| debug_frames(engine));
        if has_capability() {
            scope.spawn(|| mount_namespace(engine));
            scope.spawn(|| pid_namespace(engine));
            scope.spawn(|| changed_root(engine));
        } else {
            skip(
                "layouts in other namespaces and roots",
                "needs root to unshare and chroot",
            );
        }
    });
}

fn start(program: &Path) -> RemoteProcess {
    RemoteProcess::start_command(Command::new(program).arg(output_folder()))
}

fn linked(engine: Engine, variant: Variant) {
    let target = start(&fixture("waits.c", variant));
    assert_named(engine, target.pid(), &format!("{variant:?}"));
}

fn deleted(engine: Engine) {
    let folder = tempfile::tempdir_in(output_folder()).expect("temporary folder");
    let program = folder.path().join("deleted");
    copy_program(&fixture("waits.c", Variant::NoFramePointers), &program);
    let target = start(&program);
    fs::remove_file(&program).expect("can be removed");
    assert_named(engine, target.pid(), "deleted");
}

/// A program on a tmpfs that only the target's mount namespace has.
fn mount_namespace(engine: Engine) {
    let folder = tempfile::tempdir().expect("temporary folder");
    let target = RemoteProcess::start_command(
        Command::new("unshare")
            .args(["-m", "sh", "-ec"])
            .arg("mount -t tmpfs none \"$0\"; cp \"$1\" \"$0/inside\"; exec \"$0/inside\" \"$2\"")
            .arg(folder.path())
            .arg(fixture("waits.c", Variant::FramePointers))
            .arg(output_folder()),
    );
    assert!(!folder.path().join("inside").exists());
    assert_named(engine, target.pid(), "mount namespace");
}

/// A program that is pid 1 in a pid namespace of its own, given by its pid out here.
fn pid_namespace(engine: Engine) {
    let target = RemoteProcess::start_command(
        Command::new("unshare")
            .args(["--pid", "--fork", "--mount-proc", "--kill-child"])
            .arg(fixture("waits.c", Variant::NoFramePointers))
            .arg(output_folder()),
    );
    assert_eq!(target.keys.get("pid"), Some(&1));
    let inside = children(target.pid());
    assert_eq!(inside.len(), 1);
    assert_named(engine, inside[0], "pid namespace");
}

/// A stripped program in a root of the same mount namespace, with its debug file beside it.
fn changed_root(engine: Engine) {
    let folder = tempfile::tempdir_in(output_folder()).expect("temporary folder");
    let root = folder.path();
    // It needs no /proc.
    let original = fixture("frames.c", Variant::NoFramePointers);
    split_debug(&original, &root.join("bin/frames"));
    let libraries = Command::new("ldd").arg(&original).output().expect("ldd");
    let libraries = String::from_utf8_lossy(&libraries.stdout).into_owned();
    let libraries = libraries.split_whitespace();
    for library in libraries.filter(|word| word.starts_with('/')) {
        let mut copy = Command::new("cp");
        run(copy.args(["--parents", "-L", library]).arg(root));
    }
    let target = RemoteProcess::start_command(Command::new("chroot").arg(root).arg("/bin/frames"));
    let recording = Attach::new(engine, target.pid()).seconds(1.5).run();
    recording.assert_sound(engine);
    let thread = recording.folded().thread("f-alloca");
    let right = thread.chain(&["alloca_root", "alloca_middle", "alloca_leaf"]);
    assert!(right.share_of(&thread) > 0.999, "{}", thread.show());
}

/// A stripped program without call frame information, which its debug file beside it has.
fn debug_frames(engine: Engine) {
    let folder = tempfile::tempdir_in(output_folder()).expect("temporary folder");
    let program = folder.path().join("waits");
    split_debug(&fixture("waits.c", Variant::DebugFrame), &program);
    let target = start(&program);
    assert_named(engine, target.pid(), "debug frames");
}

/// A stripped copy of a program, with its debug file in `.debug` beside it.
fn split_debug(original: &Path, program: &Path) {
    let folder = program.parent().expect("a folder").join(".debug");
    fs::create_dir_all(&folder).expect("a folder");
    let debug = folder.join("program.debug");
    run(Command::new("objcopy")
        .arg("--only-keep-debug")
        .args([original, &debug]));
    run(Command::new("objcopy")
        .arg("--strip-all")
        .arg(format!("--add-gnu-debuglink={}", debug.display()))
        .args([original, program]));
}

fn run(command: &mut Command) {
    let status = command.status().expect("it starts");
    assert!(status.success(), "{command:?}: {status}");
}

/// Check that stacks are whole and have names.
fn assert_named(engine: Engine, pid: i32, what: &str) {
    let recording = Attach::new(engine, pid).seconds(1.5).run();
    recording.assert_sound(engine);
    let folded = recording.folded();
    for (comm, chain, state) in [
        ("w-cond", ["w_cond", "wait_in_cond"], "[place-unknown]"),
        ("w-epoll", ["w_epoll", "wait_in_epoll"], "[place-unknown]"),
        ("w-rwlock", ["w_rwlock", "want_rwlock"], "[lock]"),
        ("w-pipe", ["w_pipe", "wait_in_pipe"], "[blocked]"),
    ] {
        let thread = folded.thread(comm);
        let right = thread.chain(&chain).states(&[state]);
        assert!(
            right.share_of(&thread) > 0.999,
            "{what}: {comm} should be in {chain:?} {state}:\n{}",
            thread.show()
        );
    }
}
