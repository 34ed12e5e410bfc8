//! Call frame information that a program does not load: in its own file, as it is and compressed, and in a separate one.

use std::path::Path;
use std::process::Command;

use wcprof_types::StackEnd;
use wcprof_unwind::{DebugFrames, ModuleCode, UnwoundStack};

use crate::common::{Fixture, no_text};

const FLAGS: [&str; 4] = [
    "-O2",
    "-g1",
    "-fno-asynchronous-unwind-tables",
    "-Wl,--build-id",
];

fn objcopy(arguments: &[&str], files: &[&Path]) {
    let status = Command::new("objcopy").args(arguments).args(files).status();
    assert!(status.expect("objcopy starts").success());
}

fn read(path: &Path) -> ModuleCode {
    ModuleCode::read(std::fs::File::open(path).unwrap(), usize::MAX).unwrap()
}

/// Check that the section is used in each form.
#[test]
fn own_file() {
    let fixture = Fixture::build(&FLAGS);
    let n_fdes = read(fixture.binary()).n_fdes();
    assert!(n_fdes > 15, "{n_fdes}");
    for form in ["zlib", "zlib-gabi", "zlib-gnu"] {
        let option = format!("--compress-debug-sections={form}");
        objcopy(&[&option], &[fixture.binary()]);
        assert_eq!(read(fixture.binary()).n_fdes(), n_fdes, "{form}");
        let dump = fixture.run("deep");
        let (mut unwinder, _) = dump.unwinder();
        let (mut memory, mut stack) = (dump.memory.clone(), UnwoundStack::default());
        unwinder.unwind(&dump.regs, &mut memory, &mut no_text, &mut stack);
        assert_eq!(stack.end, StackEnd::Root, "{form}");
        objcopy(&["--decompress-debug-sections"], &[fixture.binary()]);
    }
}

/// Check that the section of a debug file is used if the file is of the same build.
#[test]
fn separate_file() {
    let fixture = Fixture::build(&FLAGS);
    let other = Fixture::build(&[&FLAGS[..], &["-O1"]].concat());
    let n_fdes = read(fixture.binary()).n_fdes();
    let debug = fixture.binary().with_extension("debug");
    objcopy(&["--only-keep-debug"], &[fixture.binary(), &debug]);
    let link = format!("--add-gnu-debuglink={}", debug.display());
    objcopy(&["--strip-all", &link], &[fixture.binary()]);
    let mut code = read(fixture.binary());
    assert!(code.lacks_frames() && code.n_fdes() < n_fdes);
    assert_eq!(code.debug_link(), Some("fixture.debug"));
    let frames = |path: &Path| {
        let file = std::fs::File::open(path).unwrap();
        DebugFrames::read(file, usize::MAX).unwrap()
    };
    assert!(!code.add_debug_frames(frames(other.binary()).unwrap()));
    assert!(code.lacks_frames());
    assert!(code.add_debug_frames(frames(&debug).unwrap()));
    assert!(!code.lacks_frames());
    assert_eq!(code.n_fdes(), n_fdes);
    // The stripped file has none.
    assert!(frames(fixture.binary()).is_none());
}
