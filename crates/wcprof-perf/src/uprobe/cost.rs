//! What a probe costs a call here and now: measured on a function of wcprof itself.

use std::ffi::c_void;
use std::hint::black_box;

use wcprof_host::clock::thread_cpu_ns;
use wcprof_host::open::{LiveFiles, TargetFile};
use wcprof_host::procfs::read_mappings;
use wcprof_types::{Avma, Pid, Tid};

use super::error::UprobeError;
use super::pmu::UprobePmu;
use super::probe::Probe;
use super::site::CryptoModule;
use crate::ring::Ring;

/// Calls of one round: fewer samples than a ring holds.
const CALLS: u32 = 1000;
const ROUNDS: usize = 5;
const OWN_PROGRAM: &str = "/proc/self/exe";

/// Nanoseconds of CPU time that a call takes longer with a probe.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct TrapCost {
    /// On a thread that is observed: trap and sample.
    pub sampled_ns: f64,
    /// On a thread that is not, or while the probe is not enabled: the trap alone.
    pub trap_ns: f64,
}

// Functions of one instruction and a return, one for each way in which the kernel gets past the
// instruction under a breakpoint (`arch/x86/kernel/uprobes.c`): it emulates a push; others, endbr64
// of some kernels among them, it steps over with a second trap, which costs many times more under a
// hypervisor.
// SAFETY (of the three): they change no register that a callee must keep, touch no memory but a word of the
// stack, and return.
#[unsafe(naked)]
extern "C" fn probed_push() {
    std::arch::naked_asm!("push rbp", "pop rbp", "ret")
}

#[unsafe(naked)]
extern "C" fn probed_endbr() {
    std::arch::naked_asm!("endbr64", "ret")
}

#[unsafe(naked)]
extern "C" fn probed_other() {
    std::arch::naked_asm!("xor eax, eax", "ret")
}

/// The function that begins like one with these first bytes.
pub(super) fn like(first: [u8; 4]) -> extern "C" fn() {
    match first {
        [0x50..=0x57, ..] | [0x41, 0x50..=0x57, ..] => probed_push,
        [0xf3, 0x0f, 0x1e, 0xfa] => probed_endbr,
        _ => probed_other,
    }
}

/// Measures it on this thread, for functions that begin like those of `module`; takes about a tenth
/// of a second.
///
/// # Errors
/// When the kernel refuses the probe.
pub fn measure_trap_cost(pmu: UprobePmu, module: &CryptoModule) -> Result<TrapCost, UprobeError> {
    measure(pmu, like(module.first_bytes()))
}

pub(super) fn measure(pmu: UprobePmu, probed: extern "C" fn()) -> Result<TrapCost, UprobeError> {
    let (file, offset) = own_function(probed)?;
    let bare = shortest(|| calls(probed));
    let tid = nix::unistd::gettid().as_raw();
    let probe = Probe::open(pmu, (&file, OWN_PROGRAM), offset, Tid(tid))?;
    let probe = probe.ok_or(UprobeError::NoThreads(tid))?;
    let trapped = shortest(|| calls(probed));
    let mut ring = Ring::new(&probe.event)?;
    probe.event.enable()?;
    let mut buffer = Vec::new();
    let sampled = shortest(|| {
        let ns = calls(probed);
        while ring.with_record(&mut buffer, |_| {}) {}
        ns
    });
    Ok(TrapCost {
        sampled_ns: (sampled - bare).max(0.0),
        trap_ns: (trapped - bare).max(0.0),
    })
}

fn shortest(round: impl FnMut() -> f64) -> f64 {
    std::iter::repeat_with(round)
        .take(ROUNDS)
        .fold(f64::INFINITY, f64::min)
}

/// Nanoseconds of CPU time a call.
fn calls(probed: extern "C" fn()) -> f64 {
    let begin = thread_cpu_ns();
    for _ in 0..CALLS {
        black_box(probed)();
    }
    (thread_cpu_ns() - begin) as f64 / f64::from(CALLS)
}

/// This program's file, and where the function is in it.
fn own_function(probed: extern "C" fn()) -> Result<(TargetFile, u64), UprobeError> {
    let address = probed as *const c_void as u64;
    let failed = |reason: String| UprobeError::Symbols {
        path: OWN_PROGRAM.to_owned(),
        reason,
    };
    let own = Pid(std::process::id() as i32);
    let mappings = read_mappings(own).map_err(|e| failed(e.to_string()))?;
    let mapping = mappings
        .iter()
        .find(|mapping| mapping.contains(Avma(address)))
        .ok_or_else(|| failed("its code is not mapped".into()))?;
    let files = LiveFiles::new(own);
    let file = files.open_mapping(mapping)?;
    Ok((file, address - mapping.start.0 + mapping.offset.0))
}
