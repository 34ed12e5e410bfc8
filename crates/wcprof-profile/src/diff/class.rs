//! A process's name to the class of daemon it is.

/// `osd`, `mon`, `mgr`, `mds`, `rgw` and `qemu`, by the names of Ceph's and QEMU's programs; the
/// process's own name for all others. The kernel cuts names after 15 bytes.
pub fn daemon_class(comm: &str) -> &str {
    match comm {
        "ceph-osd" | "crimson-osd" => "osd",
        "ceph-mon" => "mon",
        "ceph-mgr" => "mgr",
        "ceph-mds" => "mds",
        "radosgw" | "ceph-radosgw" => "rgw",
        "kvm" | "qemu" => "qemu",
        comm if comm.starts_with("qemu-") => "qemu",
        comm => comm,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check names as the kernel cuts them, and one that is no daemon's.
    #[test]
    fn classes() {
        assert_eq!(daemon_class("ceph-osd"), "osd");
        assert_eq!(daemon_class("qemu-system-x86"), "qemu");
        assert_eq!(daemon_class("qemu-kvm"), "qemu");
        assert_eq!(daemon_class("fio"), "fio");
    }
}
