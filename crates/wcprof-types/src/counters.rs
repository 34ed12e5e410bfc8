//! What a program counts of its own work: names and values, as it says them when it is asked.

/// What a counter is called, and what it adds up.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct CounterName {
    /// As the program calls it: `osd.op_latency`.
    pub name: String,
    /// It adds up times, too.
    pub timed: bool,
}

/// A counter's value since the program started.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct CounterValue {
    /// How many.
    pub count: u64,
    /// How long all of them took, ns; 0 of a counter that adds up no times.
    pub time_ns: u64,
}

impl CounterValue {
    /// What both add up to.
    pub fn plus(self, other: Self) -> Self {
        Self {
            count: self.count.saturating_add(other.count),
            time_ns: self.time_ns.saturating_add(other.time_ns),
        }
    }

    /// What it grew by since it was `before`; nothing if it fell, because a part of the program that counted
    /// has gone.
    pub fn since(self, before: Self) -> Self {
        Self {
            count: self.count.saturating_sub(before.count),
            time_ns: self.time_ns.saturating_sub(before.time_ns),
        }
    }
}
