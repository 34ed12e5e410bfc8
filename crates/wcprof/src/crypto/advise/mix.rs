//! A trace to the share of encryption, and to the size of its calls by the leaf functions below them.
//!
//! On AES-NI, calls of more bytes spend more of their time in the stitched kernel
//! (`_aesni_ctr32_ghash_6x`) and less in the functions around it; measured with OpenSSL 3.0, decrypting
//! at 2 kHz. The kernel's name is a local symbol: without `.symtab` or debug symbols nothing is told.

use std::fmt::Write;

use serde::Serialize;
use wcprof_profile::model::{Profile, State};
use wcprof_report::terminal_name;

/// Bytes of a call, and percent of the time below it that the stitched kernel has. Multiples of 96 are
/// left out: they have no tail and look like larger ones.
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
/// Fewer samples tell nothing of shares.
const MIN_SAMPLES: u64 = 50;

/// Time of a trace below the update calls.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub(super) struct Mix {
    /// The process with the most of it.
    pub(super) process: String,
    /// On-CPU time of threads named msgr-worker-*, ns.
    pub(super) worker_ns: u64,
    /// Of it below EVP_DecryptUpdate and EVP_EncryptUpdate.
    pub(super) crypto_ns: u64,
    /// `crypto_ns` by `worker_ns`.
    pub(super) crypto_share: f64,
    /// Samples that it stands on.
    pub(super) n_samples: u64,
    /// Share of it in the stitched kernel; `None` when that has no name.
    pub(super) kernel_share: Option<f64>,
    /// Most likely bytes of a call; `None` when too few samples or no names.
    pub(super) chunk_bytes: Option<u64>,
}

impl Mix {
    pub(super) fn new(profile: &Profile) -> Self {
        let mut mix = Self::default();
        let mut kernel_ns = 0;
        let mut any_kernel = false;
        for row in profile.rows.iter().filter(|row| row.state == State::OnCpu) {
            let Some(thread) = profile.threads.get(row.thread) else {
                continue;
            };
            if !thread.comm.starts_with("msgr-worker") {
                continue;
            }
            mix.worker_ns += row.weight;
            let stack = row.stack.and_then(|id| profile.stacks.get(id.0 as usize));
            let Some(stack) = stack else { continue };
            let names = || {
                let functions = stack.frames.iter();
                functions.filter_map(|id| profile.functions.get(id.0 as usize))
            };
            let is_update = |name: &str| {
                ["EVP_DecryptUpdate", "EVP_EncryptUpdate"]
                    .iter()
                    .any(|f| name.starts_with(f))
            };
            if !names().any(|function| is_update(&function.name)) {
                continue;
            }
            mix.crypto_ns += row.weight;
            mix.n_samples += row.n_samples;
            if mix.process.is_empty() {
                mix.process.clone_from(&thread.process_comm);
            }
            if names()
                .next_back()
                .is_some_and(|leaf| leaf.name.starts_with("_aesni_ctr32_ghash_6x"))
            {
                kernel_ns += row.weight;
                any_kernel = true;
            }
        }
        if mix.process.is_empty() {
            let first = profile.threads.first();
            mix.process = first.map(|t| t.process_comm.clone()).unwrap_or_default();
        }
        let share = |part: u64, whole: u64| match whole {
            0 => 0.0,
            _ => part as f64 / whole as f64,
        };
        mix.crypto_share = share(mix.crypto_ns, mix.worker_ns);
        if any_kernel && mix.n_samples >= MIN_SAMPLES {
            let kernel = share(kernel_ns, mix.crypto_ns);
            mix.kernel_share = Some(kernel);
            mix.chunk_bytes = Some(chunk_bytes(100.0 * kernel));
        }
        mix
    }

    pub(super) fn text(&self) -> String {
        let mut out = format!(
            "From the trace of {}: {:.1} % of the messenger threads' CPU time is below EVP_*Update ({} \
             samples).\n",
            terminal_name(&self.process),
            100.0 * self.crypto_share,
            self.n_samples
        );
        match (self.kernel_share, self.chunk_bytes) {
            (Some(share), Some(bytes)) => {
                let _ = writeln!(
                    out,
                    "{:.0} % of that is in _aesni_ctr32_ghash_6x, as with calls of about {bytes} bytes.",
                    100.0 * share
                );
            }
            _ => out.push_str(
                "The size of calls can not be told: no name of the AES-NI kernel (install debug symbols \
                 of libcrypto), another\nkernel, or too few samples.\n",
            ),
        }
        out.push_str(
            "Frames: one of each kind that such a process has by the protocol, up to 64 KiB.\n",
        );
        out
    }
}

/// The size whose mix is the nearest.
fn chunk_bytes(kernel_percent: f64) -> u64 {
    let distance = |percent: f64| (percent - kernel_percent).abs();
    let nearest = KERNEL_PERCENT
        .iter()
        .min_by(|a, b| distance(a.1).total_cmp(&distance(b.1)));
    nearest.map_or(0, |(bytes, _)| *bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the published mixes: one large call, and calls of 1 KiB.
    #[test]
    fn sizes() {
        assert_eq!(chunk_bytes(100.0), 16384);
        assert_eq!(chunk_bytes(77.0), 1024);
        assert_eq!(chunk_bytes(36.0), 256);
        assert_eq!(chunk_bytes(0.0), 64);
    }
}
