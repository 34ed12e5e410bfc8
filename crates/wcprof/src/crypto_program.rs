//! The second program, with what calls libcrypto: where it is, and what to say where it is not.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, anyhow};

use crate::failure::Failure;

const NAME: &str = "wcprof-crypto";

/// Its path: beside this program, or in the folder for programs that only others start.
pub(crate) fn path() -> Result<PathBuf, Failure> {
    let own = std::env::current_exe().context("failed to find wcprof's own program")?;
    let folder = own.parent().unwrap_or(&own);
    let places = [
        folder.join(NAME),
        folder.join("../libexec/wcprof").join(NAME),
    ];
    let found = places.into_iter().find(|path| path.is_file());
    found.ok_or_else(|| {
        let error = anyhow!(
            "`{NAME}` is not beside `{}`: it has the commands that call libcrypto, and the workload of --demo",
            own.display()
        );
        Failure::from(error).hint(
            "the package wcprof has both programs, of one version; `cargo xtask dist` builds them",
        )
    })
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
