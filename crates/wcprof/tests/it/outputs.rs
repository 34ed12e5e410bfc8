//! Where output goes and where it cannot go: over a trace that is read, to readers that have gone, to
//! places that cannot be written; and what is said when there is nothing to print.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use wcprof_testkit::assert_fails;

use crate::support::{OSD, QEMU, command, fixture, run, text};

/// Check that no format takes the place of the trace that it is made of, by whichever path.
#[test]
fn trace_is_not_written_over() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = |name: &str| folder.path().join(name);
    fs::copy(fixture(OSD), path("a.wct")).expect("the trace can be copied");
    let before = fs::read(path("a.wct")).expect("it is there");
    symlink("a.wct", path("link.wct")).expect("a link can be made");
    fs::hard_link(path("a.wct"), path("hard.wct")).expect("a link can be made");
    let trace = path("a.wct").display().to_string();
    for name in ["a.wct", "link.wct", "hard.wct"] {
        let output = path(name).display().to_string();
        for format in [
            "--tree",
            "--format=csv",
            "--format=html",
            "--format=svg",
            "--locks",
        ] {
            let args = ["report", &trace, format, "-o", &output];
            assert_fails(&run(&args), 2, &["is the input", "another file"]);
        }
        for traces in [[trace.as_str(), QEMU], [QEMU, trace.as_str()]] {
            let args = [&["diff"], &traces[..], &["-o", &output]].concat();
            assert_fails(&run(&args), 2, &["is the input"]);
        }
        let args = ["merge", &trace, QEMU, "-o", &output];
        assert_fails(&run(&args), 2, &["is the input"]);
    }
    assert_eq!(fs::read(path("a.wct")).expect("it is there"), before);
}

/// Check that what cannot be written is said with its path, and leaves exit code 1.
#[test]
fn places_that_cannot_be_written() {
    assert_fails(&run(&["report", "none.wct"]), 1, &["none.wct"]);
    let full = fs::File::options().write(true).open("/dev/full");
    let output = command(&["report", OSD, "--format", "folded"])
        .stdout(full.expect("it is there"))
        .output()
        .expect("the program runs");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("No space left"), "{message}");
    for format in ["--tree", "--format=csv", "--format=html", "--format=svg"] {
        for (place, why) in [("/proc/none", "No such file"), ("/proc", "directory")] {
            let args = ["report", OSD, format, "-o", place];
            let parts = [&format!("failed to write `{place}`"), why];
            assert_fails(&run(&args), 1, &parts);
        }
    }
}

/// Check that a reader of the messages who has gone changes nothing: neither the output nor the exit
/// code. The same for a reader of the output.
#[test]
fn readers_have_gone() {
    let run = |both: bool| {
        let args = ["report", OSD, "--focus", "no_such_function", "--by", "pool"];
        let mut command = command(&args);
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        if both {
            command.stdout(writer.try_clone().expect("a descriptor"));
        }
        command.stderr(writer);
        command.output().expect("the program runs")
    };
    let output = run(false);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stdout.starts_with(b"osd.0 (pid "), "{output:?}");
    assert_eq!(run(true).status.code(), Some(0));
    for args in [
        &["--format", "folded"][..],
        &["--json"],
        &["--format", "svg"],
        &[],
    ] {
        let mut command = command(&[&["report", OSD], args].concat());
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = command.stdout(writer).output();
        let output = output.expect("the program runs");
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{args:?}: {output:?}"
        );
    }
    let mut command = command(&["report", "none.wct"]);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = command.stderr(writer).output().expect("the program runs");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

/// Check that what has nothing to show says so and what to try, and prints no groups without time.
#[test]
fn nothing_to_show() {
    for (args, parts) in [
        (
            &["report", OSD, "--focus", "no_such_function"][..],
            &["no time passes", "--functions lists"][..],
        ),
        (
            &["report", OSD, "--functions", "--pools", "none"],
            &["no time passes", "pools of this trace: tp_osd_tp, "],
        ),
        (
            &["doctor", OSD, "--pools", "none"],
            &["no thread passes", "pools of this trace: tp_osd_tp, "],
        ),
        (
            &["report", OSD, "--locks", "--threads", "none"],
            &["no thread passes", "pools of this trace: tp_osd_tp, "],
        ),
        (
            &["doctor", OSD, "--pools", "log"],
            &["`wcprof report ceph-osd-secure-randread.wct --tree --invert` shows"],
        ),
        (
            &["diff", OSD, QEMU, "--pools", "none"],
            &["pools of this trace: tp_osd_tp, ", "pools of this trace: "],
        ),
    ] {
        let output = run(args);
        let message = String::from_utf8_lossy(&output.stderr);
        let printed = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {message}");
        for part in parts {
            assert!(message.contains(part), "{args:?}: {part}: {message}");
        }
        assert!(!printed.contains(", 0 ns shown ("), "{args:?}: {printed}");
        assert!(!printed.contains(": : "), "{args:?}: {printed}");
    }
    let drawn = ["report", OSD, "--format", "svg", "--pools", "none"];
    assert_fails(
        &run(&drawn),
        1,
        &["nothing to draw", "pools of this trace: tp_"],
    );
    // Those that have no time in a state are counted.
    let args = ["report", OSD, "--by", "pool", "--state", "lock"];
    let printed = text(&args);
    assert!(printed.contains("tp_osd_tp: 16 threads"), "{printed}");
    assert!(
        printed.contains(" others have no time that passes"),
        "{printed}"
    );
}

