//! A recording into a ring that runs: what the ring holds is handed over when it is asked for, and once a
//! second if someone looks.

use std::sync::mpsc::{self, Sender, SyncSender};

use wcprof_capture::SamplingEnd;
use wcprof_record::{NamedSnapshot, RecordError, Recorder};
use wcprof_trace::ring::{Ring, RingOptions};

use crate::failure::Failure;
use crate::session::{self, Running, SessionOptions};

/// What the ring holds is handed to those who look this often, ns of the recording.
const LOOK_NS: u64 = 1_000_000_000;

/// A running recording.
pub(crate) struct Live<T> {
    pub(crate) running: Running<Ring>,
    /// Asks for what the ring holds; it goes to the taker of orders.
    pub(crate) orders: Sender<T>,
}

/// Where what the ring holds goes. They are dropped at the end of the recording, whatever it comes from.
pub(crate) struct Takers<T> {
    /// Each order with what the ring held then. Orders that find no room go to `refused`.
    pub(crate) ordered: SyncSender<(NamedSnapshot, T)>,
    pub(crate) refused: Box<dyn Fn(T) + Send>,
    /// Once a second, if it is not busy then.
    pub(crate) looks: Option<SyncSender<NamedSnapshot>>,
}

/// How a recording ended.
pub(crate) struct Ended {
    pub(crate) kept: NamedSnapshot,
    pub(crate) reason: &'static str,
    /// What the user should know of a recording that is whole.
    pub(crate) remark: Option<String>,
    /// What went wrong on the way.
    pub(crate) loss: Option<String>,
}

/// Begins to record.
pub(crate) fn begin<T: Send + 'static>(
    options: &SessionOptions,
    ring: RingOptions,
    takers: Takers<T>,
) -> Result<Live<T>, Failure> {
    let (orders, ordered) = mpsc::channel();
    let mut looked = 0;
    let running = session::begin(
        options,
        |header, setups| Ok(Ring::new(ring, header.clone(), setups)?),
        move |recorder: &mut Recorder<Ring>, time| {
            for order in ordered.try_iter() {
                hand_over(recorder, order, &takers)?;
            }
            if let Some(looks) = &takers.looks
                && time.saturating_sub(looked) >= LOOK_NS
            {
                looked = time;
                // Who is still busy with the one before looks at the next one.
                let _ = looks.try_send(recorder.take_snapshot()?);
            }
            Ok(())
        },
    )?;
    Ok(Live { running, orders })
}

fn hand_over<T>(
    recorder: &mut Recorder<Ring>,
    order: T,
    takers: &Takers<T>,
) -> Result<(), RecordError> {
    match takers.ordered.try_send((recorder.take_snapshot()?, order)) {
        Err(mpsc::TrySendError::Full((_, order))) => (takers.refused)(order),
        // Nobody takes orders any more: the end is near.
        Ok(()) | Err(mpsc::TrySendError::Disconnected(_)) => {}
    }
    Ok(())
}

/// Waits for the end, and gives what the ring holds.
pub(crate) fn finish(running: Running<Ring>, options: &SessionOptions) -> Result<Ended, Failure> {
    let finished = running.finish(options)?;
    let reason = session::reason(&finished.end);
    let (kept, late) = finished.recorder.finish_with_snapshot(reason);
    let loss = match (finished.failed.or(late), finished.end) {
        (Some(error), _) => Some(format!("the recording ended early: {error}")),
        (None, SamplingEnd::Failed(error)) => Some(format!("sampling ended early: {error}")),
        (None, _) => None,
    };
    Ok(Ended {
        kept,
        reason,
        remark: finished.remark,
        loss,
    })
}
