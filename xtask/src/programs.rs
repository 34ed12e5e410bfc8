//! Tables of programs: each is built, started, recorded by wcprof and compared with what it, and eu-stack, say; a row each in a
//! document.
//!
//! What they need comes from Debian, npm, PyPI, Maven and Go's modules, with fixed versions below the result folder where they
//! are no packages of Debian. A program that cannot be had here is printed as skipped, and keeps its row.

mod witness;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use fs_err as fs;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::Value;

use crate::markdown;
use crate::process::{
    Background, build_release, capture, capture_json, command, is_installed, log_tail, log_to,
    quoted, result_folder, root, wait_until,
};
use crate::setup::{self, Group};

const END: &str = "<!-- End of what it made. -->\n";
/// Length of a recording, s.
const SECONDS: u32 = 5;

/// A program. Scripts are those of `sh -ec` in the result folder; `SRC` is `fixtures/src`, `LAB` the table's folder in `lab`,
/// `PID` the process.
pub struct Program {
    pub name: &'static str,
    /// Packages of Debian.
    pub packages: Group,
    /// Fetches and builds it; what fails here cannot be had.
    pub build: &'static str,
    /// Prints its version.
    pub version: &'static str,
    /// Becomes the program, or prints `pid PID` of it. It prints a line that begins with `ready`, and may print more before, which
    /// the table's row is made from.
    pub start: &'static str,
    /// Asks the program's runtime after the recording.
    pub own: &'static str,
    /// Threads and their states, as the program is made.
    pub threads: &'static [(&'static str, &'static str)],
    /// Who says what is right.
    pub witness: &'static str,
}

/// Programs with a row each in one document.
pub struct Table {
    /// The subcommand that makes it, which its folders have the name of.
    pub name: &'static str,
    pub document: &'static str,
    pub head: &'static [&'static str],
    pub programs: &'static [Program],
    /// Its reports have lines.
    pub with_lines: bool,
    pub row: fn(&Program, &Recorded) -> Row,
}

/// What is to be said of a program.
pub struct Row {
    /// Behind the first one.
    pub cells: Vec<String>,
    /// Printed beside the table.
    pub details: Vec<String>,
}

/// What was seen of a program.
pub struct Recorded {
    /// What `attach` printed.
    pub screen: String,
    /// Reports by thread with and without idle time.
    pub all: Value,
    pub busy: Value,
    /// What the program and its runtime printed.
    pub said: String,
    /// Of eu-stack: functions of threads by their ids, leaf first.
    pub stacks: BTreeMap<u64, Vec<String>>,
}

/// Which rows to make.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Rows to make again, all that begin so; all without any
    names: Vec<String>,
    /// A wcprof that is built already
    #[arg(long)]
    wcprof: Option<PathBuf>,
}

/// Makes a table's rows.
///
/// # Errors
/// When wcprof fails on a program, or a program that was built does not start.
pub fn run(table: &Table, args: &Args) -> Result<()> {
    let is_asked = |program: &&Program| {
        args.names.is_empty() || args.names.iter().any(|name| program.name.starts_with(name))
    };
    let asked: Vec<&Program> = table.programs.iter().filter(is_asked).collect();
    ensure!(!asked.is_empty(), "no row has such a name");
    let packages: Vec<Group> = asked.iter().map(|program| program.packages).collect();
    setup::install(&packages)?;
    let wcprof = match &args.wcprof {
        Some(program) => quoted(program),
        None => build_release()?,
    };
    let folder = result_folder(table.name)?;
    let mut rows = Vec::new();
    for program in asked {
        println!("\n{}", program.name);
        match measure(table, program, &wcprof, &folder)? {
            Ok(row) => {
                println!(
                    "{}",
                    markdown::table(table.head, std::slice::from_ref(&row))
                );
                rows.push(row);
            }
            Err(reason) => println!("SKIPPED {}: {reason}", program.name),
        }
    }
    write_rows(table, rows)
}

