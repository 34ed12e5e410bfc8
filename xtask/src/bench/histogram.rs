//! fio's histogram log to percentiles of latency within a span of time.
//!
//! A line is `milliseconds, direction, block size, count, count, ...`: how many operations of the
//! time since the line before fell into each bin.

use anyhow::{Context, Result};

/// A bin's low bits: up to 64 of them divide a power of two.
const BITS: u32 = 6;

/// Latencies over time: for each line its end in milliseconds after the epoch, and the count of each bin.
#[derive(Debug)]
pub struct Histograms(Vec<(u64, Vec<u64>)>);

impl Histograms {
    /// Parses a log.
    ///
    /// # Errors
    /// When a line is not of the form above.
    pub fn parse(text: &str) -> Result<Self> {
        let parse_line = |line: &str| {
            let fields = line.split(',').map(|field| field.trim().parse().ok());
            let fields = fields.collect::<Option<Vec<u64>>>();
            let (end, counts) = fields
                .as_ref()
                .and_then(|f| Some((f.first()?, f.get(3..)?)))?;
            Some((*end, counts.to_vec()))
        };
        let lines = text.lines().map(|line| {
            parse_line(line)
                .with_context(|| format!("fio's histogram log has this line: {line:.60}"))
        });
        lines.collect::<Result<_>>().map(Self)
    }

    /// The latency in nanoseconds that `share` of the operations did not exceed, of lines that end
    /// after `from` and not after `to` (milliseconds after the epoch); none without operations.
    pub fn percentile(&self, share: f64, from: u64, to: u64) -> Option<f64> {
        let mut sum: Vec<u64> = Vec::new();
        let lines = self.0.iter();
        for (_, counts) in lines.filter(|(end, _)| (from + 1..=to).contains(end)) {
            sum.resize(sum.len().max(counts.len()), 0);
            for (total, count) in sum.iter_mut().zip(counts) {
                *total += count;
            }
        }
        let total: u64 = sum.iter().sum();
        let mut below = 0;
        let bin = sum.iter().position(|count| {
            below += count;
            *count > 0 && below as f64 >= share * total as f64
        })?;
        Some(middle(bin as u32))
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
