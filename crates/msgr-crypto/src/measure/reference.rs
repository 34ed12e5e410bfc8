//! A short piece of work of constant length to how fast the core is at this moment.

use std::thread;
use std::time::{Duration, Instant};

use msgr_crypto_ffi::{Context, Direction, Library};

use super::clock::clock_cost;
use super::error::MeasureError;

/// A sample is disturbed when the reference beside it took longer than this multiple of its best.
const DISTURBED: f64 = 1.04;
const CALLS: usize = 12;

/// The work, and the best it can do. A core's clock rate changes, and what runs on its other hardware
/// thread takes from it.
pub(crate) struct Reference<'lib> {
    context: Context<'lib>,
    data: Vec<u8>,
    /// What the clocks show for nothing, nanoseconds.
    pub(super) clock_ns: f64,
    /// The best it can do, nanoseconds; three times in a row, so that no glitch of a clock counts.
    pub(crate) best_ns: f64,
    last: [f64; 2],
    patience: Duration,
}

impl<'lib> Reference<'lib> {
    /// Finds the best over a third of a second; `patience` is how long to sleep at most, in all
    /// measurements, until other work is done.
    pub(crate) fn new(library: &'lib Library, patience: Duration) -> Result<Self, MeasureError> {
        let mut reference = Self {
            context: library.context(Direction::Encrypt, &[3; 16])?,
            data: vec![0; 1024],
            clock_ns: clock_cost()?,
            best_ns: f64::INFINITY,
            last: [f64::INFINITY; 2],
            patience,
        };
        for _ in 0..60 {
            for _ in 0..6 {
                reference.run()?;
            }
            if !patience.is_zero() {
                thread::sleep(Duration::from_millis(5));
            }
        }
        if reference.best_ns <= 0.0 {
            let reason = "the reference took no time".to_owned();
            return Err(MeasureError::Unstable(reason));
        }
        Ok(reference)
    }

    fn run(&mut self) -> Result<f64, MeasureError> {
        let begin = Instant::now();
        self.context.restart(&[4; 12])?;
        for _ in 0..CALLS {
            self.context.update_in_place(&mut self.data)?;
        }
        let ns = begin.elapsed().as_nanos() as f64;
        self.best_ns = self.best_ns.min(self.last[0].max(self.last[1]).max(ns));
        self.last = [self.last[1], ns];
        Ok(ns)
    }

    /// The better one of two, the first of which brings what it needs back to the caches.
    pub(super) fn measure(&mut self) -> Result<f64, MeasureError> {
        Ok(self.run()?.min(self.run()?))
    }

    /// Beyond this, nanoseconds, something else slows the core.
    pub(super) fn limit(&self) -> f64 {
        self.best_ns * DISTURBED
    }

    /// Waits until the core is as fast as it can be, or patience ends; what the reference takes then.
    pub(super) fn wait_until_calm(&mut self) -> Result<f64, MeasureError> {
        const NAP: Duration = Duration::from_millis(1);
        loop {
            let ns = self.measure()?;
            if ns <= self.limit() || self.patience.is_zero() {
                return Ok(ns);
            }
            let begin = Instant::now();
            thread::sleep(NAP);
            // Beside other work a nap takes several times as long as it was meant to.
            self.patience = self.patience.saturating_sub(begin.elapsed());
        }
    }
}
