//! Maps keyed by thread id: looked up for every thread at every tick, so hashing must be cheap.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use wcprof_types::Tid;

/// A map by thread id.
pub(crate) type TidMap<V> = HashMap<Tid, V, BuildHasherDefault<TidHasher>>;

/// Spreads one small integer. The kernel hands out thread ids, so nobody can choose colliding
/// ones cheaply, and there are at most `pid_max` (2^22) of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct TidHasher(u64);

impl Hasher for TidHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_i32(i32::from(byte));
        }
    }

    fn write_i32(&mut self, number: i32) {
        // 2^64 / golden ratio: hashbrown takes its bucket from the low bits and its tag from the
        // high ones.
        let mixed =
            (self.0 ^ u64::from(number.cast_unsigned())).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that neighbouring ids differ in the bits that choose buckets.
    #[test]
    fn spreads() {
        let hash = |tid: i32| {
            let mut hasher = TidHasher::default();
            hasher.write_i32(tid);
            hasher.finish()
        };
        let mut buckets = [0; 128];
        for tid in 1000..1128 {
            buckets[(hash(tid) & 127) as usize] += 1;
        }
        assert!(buckets.iter().all(|&n| n <= 6), "{buckets:?}");
    }
}
