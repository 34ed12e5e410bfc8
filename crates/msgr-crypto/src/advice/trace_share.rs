//! Sums of a trace to the share of encryption, and to the likely size of its calls.
//!
//! On AES-NI, calls of more bytes spend more of their time in the stitched kernel
//! (`_aesni_ctr32_ghash_6x`) and less in the functions around it; measured with OpenSSL 3.0, decrypting
//! at 2 kHz. The kernel's name is a local symbol: without `.symtab` or debug symbols the size is not known.

use serde::Serialize;

/// Bytes of a call, and percent of its time that the stitched kernel has. Multiples of 96 are left out:
/// they have no tail and look like larger ones.
const KERNEL_PERCENT: [(u64, f64); 8] = [
    (64, 0.0),
    (128, 22.0),
    (256, 38.0),
    (512, 65.0),
    (1024, 77.0),
    (2048, 90.0),
    (4096, 94.0),
    (16384, 97.0),
];
/// Fewer samples say nothing about shares.
const MIN_SAMPLES: u64 = 50;

/// Sums of on-CPU time of the threads named msgr-worker-*.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct TraceSums {
    /// All of it, ns.
    pub worker_ns: u64,
    /// Of it below `EVP_DecryptUpdate` and `EVP_EncryptUpdate`, ns.
    pub crypto_ns: u64,
    /// Of that in the stitched kernel, ns; 0 when that has no name.
    pub kernel_ns: u64,
    /// Samples below the two functions.
    pub n_samples: u64,
}

/// What a trace says of encryption.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TraceShare {
    /// The process.
    pub process: String,
    /// On-CPU time of threads named msgr-worker-*, ns.
    pub worker_ns: u64,
    /// Of it below the update calls, ns.
    pub crypto_ns: u64,
    /// `crypto_ns` by `worker_ns`.
    pub crypto_share: f64,
    /// Samples that it rests on.
    pub n_samples: u64,
    /// Share of `crypto_ns` in the stitched kernel; `None` when that has no name.
    pub kernel_share: Option<f64>,
    /// Most likely bytes of a call; `None` when there are too few samples or no names.
    pub chunk_bytes: Option<u64>,
}

impl TraceShare {
    /// From sums of the process of this name.
    pub fn new(process: &str, sums: TraceSums) -> Self {
        let share = |part: u64, whole: u64| match whole {
            0 => 0.0,
            _ => part as f64 / whole as f64,
        };
        let has_kernel = sums.kernel_ns > 0 && sums.n_samples >= MIN_SAMPLES;
        let kernel_share = has_kernel.then(|| share(sums.kernel_ns, sums.crypto_ns));
        Self {
            process: process.to_owned(),
            worker_ns: sums.worker_ns,
            crypto_ns: sums.crypto_ns,
            crypto_share: share(sums.crypto_ns, sums.worker_ns),
            n_samples: sums.n_samples,
            kernel_share,
            chunk_bytes: kernel_share.map(|share| chunk_bytes(100.0 * share)),
        }
    }
}

/// The size whose share is the nearest.
fn chunk_bytes(kernel_percent: f64) -> u64 {
    let difference = |percent: f64| (percent - kernel_percent).abs();
    let nearest = KERNEL_PERCENT
        .iter()
        .min_by(|a, b| difference(a.1).total_cmp(&difference(b.1)));
    nearest.map_or(0, |(bytes, _)| *bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the published shares: one large call, and calls of 1 KiB.
    #[test]
    fn sizes() {
        assert_eq!(chunk_bytes(100.0), 16384);
        assert_eq!(chunk_bytes(77.0), 1024);
        assert_eq!(chunk_bytes(36.0), 256);
        assert_eq!(chunk_bytes(0.0), 64);
    }

    /// Check shares, and that few samples or a kernel without a name give no size.
    #[test]
    fn shares() {
        let mut sums = TraceSums {
            worker_ns: 1000,
            crypto_ns: 200,
            kernel_ns: 180,
            n_samples: 50,
        };
        let share = TraceShare::new("ceph-osd", sums);
        assert_eq!((share.crypto_share, share.chunk_bytes), (0.2, Some(2048)));
        sums.n_samples = 49;
        assert_eq!(TraceShare::new("x", sums).chunk_bytes, None);
        sums.n_samples = 100;
        sums.kernel_ns = 0;
        assert_eq!(TraceShare::new("x", sums).kernel_share, None);
        assert_eq!(TraceShare::new("x", TraceSums::default()).crypto_share, 0.0);
    }
}
