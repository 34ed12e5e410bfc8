//! fio's histogram log to percentiles of latency within a span of time.
//!
//! A line is `milliseconds, direction, block size, count, count, ...`: how many operations of the
//! time since the line before fell into each bin.

use anyhow::{Context, Result};

/// A bin's low bits: up to 64 of them divide a power of two.
const BITS: u32 = 6;

/// The counts of one line.
#[derive(Debug)]
struct Entry {
    /// End of its time, milliseconds after the epoch.
    end: u64,
    counts: Vec<u64>,
}

/// Latencies over time.
#[derive(Debug, Default)]
pub struct Histograms {
    entries: Vec<Entry>,
}

impl Histograms {
    /// Parses a log.
    ///
    /// # Errors
    /// When a line is not of the form above.
    pub fn parse(text: &str) -> Result<Self> {
        let mut entries = Vec::new();
        for line in text.lines() {
            let fields: Option<Vec<u64>> = line.split(',').map(|f| f.trim().parse().ok()).collect();
            let fields = fields
                .filter(|fields| fields.len() > 3)
                .with_context(|| format!("fio's histogram log has this line: {line:.60}"))?;
            entries.push(Entry {
                end: fields[0],
                counts: fields[3..].to_vec(),
            });
        }
        Ok(Self { entries })
    }

    /// The latency in nanoseconds that `share` of the operations did not pass, of lines that end
    /// after `from` and not after `to` (milliseconds after the epoch); none without operations.
    pub fn percentile(&self, share: f64, from: u64, to: u64) -> Option<f64> {
        let mut sum: Vec<u64> = Vec::new();
        for entry in &self.entries {
            if entry.end <= from || entry.end > to {
                continue;
            }
            sum.resize(sum.len().max(entry.counts.len()), 0);
            for (total, count) in sum.iter_mut().zip(&entry.counts) {
                *total += count;
            }
        }
        let total: u64 = sum.iter().sum();
        let mut below = 0;
        for (bin, count) in sum.iter().enumerate() {
            below += count;
            if *count > 0 && below as f64 >= share * total as f64 {
                return Some(middle(u32::try_from(bin).ok()?));
            }
        }
        None
    }
}

/// The latency in the middle of a bin, nanoseconds.
fn middle(bin: u32) -> f64 {
    if bin < 2 << BITS {
        return f64::from(bin);
    }
    let exponent = (bin >> BITS) - 1;
    let low = f64::from(bin % (1 << BITS));
    2_f64.powi((exponent + BITS) as i32) + (low + 0.5) * 2_f64.powi(exponent as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that bins follow each other without gaps, with at most 1/64 of error.
    #[test]
    fn bins() {
        assert!((middle(127) - 127.0).abs() < 1e-9);
        assert!((middle(128) - 129.0).abs() < 1e-9);
        assert!((middle(191) - 255.0).abs() < 1e-9);
        assert!((middle(192) - 258.0).abs() < 1e-9);
    }

    /// Check that only lines of the span count.
    #[test]
    fn percentiles() {
        let log = "1000, 0, 16384, 0, 99, 0, 0\n2000, 0, 16384, 0, 0, 98, 2\n";
        let all = Histograms::parse(log).unwrap();
        assert_eq!(all.percentile(0.99, 0, 1000), Some(1.0));
        assert_eq!(all.percentile(0.99, 1000, 2000), Some(3.0));
        assert_eq!(all.percentile(0.98, 0, 2000), Some(2.0));
        assert_eq!(all.percentile(0.99, 2000, 3000), None);
        assert!(Histograms::parse("fio: error\n").is_err());
    }
}
