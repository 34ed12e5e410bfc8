//! Compiles the fixtures, each variant once a test process.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// How a fixture is compiled.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Variant {
    /// Optimized, frame pointers omitted: CFI only.
    NoFramePointers,
    /// Optimized, with frame pointers: the CFA is found through rbp nearly everywhere.
    FramePointers,
    /// Not position-independent: its base is not zero.
    NonPie,
    /// Statically linked.
    Static,
    /// A library for `LD_PRELOAD`.
    Preload,
    /// Statically linked with musl, whose own functions have no call frame information.
    Musl,
    /// Call frame information only in `.debug_frame`, which a program does not load.
    DebugFrame,
}

impl Variant {
    /// The two that every unwinding test runs on.
    pub const BOTH: [Self; 2] = [Self::NoFramePointers, Self::FramePointers];

    fn name(self) -> &'static str {
        match self {
            Self::NoFramePointers => "nofp",
            Self::FramePointers => "fp",
            Self::NonPie => "nopie",
            Self::Static => "static",
            Self::Preload => "preload",
            Self::Musl => "musl",
            Self::DebugFrame => "debugframe",
        }
    }

    fn c_flags(self) -> &'static [&'static str] {
        match self {
            Self::NoFramePointers => &["-fomit-frame-pointer"],
            Self::FramePointers => &["-fno-omit-frame-pointer"],
            Self::NonPie => &["-fomit-frame-pointer", "-fno-pie", "-no-pie"],
            Self::Preload => &["-shared", "-fPIC"],
            Self::DebugFrame => &[
                "-fomit-frame-pointer",
                "-fno-asynchronous-unwind-tables",
                "-g",
            ],
            Self::Static | Self::Musl => &["-fomit-frame-pointer", "-static"],
        }
    }

    fn rust_flags(self) -> &'static [&'static str] {
        match self {
            Self::FramePointers => &["-Cforce-frame-pointers=yes"],
            _ => &["-Cforce-frame-pointers=no"],
        }
    }
}

/// Cargo's folder of programs, found from the running test, which lies in its `deps`.
pub(crate) fn program_folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let test = std::env::current_exe().expect("a test has a path");
        let deps = test.parent().expect("a test is in a folder");
        deps.parent().expect("deps is in a folder").to_owned()
    })
}

/// A folder for what tests make, on the file system of the build.
pub fn output_folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = program_folder().join("tmp");
        fs::create_dir_all(&folder).expect("target folder can be written");
        folder
    })
}

/// The compiled fixture `file` (its name in `fixtures/src`).
pub fn fixture(file: &'static str, variant: Variant) -> PathBuf {
    type Built = HashMap<(&'static str, Variant), Arc<OnceLock<PathBuf>>>;
    static BUILT: OnceLock<Mutex<Built>> = OnceLock::new();
    let cell = Arc::clone(
        BUILT
            .get_or_init(Mutex::default)
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry((file, variant))
            .or_default(),
    );
    cell.get_or_init(|| build(file, variant)).clone()
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/src")
}

fn build(file: &str, variant: Variant) -> PathBuf {
    let (stem, extension) = file.split_once('.').expect("file has an extension");
    let source = sources().join(file);
    let mut command;
    if extension == "rs" {
        command = Command::new("rustc");
        command
            .args(["--edition", "2024", "-O", "-g"])
            .args(variant.rust_flags());
    } else {
        let c = extension == "c";
        command = Command::new(match variant {
            Variant::Musl => "musl-gcc",
            _ if c => "gcc",
            _ => "g++",
        });
        command
            .arg(if c { "-std=gnu11" } else { "-std=c++20" })
            // Names must come from .symtab in C, from DWARF too (inline frames) in C++.
            .args(if c { &["-O2"][..] } else { &["-O2", "-g"] })
            .args(["-Wall", "-Wextra", "-Werror", "-fno-optimize-sibling-calls"])
            .args(variant.c_flags())
            .arg("-pthread");
    }
    command.arg(source);
    if stem == "crypto" {
        command.arg("-lcrypto");
    }
    compile(
        &mut command,
        &format!("{stem}-{extension}-{}", variant.name()),
    )
    .unwrap_or_else(|message| panic!("failed to compile {file}: {message}"))
}

/// The 32-bit fixture; `Err` where the compiler has no 32-bit back end.
pub fn build_tiny32() -> Result<PathBuf, String> {
    let mut command = Command::new("gcc");
    command
        .args(["-m32", "-O2", "-fno-pie", "-no-pie", "-nostdlib", "-static"])
        .arg(sources().join("tiny32.c"));
    compile(&mut command, "tiny32")
}

/// Run the compiler; its output appears whole or not at all, whoever else builds it too.
fn compile(command: &mut Command, name: &str) -> Result<PathBuf, String> {
    let target = output_folder().join(name);
    let unfinished = output_folder().join(format!("{name}.{}", process::id()));
    let output = command
        .arg("-o")
        .arg(&unfinished)
        .output()
        .map_err(|e| format!("failed to run {:?}: {e}", command.get_program()))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    fs::rename(&unfinished, &target).map_err(|e| e.to_string())?;
    Ok(target)
}
