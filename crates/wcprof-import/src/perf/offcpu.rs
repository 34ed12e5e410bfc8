//! Samples of `perf record --off-cpu` (`tools/perf/util/bpf_off_cpu.c` and `bpf_skel/off_cpu.bpf.c` of Linux).
//!
//! Until 6.14 all of them, since then those that are shorter than a threshold, are sums that perf takes from a map of its BPF program at
//! the end; their times are [`UNTIMED`] or later. Since 6.15 the sleeper is in the sample's raw data: the sample itself
//! has the thread that ran when it was made, and no period.
//!
//! perf writes pid and tid of a sleeper into a sum. Its BPF program writes tid and pid into the sample of a single wait, in which
//! `perf script` therefore shows the process as the thread (7.2).

use linux_perf_data::linux_perf_event_reader::SampleRecord;

use crate::limits;

/// Times from this on are none (`OFF_CPU_TIMESTAMP`).
pub(super) const UNTIMED: u64 = !0 << 32;

/// Who slept, by the raw data of a sample.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SleptThread {
    /// Two numbers, of which one is the process and one the thread.
    ids: (i32, i32),
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

    /// Its pid and tid, in the order that agrees with a thread which perf recorded, whose process `pid_of` gives. Of a thread that perf did
    /// not record, the order is that of perf 7.2, in which it depends on whether the sample has a time.
    pub(super) fn pid_tid(
        &self,
        is_timed: bool,
        pid_of: impl Fn(i32) -> Option<i32>,
    ) -> (i32, i32) {
        let (first, second) = self.ids;
        let is_tid_first = match (pid_of(second) == Some(first), pid_of(first) == Some(second)) {
            (true, _) => false,
            (_, true) => true,
            _ => is_timed,
        };
        if is_tid_first {
            (second, first)
        } else {
            (first, second)
        }
    }

    /// pid and tid or the reverse (u32), ns, the number of addresses, and these (u64).
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
                ids: (id(0)?, id(4)?),
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
        assert_eq!((sleeper.ids, sleeper.ns), ((100, 101), 900_000_000));
        assert_eq!(sleeper.chain, [-512_i64 as u64, 0x1234]);
        assert_eq!(SleptThread::parse(&[0; 4]), None);
        raw[16] = 200;
        assert_eq!(SleptThread::parse(&raw), None);
    }
    /// Check that a known thread says which of two numbers is its process, whichever comes first, and that without one the order is that
    /// of sums or of single waits.
    #[test]
    fn order() {
        let pid_of = |tid| (100..=101).contains(&tid).then_some(100);
        for (ids, is_timed, right) in [
            ((100, 101), false, (100, 101)),
            ((100, 101), true, (100, 101)),
            ((101, 100), false, (100, 101)),
            ((101, 100), true, (100, 101)),
            ((100, 100), true, (100, 100)),
            ((7, 8), false, (7, 8)),
            ((7, 8), true, (8, 7)),
        ] {
            let sleeper = SleptThread {
                ids,
                ns: 1,
                chain: Vec::new(),
            };
            assert_eq!(sleeper.pid_tid(is_timed, pid_of), right, "{ids:?}");
        }
    }
}
