//! Reading below a root folder, with every kind of bad input.

mod guest;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::mpsc::channel;

use wcprof_types::Pid;
use wcprof_types::snapshot::{ProcessSetup, Snapshot};

use super::memory::Walk;
use super::tree::{Absent, Tree};
use super::{host, libraries, process, read_setup};

fn write(root: &Path, path: &str, content: impl AsRef<[u8]>) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// A host with two NUMA nodes and an OSD whose data is on a partition of an NVMe disk.
fn host_with_osd() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    write(
        root,
        "proc/7/status",
        "Name:\tceph-osd\nVmRSS:\t 4096 kB\nThreads:\t1\nShdPnd:\t0\n",
    );
    write(root, "proc/7/comm", "ceph-osd\n");
    write(root, "proc/7/cmdline", "ceph-osd\0--id\x003\0--key\0AQ==\0");
    write(
        root,
        "proc/7/environ",
        "HOME=/root\0TOKEN=x\0CEPH_ARGS=--key AQ==\0LD_PRELOAD=/l.so\0",
    );
    write(
        root,
        "proc/7/maps",
        "7f00-7f10 r-xp 00000000 08:01 9    /usr/lib/libceph-common.so.2\n",
    );
    write(
        root,
        "proc/7/root/usr/lib/libceph-common.so.2",
        "x\x0017.2.6\0y",
    );
    write(
        root,
        "proc/7/root/etc/ceph/ceph.conf",
        "[osd]\nms cluster mode = secure\n",
    );
    fs::create_dir_all(root.join("proc/7/root/var/lib/ceph/osd/ceph-3")).unwrap();
    symlink(
        "/dev/nvme0n1p1",
        root.join("proc/7/root/var/lib/ceph/osd/ceph-3/block"),
    )
    .unwrap();
    write(
        root,
        "proc/7/task/7/status",
        "Name:\tceph-osd\nCpus_allowed_list:\t0-1\n",
    );
    write(
        root,
        "proc/7/limits",
        "Max open files            1024                 4096  files\n",
    );
    write(
        root,
        "proc/7/mountinfo",
        "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n",
    );
    write(root, "proc/7/cgroup", "0::/a/b\n");
    write(root, "sys/fs/cgroup/cgroup.controllers", "cpu");
    write(root, "sys/fs/cgroup/a/cpu.max", "200000 100000\n");
    write(
        root,
        "sys/fs/cgroup/a/cpu.stat",
        "usage_usec 1\nnr_periods 10\nnr_throttled 5\nthrottled_usec 70\n",
    );
    write(
        root,
        "proc/7/numa_maps",
        "7f00 default anon=3 N0=1 N1=2 kernelpagesize_kB=2048\n",
    );
    for (node, cpus) in [("node0", "0-1"), ("node1", "2-3")] {
        write(
            root,
            &format!("sys/devices/system/node/{node}/cpulist"),
            cpus,
        );
    }
    let disk = "sys/devices/pci0000:00/0000:00:04.0/nvme/nvme0/nvme0n1";
    write(
        root,
        &format!("{disk}/queue/scheduler"),
        "[none] mq-deadline\n",
    );
    write(root, &format!("{disk}/queue/rotational"), "0\n");
    write(root, &format!("{disk}/nvme0n1p1/partition"), "1\n");
    write(root, "sys/devices/pci0000:00/0000:00:04.0/numa_node", "1\n");
    write(
        root,
        "sys/devices/pci0000:00/0000:00:04.0/msi_irqs/33",
        "msix\n",
    );
    write(root, "proc/irq/33/smp_affinity_list", "2-3\n");
    fs::create_dir_all(root.join("sys/class/block")).unwrap();
    symlink(
        "../../devices/pci0000:00/0000:00:04.0/nvme/nvme0/nvme0n1/nvme0n1p1",
        root.join("sys/class/block/nvme0n1p1"),
    )
    .unwrap();
    fs::create_dir_all(root.join("proc/7/fd")).unwrap();
    symlink("/dev/nvme0n1p1", root.join("proc/7/fd/3")).unwrap();
    symlink("anon_inode:kvm-vcpu:0", root.join("proc/7/fd/4")).unwrap();
    folder
}

fn read(root: &Path) -> Snapshot {
    read_setup(root, Pid(7), Walk::PageTables).unwrap()
}

