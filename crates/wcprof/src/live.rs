//! A recording into a ring that runs: what the ring holds is handed over when it is asked for, and once a
//! second if someone looks.

use std::sync::mpsc::SyncSender;

use wcprof_capture::SamplingEnd;
use wcprof_record::{NamedSnapshot, Recorder};
use wcprof_trace::TraceError;
use wcprof_trace::ring::{Ring, RingOptions};
use wcprof_types::Pid;

use crate::accounting::WholeReadings;
use crate::failure::Failure;
use crate::session::{self, Running, Sampling, SessionOptions};

/// What the ring holds is handed to those who look this often, ns of the recording.
const LOOK_NS: u64 = 1_000_000_000;

/// A waiting thread is accounted once a second: what is younger than this, ns, may lack it.
pub(crate) const SETTLED_NS: u64 = 1_200_000_000;

/// How a recording ended.
pub(crate) struct Ended {
    pub(crate) kept: NamedSnapshot,
    pub(crate) reason: &'static str,
    /// What the user should know of a recording that is whole.
    pub(crate) remark: Option<String>,
    /// What went wrong on the way.
    pub(crate) loss: Option<String>,
    /// That ended it.
    pub(crate) silent: Option<Silent>,
}

/// Something that did not answer.
pub(crate) struct Silent {
    /// The process that was asked about, if it was one.
    pub(crate) pid: Option<Pid>,
    /// Waits for the answer.
    pub(crate) sampler: Sampling,
}

/// Begins to record. `after_batch` is called with the time of each batch, ns, after it; `looks` gets what the ring holds once a
/// second, if its reader is not busy then. Both are dropped at the end of the recording.
pub(crate) fn begin(
    options: &SessionOptions,
    ring: RingOptions,
    looks: Option<SyncSender<NamedSnapshot>>,
    mut after_batch: impl FnMut(&mut Recorder<Ring>, u64) -> Result<(), TraceError> + Send + 'static,
) -> Result<Running<Ring>, Failure> {
    let mut looked = 0;
    session::begin(
        options,
        WholeReadings::Repeated,
        |header, setups| Ok(Ring::new(ring, header.clone(), setups)?),
        move |recorder: &mut Recorder<Ring>, time| {
            after_batch(recorder, time)?;
            if let Some(looks) = &looks
                && time.saturating_sub(looked) >= LOOK_NS
            {
                looked = time;
                // A reader that is still busy with the last one looks at the next one.
                let _ = looks.try_send(recorder.take_snapshot()?);
            }
            Ok(())
        },
    )
}

/// Waits for the end, and gives what the ring holds.
pub(crate) fn finish(running: Running<Ring>, options: &SessionOptions) -> Result<Ended, Failure> {
    let mut finished = running.finish(options)?;
    session::print_problems(&finished.recorder.problems());
    let reason = finished.reason();
    let (kept, late) = finished.recorder.finish_with_snapshot(reason);
    let loss = session::loss(finished.failed.or(late).as_ref(), &finished.end);
    let silent = match (&finished.end, finished.left) {
        (SamplingEnd::Stuck(stuck), Some(sampler)) => Some(Silent {
            pid: stuck.pid(),
            sampler,
        }),
        _ => None,
    };
    Ok(Ended {
        kept,
        reason,
        remark: finished.remark,
        loss,
        silent,
    })
}
