//! Who may execute the installed wcprof, and what it may do: by default anyone and nothing, on request a group and much.

use anyhow::{Context, Result, ensure};

use super::folder::{Root, User};
use super::used;

const GRANT: &str = "/usr/libexec/wcprof/grant";
/// The fewest with which every engine works on processes of others.
const CAPABILITIES: [&str; 6] = [
    "cap_bpf",
    "cap_checkpoint_restore",
    "cap_dac_read_search",
    "cap_perfmon",
    "cap_sys_nice",
    "cap_sys_ptrace",
];
/// What an old libcap calls some of them.
const NUMBERED: [(&str, &str); 3] = [
    ("38", "cap_perfmon"),
    ("39", "cap_bpf"),
    ("40", "cap_checkpoint_restore"),
];
const OUTSIDER: User<'_> = User("65534:65534", "");

/// As a package installs it: anyone can execute it, and gets no rights by that.
pub fn none(root: &Root) -> Result<()> {
    require_mode(root, "root:root 755")?;
    nowhere(root)?;
    root.run_as(OUTSIDER, "wcprof --version")?;
    require_refusal(root, OUTSIDER)
}

/// No file has capabilities.
pub fn nowhere(root: &Root) -> Result<()> {
    let found = capabilities(root)?;
    ensure!(found.is_empty(), "files with capabilities: {found}");
    Ok(())
}

/// After the opt-in step: a group, at first empty, can profile processes of others, and nobody else can execute it.
pub fn granted(root: &Root) -> Result<()> {
    root.run(GRANT)?;
    require_mode(root, "root:wcprof 750")?;
    let found = capabilities(root)?;
    let line = found.trim();
    let words = line
        .trim_start_matches("/usr/bin/wcprof")
        .trim_start_matches([' ', '=']);
    let (names, sets) = words.split_once(['=', '+']).context("no capabilities")?;
    let mut names: Vec<&str> = names.split(',').map(named).collect();
    names.sort_unstable();
    ensure!(
        names == CAPABILITIES && sets == "ep",
        "wrong capabilities: {line}"
    );

    let group = root.run("getent group wcprof")?;
    let fields: Vec<&str> = group.trim().split(':').collect();
    ensure!(
        fields.len() == 4 && fields[3].is_empty(),
        "the group is not empty: {group}"
    );
    let refusal = root.run_as(OUTSIDER, "wcprof --version").err();
    let refusal = refusal
        .context("a user outside the group can execute it")?
        .to_string();
    ensure!(
        refusal.contains("Permission denied"),
        "another refusal: {refusal}"
    );
    let target = root.start_target()?;
    used::attach(root, User("65534:65534", fields[2]), target.pid())
        .context("a member of the group cannot profile a process of root")
}

/// After the step back.
pub fn undone(root: &Root) -> Result<()> {
    root.run(&format!("{GRANT} --undo"))?;
    none(root)
}

/// Owner, group and mode of the program.
fn require_mode(root: &Root, expected: &str) -> Result<()> {
    let found = root.run("stat --format '%U:%G %a' /usr/bin/wcprof")?;
    ensure!(found.trim() == expected, "/usr/bin/wcprof is {found}");
    Ok(())
}

/// The user cannot profile a process of root.
fn require_refusal(root: &Root, user: User<'_>) -> Result<()> {
    let target = root.start_target()?;
    let words = format!("wcprof attach {} -d 1s -o /tmp/refused.wct", target.pid());
    ensure!(
        root.run_as(user, &words).is_err(),
        "any user can profile a process of root"
    );
    Ok(())
}

/// What `getcap` finds on the root's own file systems, a line a file.
fn capabilities(root: &Root) -> Result<String> {
    root.run("getcap -r /usr /etc /var /tmp")
}

/// The name of a capability that is given by its name or its number.
fn named(found: &str) -> &str {
    let numbered = NUMBERED.iter().find(|(number, _)| *number == found);
    numbered.map_or(found, |(_, name)| *name)
}
