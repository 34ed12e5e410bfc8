//! A process's name to the class of daemon it is.

use wcprof_types::daemon_kind;

/// `osd`, `mon`, `mgr`, `mds`, `rgw` and `qemu`, by the names of Ceph's and QEMU's programs; the
/// process's own name for all others. The kernel cuts names after 15 bytes.
pub fn daemon_class(comm: &str) -> &str {
    match comm {
        "kvm" | "qemu" => "qemu",
        comm if comm.starts_with("qemu-") => "qemu",
        comm => daemon_kind(comm).unwrap_or(comm),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check names as the kernel cuts them, and one that is no daemon's.
    #[test]
    fn classes() {
        assert_eq!(daemon_class("ceph-osd"), "osd");
        assert_eq!(daemon_class("ceph-osd-crimso"), "osd");
        assert_eq!(daemon_class("qemu-system-x86"), "qemu");
        assert_eq!(daemon_class("qemu-kvm"), "qemu");
        assert_eq!(daemon_class("fio"), "fio");
    }
}
