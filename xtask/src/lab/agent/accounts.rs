//! When processes lived and what a store has of them, to what is missing and what is there twice.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::process::{number, text};

/// Within this time after its birth a process is found, ns.
pub(super) const FOUND_NS: f64 = 3e9;
/// Two clocks that are read one after the other differ by less, ns.
const JITTER_NS: f64 = 1e6;

/// A stretch of time, ns since 1970.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct LifeStretch {
    pub(super) from: f64,
    pub(super) to: f64,
}

impl LifeStretch {
    /// What is left of it without these, which are in order.
    fn without(self, others: &[Self]) -> Vec<Self> {
        let (mut left, mut from) = (Vec::new(), self.from);
        for other in others {
            if other.from > from {
                let to = other.from.min(self.to);
                left.push(Self { from, to });
            }
            from = from.max(other.to);
        }
        left.push(Self { from, to: self.to });
        left.retain(|stretch| stretch.to > stretch.from);
        left
    }
}

/// A process by its label, and what is known of it beside the agent.
#[derive(Default)]
pub(super) struct Lived {
    pub(super) lives: Vec<LifeStretch>,
    /// Threads of it, if that is known.
    pub(super) threads: Option<f64>,
}

/// What the store has of all processes.
#[derive(Default, PartialEq, Debug)]
pub(super) struct DayAccounts {
    pub(super) profiles: usize,
    /// Whole intervals of processes that lived and were recorded, which the store does not have.
    pub(super) missing: u64,
    /// As many may be missing at most: parts of intervals at the ends of what is missing, and before a process had to be found, count.
    pub(super) at_most: u64,
    /// Windows that the store has twice.
    pub(super) twice: Vec<String>,
    /// Profiles of a process that was not there.
    pub(super) strangers: Vec<String>,
    /// Of windows in which a process lived and had been found: its threads' time, s, and the time that the store has.
    pub(super) lived: f64,
    pub(super) stored: f64,
}

impl DayAccounts {
    /// Compares them. `away` are the times without an agent, in order.
    pub(super) fn of(
        all_lived: &BTreeMap<String, Lived>,
        away: &[LifeStretch],
        all_got: &[Value],
        interval_ns: f64,
    ) -> Self {
        let mut windows: BTreeMap<String, Vec<(LifeStretch, f64)>> = BTreeMap::new();
        for got in all_got {
            let labels = &got["labels"];
            let name = [&labels["daemon"], &labels["vm"]].map(text).concat();
            let (from, to) = (number(&got["from"]), number(&got["to"]));
            let window = (LifeStretch { from, to }, number(&got["time"]));
            windows.entry(name).or_default().push(window);
        }
        let mut accounts = Self {
            profiles: all_got.len(),
            ..Self::default()
        };
        for windows in windows.values_mut() {
            windows.sort_by(|a, b| a.0.from.total_cmp(&b.0.from));
        }
        let known = |name: &&String| !all_lived.contains_key(*name);
        accounts.strangers = windows.keys().filter(known).cloned().collect();
        for (name, lived) in all_lived {
            let windows = windows.get(name).map_or(&[][..], Vec::as_slice);
            accounts.add(name, lived, away, windows, interval_ns);
        }
        accounts
    }

    fn add(
        &mut self,
        name: &str,
        lived: &Lived,
        away: &[LifeStretch],
        windows: &[(LifeStretch, f64)],
        interval_ns: f64,
    ) {
        for pair in windows.windows(2) {
            let [(before, _), (next, _)] = pair else {
                continue;
            };
            // Two processes of one name in one interval have a profile each.
            let is_other =
                |life: &LifeStretch| life.to > before.from - FOUND_NS && life.to < next.to;
            if before.to - next.from > JITTER_NS && !lived.lives.iter().any(is_other) {
                let ms = (before.to - next.from) / 1e6;
                self.twice
                    .push(format!("{name}: {ms:.0} ms at {}", next.from));
            }
        }
        let covered: Vec<LifeStretch> = windows.iter().map(|(window, _)| *window).collect();
        for life in &lived.lives {
            let found = LifeStretch {
                from: life.from + FOUND_NS,
                to: life.to,
            };
            let recorded = found.without(away);
            let holes = recorded.iter().flat_map(|part| part.without(&covered));
            for hole in holes {
                let missing = ((hole.to - hole.from) / interval_ns + 0.02).floor() as u64;
                let is_first = hole.from == found.from;
                let before = if is_first {
                    FOUND_NS / interval_ns
                } else {
                    0.0
                };
                self.missing += missing;
                self.at_most += missing + 2 + before as u64;
            }
            let Some(threads) = lived.threads else {
                continue;
            };
            let inside = |window: &LifeStretch| window.from >= found.from && window.to <= found.to;
            for (window, time) in windows.iter().filter(|(window, _)| inside(window)) {
                self.lived += threads * (window.to - window.from) / 1e9;
                self.stored += time / 1e9;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn got(name: &str, from: f64, to: f64) -> Value {
        serde_json::json!({
            "labels": {"daemon": name}, "from": from * 1e9, "to": to * 1e9, "time": (to - from) * 1e9,
        })
    }

    fn accounts(lives: &[(f64, f64)], away: &[(f64, f64)], all_got: &[Value]) -> DayAccounts {
        let stretch = |&(from, to): &(f64, f64)| LifeStretch {
            from: from * 1e9,
            to: to * 1e9,
        };
        let lived = Lived {
            lives: lives.iter().map(stretch).collect(),
            threads: Some(1.0),
        };
        let away: Vec<LifeStretch> = away.iter().map(stretch).collect();
        let all = BTreeMap::from([("a".to_owned(), lived)]);
        DayAccounts::of(&all, &away, all_got, 1e9)
    }

    /// Check that what is missing is counted in whole intervals, but not before a process was found, nor without an agent.
    #[test]
    fn missing() {
        let whole = accounts(
            &[(0.0, 7.5)],
            &[],
            &[got("a", 2.0, 4.0), got("a", 4.0, 8.0)],
        );
        assert_eq!((whole.missing, whole.at_most, whole.profiles), (0, 0, 2));
        assert_eq!(
            (whole.lived, whole.stored),
            (0.0, 0.0),
            "no window lies in its life"
        );
        let part = accounts(
            &[(0.0, 9.0)],
            &[],
            &[got("a", 3.0, 4.0), got("a", 6.0, 7.0)],
        );
        assert_eq!((part.missing, part.at_most), (4, 8));
        assert_eq!((part.lived, part.stored), (2.0, 2.0));
        let away = accounts(&[(0.0, 9.0)], &[(3.5, 6.0)], &[got("a", 6.0, 9.0)]);
        assert_eq!(away.missing, 0);
        assert_eq!(accounts(&[(0.0, 9.0)], &[], &[]).missing, 6);
    }

    /// Check that a window that is there twice is found, but not two processes of one name, and that a stranger is.
    #[test]
    fn twice() {
        let both = [got("a", 4.0, 5.0), got("a", 4.0, 5.0), got("b", 0.0, 1.0)];
        let twice = accounts(&[(0.0, 9.0)], &[], &both);
        assert_eq!(twice.twice, ["a: 1000 ms at 4000000000"]);
        assert_eq!(twice.strangers, ["b"]);
        let anew = accounts(&[(0.0, 4.2), (4.3, 9.0)], &[], &both[..2]);
        assert_eq!(anew.twice, [""; 0]);
    }
}
