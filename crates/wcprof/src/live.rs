//! A recording into a ring that runs: the sampler and the recorder on threads of their own, which
//! hand over what the ring holds when they are asked, and once a second if someone looks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::thread;

use tokio::sync::oneshot;
use wcprof_capture::{SamplingEnd, TickBatch};
use wcprof_record::{Kept, RecordError, Recorder, RecorderOptions};
use wcprof_trace::ring::{Ring, RingOptions};

use crate::failure::Failure;
use crate::session::{self, Sampling, SessionOptions, Start};

/// What the ring holds is handed to those who look this often, ns of the recording.
const LOOK_NS: u64 = 1_000_000_000;

/// A running recording.
pub(crate) struct Live<T> {
    stop: Arc<AtomicBool>,
    sampling: Sampling,
    recording: thread::JoinHandle<(Recorder<Ring>, Option<RecordError>)>,
    orders: Sender<T>,
}

/// Where what the ring holds goes.
pub(crate) struct Takers<T> {
    /// Each order with what the ring held then. Of those that find no room, `refused` is told.
    pub(crate) ordered: SyncSender<(Kept, T)>,
    pub(crate) refused: Box<dyn Fn(T) + Send>,
    /// Once a second, if it is not busy then.
    pub(crate) looks: Option<SyncSender<Kept>>,
}

/// How a recording ended.
pub(crate) struct Ended {
    pub(crate) kept: Kept,
    pub(crate) reason: &'static str,
    /// What the user should know of a recording that is whole.
    pub(crate) remark: Option<String>,
    /// What went wrong on the way.
    pub(crate) loss: Option<String>,
}

/// Begins to record. The receiver hears of the end, whatever it comes from.
pub(crate) fn begin<T: Send + 'static>(
    options: &SessionOptions,
    ring: RingOptions,
    takers: Takers<T>,
) -> Result<(Live<T>, oneshot::Receiver<()>), Failure> {
    let Start {
        sampler,
        header,
        setups,
    } = session::start(options)?;
    let ring = Ring::new(ring, header.clone(), setups)?;
    let (requests_tx, requests_rx) = mpsc::channel();
    let recorder = Recorder::new(
        &options.targets,
        ring,
        RecorderOptions {
            header,
            kernel: options.kernel,
            requests: requests_tx,
        },
    )?;
    let stop = Arc::new(AtomicBool::new(false));
    let (orders, orders_rx) = mpsc::channel();
    let (done_tx, done_rx) = oneshot::channel();
    let (sampling, batches) = session::sample(sampler, options.duration, &stop, requests_rx)?;
    let recording = thread::Builder::new()
        .name("wcprof-recorder".into())
        .spawn(move || {
            let mut recorder = recorder;
            let failed = record(&mut recorder, &batches, &orders_rx, &takers).err();
            // The waiting side only counts the end, whether it still listens or not.
            let _ = done_tx.send(());
            (recorder, failed)
        })?;
    let live = Live {
        stop,
        sampling,
        recording,
        orders,
    };
    Ok((live, done_rx))
}

impl<T> Live<T> {
    /// Asks for what the ring holds; it goes to the taker of orders.
    pub(crate) fn order(&self, what: T) {
        // A recording that has ended gives what it had anyway.
        let _ = self.orders.send(what);
    }

    /// Another way to order.
    pub(crate) fn orders(&self) -> Sender<T> {
        self.orders.clone()
    }

    /// Asks for the end.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Waits for the end, and gives what the ring holds.
    pub(crate) fn finish(self, options: &SessionOptions) -> Result<Ended, Failure> {
        let (end, punctuality) = session::join(self.sampling, "sampler")?;
        let (recorder, failed) = session::join(self.recording, "recorder")?;
        let remark = session::remark(options, &end, punctuality);
        let reason = session::reason(&end);
        let (kept, late) = recorder.finish_kept(reason);
        let loss = match (failed.or(late), end) {
            (Some(error), _) => Some(format!("the recording ended early: {error}")),
            (None, SamplingEnd::Failed(error)) => Some(format!("sampling ended early: {error}")),
            (None, _) => None,
        };
        Ok(Ended {
            kept,
            reason,
            remark,
            loss,
        })
    }
}

fn record<T>(
    recorder: &mut Recorder<Ring>,
    batches: &Receiver<TickBatch>,
    orders: &Receiver<T>,
    takers: &Takers<T>,
) -> Result<(), RecordError> {
    let mut looked = 0;
    while let Ok(batch) = batches.recv() {
        recorder.batch(&batch)?;
        for order in orders.try_iter() {
            match takers.ordered.try_send((recorder.kept()?, order)) {
                Ok(()) => {}
                Err(mpsc::TrySendError::Full((_, order))) => (takers.refused)(order),
                // Nobody takes orders any more: the end is near.
                Err(mpsc::TrySendError::Disconnected(_)) => {}
            }
        }
        if let Some(looks) = &takers.looks
            && batch.time.saturating_sub(looked) >= LOOK_NS
        {
            looked = batch.time;
            // Who is still busy with the one before looks at the next one.
            let _ = looks.try_send(recorder.kept()?);
        }
    }
    Ok(())
}
