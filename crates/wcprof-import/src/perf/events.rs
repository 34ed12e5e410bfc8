//! The events of a `perf.data`: what their samples say about time.

use linux_perf_data::AttributeDescription;
use linux_perf_data::linux_perf_event_reader::{
    BranchSampleFormat, HardwareEventId, PerfEventType, SampleFormat, SamplingPolicy,
    SoftwareCounterType,
};

/// Events of a PMU whose counts are proportional to CPU time, by their names in `/sys/bus/event_source/devices/*/events`.
const CYCLES: &[&str] = &["cycles", "cpu-cycles", "ref-cycles"];

/// What a sample of an event means.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// The thread ran for the period, ns.
    Clock,
    /// The thread ran for some time in proportion to the period.
    Counted {
        /// Samples a second of CPU time, when the kernel kept to a frequency.
        hz: Option<u64>,
    },
    /// Something happened as often as the period says, such as cache misses: the thread ran, and it is not known for how long.
    Happened {
        /// Samples a second that were asked for.
        hz: Option<u64>,
    },
    /// The thread leaves its CPU.
    Switch,
    /// The thread was off CPU for the period, ns (`perf record --off-cpu`).
    OffCpu,
    /// It says nothing of time.
    Other,
}

/// An event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Event {
    pub(super) kind: Kind,
    /// Without modifiers: `cycles` of `cpu_core/cycles/u`.
    pub(super) name: String,
    /// Period of samples that do not say theirs.
    pub(super) period: u64,
    /// Samples a second that were asked for.
    pub(super) hz: Option<u64>,
    /// User stacks are copies of memory, not addresses.
    pub(super) copies_stack: bool,
    /// Its call stacks are in the processor's last branch records.
    pub(super) has_branches: bool,
    /// Counters were read beside its samples, which are not understood then.
    pub(super) reads: bool,
}

impl Event {
    pub(super) fn new(description: &AttributeDescription) -> Self {
        let attr = description.attributes();
        let full = description.name().unwrap_or_default();
        let name: String = full.chars().take(100).collect();
        let base = name
            .split(['/', ':'])
            .find(|part| !part.is_empty() && !part.starts_with("cpu_"))
            .unwrap_or_default()
            .to_owned();
        let (hz, period) = match attr.sampling_policy {
            SamplingPolicy::Frequency(hz) => (Some(hz).filter(|hz| *hz > 0), 1),
            SamplingPolicy::Period(period) => (None, period.get()),
            SamplingPolicy::NoSampling => (None, 1),
        };
        let kind = match attr.type_ {
            _ if name.starts_with("sched:sched_switch") => Kind::Switch,
            _ if name.starts_with("offcpu-time") => Kind::OffCpu,
            PerfEventType::Software(
                SoftwareCounterType::CpuClock | SoftwareCounterType::TaskClock,
            ) => Kind::Clock,
            PerfEventType::Hardware(
                HardwareEventId::CpuCycles | HardwareEventId::RefCpuCycles,
                _,
            ) => Kind::Counted { hz },
            PerfEventType::DynamicPmu(..) if CYCLES.contains(&&*base) => Kind::Counted { hz },
            PerfEventType::Hardware(..)
            | PerfEventType::HwCache(..)
            | PerfEventType::DynamicPmu(..) => Kind::Happened { hz },
            _ => Kind::Other,
        };
        // A clock's period is in ns; what was asked for as a frequency varies around it.
        let period = match (kind, hz) {
            (Kind::Clock, Some(hz)) => 1_000_000_000 / hz,
            _ => period,
        };
        let hz = match kind {
            Kind::Clock if hz.is_none() => 1_000_000_000_u64.checked_div(period),
            _ => hz,
        };
        Self {
            kind,
            name: base,
            period,
            hz,
            copies_stack: attr.sample_format.contains(SampleFormat::STACK_USER),
            has_branches: (attr.branch_sample_format).contains(BranchSampleFormat::CALL_STACK),
            reads: attr.sample_format.contains(SampleFormat::READ),
        }
    }
}

impl Event {
    /// Whether its samples say that a thread ran.
    pub(super) fn counts_cpu_time(&self) -> bool {
        matches!(self.kind, Kind::Clock | Kind::Counted { .. })
    }

    /// What a count of its `n` samples, whose periods add up to `periods`, weighs in ns.
    pub(super) fn scale(&self, n: u64, periods: u64) -> f64 {
        match self.kind {
            Kind::Counted { hz: Some(hz) } | Kind::Happened { hz: Some(hz) } if periods > 0 => {
                n as f64 * 1e9 / hz as f64 / periods as f64
            }
            _ => 1.0,
        }
    }
}
