//! Virtual CPUs of a process to their exits by reason, by KVM's tracepoints. For where KVM's own counts cannot be read: the debug
//! file system is not mounted, or the kernel is locked down.
//!
//! A tracepoint costs the guest 0.1 to 0.3 us at each exit while it is counted, so that happens in bursts. What is counted in
//! one stands for the time since the last.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use wcprof_host::clock::monotonic_ns;
use wcprof_host::counters::{Counters, KVM_PREFIX, has_vm, vcpu_threads};
use wcprof_perf::{Tracepoint, TracepointCounts};
use wcprof_types::{CounterName, CounterValue, Pid, Tid};

/// How long is counted each second, for all processes together: one after the other is.
const BURST: Duration = Duration::from_millis(50);
/// The shortest burst.
const MIN_BURST: Duration = Duration::from_millis(2);

/// What is counted: its name, the tracepoint of KVM, and which hits, in the kernel's language.
type Counted = (&'static str, &'static str, &'static str);

/// Reasons of processors by Intel (`arch/x86/include/uapi/asm/vmx.h`).
const VMX: [Counted; 15] = [
    ("exits", "kvm_exit", ""),
    ("userspace_exits", "kvm_userspace_exit", ""),
    ("io_exits", "kvm_exit", "exit_reason == 30"),
    ("ept_violation_exits", "kvm_exit", "exit_reason == 48"),
    ("ept_misconfig_exits", "kvm_exit", "exit_reason == 49"),
    ("halt_exits", "kvm_exit", "exit_reason == 12"),
    ("irq_exits", "kvm_exit", "exit_reason == 1"),
    ("irq_window_exits", "kvm_exit", "exit_reason == 7"),
    (
        "msr_exits",
        "kvm_exit",
        "exit_reason == 31 || exit_reason == 32",
    ),
    ("cpuid_exits", "kvm_exit", "exit_reason == 10"),
    ("hypercalls", "kvm_exit", "exit_reason == 18"),
    ("cr_exits", "kvm_exit", "exit_reason == 28"),
    ("pause_exits", "kvm_exit", "exit_reason == 40"),
    ("timer_exits", "kvm_exit", "exit_reason == 52"),
    (
        "apic_exits",
        "kvm_exit",
        "exit_reason == 44 || exit_reason == 45 || exit_reason == 56",
    ),
];

/// Reasons of processors by AMD (`arch/x86/include/uapi/asm/svm.h`).
const SVM: [Counted; 12] = [
    ("exits", "kvm_exit", ""),
    ("userspace_exits", "kvm_userspace_exit", ""),
    ("io_exits", "kvm_exit", "exit_reason == 0x7b"),
    ("npf_exits", "kvm_exit", "exit_reason == 0x400"),
    ("halt_exits", "kvm_exit", "exit_reason == 0x78"),
    ("irq_exits", "kvm_exit", "exit_reason == 0x60"),
    ("irq_window_exits", "kvm_exit", "exit_reason == 0x64"),
    ("msr_exits", "kvm_exit", "exit_reason == 0x7c"),
    ("cpuid_exits", "kvm_exit", "exit_reason == 0x72"),
    ("hypercalls", "kvm_exit", "exit_reason == 0x81"),
    ("pause_exits", "kvm_exit", "exit_reason == 0x77"),
    (
        "apic_exits",
        "kvm_exit",
        "exit_reason == 0x401 || exit_reason == 0x402",
    ),
];

/// Of a KVM that uses neither: a paravirtual one handles exits without `kvm_exit`. What all kinds of KVM tell of what they do.
const OTHER: [Counted; 9] = [
    ("exits", "kvm_exit", ""),
    ("userspace_exits", "kvm_userspace_exit", ""),
    ("io_exits", "kvm_pio", ""),
    // A read has a hit when it begins and one when it ends.
    ("mmio_exits", "kvm_mmio", "type > 0"),
    ("halt_exits", "kvm_vcpu_wakeup", ""),
    ("msr_exits", "kvm_msr", ""),
    ("cpuid_exits", "kvm_cpuid", ""),
    ("hypercalls", "kvm_hypercall", ""),
    ("insn_emulation", "kvm_emulate_insn", ""),
];

/// Exits of the virtual machines of a process.
#[derive(Debug)]
pub(crate) struct CountedExits {
    pid: Pid,
    vcpus: BTreeSet<Tid>,
    names: Vec<&'static str>,
    counts: TracepointCounts,
    /// What there were by now.
    sums: Vec<f64>,
    burst: Duration,
    /// When the last burst ended, `CLOCK_MONOTONIC`, ns.
    last: Option<u64>,
}

impl CountedExits {
    /// `None` for a process without a virtual machine.
    ///
    /// # Errors
    /// Why those that it has cannot be counted.
    pub(crate) fn find(pid: Pid) -> Result<Option<Self>, String> {
        if !has_vm(pid) {
            return Ok(None);
        }
        let is_loaded = |module: &str| Path::new("/sys/module").join(module).exists();
        let counted: &[Counted] = match (is_loaded("kvm_intel"), is_loaded("kvm_amd")) {
            (true, _) => &VMX,
            (_, true) => &SVM,
            _ => &OTHER,
        };
        let (mut names, mut tracepoints) = (Vec::new(), Vec::new());
        let mut failure = String::new();
        for &(name, tracepoint, filter) in counted {
            match Tracepoint::find("kvm", tracepoint, filter) {
                Ok(found) => {
                    names.push(name);
                    tracepoints.push(found);
                }
                // Kernels lack some.
                Err(error) => failure = format!("tracepoint kvm:{tracepoint}: {error}"),
            }
        }
        if names.is_empty() {
            return Err(failure);
        }
        let mut exits = Self {
            pid,
            vcpus: BTreeSet::new(),
            sums: vec![0.0; names.len()],
            names,
            counts: TracepointCounts::new(tracepoints),
            burst: BURST,
            last: None,
        };
        exits.follow()?;
        Ok(Some(exits))
    }

    /// There are `n` processes to count for.
    pub(crate) fn share_among(&mut self, n: u32) {
        self.burst = (BURST / n.max(1)).max(MIN_BURST);
    }

    fn follow(&mut self) -> Result<(), String> {
        self.vcpus = vcpu_threads(self.pid, &self.vcpus);
        let followed = self.counts.follow(&self.vcpus);
        followed.map_err(|error| format!("KVM's tracepoints: {error}"))
    }

    /// What there were by now, by name. Takes as long as a burst.
    pub(crate) fn counters(&mut self) -> Counters {
        // A thread that is refused has no counts.
        let _ = self.follow();
        if self.counts.n_threads() == 0 {
            return Counters::new();
        }
        let burst = self.counts.burst(self.burst);
        let now = monotonic_ns();
        let since = now - self.last.replace(now).unwrap_or(now).min(now);
        let part = since as f64 / burst.length_ns.max(1) as f64;
        for (sum, count) in self.sums.iter_mut().zip(burst.counts) {
            *sum += count as f64 * part;
        }
        let counts = self.names.iter().zip(&self.sums);
        let counts = counts.map(|(name, sum)| {
            let name = format!("{KVM_PREFIX}{name}");
            let value = CounterValue {
                count: *sum as u64,
                time_ns: 0,
            };
            (CounterName { name, timed: false }, value)
        });
        counts.collect()
    }
}
