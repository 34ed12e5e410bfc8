//! Bytes to memory: whatever caches hold of them is written back and dropped.

/// Whether [`flush`] can do anything on this processor.
pub const CAN_FLUSH: bool = cfg!(target_arch = "x86_64");

/// Drops `bytes` from every cache, so that the next access goes to memory. Nothing on processors
/// without such an instruction ([`CAN_FLUSH`]).
pub fn flush(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_mm_clflush, _mm_mfence};
        const LINE: usize = 64;
        // The last line is met by its last byte, wherever the first one begins in its line.
        let last = bytes.last().into_iter();
        for byte in bytes.iter().step_by(LINE).chain(last) {
            // SAFETY: the address is that of a byte that is borrowed; no value changes. SSE2 is part
            // of x86-64.
            unsafe { _mm_clflush(std::ptr::from_ref(byte)) };
        }
        // SAFETY: as above; the instruction has no operand.
        unsafe { _mm_mfence() };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bytes;
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
