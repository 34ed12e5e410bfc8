//! The libcrypto that a process maps to a calibration.
//!
//! Its constructors are foreign code. So the system's own library is used where the file is the same,
//! byte by byte; any other is loaded only in a child that is confined before: namespaces, root, user
//! and groups of the target, no capabilities, limits, and a seccomp filter that lets it read files and
//! compute, but not write, fork, execute, connect or signal. If that can not be set up, nothing is
//! loaded. What the child says is as hostile as the library.

mod child;

use std::ffi::OsStr;
use std::io::{self, PipeReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use msgr_crypto::calibration::Calibration;
use msgr_crypto_ffi::Library;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use wcprof_host::open::open_regular;
use wcprof_host::procfs::{parse_schedstat, read_file};
use wcprof_host::{Target, apart, left};
use wcprof_perf::uprobe::{CryptoModule, UprobeError, find_crypto_modules};
use wcprof_text::terminal_name;
use wcprof_types::Pid;

use crate::kept::{Keeping, Place, content_hash};
use crate::measure::{kept_or_new, measure};
use wcprof_cli::confined::process;
use wcprof_cli::same_file::identity;
use wcprof_cli::{Exit, Failure};

pub(crate) use child::{SandboxArgs, run as run_child};

/// A library hangs when its process neither ran nor waited for a CPU for so long. One that computes for
/// ever is ended by the limit of its CPU time.
const STALLED: Duration = Duration::from_secs(20);
/// For all of it, also where it sleeps and wakes for ever.
const PATIENCE: Duration = Duration::from_secs(600);
/// To end once it is killed, also where others keep the CPUs busy.
const END_TIMEOUT: Duration = Duration::from_secs(2);
const IN_TIME: &str = "the library did not finish in time: its confined process was ended (it hangs, \
                       or this machine is too busy)";
/// A calibration has about 10 KiB.
const MAX_ANSWER: usize = 4 << 20;
/// Larger than any libcrypto.
const MAX_LIBRARY: u64 = 64 << 20;

/// The costs of the libcrypto that a process maps.
pub(crate) fn calibrate_process(pid: Pid, keeping: Keeping) -> Result<Calibration, Failure> {
    let target = Target::open(pid)?;
    let modules = find_crypto_modules(&target).map_err(|error| match error {
        UprobeError::Target(error) => error.into(),
        error => Failure::new(Exit::Failure, error),
    })?;
    let Some(module) = modules.first() else {
        return Err(Failure::new(Exit::Failure, UprobeError::NoLibrary(pid.0)));
    };
    if module.is_program {
        let error = anyhow!(
            "OpenSSL is part of the program `{}`, which can not be loaded as a library",
            terminal_name(&module.path)
        );
        let hint = "`--lib PATH` measures a library of the same version";
        return Err(Failure::from(error).hint(hint));
    }
    if let Some(library) = system_if_same(module) {
        return measure(&library, keeping);
    }
    refuse_deleted(&module.path)?;
    let name = format!(
        "{} of process {pid}, in a confined process of its own",
        terminal_name(&module.path)
    );
    let place = || Place::of_confined(&module.file, &module.path, pid.0);
    kept_or_new(place, keeping, &name, || confined(&target, &module.path))
}

/// The system's library, if it has the same bytes, and only root can have written it.
fn system_if_same(module: &CryptoModule) -> Option<Library> {
    let library = Library::system().ok()?;
    let own = open_regular(library.path.as_ref()?).ok()?;
    let metadata = own.metadata().ok()?;
    if metadata.uid() != 0 || metadata.mode() & 0o022 != 0 {
        return None;
    }
    let theirs = module.file.metadata().ok()?;
    if identity(&metadata) == identity(&theirs) {
        return Some(library);
    }
    if metadata.len() != theirs.len() || metadata.len() > MAX_LIBRARY {
        return None;
    }
    (content_hash(&own)? == content_hash(&module.file)?).then_some(library)
}

fn refuse_deleted(path: &str) -> Result<(), Failure> {
    if !path.ends_with(" (deleted)") {
        return Ok(());
    }
    let error = anyhow!(
        "`{}` was deleted or replaced since the process began: it can not be loaded",
        terminal_name(path)
    );
    let hint = "restart the process, or `--lib PATH` for a library of the same version";
    Err(Failure::from(error).hint(hint))
}

fn confined(target: &Target, path: &str) -> Result<Calibration, Failure> {
    let pid = target.pid().0.to_string();
    let own = path.to_owned();
    let (pipe, writer) = io::pipe().context("failed to make a pipe")?;
    let start = move |writer: Option<OwnedFd>| {
        let writer = writer.ok_or(io::ErrorKind::InvalidInput)?;
        let args = ["confined-calibrate", &pid, &own].map(OsStr::new);
        process::command(&args).stdout(writer).spawn()
    };
    let child = apart(Some(writer.as_fd()), start)
        .flatten()
        .context("failed to start the confined process")?;
    drop(writer);
    let answer = read_answer(pipe, child.id());
    // It may hang, or have left.
    let status = left::end(Pid(child.id().cast_signed()), END_TIMEOUT);
    let status = status.ok().flatten();
    let answer = answer?;
    let refused = |reason: String| {
        let error = anyhow!("failed to calibrate `{}`: {reason}", terminal_name(path));
        let hint = "`--lib PATH` measures a library that you trust with your own rights";
        Failure::from(error).hint(hint)
    };
    if let Some(reason) = answer.strip_prefix("error: ") {
        let reason: String = reason.trim_end().chars().take(500).collect();
        return Err(refused(terminal_name(&reason).into_owned()));
    }
    if answer.is_empty() {
        return Err(refused(match status {
            Some(status) if status.signal() != Some(Signal::SIGXCPU as i32) => {
                format!("the confined process ended without a result ({status})")
            }
            _ => IN_TIME.to_owned(),
        }));
    }
    let calibration = Calibration::from_json(&answer);
    let mut calibration =
        calibration.map_err(|error| refused(format!("its result is unsound: {error}")))?;
    // Whatever the child says, this is the file.
    calibration.library.path = Some(path.to_owned());
    Ok(calibration)
}

/// Nanoseconds that a process of one thread ran and waited for a CPU; `None` where the kernel does not
/// tell.
fn active_ns(pid: u32) -> Option<u64> {
    let text = read_file(format!("/proc/{pid}/schedstat")).ok()?;
    let stat = parse_schedstat(&text)?;
    stat.run_ns.checked_add(stat.delay_ns)
}

/// All that the child writes, up to limits of time and size.
fn read_answer(mut pipe: PipeReader, child: u32) -> anyhow::Result<String> {
    let begin = Instant::now();
    let mut moved = (begin, active_ns(child));
    let mut answer = Vec::new();
    let mut chunk = [0; 1 << 16];
    loop {
        let mut fds = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
        let ready = poll(&mut fds, PollTimeout::from(1000_u16));
        let active = active_ns(child);
        if active.is_none() || active != moved.1 {
            moved = (Instant::now(), active);
        }
        if moved.0.elapsed() > STALLED || begin.elapsed() > PATIENCE {
            return Ok(format!("error: {IN_TIME}"));
        }
        if !matches!(ready, Ok(1..)) {
            continue;
        }
        let n = pipe
            .read(&mut chunk)
            .context("failed to read from the confined process")?;
        if n == 0 {
            break;
        }
        answer.extend_from_slice(&chunk[..n]);
        let fits = answer.len() <= MAX_ANSWER;
        ensure!(
            fits,
            "the confined process wrote more than a calibration has"
        );
    }
    String::from_utf8(answer)
        .ok()
        .context("the confined process does not answer in text")
}
