//! What the kernel accounts beside the recorded threads, to readings of the trace: the times of all CPUs once a
//! second, everything else when a recording begins and ends, and what is of the recorded threads whenever their limits
//! have changed. A ring forgets its beginning, so there all is read again and again.

use wcprof_host::AccountsReader;
use wcprof_host::clock::{monotonic_ns, thread_cpu_ns};
use wcprof_record::Recorder;
use wcprof_trace::{TraceError, TraceSink};
use wcprof_types::accounts::Accounts;

/// How often the times of all CPUs are read, ns of the recording.
const BRIEF_EVERY_NS: u64 = 1_000_000_000;
/// How often everything is read for a ring, ns of the recording.
const WHOLE_EVERY_NS: u64 = 10_000_000_000;
/// How long after the first reading for a ring the second one comes, ns: only then something is known of limits.
const SECOND_WHOLE_NS: u64 = 3_000_000_000;
/// How often everything is read for a ring, in times of the CPU time that it takes.
const WHOLE_EVERY_COSTS: u64 = 500;
/// How often limits are looked at, ns of the recording.
const LOOK_EVERY_NS: u64 = 250_000_000;
/// How often limits are looked at, in times of the CPU time that it takes.
const LOOK_EVERY_COSTS: u64 = 1000;
/// How long limits are left alone after a reading of what has changed, in times of the CPU time that it took: a target that changes them all the
/// time costs a hundredth of a core, and what it changes back in a moment is seen.
const CHANGE_EVERY_COSTS: u64 = 100;
/// CPU time, ns, after which no more processes are read, for each percent of a core that wcprof may use: one second's.
const NS_A_PERCENT: u64 = 10_000_000;

/// Which readings are taken.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum WholeReadings {
    /// At the begin and the end.
    Twice,
    /// All the time.
    Repeated,
}

/// Takes readings while a recording runs.
#[derive(Debug)]
pub(crate) struct Accounting {
    reader: AccountsReader,
    which: WholeReadings,
    max_cpu_ns: u64,
    /// When the next readings are due; `None` before the first ones.
    next: Option<NextReadings>,
}

#[derive(Debug)]
struct NextReadings {
    brief: u64,
    whole: u64,
    /// When limits are looked at.
    look: u64,
}

impl Accounting {
    /// `max_cpu_percent` of one core is what wcprof may use.
    pub(crate) fn new(which: WholeReadings, max_cpu_percent: u32) -> Self {
        Self {
            reader: AccountsReader::default(),
            which,
            max_cpu_ns: u64::from(max_cpu_percent).saturating_mul(NS_A_PERCENT),
            next: None,
        }
    }

    /// Reads what is due at the time of a batch; everything at the first one.
    pub(crate) fn take<S: TraceSink>(
        &mut self,
        to: &mut Recorder<S>,
        time: u64,
    ) -> Result<(), TraceError> {
        let Some(next) = self.next.as_mut().filter(|next| time < next.whole) else {
            return self.whole(to, time);
        };
        if time >= next.look {
            let before = thread_cpu_ns();
            let pids = to.pids();
            let have_changed = self.reader.have_limits_changed(&pids);
            let looked = thread_cpu_ns();
            if have_changed {
                put(to, &self.reader.without_others(&pids))?;
            }
            let read_ns = thread_cpu_ns().saturating_sub(looked);
            let pause = look_pause(looked.saturating_sub(before), read_ns);
            next.look = time.saturating_add(pause);
        }
        if time >= next.brief {
            next.brief = time.saturating_add(BRIEF_EVERY_NS);
            return put(to, &self.reader.brief());
        }
        Ok(())
    }

    /// Reads everything at the end of a recording that has begun.
    pub(crate) fn finish<S: TraceSink>(mut self, to: &mut Recorder<S>) -> Result<(), TraceError> {
        match self.next {
            Some(_) => self.whole(to, 0),
            None => Ok(()),
        }
    }

    fn whole<S: TraceSink>(&mut self, to: &mut Recorder<S>, time: u64) -> Result<(), TraceError> {
        let before = thread_cpu_ns();
        let accounts = self.reader.full(&to.pids(), self.max_cpu_ns);
        put(to, &accounts)?;
        let cost = thread_cpu_ns().saturating_sub(before);
        let pause = match self.next {
            None => SECOND_WHOLE_NS,
            Some(_) => WHOLE_EVERY_NS,
        };
        let pause = pause.max(cost.saturating_mul(WHOLE_EVERY_COSTS));
        self.next = Some(NextReadings {
            brief: time.saturating_add(BRIEF_EVERY_NS),
            look: time.saturating_add(LOOK_EVERY_NS),
            whole: match self.which {
                WholeReadings::Twice => u64::MAX,
                WholeReadings::Repeated => time.saturating_add(pause),
            },
        });
        Ok(())
    }
}

/// How long limits are left alone after a look and a reading of what has changed that took so much CPU time, ns; 0 for no reading.
fn look_pause(looked_ns: u64, read_ns: u64) -> u64 {
    LOOK_EVERY_NS
        .max(looked_ns.saturating_mul(LOOK_EVERY_COSTS))
        .max(read_ns.saturating_mul(CHANGE_EVERY_COSTS))
}

fn put<S: TraceSink>(to: &mut Recorder<S>, accounts: &Accounts) -> Result<(), TraceError> {
    match serde_json::to_string(accounts) {
        Ok(json) => to.accounts(monotonic_ns(), json),
        Err(_) => Ok(()),
    }
}
