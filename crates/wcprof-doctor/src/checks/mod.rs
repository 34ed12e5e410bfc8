//! The checks, by subject. What each says when it finds something is in `checks/*.toml`.

mod ceph;
mod disks;
mod libraries;
mod limits;
mod machine;
mod memory;
mod placement;
mod storage;

#[cfg(test)]
mod tests;

use crate::qemu::{self, Machine};
use crate::report::Out;

/// What kind of process it is.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// QEMU with its machine.
    Qemu(Box<Machine>),
    /// ceph-osd.
    Osd,
    /// radosgw.
    Gateway,
    /// Another program that uses librados.
    CephClient,
    /// Anything else.
    Other,
}

impl Kind {
    fn of(out: &Out<'_>) -> Self {
        let process = &out.snapshot.process;
        let program = process.cmdline.first().and_then(|a| a.rsplit('/').next());
        if qemu::is_qemu(&process.cmdline) {
            return Self::Qemu(Box::new(qemu::parse(&process.cmdline)));
        }
        match program {
            Some("ceph-osd") => Self::Osd,
            Some("radosgw") => Self::Gateway,
            _ if process.ceph.is_some() => Self::CephClient,
            _ => Self::Other,
        }
    }

    /// Whether its speed hangs on Ceph's code.
    fn is_ceph(&self, out: &Out<'_>) -> bool {
        match self {
            Self::Other => false,
            Self::Qemu(_) => out.snapshot.process.ceph.is_some(),
            _ => true,
        }
    }
}

pub(crate) fn all(out: &mut Out<'_>) {
    let kind = Kind::of(out);
    if let Kind::Qemu(machine) = &kind {
        machine::check(out, machine);
        disks::check(out, machine);
    }
    libraries::check(out, &kind);
    ceph::check(out, &kind);
    storage::check(out);
    placement::check(out, &kind);
    memory::check(out, &kind);
    limits::check(out);
}

/// `1 disk`, `2 disks`.
fn plural(n: usize, noun: &str) -> String {
    match n {
        1 => format!("1 {noun}"),
        _ => format!("{n} {noun}s"),
    }
}

/// `1.5 GiB`.
fn bytes(n: u64) -> String {
    match n {
        0..0x10_0000 => format!("{} KiB", n >> 10),
        0x10_0000..0x4000_0000 => format!("{} MiB", n >> 20),
        _ => format!("{:.1} GiB", n as f64 / f64::from(1 << 30)),
    }
}
