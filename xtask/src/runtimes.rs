//! `cargo xtask runtimes`: programs of many runtimes whose threads wait and work in known ways, recorded by wcprof and compared
//! with what the programs, their runtimes and eu-stack say; a row each in `docs/runtimes.md`.
//!
//! What they need comes from Debian, npm, PyPI, Maven and Go's modules, with fixed versions below the result folder where they
//! are no packages of Debian. A runtime that cannot be had here is printed as skipped, and keeps its row.

mod list;
mod score;
mod witness;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use fs_err as fs;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::markdown;
use crate::process::{
    Background, build_release, capture, capture_json, command, is_installed, log_tail, log_to,
    quoted, result_folder, root, wait_until,
};
use crate::setup;
use list::{RUNTIMES, Runtime};
use score::{Score, Truth};

const DOCUMENT: &str = "docs/runtimes.md";
/// Lines of the document between which the table is.
const BEGIN: &str = "<!-- Made by `cargo xtask runtimes`. -->\n";
const END: &str = "<!-- End of what it made. -->\n";
const HEAD: [&str; 7] = [
    "Runtime",
    "Threads",
    "Depth",
    "Names",
    "States: right / unknown / wrong",
    "Witness",
    "Hint",
];
/// Length of a recording, s.
const SECONDS: u32 = 5;

/// Compare what wcprof shows of programs of many runtimes with what these say.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Rows to make again, all that begin so; all without any
    names: Vec<String>,
    /// A wcprof that is built already
    #[arg(long)]
    wcprof: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// When wcprof fails on a program, or a program that was built does not start.
pub fn run(args: &Args) -> Result<()> {
    let is_asked = |runtime: &&Runtime| {
        args.names.is_empty() || args.names.iter().any(|name| runtime.name.starts_with(name))
    };
    let asked: Vec<&Runtime> = RUNTIMES.iter().filter(is_asked).collect();
    ensure!(!asked.is_empty(), "no runtime has such a name");
    let packages: Vec<setup::Group> = asked.iter().map(|runtime| runtime.packages).collect();
    setup::install(&packages)?;
    let wcprof = match &args.wcprof {
        Some(program) => quoted(program),
        None => build_release()?,
    };
    let folder = result_folder("runtimes")?;
    let mut rows = Vec::new();
    for runtime in asked {
        println!("\n{}", runtime.name);
        match measure(runtime, &wcprof, &folder)? {
            Ok(row) => {
                println!("{}", markdown::table(&HEAD, std::slice::from_ref(&row)));
                rows.push(row);
            }
            Err(reason) => println!("SKIPPED {}: {reason}", runtime.name),
        }
    }
    write_rows(rows)
}

/// A shell that runs a script in the result folder.
fn shell(script: &str, folder: &Path) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-ec", script]).current_dir(folder);
    shell.env("SRC", root().join("fixtures/src"));
    shell.env("LAB", root().join("lab/runtimes"));
    shell
}

/// A program and all that it starts; they are killed when dropped.
struct Group(Background);

impl Drop for Group {
    fn drop(&mut self) {
        // Fails only when all have ended.
        let _ = killpg(Pid::from_raw(self.0.pid()), Signal::SIGKILL);
    }
}

