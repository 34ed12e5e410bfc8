//! The second program, with what calls libcrypto: where it is, and what to say where it is not.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, anyhow};
use wcprof_text::one_line;

use crate::failure::Failure;

const NAME: &str = "wcprof-crypto";

/// Its path: beside this program, or in the folder for programs that only others start. It is known to run here.
pub(crate) fn path() -> Result<PathBuf, Failure> {
    let own = std::env::current_exe().context("failed to find wcprof's own program")?;
    let folder = own.parent().unwrap_or(&own);
    let places = [
        folder.join(NAME),
        folder.join("../libexec/wcprof").join(NAME),
    ];
    let found = places.into_iter().find(|path| path.is_file());
    let found = found.ok_or_else(|| {
        let error = anyhow!(
            "`{NAME}` is not beside `{}`: it has the commands that call libcrypto, and the workload of --demo",
            own.display()
        );
        Failure::from(error).hint(
            "the package wcprof has both programs, of one version; `cargo xtask dist` builds them",
        )
    })?;
    require_libraries(&found)?;
    Ok(found)
}

/// The dynamic loader says what is missing, but not what to do about it.
fn require_libraries(program: &Path) -> Result<(), Failure> {
    let output = Command::new(program).arg("--version").output();
    let reason = match output {
        Ok(output) if output.status.success() => return Ok(()),
        Ok(output) => one_line(String::from_utf8_lossy(&output.stderr).trim()),
        Err(error) => error.to_string(),
    };
    let error = anyhow!("`{}` does not start: {reason}", program.display());
    Err(Failure::from(error).hint(
        "it needs OpenSSL 3 (libssl3 of Debian 12 and Ubuntu 22.04, openssl-libs of RHEL 9) and a C library not older than \
         theirs; the rest of wcprof needs neither",
    ))
}

/// Goes on as the other program, with the arguments of this one but the first `n`. Returns why it cannot.
pub(crate) fn become_it(n: usize) -> Failure {
    let program = match path() {
        Ok(program) => program,
        Err(failure) => return failure,
    };
    let error = Command::new(&program)
        .args(std::env::args_os().skip(n))
        .exec();
    let error = anyhow::Error::new(error);
    error
        .context(format!("failed to start `{}`", program.display()))
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a program that its loader refuses is named with the loader's reason and with what it needs.
    #[test]
    fn missing_libraries() {
        let failure = require_libraries(Path::new("/bin/false")).unwrap_err();
        assert!(failure.error.to_string().contains("`/bin/false`"));
        assert!(failure.hint.unwrap().contains("OpenSSL 3"));
        let failure = require_libraries(Path::new("/nowhere/wcprof-crypto")).unwrap_err();
        assert!(failure.error.to_string().contains("No such file"));
        assert!(require_libraries(Path::new("/bin/true")).is_ok());
    }
}
