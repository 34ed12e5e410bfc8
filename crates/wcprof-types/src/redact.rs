//! Command lines and environment variables to what wcprof keeps of them: a trace is sent to others, so only arguments
//! that a check, a label or a title needs keep their values; of all other options the name is kept, of all other
//! arguments nothing.
//!
//! | Program | Kept with their values |
//! |---|---|
//! | QEMU | what says how disks, network devices and processors are served ([`qemu`]) |
//! | Ceph's daemons | who they are: `--id`, `--name`, `--cluster`, `--fsid`, `--conf`, `--osd-data` |
//! | all | Ceph's options of [`CEPH_OPTIONS`], as in `--ms-client-mode=secure` |
//! | `perf` | how it was asked to record: `-F`, `-e`, `--call-graph` and others |
//!
//! The name of the program and a title that a process gave itself (`postgres: checkpointer`) are kept, too.

mod qemu;
mod words;

pub use words::REDACTED;
use words::{is_name, option_name};

use crate::command_line::{
    is_ceph_program, is_program, is_qemu_program, program_name, rewritten_title,
};

/// Options of Ceph that checks or labels use, by name or beginning, spelled with `_`. None holds a secret.
pub const CEPH_OPTIONS: [&str; 13] = [
    "fsid",
    "ms_",
    "rbd_cache",
    "osd_op_num_",
    "osd_memory_target",
    "rgw_thread_pool_size",
    "bluestore_cache_size",
    "bdev_aio",
    "bdev_ioring",
    "bluestore_prefer_deferred_size",
    "osd_objectstore",
    "librados_thread_count",
    "auth_client_required",
];

/// Who a daemon of Ceph is, and where its files are.
const CEPH_IDENTITY: [&str; 10] = [
    "--id",
    "-i",
    "--name",
    "-n",
    "--cluster",
    "--fsid",
    "--conf",
    "-c",
    "--osd-data",
    "--mon-data",
];

/// How `perf record` was asked to record.
const PERF_OPTIONS: [&str; 12] = [
    "-F",
    "--freq",
    "-c",
    "--count",
    "-e",
    "--event",
    "-p",
    "--pid",
    "-t",
    "--tid",
    "--call-graph",
    "--user-callchains",
];

/// Environment variables that are kept. No other one gets into a trace.
const ENVIRON: [&str; 15] = [
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "LD_BIND_NOW",
    "GLIBC_TUNABLES",
    "MALLOC_ARENA_MAX",
    "MALLOC_CONF",
    "MALLOC_TRIM_THRESHOLD_",
    "MALLOC_MMAP_THRESHOLD_",
    "TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES",
    "TCMALLOC_RELEASE_RATE",
    "OPENSSL_ia32cap",
    "OPENSSL_CONF",
    "CEPH_ARGS",
    "CEPH_CONF",
    "POD_MEMORY_LIMIT",
];

/// What is kept of the arguments of a process with this name (`comm`): as many as there were. What was redacted before
/// stays as it is.
pub fn redact_args(comm: &str, args: &[String]) -> Vec<String> {
    let Some((program, others)) = args.split_first() else {
        return Vec::new();
    };
    if rewritten_title(args).is_some() {
        let blank = others.iter().map(|_| String::new());
        return std::iter::once(title(program)).chain(blank).collect();
    }
    let mut kept = vec![program.clone()];
    if is_program(comm, args, is_qemu_program) {
        qemu::redact(others, &mut kept);
    } else if is_program(comm, args, is_ceph_program) {
        options(others, &CEPH_IDENTITY, &mut kept);
    } else if is_program(comm, args, |name| name == "perf") {
        // `perf record`.
        let is_command = |word: &&String| is_name(word);
        let command = others.first().filter(is_command);
        kept.extend(command.cloned());
        options(
            &others[usize::from(command.is_some())..],
            &PERF_OPTIONS,
            &mut kept,
        );
    } else {
        options(others, &[], &mut kept);
    }
    kept
}

/// What is kept of an environment variable; `None` of one that is not kept at all.
pub fn redact_variable(name: &str, value: &str) -> Option<String> {
    if !ENVIRON.contains(&name) {
        return None;
    }
    if name != "CEPH_ARGS" {
        return Some(value.to_owned());
    }
    let words: Vec<String> = value.split_whitespace().map(str::to_owned).collect();
    let mut kept = Vec::new();
    options(&words, &CEPH_IDENTITY, &mut kept);
    Some(kept.join(" "))
}

/// The arguments that say which daemon of Ceph a process is, and nothing else but its program.
pub fn anonymous_args(comm: &str, args: &[String]) -> Vec<String> {
    let Some(program) = program_name(args) else {
        return Vec::new();
    };
    let mut kept = vec![program.to_owned()];
    if let Some(id) = crate::osd_id(comm, args) {
        kept.extend(["--id".to_owned(), id.to_owned()]);
    }
    kept
}

/// Whether the value of an option is kept, given its name with its dashes.
fn keeps_value(name: &str, also: &[&str]) -> bool {
    let of_ceph = || {
        let name = name.strip_prefix("--")?.replace('-', "_");
        Some(CEPH_OPTIONS.iter().any(|option| name.starts_with(option)))
    };
    also.contains(&name.replace('_', "-").as_str()) || of_ceph().unwrap_or(false)
}

/// Arguments of a program that has its options as `-x VALUE`, `--xy VALUE` and `--xy=VALUE`; the values of those in
/// `also` and of [`CEPH_OPTIONS`] are kept.
fn options(args: &[String], also: &[&str], kept: &mut Vec<String>) {
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let (name, value) = match arg.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value)),
            _ => (arg.as_str(), None),
        };
        match (keeps_value(name, also), value) {
            (true, Some(_)) => kept.push(arg.clone()),
            (true, None) => {
                kept.push(arg.clone());
                kept.extend(args.next().cloned());
            }
            (false, _) => kept.push(option_name(arg)),
        }
    }
}

/// What is kept of a command line that is one argument. `PROGRAM: TEXT` is a title, made to be seen; anything else may
/// be the arguments that the program joined.
fn title(text: &str) -> String {
    let is_title = text
        .split_once(": ")
        .is_some_and(|(program, _)| !program.contains([' ', '=']));
    let words = text.split(' ').enumerate().map(|(at, word)| {
        let is_kept = at == 0 || word.is_empty() || is_title && !word.contains(['=', '@']);
        if is_kept && !word.starts_with('-') {
            word.to_owned()
        } else {
            option_name(word)
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
