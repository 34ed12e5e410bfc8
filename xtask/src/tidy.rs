//! `cargo xtask tidy`: the invariants of the source tree that no compiler checks.
//!
//! Each finding names the file or crate, what is wrong and what to do. `ARCHITECTURE.md` says why.

mod code;
mod dependencies;
mod fixtures;
mod license;
mod loops;
mod promises;
mod sources;
mod types;

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::process::{capture, capture_json, cargo, command, root};

/// Runs the command.
///
/// # Errors
/// When git or cargo cannot list files or crates, or an invariant does not hold.
pub fn run() -> Result<()> {
    let root = root();
    let files = files()?;
    let metadata = capture_json(cargo("metadata --format-version=1 --locked"))?;
    let mut findings = sources::check(&root, &files)?;
    findings.extend(fixtures::check(&root, &files)?);
    findings.extend(promises::check(&root, &files)?);
    findings.extend(dependencies::check(&metadata));
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => {
            println!("{} files keep the invariants", files.len());
            Ok(())
        }
        n => bail!("{n} findings"),
    }
}

/// Files that git knows or would add, relative to the root, that exist.
fn files() -> Result<Vec<PathBuf>> {
    let root = root();
    // The checkout may belong to another user than the one who tests it.
    let words =
        "git -c safe.directory=* ls-files -z --cached --others --exclude-standard --deduplicate";
    let list = capture(command(words).current_dir(&root))?;
    let names = list.split_terminator('\0').map(PathBuf::from);
    let mut files: Vec<PathBuf> = names.filter(|name| root.join(name).is_file()).collect();
    files.sort();
    Ok(files)
}
