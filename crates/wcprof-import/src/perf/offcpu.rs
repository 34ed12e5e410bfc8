//! Samples of `perf record --off-cpu` (`tools/perf/util/bpf_off_cpu.c` and `bpf_skel/off_cpu.bpf.c` of Linux).
//!
//! Until 6.14 all of them, since then those that are shorter than a threshold, are sums that perf takes from a map of its BPF program at
//! the end; their times are counted up from [`UNTIMED`]. Since 6.15 the sleeper is in the sample's raw data: the sample itself
//! has the thread that ran when it was made, and no period.

use linux_perf_data::linux_perf_event_reader::SampleRecord;

use crate::limits;

/// Times from this on are none (`OFF_CPU_TIMESTAMP`).
pub(super) const UNTIMED: u64 = !0 << 32;

/// Who slept, by the raw data of a sample.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SleptThread {
    pub(super) pid: i32,
    pub(super) tid: i32,
    /// How long, ns.
    pub(super) ns: u64,
    /// Addresses and context markers, leaf first.
    pub(super) chain: Vec<u64>,
}

impl SleptThread {
    /// `None` for samples that have no such data, whose own fields are right.
    pub(super) fn of(sample: &SampleRecord<'_>) -> Option<Self> {
        Self::parse(&sample.raw?.as_slice())
    }

    /// pid and tid (u32), ns, the number of addresses, and these (u64).
    fn parse(raw: &[u8]) -> Option<Self> {
        let number = |at: usize, len: usize| {
            let bytes = raw.get(at..at.checked_add(len)?)?;
            Some(bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)))
        };
        let id = |at| number(at, 4).and_then(|n| i32::try_from(n).ok());
        let n = usize::try_from(number(16, 8)?).ok()?;
        let fits = n <= raw.len() / 8;
        let chain = (0..n.min(limits::MAX_FRAMES)).map_while(|at| number(24 + 8 * at, 8));
        fits.then(|| {
            Some(Self {
                pid: id(0)?,
                tid: id(4)?,
                ns: number(8, 8)?,
                chain: chain.collect(),
            })
        })?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check raw data of the sleeper, and that what older versions have there is none.
    #[test]
    fn raw() {
        let mut raw = Vec::new();
        raw.extend(100_u32.to_le_bytes());
        raw.extend(101_u32.to_le_bytes());
        for n in [900_000_000_u64, 2, -512_i64 as u64, 0x1234] {
            raw.extend(n.to_le_bytes());
        }
        let sleeper = SleptThread::parse(&raw).expect("a sleeper");
        assert_eq!(
            (sleeper.pid, sleeper.tid, sleeper.ns),
            (100, 101, 900_000_000)
        );
        assert_eq!(sleeper.chain, [-512_i64 as u64, 0x1234]);
        assert_eq!(SleptThread::parse(&[0; 4]), None);
        raw[16] = 200;
        assert_eq!(SleptThread::parse(&raw), None);
    }
}