/// Check what is read of a whole tree, down to the disk under a partition, and that secrets and
/// variables outside the list are not in it.
#[test]
fn whole_tree() {
    let folder = host_with_osd();
    let snapshot = read(folder.path());
    let p = &snapshot.process;
    assert_eq!(p.cmdline, ["ceph-osd", "--id", "3", "--key", "***"]);
    let environ = p.environ.as_ref().unwrap();
    assert_eq!(environ["CEPH_ARGS"], "--key ***");
    assert_eq!(
        environ.keys().collect::<Vec<_>>(),
        ["CEPH_ARGS", "LD_PRELOAD"]
    );
    assert_eq!(p.status.keys().collect::<Vec<_>>(), ["Threads", "VmRSS"]);
    let libraries = p.libraries.as_ref().unwrap();
    assert_eq!(libraries[0].version.as_deref(), Some("17.2.6"));
    let ceph = p.ceph.as_ref().unwrap();
    assert_eq!(ceph.conf["ms_cluster_mode"], "secure");
    assert_eq!(ceph.links["block"], "/dev/nvme0n1p1");
    assert_eq!(p.threads[0].cpus, "0-1");
    let fds = p.fds.as_ref().unwrap();
    assert_eq!((fds.limit, fds.anonymous["kvm-vcpu"]), (Some(1024), 1));
    assert_eq!(p.cgroups.len(), 1);
    assert_eq!(p.cgroups[0].quota_us, Some(200_000));
    assert_eq!(p.cgroups[0].n_throttled, Some(5));
    let numa = p.numa.as_ref().unwrap();
    assert_eq!((numa.bytes[&0], numa.bytes[&1]), (2 << 20, 4 << 20));
    let disk = &snapshot.host.devices[0];
    assert_eq!(disk.name, "nvme0n1");
    assert_eq!((disk.rotational, disk.numa_node), (Some(false), Some(1)));
    assert_eq!(disk.irqs[0].cpus, "2-3");
    assert_eq!(snapshot.host.irqbalance, Some(false));
    assert_eq!(snapshot.unread, []);
}

/// Check that each file in turn may be refused: the rest is read, and what is always there is
/// named among the unread.
#[test]
fn each_file_refused() {
    let folder = host_with_osd();
    let tree = Tree::new(folder.path()).unwrap();
    let mut process = process::read(&tree, Pid(7), Walk::PageTables);
    host::read(&tree, &mut process);
    let opened: std::collections::BTreeSet<String> = tree.opened.take().into_iter().collect();
    assert!(opened.len() > 40, "{}", opened.len());
    let mut named = 0;
    for path in &opened {
        let mut tree = Tree::new(folder.path()).unwrap();
        tree.refused = Some(path.clone());
        let mut process = process::read(&tree, Pid(7), Walk::PageTables);
        host::read(&tree, &mut process);
        let unread = tree.into_unread();
        assert!(
            unread
                .iter()
                .all(|u| u.path == *path && u.reason == "not permitted")
                || path.ends_with("/root"),
            "{path}: {unread:?}"
        );
        named += usize::from(!unread.is_empty());
    }
    assert!(named > 20, "{named} of {}", opened.len());
}

/// Check that each file may be missing, a folder, a FIFO, or bytes of any kind.
#[test]
fn each_file_replaced() {
    let folder = host_with_osd();
    let tree = Tree::new(folder.path()).unwrap();
    let mut process = process::read(&tree, Pid(7), Walk::PageTables);
    host::read(&tree, &mut process);
    let opened: std::collections::BTreeSet<String> = tree.opened.take().into_iter().collect();
    let junk = [b"\xff\x00:\x1b[31m = / \n0::\n(".as_slice()]
        .concat()
        .repeat(300);
    for path in &opened {
        let file = folder.path().join(path.trim_start_matches('/'));
        let Ok(content) = fs::read(&file) else {
            continue;
        };
        fs::write(&file, &junk).unwrap();
        let _ = read_setup(folder.path(), Pid(7), Walk::PageTables);
        fs::remove_file(&file).unwrap();
        let _ = read_setup(folder.path(), Pid(7), Walk::PageTables);
        nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let _ = read_setup(folder.path(), Pid(7), Walk::PageTables);
        fs::remove_file(&file).unwrap();
        fs::write(&file, content).unwrap();
    }
    assert_eq!(read(folder.path()).unread, []);
}

