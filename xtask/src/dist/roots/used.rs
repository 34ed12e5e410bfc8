//! What wcprof does where it is installed: it profiles a live process, and has its documents.

use anyhow::{Result, ensure};
use fs_err as fs;

use super::folder::{Root, User};
use crate::process::{capture_json, command, is_installed, text};

const UNIT: &str = "usr/lib/systemd/system/wcprof-agent.service";

/// Commands on a live process and on its trace.
pub fn profiles(root: &Root) -> Result<()> {
    root.run("wcprof --version")?;
    let target = root.start_target()?;
    let pid = target.pid();
    let check = capture_json(root.command(&format!("wcprof check {pid} --json")))?;
    ensure!(
        !text(&check["engine"]).is_empty(),
        "no engine works: {check}"
    );
    attach(root, User("0:0", ""), pid)?;
    drop(target);

    let screen = root.run("wcprof report /tmp/dd.wct")?;
    ensure!(screen.contains("uses "), "no headline:\n{screen}");
    root.run("wcprof doctor /tmp/dd.wct")?;
    root.run("wcprof report /tmp/dd.wct --format html -o /tmp/dd.html --force")?;
    let page = fs::read_to_string(root.folder().join("tmp/dd.html"))?;
    ensure!(
        page.trim_end().ends_with("</html>") && page.contains("dd"),
        "the page is not whole"
    );
    Ok(())
}

/// Records the target, and looks for the functions that it runs all the time.
///
/// # Errors
/// When that fails, or no stack leads to one of them.
pub fn attach(root: &Root, user: User<'_>, pid: i32) -> Result<()> {
    // The trace of another user.
    let trace = root.folder().join("tmp/dd.wct");
    if trace.exists() {
        fs::remove_file(trace)?;
    }
    root.run_as(user, &format!("wcprof attach {pid} -d 1s -o /tmp/dd.wct"))?;
    let stacks = root.run_as(user, "wcprof report /tmp/dd.wct --format folded")?;
    ensure!(
        stacks.lines().any(is_known),
        "no stack leads from __libc_start_main of the C library through dd to its read or write:\n{stacks}"
    );
    Ok(())
}

/// Whether a folded stack is one that `dd` has all the time. Its own functions have no names.
fn is_known(line: &str) -> bool {
    let Some((stack, _weight)) = line.rsplit_once(' ') else {
        return false;
    };
    let frames: Vec<&str> = stack.split(';').collect();
    let is_start = |frame: &&str| frame.starts_with("__libc_start_");
    let is_leaf = |frame: &&str| ["read", "__read", "write", "__write"].contains(frame);
    let start = frames.iter().position(is_start);
    let leaf = frames.iter().rposition(is_leaf);
    start.zip(leaf).is_some_and(|(start, leaf)| start < leaf)
}

/// Manual pages, completions, the unit and bills of materials.
pub fn documents_itself(root: &Root) -> Result<()> {
    for file in [
        "usr/share/man/man1/wcprof.1.gz",
        "usr/share/man/man1/wcprof-agent.1.gz",
        "usr/share/bash-completion/completions/wcprof",
        UNIT,
        "usr/share/doc/wcprof/wcprof.cdx.json",
        "usr/share/doc/wcprof/THIRD-PARTY-LICENSES.txt",
    ] {
        let size = fs::metadata(root.folder().join(file))?.len();
        ensure!(size > 0, "{file} is empty");
    }
    Ok(())
}

/// systemd takes the agent's unit, whose program is that of the root.
pub fn unit_is_valid(root: &Root) -> Result<()> {
    if !is_installed("systemd-analyze") {
        println!("SKIPPED verification of the unit: needs systemd-analyze, which is not installed");
        return Ok(());
    }
    let unit = fs::read_to_string(root.folder().join(UNIT))?;
    let program = root.folder().join("usr/bin/wcprof");
    let unit = unit.replace("/usr/bin/wcprof", &program.to_string_lossy());
    let copy = root.folder().join("tmp/wcprof-agent.service");
    fs::write(&copy, unit)?;
    // It reports what it ignores, without failing: lines of this unit alone are ours.
    let verify = command("systemd-analyze verify --man=no")
        .arg(&copy)
        .output()?;
    let said = String::from_utf8_lossy(&verify.stderr);
    ensure!(
        verify.status.success() && !said.contains("wcprof-agent"),
        "systemd-analyze verify: {said}"
    );
    Ok(())
}

/// The second program runs.
pub fn crypto_works(root: &Root) -> Result<()> {
    root.run("wcprof attach --demo -d 1s -o /tmp/demo.wct")?;
    let screen = root.run("wcprof report /tmp/demo.wct")?;
    ensure!(
        screen.contains("tp_osd_tp"),
        "no pools of the demo:\n{screen}"
    );
    Ok(())
}

/// The second program is there, and OpenSSL 3 is not: the error says so.
pub fn crypto_needs_openssl(root: &Root) -> Result<()> {
    for words in ["wcprof crypto calibrate", "wcprof attach --demo -d 1s"] {
        refused(root, words, "OpenSSL 3")?;
    }
    Ok(())
}

/// The second program is not there: the error names the package that has it.
pub fn crypto_is_elsewhere(root: &Root) -> Result<()> {
    for words in ["wcprof crypto calibrate", "wcprof attach --demo -d 1s"] {
        refused(root, words, "the package wcprof has both programs")?;
    }
    Ok(())
}

fn refused(root: &Root, words: &str, reason: &str) -> Result<()> {
    let Err(error) = root.run(words) else {
        anyhow::bail!("`{words}` works");
    };
    let error = error.to_string();
    ensure!(
        error.contains(reason),
        "`{words}` does not say {reason:?}: {error}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a stack is known by whole names in their order.
    #[test]
    fn known_stacks() {
        assert!(is_known("dd;dd+0x43;__libc_start_main;dd+0x25;write 902"));
        for line in [
            "",
            "dd;thread 1",
            "dd;write 1",
            "dd;read;__libc_start_main 1",
        ] {
            assert!(!is_known(line), "{line}");
        }
    }
}
