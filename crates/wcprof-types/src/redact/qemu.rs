//! QEMU's options to those that say how disks, network devices and processors are served.
//!
//! Names of options and keys are those of QEMU's `qemu-options.hx`; a value is written as `a=b,c.d=e` or as JSON.

use serde_json::{Map, Value};

use super::words::{REDACTED, is_name};
use crate::command_line::qemu_options;

/// Keys of a disk, or of a node below one.
const DISK: [&str; 30] = [
    "driver",
    "file",
    "filename",
    "node-name",
    "id",
    "if",
    "index",
    "bus",
    "unit",
    "media",
    "format",
    "cache",
    "cache.direct",
    "cache.no-flush",
    "cache.writeback",
    "aio",
    "pool",
    "image",
    "read-only",
    "readonly",
    "auto-read-only",
    "discard",
    "detect-zeroes",
    "snapshot",
    "rerror",
    "werror",
    "throttle-group",
    "iops",
    "iops-total",
    "locking",
];
const DEVICE: [&str; 17] = [
    "driver",
    "id",
    "bus",
    "addr",
    "drive",
    "netdev",
    "iothread",
    "iothread-vq-mapping",
    "iothread-vq-mapping.iothread",
    "iothread-vq-mapping.vqs",
    "num-queues",
    "queue-size",
    "vectors",
    "ioeventfd",
    "write-cache",
    "scsi",
    "bootindex",
];
const OBJECT: [&str; 14] = [
    "qom-type",
    "id",
    "poll-max-ns",
    "poll-grow",
    "poll-shrink",
    "aio-max-batch",
    "thread-pool-min",
    "thread-pool-max",
    "size",
    "share",
    "prealloc",
    "hugetlb",
    "host-nodes",
    "policy",
];
const MACHINE: [&str; 9] = [
    "type",
    "accel",
    "kernel-irqchip",
    "kernel_irqchip",
    "dump-guest-core",
    "mem-merge",
    "memory-backend",
    "thread",
    "dirty-ring-size",
];
const CPUS: [&str; 9] = [
    "cpus", "sockets", "dies", "cores", "threads", "maxcpus", "size", "slots", "maxmem",
];

/// Options with the key of a first value that has none, and the keys whose values are kept.
const OPTIONS: [(&str, &str, &[&str]); 11] = [
    ("name", "guest", &["guest", "debug-threads"]),
    ("machine", "type", &MACHINE),
    ("M", "type", &MACHINE),
    ("accel", "accel", &MACHINE),
    ("cpu", "model", &["model"]),
    ("smp", "cpus", &CPUS),
    ("m", "size", &CPUS),
    ("device", "driver", &DEVICE),
    ("object", "qom-type", &OBJECT),
    ("drive", "file", &DISK),
    ("blockdev", "driver", &DISK),
];
/// Options whose value is a file name, which may have commas.
const FILES: [&str; 5] = ["hda", "hdb", "hdc", "hdd", "cdrom"];
/// What is kept of an image of rbd by its options.
const RBD: [&str; 2] = ["rbd_cache", "rbd_cache_policy"];
/// Objects in objects that are followed.
const MAX_DEPTH: usize = 16;

/// Arguments behind the program.
pub(super) fn redact(args: &[String], kept: &mut Vec<String>) {
    let mut args = args.iter().peekable();
    while let Some(arg) = args.next() {
        // QEMU takes one dash or two.
        let name = arg.strip_prefix('-');
        let name = name.map(|name| name.strip_prefix('-').unwrap_or(name));
        let Some(name) = name.filter(|name| is_name(name)) else {
            kept.push(REDACTED.to_owned());
            continue;
        };
        kept.push(arg.clone());
        let option = OPTIONS.iter().find(|(known, ..)| *known == name);
        let is_file = FILES.contains(&name);
        if option.is_none() && !is_file {
            continue;
        }
        if let Some(text) = args.next_if(|next| !next.starts_with('-')) {
            kept.push(match option {
                Some((_, implied, keys)) => value(text, implied, keys),
                None => file(text),
            });
        }
    }
}

