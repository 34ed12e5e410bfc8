//! Bytes to memory: whatever caches hold of them is written back and dropped.

/// Whether [`flush`] can do anything on this processor.
pub const CAN_FLUSH: bool = cfg!(target_arch = "x86_64");

/// Drops `bytes` from every cache, so that the next access goes to memory. Nothing on processors
/// without such an instruction ([`CAN_FLUSH`]).
///
/// By CLFLUSHOPT where the processor has it: CLFLUSH waits for each line before the next one (Intel SDM
/// volume 2A), 100 to 160 ns a line on some hosts, where CLFLUSHOPT takes 4 to 8.
pub fn flush(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_mm_clflush, _mm_mfence};
        let is_parallel = has_clflushopt();
        // The last line is met by its last byte, wherever the first one begins in its line.
        let last = bytes.last().into_iter();
        for byte in bytes.iter().step_by(LINE).chain(last) {
            let byte = std::ptr::from_ref(byte);
            if is_parallel {
                // SAFETY: the address is that of a byte that is borrowed; no value, flag or register
                // changes. The processor has the instruction.
                unsafe {
                    std::arch::asm!("clflushopt [{}]", in(reg) byte, options(nostack, preserves_flags));
                }
            } else {
                // SAFETY: as above. SSE2 is part of x86-64.
                unsafe { _mm_clflush(byte) };
            }
        }
        // SAFETY: the instruction has no operand. It waits for the flushes of both kinds.
        unsafe { _mm_mfence() };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bytes;
}

/// Bytes of a cache line.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// CPUID leaf 7, EBX bit 23 (Intel SDM volume 2A, table 3-8).
#[cfg(target_arch = "x86_64")]
fn has_clflushopt() -> bool {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    use std::sync::LazyLock;
    // CPUID traps in a virtual machine: tens of microseconds.
    static HAS: LazyLock<bool> =
        LazyLock::new(|| __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ebx & 1 << 23 != 0);
    *HAS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that values survive, for any length and alignment.
    #[test]
    fn values_stay() {
        let data: Vec<u8> = (0..=255).cycle().take(1000).collect();
        for (begin, len) in [(0, 0), (1, 1), (3, 64), (63, 2), (5, 900)] {
            flush(&data[begin..begin + len]);
        }
        assert!(data.iter().zip((0..=255_u8).cycle()).all(|(a, b)| *a == b));
    }
}
