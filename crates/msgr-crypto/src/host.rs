//! The machine's caches, memory and CPU model, from `/sys` and `/proc`.

use std::fs;

use serde::{Deserialize, Serialize};

/// What of the machine matters to how fast memory is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Host {
    /// `model name` of `/proc/cpuinfo`.
    pub cpu: String,
    /// Bytes of the second-level cache of a core.
    pub l2_bytes: u64,
    /// Bytes of the last-level cache that a core reaches.
    pub l3_bytes: u64,
}

/// Where the kernel does not say: small for today's processors, so that "beyond the cache" is not
/// claimed for too little.
const DEFAULT_L2: u64 = 1 << 20;
const DEFAULT_L3: u64 = 32 << 20;

impl Host {
    /// This machine; first CPU, as those of a socket are alike.
    pub fn detect() -> Self {
        let mut l2_bytes = None;
        let mut l3_bytes = None;
        for index in 0..10 {
            let file = |name: &str| {
                let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{name}");
                fs::read_to_string(path).unwrap_or_default()
            };
            if file("type").trim() == "Instruction" {
                continue;
            }
            match file("level").trim() {
                "2" => l2_bytes = size(file("size").trim()),
                "3" => l3_bytes = size(file("size").trim()),
                _ => {}
            }
        }
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let cpu = cpuinfo
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
            .map_or("unknown", |(_, name)| name.trim());
        let l2_bytes = l2_bytes.unwrap_or(DEFAULT_L2);
        Self {
            cpu: cpu.to_owned(),
            l2_bytes,
            // Some have none: what is beyond L2 is memory then.
            l3_bytes: l3_bytes.unwrap_or(DEFAULT_L3).max(l2_bytes),
        }
    }
}

/// Bytes that can be had without harm to others.
pub(crate) fn available_memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|rest| rest.trim().strip_suffix("kB"))
        .and_then(|kib| kib.trim().parse::<u64>().ok())
        .map_or(0, |kib| kib.saturating_mul(1024))
}

/// `512K`, `32M` to bytes.
fn size(text: &str) -> Option<u64> {
    let (digits, unit) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 1 << 10),
        b'M' => (&text[..text.len() - 1], 1 << 20),
        b'G' => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check sizes as the kernel writes them, and what is none.
    #[test]
    fn sizes() {
        assert_eq!(size("512K"), Some(512 << 10));
        assert_eq!(size("32M"), Some(32 << 20));
        assert_eq!(size("64"), Some(64));
        for text in ["", "K", "12 K", "99999999999999999999G"] {
            assert_eq!(size(text), None);
        }
    }

    /// Check that the caches of any machine are ordered and there is memory.
    #[test]
    fn detected() {
        let host = Host::detect();
        assert!(host.l2_bytes <= host.l3_bytes, "{host:?}");
        assert!(available_memory() > 0);
    }
}
