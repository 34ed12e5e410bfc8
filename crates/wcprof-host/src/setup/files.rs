//! Open files of a process, to their number and the files that hold its data.

use std::collections::BTreeMap;

use wcprof_types::snapshot::{OpenFile, ProcessSetup, limits};

use super::tree::{Absent, Tree, field, leading_number};

/// Descriptors that are looked at.
const MAX_FDS: usize = 1 << 16;
const MAX_MOUNTINFO: usize = 4 << 20;
/// Files below these are not data of the process's service.
const NOT_DATA: [&str; 5] = ["/dev/", "/proc/", "/sys/", "/var/log/", "/run/"];

pub(super) fn read(tree: &Tree, dir: &str, setup: &mut ProcessSetup) {
    let Some(fds) = tree.list(&format!("{dir}/fd"), Absent::Noted) else {
        return;
    };
    let open = setup.fds.get_or_insert_default();
    open.n = fds.len() as u64;
    let limits = tree.text(&format!("{dir}/limits")).unwrap_or_default();
    open.limit = limits
        .lines()
        .find_map(|l| l.strip_prefix("Max open files"))
        .and_then(leading_number);
    let mounts = mounts(tree, dir);
    let folder = format!("{dir}/fd");
    let link = tree.links(&folder);
    for fd in fds.iter().take(MAX_FDS) {
        let Some(path) = link(fd) else {
            continue;
        };
        if let Some(name) = path.strip_prefix("anon_inode:") {
            *open.anonymous.entry(kind(name)).or_default() += 1;
        } else if path.starts_with("/dev/vhost-") || path == "/dev/kvm" {
            *open.anonymous.entry(path).or_default() += 1;
        } else if path.starts_with('/')
            && open.files.len() < limits::FILES
            && open.files.iter().all(|f| f.path != path)
        {
            open.files.extend(data_file(tree, dir, fd, &path, &mounts));
        }
    }
}

/// `kvm-vcpu:3` without its number.
fn kind(name: &str) -> String {
    let name = name.split_once(':').map_or(name, |(kind, _)| kind);
    name.chars().take(64).collect()
}

fn data_file(
    tree: &Tree,
    dir: &str,
    fd: &str,
    path: &str,
    mounts: &BTreeMap<u64, String>,
) -> Option<OpenFile> {
    let device = path
        .strip_prefix("/dev/")
        .map(|name| name.replace('/', "!"))
        .filter(|name| tree.has_folder(&format!("/sys/class/block/{name}")));
    if let Some(device) = device {
        return Some(OpenFile {
            path: path.to_owned(),
            device,
            is_device: true,
        });
    }
    if NOT_DATA.iter().any(|folder| path.starts_with(folder)) || path.ends_with(" (deleted)") {
        return None;
    }
    let info = tree.text(&format!("{dir}/fdinfo/{fd}"))?;
    // O_WRONLY or O_RDWR, in octal.
    let flags = u32::from_str_radix(field(&info, "flags")?, 8).ok()?;
    if flags & 0o3 == 0 {
        return None;
    }
    let number = mounts.get(&field(&info, "mnt_id")?.parse().ok()?)?;
    let device = tree.real(&format!("/sys/dev/block/{number}"));
    Some(OpenFile {
        path: path.to_owned(),
        device: device
            .and_then(|d| Some(d.rsplit_once('/')?.1.to_owned()))
            .unwrap_or_default(),
        is_device: false,
    })
}

/// Device numbers by mount id, of `/proc/PID/mountinfo`.
fn mounts(tree: &Tree, dir: &str) -> BTreeMap<u64, String> {
    let text = tree
        .long_text(&format!("{dir}/mountinfo"), MAX_MOUNTINFO, Absent::Noted)
        .unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split(' ');
            let id = fields.next()?.parse().ok()?;
            Some((id, fields.nth(1)?.to_owned()))
        })
        .collect()
}