/// A shell that runs a script in the result folder.
fn shell(table: &Table, script: &str, folder: &Path) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-ec", script]).current_dir(folder);
    shell.env("SRC", root().join("fixtures/src"));
    shell.env("LAB", root().join("lab").join(table.name));
    shell
}

/// A program and all that it starts; they are killed when dropped.
struct Processes(Background);

impl Drop for Processes {
    fn drop(&mut self) {
        // Fails only when all have ended.
        let _ = killpg(Pid::from_raw(self.0.pid()), Signal::SIGKILL);
    }
}

/// The cells of a program's row; else why it cannot be had here.
fn measure(
    table: &Table,
    program: &Program,
    wcprof: &str,
    folder: &Path,
) -> Result<Result<Vec<String>, String>> {
    let shell = |script| shell(table, script, folder);
    if let Err(error) = capture(&mut shell(program.build)) {
        return Ok(Err(format!("{error:#}").replace('\n', " ")));
    }
    let version = capture(&mut shell(program.version))?;
    let file = |kind: &str| {
        let name = program.name.replace([' ', ',', '=', '/'], "-");
        folder.join(format!("{name}.{kind}"))
    };
    let log = file("log");
    let mut start = shell(program.start);
    log_to(&mut start, &log)?.stdin(Stdio::piped());
    std::os::unix::process::CommandExt::process_group(&mut start, 0);
    let mut running = Processes(Background::start(&mut start)?);
    wait_until("the program is ready", 60, || {
        let running = running.0.require_running();
        running.with_context(|| log_tail(&log))?;
        let said = fs::read_to_string(&log)?;
        Ok(said
            .lines()
            .any(|line| line.to_lowercase().starts_with("ready")))
    })?;
    let mut said = fs::read_to_string(&log)?;
    let pid = said.lines().find_map(|line| line.strip_prefix("pid "));
    let pid = pid.map_or_else(|| running.0.pid().to_string(), str::to_owned);
    let trace = quoted(file("wct"));
    let attach = format!("{wcprof} attach {pid} --children -d {SECONDS} --force -o {trace}");
    let screen = capture(command(&attach))?;
    fs::write(file("txt"), &screen)?;
    said.push_str(&capture(shell(program.own).env("PID", &pid))?);
    let stacks = match is_installed("eu-stack") {
        true => witness::stacks(&pid),
        false => BTreeMap::new(),
    };
    drop(running);

    let lines = if table.with_lines { " --lines" } else { "" };
    let report =
        format!("{wcprof} report {trace} --json --by thread --min-percent 0{lines} --idle");
    let all = capture_json(command(&format!("{report} show")))?;
    let busy = capture_json(command(&format!("{report} hide")))?;
    let recorded = Recorded {
        screen,
        all,
        busy,
        said,
        stacks,
    };
    let row = (table.row)(program, &recorded);
    for line in row.details {
        println!("  {line}");
    }
    let first = format!("{}: {}", program.name, version.trim());
    Ok(Ok([first].into_iter().chain(row.cells).collect()))
}

/// Writes these rows to the document; the others stay.
fn write_rows(table: &Table, rows: Vec<Vec<String>>) -> Result<()> {
    let path = root().join(table.document);
    let document = fs::read_to_string(&path)?;
    let begin = format!("<!-- Made by `cargo xtask {}`. -->\n", table.name);
    let parts = document.split_once(&begin).and_then(|(head, rest)| {
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
    let rows: Vec<_> = table
        .programs
        .iter()
        .filter_map(|one| all.remove(one.name))
        .collect();
    let date = capture(&mut command("date -u +%F"))?;
    let kernel = capture(&mut command("uname -r"))?;
    let table = markdown::table(table.head, &rows);
    let made = format!(
        "Linux {}, last run {}.\n\n{table}",
        kernel.trim(),
        date.trim()
    );
    fs::write(&path, format!("{head}{begin}{made}{END}{tail}"))?;
    println!("{}", path.display());
    Ok(())
}
