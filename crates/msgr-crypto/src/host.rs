//! The machine's second-level cache and CPU model, from `/sys` and `/proc`.

use std::fs;

use serde::{Deserialize, Serialize};

/// What of the machine matters to a calibration.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Host {
    /// `model name` of `/proc/cpuinfo`.
    pub cpu: String,
    /// Bytes of the second-level cache of a core.
    pub l2_bytes: u64,
}

/// Where the kernel does not say: small for today's processors, so that no frame is taken to fit that
/// does not.
const DEFAULT_L2: u64 = 1 << 20;

impl Host {
    /// This machine; first CPU, as those of a socket are alike.
    pub fn detect() -> Self {
        let l2_bytes = (0..10).find_map(|index| {
            let file = |name: &str| {
                let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{name}");
                fs::read_to_string(path).unwrap_or_default()
            };
            let is_l2 = file("type").trim() != "Instruction" && file("level").trim() == "2";
            is_l2.then(|| size(file("size").trim()))?
        });
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let cpu = cpuinfo
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
            .map_or("unknown", |(_, name)| name.trim());
        Self {
            cpu: cpu.to_owned(),
            l2_bytes: l2_bytes.unwrap_or(DEFAULT_L2),
        }
    }
}

/// `512K`, as the kernel writes all sizes of caches, to bytes.
fn size(text: &str) -> Option<u64> {
    text.strip_suffix('K')?
        .parse::<u64>()
        .ok()?
        .checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check sizes as the kernel writes them, and what is none.
    #[test]
    fn sizes() {
        assert_eq!(size("512K"), Some(512 << 10));
        assert_eq!(size("32768K"), Some(32 << 20));
        for text in ["", "K", "64", "12 K", "99999999999999999999K"] {
            assert_eq!(size(text), None);
        }
    }

    /// Check that any machine has a cache of a plausible size and a CPU with a name.
    #[test]
    fn detected() {
        let host = Host::detect();
        assert!((64 << 10..=1 << 30).contains(&host.l2_bytes), "{host:?}");
        assert!(!host.cpu.is_empty());
    }
}