/// Check that negative numbers are refused as values, not taken for flags.
#[test]
fn negative_numbers() {
    for (args, parts) in [
        (
            &["--from", "-1s"][..],
            ["invalid value '-1s'", "not a time"],
        ),
        (&["--min-percent", "-1"], ["invalid value '-1'", "0 to 100"]),
        (&["--ops", "-5"], ["invalid value '-5'", "must be 1 to"]),
    ] {
        assert_fails(&run(&[&["report", OSD], args].concat()), 2, &parts);
    }
}

/// Check that every format refuses a file that is there without `--force`, and replaces it with it, and that no
/// link is written through. The new one is private under any umask.
#[test]
fn existing_files() {
    use std::os::unix::fs::PermissionsExt;
    for format in ["--tree", "--format=csv", "--format=html", "--format=svg"] {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        fs::write(path("old"), "old").expect("it can be written");
        symlink("old", path("link")).expect("a link can be made");
        symlink("none", path("dangling")).expect("a link can be made");
        let names = ["old", "link", "dangling"];
        for name in names {
            let args = ["report", OSD, format, "-o", &path(name)];
            assert_fails(&run(&args), 2, &["exists", "hint:", "--force"]);
        }
        assert!(!folder.path().join("none").exists(), "{format}");
        assert_eq!(fs::read_to_string(path("old")).expect("a file"), "old");
        // The link before what it leads to.
        for name in ["link", "old", "dangling"] {
            let args = ["report", OSD, format, "--force", "-o", &path(name)];
            let status = Command::new("sh")
                .args(["-c", "umask 0 && exec \"$0\" \"$@\""])
                .arg(wcprof_testkit::program())
                .args(args)
                .current_dir(fixture(""))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            assert!(status.expect("sh runs").success(), "{args:?}");
            let new = fs::symlink_metadata(path(name)).expect("a file");
            assert!(new.is_file() && new.len() > 3, "{args:?}");
            assert_eq!(new.permissions().mode() & 0o7777, 0o600, "{args:?}");
        }
        let count = fs::read_dir(folder.path()).expect("a folder").count();
        assert_eq!(count, names.len(), "{format}");
    }
}

/// Check that `-o /dev/stdout` is standard output, also where that is a file, and `-o /dev/null` is nothing.
#[test]
fn standard_output_by_name() {
    for format in ["--tree", "--format=csv"] {
        let args = ["report", OSD, format, "-o", "/dev/stdout"];
        let printed = run(&args);
        assert!(printed.status.success() && printed.stdout.len() > 1000);
        let mut file = tempfile::tempfile().expect("a file");
        let status = command(&args)
            .stdout(file.try_clone().expect("a descriptor"))
            .status();
        assert!(status.expect("the program runs").success());
        let mut bytes = Vec::new();
        std::io::Seek::rewind(&mut file).expect("a file");
        std::io::Read::read_to_end(&mut file, &mut bytes).expect("a file");
        assert_eq!(bytes, printed.stdout, "{format}");
        let nothing = run(&["report", OSD, format, "-o", "/dev/null"]);
        assert!(nothing.status.success() && nothing.stdout.is_empty());
    }
}

/// Check that `--slice` is refused where nothing has slices, and `--format parquet` where it is not built in, with the
/// feature's name; where it is, its file begins and ends as one.
#[test]
fn parquet() {
    for args in [
        &["--slice", "1s"][..],
        &["--format", "csv", "--slice", "1s"],
        &["--locks", "--slice", "1s"],
    ] {
        let parts = ["--slice is a flag of --format parquet"];
        assert_fails(&run(&[&["report", OSD], args].concat()), 2, &parts);
    }
    let args = ["report", OSD, "--format", "parquet", "--slice", "100ms"];
    if cfg!(not(feature = "parquet")) {
        let parts = ["without --format parquet", "--features parquet"];
        return assert_fails(&run(&args), 2, &parts);
    }
    let bytes = run(&args).stdout;
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
}
