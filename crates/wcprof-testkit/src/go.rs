//! Builds the fixtures in Go, by the Go that is installed or by others that it fetches from the module proxy. Tests of
//! crates that do not use this one include this file.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, id};
use std::sync::atomic::{AtomicU32, Ordering};

/// How a program is built.
#[derive(Copy, Clone, Debug)]
pub struct GoBuild {
    /// Version of Go: `local`, or a name such as `go1.16.15`.
    pub toolchain: &'static str,
    /// Position-independent.
    pub pie: bool,
    /// With C, so that the system's linker makes it.
    pub cgo: bool,
    /// Without symbol tables and DWARF.
    pub stripped: bool,
}

impl GoBuild {
    /// Builds `files` of `fixtures/src` in a folder.
    ///
    /// # Errors
    /// Why there is no such program, for the message of a skip.
    ///
    /// # Panics
    /// When Go is there and the program cannot be built, or the folder cannot be written to.
    pub fn program(self, folder: &Path, files: &[&str]) -> Result<PathBuf, String> {
        let run = |command: &mut Command| {
            let output = command.output().map_err(|e| format!("no go: {e}"))?;
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            Ok::<_, String>((output.status.success(), said))
        };
        let command = || {
            let mut command = Command::new("go");
            command
                .env("GOTOOLCHAIN", self.toolchain)
                // Old ones do not know newer flags.
                .env("GOFLAGS", "-modcacherw")
                .env("CGO_ENABLED", if self.cgo { "1" } else { "0" });
            command
        };
        let (is_there, said) = run(command().arg("version"))?;
        if !is_there {
            return Err(format!("no {}: {}", self.toolchain, said.trim()));
        }
        // Others may build it, too.
        static N_BUILDS: AtomicU32 = AtomicU32::new(0);
        let own = format!("{}-{}", id(), N_BUILDS.fetch_add(1, Ordering::Relaxed));
        let sources = folder.join(format!("{}-{own}", self.name()));
        fs::create_dir_all(&sources).expect("the folder can be written to");
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/src");
        for file in files {
            fs::copy(fixtures.join(file), sources.join(file)).expect("fixture can be copied");
        }
        fs::write(sources.join("go.mod"), "module fixture\n\ngo 1.16\n").expect("written");
        let program = folder.join(self.name());
        let mut build = command();
        build.current_dir(&sources).arg("build");
        build.arg(if self.pie {
            "-buildmode=pie"
        } else {
            "-buildmode=exe"
        });
        build.args(self.stripped.then_some("-ldflags=-s -w"));
        let (is_built, said) = run(build.args(["-o", "program", "."]))?;
        assert!(is_built, "failed to build {self:?}: {said}");
        fs::rename(sources.join("program"), &program).expect("same file system");
        fs::remove_dir_all(&sources).expect("the folder can be written to");
        Ok(program)
    }

    fn name(self) -> String {
        let part = |is: bool, name: &str| {
            if is {
                format!("-{name}")
            } else {
                String::new()
            }
        };
        let pie = part(self.pie, "pie");
        let (cgo, stripped) = (part(self.cgo, "cgo"), part(self.stripped, "stripped"));
        format!("{}{pie}{cgo}{stripped}", self.toolchain)
    }
}