/// Check that a huge command line is cut and said to be, and that links cannot leave the root.
#[test]
fn hostile_process() {
    let folder = host_with_osd();
    let root = folder.path();
    write(
        root,
        "proc/7/cmdline",
        format!("ceph-osd\0{}", "a\0".repeat(1 << 20)),
    );
    fs::remove_file(root.join("proc/7/root/etc/ceph/ceph.conf")).unwrap();
    symlink(
        "/../../../../etc/passwd",
        root.join("proc/7/root/etc/ceph/ceph.conf"),
    )
    .unwrap();
    let snapshot = read(root);
    assert!(snapshot.process.cmdline_cut);
    assert_eq!(snapshot.process.cmdline.len(), 4096);
    let unread: Vec<&str> = snapshot.unread.iter().map(|u| u.path.as_str()).collect();
    assert_eq!(unread, ["/proc/7/cmdline", "/etc/ceph/ceph.conf"]);
}

/// Check that a process decides neither how often nor how many files are searched for versions, and that those left out
/// are named.
#[test]
fn searches_are_bounded() {
    let folder = host_with_osd();
    let root = folder.path();
    let searched = |maps: String, read: &dyn Fn(&Tree)| {
        write(root, "proc/7/maps", maps);
        let tree = Tree::new(root).unwrap();
        read(&tree);
        let opened = tree.opened.take().into_iter();
        let n = opened.filter(|path| path.starts_with("/proc/7/root/usr"));
        (n.count(), tree.into_unread())
    };
    let version = |tree: &Tree| assert_eq!(libraries::ceph_version(tree, Pid(7)), None);
    let line = "7f00-7f10 r-xp 00000000 08:01 9    /usr";
    let osd = format!("{line}/bin/ceph-osd\n").repeat(1000);
    assert_eq!(searched(osd, &version).0, 1);
    let common = |n| format!("{line}/lib/libceph-common.so.{n}\n");
    let common: String = (100..200).map(common).collect();
    assert_eq!(searched(common.clone(), &version).0, 2);
    let (n, unread) = searched(common, &|tree| {
        libraries::read(tree, Pid(7), &mut ProcessSetup::default());
    });
    let left_out = unread.iter().filter(|u| u.reason.contains("8 others"));
    assert_eq!((n, left_out.count()), (8, 56), "{unread:?}");
}

/// Check that a process which holds the lock of its memory has neither arguments nor libraries, and that this is said.
#[test]
fn locked() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["cmdline", "environ", "maps"] {
        write(folder.path(), &format!("proc/8/{name}"), "");
    }
    let tree = Tree::new(folder.path()).unwrap();
    let (_held, wait) = channel::<()>();
    let held = move |_| {
        let _ = wait.recv();
        Ok(())
    };
    assert_eq!(
        tree.parse_locked(Pid(8), "environ", Absent::Noted, held),
        None
    );
    let setup = process::read(&tree, Pid(8), Walk::Nothing);
    assert_eq!((setup.environ, setup.libraries), (None, None));
    let unread = tree.into_unread();
    for name in ["cmdline", "environ", "maps"] {
        let path = format!("/proc/8/{name}");
        let found = unread.iter().find(|unread| unread.path == path).unwrap();
        assert!(found.reason.contains("did not answer"), "{}", found.reason);
    }
}

/// Check this process on this machine, and that a process that is not there is an error.
#[test]
fn live() {
    let me = Pid(std::process::id() as i32);
    let snapshot = read_setup(Path::new("/"), me, Walk::PageTables).unwrap();
    assert!(!snapshot.process.cmdline.is_empty());
    assert!(snapshot.process.malloc.is_some());
    assert!(!snapshot.process.threads.is_empty());
    assert!(!snapshot.host.cpus.is_empty() && snapshot.host.memory_kib.is_some());
    assert!(!snapshot.process.rollup_kib.is_empty());
    // What a recording reads: nothing that holds the memory lock.
    let recorded = read_setup(Path::new("/"), me, Walk::Nothing).unwrap();
    assert!(recorded.process.rollup_kib.is_empty() && recorded.unread == snapshot.unread);
    let error = read_setup(Path::new("/"), Pid(i32::MAX), Walk::Nothing).unwrap_err();
    assert!(error.to_string().contains("no process with pid"), "{error}");
}
