//! From Ctrl-C to the first screen of `wcprof attach`, with nothing cached, with the cache of the recording before,
//! and without a cache, in turn.

use std::io::Read;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fs_err as fs;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::stats::median;
use crate::markdown::table;
use crate::process::{build_release, command, quoted, result_folder};

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// The process to record, under load and with its debug files installed
    #[arg(long)]
    pid: i32,
    /// Length of a recording in seconds
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Recordings of each kind
    #[arg(long, default_value_t = 3)]
    rounds: u32,
}

/// Measures, and prints a table.
///
/// # Errors
/// When a build or a recording fails.
pub fn run(options: &Options) -> Result<()> {
    let wcprof = build_release()?;
    let folder = result_folder("bench-screen")?;
    let cache = folder.join("wcprof");
    let kinds = ["nothing cached", "cached before", "`--no-cache`"];
    let mut times = vec![Vec::new(); kinds.len()];
    for _ in 0..options.rounds {
        if cache.exists() {
            fs::remove_dir_all(&cache)?;
        }
        for (kind, times) in times.iter_mut().enumerate() {
            let flags = if kind == 2 { "--no-cache" } else { "" };
            let mut attach = command(&format!(
                "env -u DEBUGINFOD_URLS XDG_CACHE_HOME={folder} {wcprof} attach {pid} -d 0 --force -o {folder}/a.wct {flags}",
                folder = quoted(&folder),
                pid = options.pid,
            ));
            let child = attach
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()?;
            std::thread::sleep(Duration::from_secs(options.seconds));
            times.push(waits(child)?);
        }
    }
    let rows: Vec<Vec<String>> = kinds
        .iter()
        .zip(&times)
        .map(|(kind, times)| {
            let seconds = |of: fn(&[Duration; 2]) -> Duration| {
                format!("{:.2}", median(times.iter().map(|t| of(t).as_secs_f64())))
            };
            vec![(*kind).to_owned(), seconds(|t| t[0]), seconds(|t| t[1])]
        })
        .collect();
    print!("{}", table(&["names", "first screen, s", "end, s"], &rows));
    Ok(())
}

/// Time from Ctrl-C to the first byte of the screen, and to the end.
fn waits(mut child: Child) -> Result<[Duration; 2]> {
    let begin = Instant::now();
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT)?;
    let mut screen = child.stdout.take().context("wcprof has no output")?;
    let mut byte = [0];
    let printed = screen.read_exact(&mut byte).map(|()| begin.elapsed());
    std::io::copy(&mut screen, &mut std::io::sink())?;
    ensure!(child.wait()?.success(), "wcprof failed");
    Ok([printed?, begin.elapsed()])
}
