//! A process to the kind of program that it is, which decides the checks that apply.

use crate::qemu::{self, Machine};
use wcprof_types::snapshot::ProcessSetup;

/// What kind of process it is.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// QEMU with its machine.
    Qemu(Box<Machine>),
    /// ceph-osd, not crimson's, which has other threads and options.
    Osd,
    /// radosgw.
    Gateway,
    /// Another program that uses librados.
    CephClient,
    /// Anything else.
    Other,
}

impl Kind {
    pub(super) fn new(process: &ProcessSetup) -> Self {
        if qemu::is_qemu(&process.cmdline) {
            return Self::Qemu(Box::new(qemu::parse(&process.cmdline)));
        }
        match process.cmdline.first().and_then(|a| a.rsplit('/').next()) {
            Some("ceph-osd" | "ceph-osd-classic") => Self::Osd,
            Some("radosgw") => Self::Gateway,
            _ if process.ceph.is_some() => Self::CephClient,
            _ => Self::Other,
        }
    }

    /// Whether its speed depends on Ceph's code.
    pub(super) fn is_ceph(&self, process: &ProcessSetup) -> bool {
        match self {
            Self::Other => false,
            Self::Qemu(_) => process.ceph.is_some(),
            _ => true,
        }
    }
}
