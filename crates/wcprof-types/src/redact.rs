//! Command lines and environment variables to what wcprof keeps of them: a trace is sent to others, so only arguments
//! that a check, a label or a title needs keep their values; of all other options the name is kept, of all other
//! arguments nothing.
//!
//! | Program | Kept with their values |
//! |---|---|
//! | QEMU | what says how disks, network devices and processors are served ([`qemu`]) |
//! | Ceph's daemons | who they are: `--id`, `--name`, `--cluster`, `--fsid`, `--conf`, `--osd-data` |
//! | Ceph's programs | options of [`CEPH_OPTIONS`] with values of [`CEPH_VALUES`] and numbers, as in `--ms-client-mode=secure` |
//! | `perf` | how it was asked to record: `-F`, `-e`, `--call-graph` and others |
//!
//! The name of the program and a title that a process gave itself (`postgres: checkpointer`) are kept, too.

mod qemu;
mod words;

pub use words::REDACTED;
use words::{is_name, option_name};

use crate::command_line::{
    is_ceph_daemon, is_ceph_program, is_program, is_qemu_program, program_name, rewritten_title,
};

/// Options of Ceph that checks or labels use, by name or beginning, spelled with `_`.
const CEPH_OPTIONS: [&str; 13] = [
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

/// Words that are values of [`CEPH_OPTIONS`]. With numbers, they are all that is kept of these: a value of another form
/// may be a secret, of a later option or a misspelled one.
const CEPH_VALUES: [&str; 18] = [
    "secure",
    "crc",
    "true",
    "false",
    "yes",
    "no",
    "on",
    "off",
    "none",
    "cephx",
    "bluestore",
    "filestore",
    "memstore",
    "async",
    "posix",
    "async+posix",
    "writethrough",
    "writeback",
];
/// The longest number with its unit that is kept, bytes.
const MAX_NUMBER: usize = 24;
/// The length of a cluster's `fsid`, a UUID.
const MAX_FSID: usize = 36;

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
    } else if is_program(comm, args, is_ceph_daemon) {
        options(others, &CEPH_IDENTITY, keeps_ceph_option, &mut kept);
    } else if is_program(comm, args, is_ceph_program) {
        options(others, &[], keeps_ceph_option, &mut kept);
    } else if is_program(comm, args, |name| name == "perf") {
        // `perf record`.
        let is_command = |word: &&String| is_name(word);
        let command = others.first().filter(is_command);
        kept.extend(command.cloned());
        let others = &others[usize::from(command.is_some())..];
        options(others, &PERF_OPTIONS, |_, _| false, &mut kept);
    } else {
        options(others, &[], |_, _| false, &mut kept);
    }
    kept
}

/// Whether the value of an option of Ceph is kept, given its name without dashes, spelled with `-` or `_`.
pub fn keeps_ceph_option(name: &str, value: &str) -> bool {
    let name = name.replace('-', "_");
    let is_number = |word: &str| {
        let digits = word.trim_end_matches(|last: char| last.is_ascii_alphabetic());
        let is_digit = |byte: u8| byte.is_ascii_digit() || byte == b'.';
        word.len() - digits.len() <= 2 && !digits.is_empty() && digits.bytes().all(is_digit)
    };
    if name == "fsid" {
        let is_hex = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
        return value.len() <= MAX_FSID && value.bytes().all(is_hex);
    }
    CEPH_OPTIONS.iter().any(|option| name.starts_with(option))
        && value.split([' ', ',']).all(|word| {
            word.is_empty()
                || CEPH_VALUES.contains(&word)
                || word.len() <= MAX_NUMBER && is_number(word)
        })
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
    options(&words, &CEPH_IDENTITY, keeps_ceph_option, &mut kept);
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

/// Arguments of a program that has its options as `-x VALUE`, `--xy VALUE` and `--xy=VALUE`. Kept are the values of those
/// in `known`, with their dashes, and those that pass `keeps`, given the name without dashes and the value.
fn options(
    args: &[String],
    known: &[&str],
    keeps: impl Fn(&str, &str) -> bool,
    kept: &mut Vec<String>,
) {
    let keeps_value = |name: &str, value: &str| {
        known.contains(&name.replace('_', "-").as_str())
            || name
                .strip_prefix("--")
                .is_some_and(|name| keeps(name, value))
    };
    let mut args = args.iter().peekable();
    while let Some(arg) = args.next() {
        if let Some((name, value)) = arg.split_once('=').filter(|_| arg.starts_with("--")) {
            let is_kept = keeps_value(name, value);
            kept.push(if is_kept {
                arg.clone()
            } else {
                option_name(arg)
            });
            continue;
        }
        kept.push(option_name(arg));
        kept.extend(
            args.next_if(|next| !next.starts_with('-') && keeps_value(arg, next))
                .cloned(),
        );
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
