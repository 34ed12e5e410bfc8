//! How much a lookup may still take of something: bytes that it keeps, or steps of its work.

use std::sync::atomic::{AtomicU64, Ordering};

/// Steps for each byte that is read. Real files need fewer than two.
const STEPS_PER_BYTE: u64 = 16;
/// Steps for each address: its functions in all units that claim it.
const STEPS_PER_ADDRESS: u64 = 4096;
/// Steps that small files have, too.
const MIN_STEPS: u64 = 1 << 20;

/// A limit, and what was taken of it. Once something did not fit, nothing more does: so the outcome
/// does not depend on sizes alone. Only one thread at a time may take.
#[derive(Debug)]
pub(crate) struct Allowance {
    pub(crate) limit: u64,
    left: AtomicU64,
    n_refused: AtomicU64,
}

impl Allowance {
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            limit,
            left: AtomicU64::new(limit),
            n_refused: AtomicU64::new(0),
        }
    }

    /// The steps for reading `size` bytes of DWARF for so many addresses.
    pub(crate) fn steps(size: u64, n_addresses: usize) -> Self {
        let of_addresses = STEPS_PER_ADDRESS.saturating_mul(n_addresses as u64);
        let of_bytes = STEPS_PER_BYTE.saturating_mul(size);
        Self::new(
            MIN_STEPS
                .saturating_add(of_bytes)
                .saturating_add(of_addresses),
        )
    }

    /// Takes `n`; false when that is not left.
    pub(crate) fn take(&self, n: u64) -> bool {
        let left = self.left.load(Ordering::Relaxed).checked_sub(n);
        self.left.store(left.unwrap_or(0), Ordering::Relaxed);
        self.refuse(usize::from(left.is_none()));
        left.is_some()
    }

    /// Notes that `n` more things did not fit.
    pub(crate) fn refuse(&self, n: usize) {
        self.n_refused.fetch_add(n as u64, Ordering::Relaxed);
    }

    /// How often something did not fit.
    pub(crate) fn n_refused(&self) -> usize {
        usize::try_from(self.n_refused.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }
}