/// The cells of a runtime's row; else why it cannot be had here.
fn measure(runtime: &Runtime, wcprof: &str, folder: &Path) -> Result<Result<Vec<String>, String>> {
    if let Err(error) = capture(shell(runtime.build, folder)) {
        return Ok(Err(format!("{error:#}").replace('\n', " ")));
    }
    let version = capture(shell(runtime.version, folder))?;
    let file = |kind: &str| {
        let name = runtime.name.replace([' ', ',', '='], "-");
        folder.join(format!("{name}.{kind}"))
    };
    let log = file("log");
    let mut shell_of_program = shell(runtime.start, folder);
    log_to(&mut shell_of_program, &log)?.stdin(Stdio::piped());
    std::os::unix::process::CommandExt::process_group(&mut shell_of_program, 0);
    let mut program = Group(Background::start(&mut shell_of_program)?);
    wait_until("the program is ready", 60, || {
        let running = program.0.require_running();
        running.with_context(|| log_tail(&log))?;
        let said = fs::read_to_string(&log)?;
        Ok(said
            .lines()
            .any(|line| line.to_lowercase().starts_with("ready")))
    })?;
    let said = fs::read_to_string(&log)?;
    let pid = said.lines().find_map(|line| line.strip_prefix("pid "));
    let pid = pid.map_or_else(|| program.0.pid().to_string(), str::to_owned);
    let trace = quoted(file("wct"));
    let attach = format!("{wcprof} attach {pid} --children -d {SECONDS} --force -o {trace}");
    let screen = capture(command(&attach))?;
    fs::write(file("txt"), &screen)?;
    let own = capture(shell(runtime.own, folder).env("PID", &pid))?;
    let stacks = match is_installed("eu-stack") {
        true => witness::stacks(&pid),
        false => BTreeMap::new(),
    };
    drop(program);

    let report = format!("{wcprof} report {trace} --json --by thread --min-percent 0 --idle");
    let all = capture_json(command(&format!("{report} show")))?;
    let busy = capture_json(command(&format!("{report} hide")))?;
    // A runtime tells where a thread was at one look; what the program is made to do counts more.
    let made = runtime.threads.iter();
    let made = made.map(|&(name, state)| Truth::new(name, state));
    let looked_at = said.lines().chain(own.lines()).filter_map(Truth::parse);
    let truths: Vec<Truth> = looked_at.chain(made).collect();
    let score = Score::new(&all, &busy, &truths, &stacks);
    for line in score.details() {
        println!("  {line}");
    }
    Ok(Ok(vec![
        format!("{}: {}", runtime.name, version.trim()),
        score.threads(),
        score.depth(),
        score.names(),
        score.states(),
        runtime.witness.to_owned(),
        hint(&screen),
    ]))
}

/// What the first screen says of names that are missing.
fn hint(screen: &str) -> String {
    let words: Vec<&str> = screen.split_whitespace().collect();
    let screen = words.join(" ");
    let hint = screen.split_once("names come from ").map(|(_, rest)| rest);
    let end = |hint: &str| hint.find(" quality ").unwrap_or(hint.len());
    hint.map_or_else(|| "-".to_owned(), |hint| hint[..end(hint)].to_owned())
}

/// Writes these rows to the document; the others stay.
fn write_rows(rows: Vec<Vec<String>>) -> Result<()> {
    let path = root().join(DOCUMENT);
    let document = fs::read_to_string(&path)?;
    let parts = document.split_once(BEGIN).and_then(|(head, rest)| {
        let (made, tail) = rest.split_once(END)?;
        Some((head, made, tail))
    });
    let (head, made, tail) = parts.context("the document has no place for the table")?;
    let cells = |line: &str| -> Vec<String> {
        let line = line.trim_matches(['|', ' ']);
        line.split(" | ")
            .map(|cell| cell.trim().to_owned())
            .collect()
    };
    let name = |row: &Vec<String>| row[0].split(": ").next().unwrap_or_default().to_owned();
    let old = made.lines().filter(|line| line.starts_with('|')).skip(2);
    let all: Vec<_> = old
        .map(cells)
        .chain(rows)
        .map(|row| (name(&row), row))
        .collect();
    let mut all: BTreeMap<String, Vec<String>> = all.into_iter().collect();
    let rows: Vec<_> = RUNTIMES
        .iter()
        .filter_map(|one| all.remove(one.name))
        .collect();
    let date = capture(&mut command("date -u +%F"))?;
    let kernel = capture(&mut command("uname -r"))?;
    let table = markdown::table(&HEAD, &rows);
    let made = format!(
        "Linux {}, last run {}.\n\n{table}",
        kernel.trim(),
        date.trim()
    );
    fs::write(&path, format!("{head}{BEGIN}{made}{END}{tail}"))?;
    println!("{}", path.display());
    Ok(())
}
