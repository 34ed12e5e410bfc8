//! The calls of a frame to a name for it, as far as lengths show.

use super::split::ends_with_epilogue;
use crate::frame::BLOCK_BYTES as BLOCK;
use crate::shapes::{Shape, Side};
use crate::text::format_bytes;

/// Longer than any front of a message about an object: what is longer is data.
const MAX_FRONT: usize = 4096;

/// Shorter than any block of a device.
const SMALL: usize = 512;
/// Most bytes of padding and of a short map of extents.
const MAX_EXTRA: usize = 64;

/// With what names of clients begin.
const CLIENTS: [&str; 7] = ["qemu", "kvm", "fio", "rbd", "rados", "tcmu", "CPU "];

/// What the observed process does, which distinguishes requests from replies.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Role {
    /// A client: librbd, CephFS, RGW towards the OSDs.
    Client,
    /// An OSD.
    Osd,
    /// Any other daemon, or not known.
    #[default]
    Other,
}

impl Role {
    /// From the name of the process.
    pub fn of_process(comm: &str) -> Self {
        match comm {
            "ceph-osd" | "crimson-osd" => Self::Osd,
            // `ceph-osd-classic` and `ceph-osd-crimson`, as far as the kernel keeps them.
            _ if comm.starts_with("ceph-osd-c") => Self::Osd,
            _ if comm.starts_with("ceph-") && comm != "ceph-fuse" => Self::Other,
            "radosgw" | "ceph-fuse" => Self::Client,
            _ if CLIENTS.iter().any(|name| comm.starts_with(name)) => Self::Client,
            _ => Self::Other,
        }
    }
}

/// Data in the last unit of a frame: bytes, and the number of buffers that hold them.
fn data_buffers(unit: &[usize]) -> Option<(usize, usize)> {
    let buffers: Vec<usize> = unit.iter().copied().filter(|len| *len > 0).collect();
    let (_epilogue, mut rest) = buffers.split_last()?;
    // The front is one segment or several buffers of one, padded to a block.
    let mut front = 0_usize;
    while let Some((len, tail)) = rest.split_first() {
        if front > 0 && front.is_multiple_of(BLOCK) || *len > MAX_FRONT {
            break;
        }
        front += len;
        rest = tail;
    }
    // Padding, and the map of extents before the data of a sparse read, are no buffers of their own.
    let bytes = rest.iter().sum::<usize>();
    let n_buffers = match rest.iter().filter(|len| **len >= SMALL).count() {
        0 => rest.len() - usize::from(rest.len() > 1 && rest[rest.len() - 1] < BLOCK),
        n_large => n_large,
    };
    (bytes > 0).then_some((bytes, n_buffers))
}

/// A name: `16 KiB read reply`, `16 KiB write in 4 buffers`, `no data`, `control`.
pub fn frame_name(shape: &Shape, role: Role) -> String {
    let last = match shape.units.as_slice() {
        [_] => return "control (acknowledgement, keepalive)".into(),
        [.., last] if ends_with_epilogue(last) => last,
        _ => return "control, long".into(),
    };
    let Some((bytes, n_buffers)) = data_buffers(last) else {
        return match (role, shape.side) {
            (Role::Client, Side::Tx) => "request without data",
            (Role::Client, Side::Rx) => "reply without data",
            _ => "message without data",
        }
        .into();
    };
    let kind = match (role, shape.side) {
        (Role::Client, Side::Rx) => "read reply",
        (Role::Client, Side::Tx) => "write",
        (Role::Osd, Side::Rx) => "write (of a client, or to a replica)",
        (Role::Osd, Side::Tx) => "read reply (or write to a replica)",
        (Role::Other, _) => "message",
    };
    let size = size(bytes);
    match n_buffers {
        0 | 1 => format!("{size} {kind}"),
        n => format!("{size} {kind} in {n} buffers"),
    }
}

fn size(bytes: usize) -> String {
    let extra = bytes % 4096;
    match bytes {
        // A sparse read has a map of its extents before the data.
        4096.. if (1..=MAX_EXTRA).contains(&extra) => {
            format!("{} + {extra} B", size(bytes - extra))
        }
        _ => format_bytes(bytes as u64),
    }
}
