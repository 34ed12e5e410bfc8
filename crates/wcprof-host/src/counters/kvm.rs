//! A live process to what KVM counts of its virtual machines, in the kernel's debug file system (`virt/kvm/kvm_main.c`,
//! `kvm_create_vm_debugfs`). Nobody is asked: the kernel has the counts anyway.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use wcprof_types::{CounterName, CounterValue, Pid, Tid};

use super::Counters;
use crate::fds::{VM_LINK, has_file};
use crate::procfs::{SyscallState, blocked_in, list_threads, read_file, thread_name};

/// A folder for each virtual machine, `PID-DESCRIPTOR`, with the sums over its virtual CPUs.
const FOLDERS: &str = "/sys/kernel/debug/kvm";
/// Virtual machines of a process that are read.
const MAX_VMS: usize = 16;
/// `_IO(KVMIO, 0x80)` of `include/uapi/linux/kvm.h`: the second argument of `ioctl`.
pub const KVM_RUN: u64 = 0xae80;
/// Virtual CPUs of a process.
const MAX_VCPUS: usize = 64;
/// Threads of a process that are looked at.
const MAX_THREADS: usize = 1024;
/// Before the kernel's name; `wcprof-profile` knows it.
pub const KVM_PREFIX: &str = "kvm.";
/// What is read beside `*_exits`, as far as the kernel has it.
const FILES: [&str; 7] = [
    "exits",
    "hypercalls",
    "insn_emulation",
    "pf_taken",
    "halt_poll_success_ns",
    "halt_poll_fail_ns",
    "halt_wait_ns",
];

/// Threads of a process that run virtual CPUs: by the names that QEMU, Firecracker and Cloud Hypervisor give them, or since one is
/// blocked in `KVM_RUN` now. `known` ones that live stay.
pub fn vcpu_threads(pid: Pid, known: &BTreeSet<Tid>) -> BTreeSet<Tid> {
    let is_vcpu = |tid: &Tid| {
        let name = thread_name(pid, *tid).unwrap_or_default();
        known.contains(tid)
            || name.ends_with("/KVM")
            || name.contains("vcpu")
            || matches!(
                blocked_in(pid, *tid),
                Some(SyscallState::Blocked {
                    number: Some(16),
                    args: [_, KVM_RUN, _],
                    ..
                })
            )
    };
    let tids = list_threads(pid).unwrap_or_default();
    let tids = tids.into_iter().take(MAX_THREADS);
    tids.filter(is_vcpu).take(MAX_VCPUS).collect()
}

/// Whether a process has a virtual machine.
pub fn has_vm(pid: Pid) -> bool {
    has_file(pid, &[VM_LINK])
}

/// The virtual machines of a process.
#[derive(Debug)]
pub struct KvmStats(Vec<PathBuf>);

impl KvmStats {
    /// `None` for a process without any.
    ///
    /// # Errors
    /// Why those that it has cannot be read.
    pub fn find(pid: Pid) -> Result<Option<Self>, String> {
        Self::find_in(Path::new(FOLDERS), pid, has_vm)
    }

    fn find_in(
        folders: &Path,
        pid: Pid,
        has_vm: impl FnOnce(Pid) -> bool,
    ) -> Result<Option<Self>, String> {
        let prefix = format!("{pid}-");
        let entries = match fs::read_dir(folders) {
            Ok(entries) => entries.flatten(),
            Err(_) if !has_vm(pid) => return Ok(None),
            Err(error) => {
                let path = folders.display();
                let mount = match error.kind() {
                    ErrorKind::NotFound => " (`mount -t debugfs none /sys/kernel/debug` as root)",
                    _ => "",
                };
                return Err(format!("failed to read `{path}`: {error}{mount}"));
            }
        };
        let own = entries.filter(|f| f.file_name().to_string_lossy().starts_with(&prefix));
        let own: Vec<PathBuf> = own.map(|folder| folder.path()).take(MAX_VMS).collect();
        let Some(first) = own.first().map(|folder| folder.display().to_string()) else {
            return Ok(None);
        };
        let stats = Self(own);
        match stats.counters().is_empty() {
            true => Err(format!(
                "the kernel refuses the files of `{first}` (lockdown?)"
            )),
            false => Ok(Some(stats)),
        }
    }

    /// What is counted by now, added up over virtual machines.
    pub fn counters(&self) -> Counters {
        let mut counters = Counters::new();
        for folder in &self.0 {
            let files = fs::read_dir(folder).into_iter().flatten().flatten();
            let names = files.map(|file| file.file_name().to_string_lossy().into_owned());
            let wanted = |name: &String| name.ends_with("_exits") || FILES.contains(&&**name);
            for name in names.filter(wanted) {
                let text = read_file(folder.join(&name)).unwrap_or_default();
                let Ok(count) = text.trim().parse::<u64>() else {
                    continue;
                };
                let name = format!("{KVM_PREFIX}{name}");
                match counters.iter_mut().find(|(known, _)| known.name == name) {
                    Some((_, sum)) => sum.count = sum.count.saturating_add(count),
                    None => counters.push((
                        CounterName { name, timed: false },
                        CounterValue { count, time_ns: 0 },
                    )),
                }
            }
        }
        counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that counts are added up over the virtual machines of a process, that those of others and what is no number are
    /// left out, and that a process without any has none.
    #[test]
    fn machines() {
        let folder = tempfile::tempdir().unwrap();
        for (vm, exits, io) in [
            ("7-11", "5", "3"),
            ("7-12", "6", "none"),
            ("77-3", "9", "9"),
        ] {
            let vm = folder.path().join(vm);
            fs::create_dir(&vm).unwrap();
            fs::write(vm.join("exits"), format!("{exits}\n")).unwrap();
            fs::write(vm.join("io_exits"), io).unwrap();
            fs::write(vm.join("mmu_cache_miss"), "1").unwrap();
        }
        let find = |path: &Path, pid, has_vm| KvmStats::find_in(path, pid, |_| has_vm);
        let stats = find(folder.path(), Pid(7), true).unwrap().unwrap();
        let mut counts: Vec<(String, u64)> = (stats.counters().into_iter())
            .map(|(name, value)| (name.name, value.count))
            .collect();
        counts.sort();
        assert_eq!(
            counts,
            [("kvm.exits".into(), 11), ("kvm.io_exits".into(), 3)]
        );
        assert!(find(folder.path(), Pid(1), false).unwrap().is_none());
        let none = folder.path().join("none");
        assert!(find(&none, Pid(7), false).unwrap().is_none());
        let reason = find(&none, Pid(7), true).unwrap_err();
        assert!(reason.contains("mount -t debugfs"), "{reason}");
        fs::remove_file(folder.path().join("77-3/exits")).unwrap();
        fs::remove_file(folder.path().join("77-3/io_exits")).unwrap();
        let reason = find(folder.path(), Pid(77), true).unwrap_err();
        assert!(reason.contains("77-3"), "{reason}");
    }
}