fn value(text: &str, implied: &str, keys: &[&str]) -> String {
    if text.starts_with('{') {
        return json(text, keys);
    }
    let parts = qemu_options(text).into_iter().enumerate();
    let parts = parts.map(|(at, part)| {
        let kept = match part.split_once('=') {
            Some((key, value)) => match leaf(key, value, keys) {
                Some(value) => format!("{key}={value}"),
                None if is_name(key) => format!("{key}={REDACTED}"),
                None => REDACTED.to_owned(),
            },
            None if at == 0 => leaf(implied, &part, keys).unwrap_or_else(|| REDACTED.to_owned()),
            // `,readonly` and `,+avx2`.
            None if is_name(part.trim_start_matches(['+', '-'])) => part,
            None => REDACTED.to_owned(),
        };
        kept.replace(',', ",,")
    });
    parts.collect::<Vec<_>>().join(",")
}

fn json(text: &str, keys: &[&str]) -> String {
    match serde_json::from_str(text) {
        Ok(value) => member("", value, keys, 0).to_string(),
        Err(_) => REDACTED.to_owned(),
    }
}

/// A part of a JSON value; places in lists are no part of its path.
fn member(path: &str, value: Value, keys: &[&str], depth: usize) -> Value {
    let redacted = || Value::String(REDACTED.to_owned());
    match value {
        Value::Object(_) | Value::Array(_) if depth == MAX_DEPTH => redacted(),
        Value::Object(members) => {
            let members = members.into_iter().map(|(key, value)| {
                let below = match path {
                    "" => key.clone(),
                    path => format!("{path}.{key}"),
                };
                let value = member(&below, value, keys, depth + 1);
                if is_name(&key) {
                    (key, value)
                } else {
                    (REDACTED.to_owned(), redacted())
                }
            });
            Value::Object(members.collect::<Map<_, _>>())
        }
        Value::Array(items) => {
            let items = items.into_iter();
            Value::Array(
                items
                    .map(|item| member(path, item, keys, depth + 1))
                    .collect(),
            )
        }
        Value::String(text) => {
            Value::String(leaf(path, &text, keys).unwrap_or_else(|| REDACTED.into()))
        }
        other if is_kept(path, keys) => other,
        _ => redacted(),
    }
}

/// The value of a key; `None` if it is not kept.
fn leaf(key: &str, value: &str, keys: &[&str]) -> Option<String> {
    let last = key.rsplit('.').next().unwrap_or(key);
    let is_file = matches!(last, "file" | "filename");
    is_kept(key, keys).then(|| {
        if is_file {
            file(value)
        } else {
            value.to_owned()
        }
    })
}

/// Whether the value of a key is kept: of a node inside a node (`file.driver`) as of the node itself.
fn is_kept(key: &str, keys: &[&str]) -> bool {
    let is_index = |part: &&str| !part.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Vec<&str> = key.split('.').filter(is_index).collect();
    let n_inside = parts.iter().take_while(|part| **part == "file").count();
    let at = n_inside.min(parts.len().saturating_sub(1));
    keys.contains(&parts[at..].join(".").as_str())
}

/// What is kept of a file name: a path, and of an image of rbd its pool, its name and [`RBD`]. Of other protocols, which
/// may name a user and a password, it is the protocol.
fn file(name: &str) -> String {
    if let Some(text) = name.strip_prefix("json:") {
        return format!("json:{}", json(text, &DISK));
    }
    let Some((protocol, rest)) = name.split_once(':').filter(|(p, _)| is_name(p)) else {
        return name.to_owned();
    };
    match protocol {
        "rbd" => {
            // A colon of a value is behind a backslash.
            let mut parts: Vec<String> = vec![String::new()];
            let mut is_escaped = false;
            for c in rest.chars() {
                match c {
                    ':' if !is_escaped => parts.push(String::new()),
                    c => parts.last_mut().into_iter().for_each(|part| part.push(c)),
                }
                is_escaped = c == '\\' && !is_escaped;
            }
            let parts = parts.into_iter().enumerate().map(|(at, part)| {
                let (key, _) = part.split_once('=').unwrap_or((part.as_str(), ""));
                if at == 0 || RBD.contains(&key) {
                    part
                } else if is_name(key) {
                    format!("{key}={REDACTED}")
                } else {
                    REDACTED.to_owned()
                }
            });
            let parts: Vec<String> = parts.collect();
            format!("rbd:{}", parts.join(":"))
        }
        "file" | "host_device" => name.to_owned(),
        protocol => format!("{protocol}:{REDACTED}"),
    }
}
