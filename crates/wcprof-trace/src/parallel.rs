//! The spans of a trace on all CPUs, in no order.

use std::io::Read;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Malformed, TraceError};
use crate::format::codec::Sizes;
use crate::format::span_reader::{Section, Summary, read_section};
use crate::format::wire::Input;
use crate::model::{Span, Tables};
use crate::reader::{Ending, TraceReader};

/// Spans of a batch. With what is made of it, it fits the second cache of a processor.
const BATCH: usize = 1 << 13;
/// Most threads; each has a section of up to 2 MiB.
const MAX_WORKERS: usize = 16;

/// A section of spans, for a worker.
struct Job {
    /// Position of its block in the file, bytes.
    offset: u64,
    /// Sizes of the tables that its ids refer to.
    sizes: Sizes,
    section: Vec<u8>,
}

/// What workers have found.
#[derive(Default)]
struct Found {
    all: Summary,
    /// The first place in the file that is wrong.
    error: Option<(u64, Malformed)>,
}

impl Found {
    fn add(&mut self, offset: u64, read: Result<Section, Malformed>) {
        if let Err(error) = read.and_then(|section| self.all.add(section))
            && self.error.as_ref().is_none_or(|(first, _)| offset < *first)
        {
            self.error = Some((offset, error));
        }
    }
}

impl<R: Read> TraceReader<R> {
    /// Reads the whole trace, until `enough` says so of the tables; it is asked after each block. From there on spans are
    /// skipped, unchecked, so that the tables are read in little time; then begins and ends of threads are as far as they
    /// were read. The last value is whether that happened.
    ///
    /// `each` gets thousands of spans at a time, in no order, on several threads. Memory does not grow with the spans.
    pub fn read_unordered(
        mut self,
        mut enough: impl FnMut(&Tables) -> bool,
        each: impl Fn(&[Span]) + Sync,
    ) -> Result<(Tables, Ending, bool), TraceError> {
        let (sender, jobs) = sync_channel(1);
        // Workers alone have it: when all have panicked, nothing can be sent.
        let jobs = Arc::new(Mutex::new(jobs));
        let found = Mutex::new(Found::default());
        let n_workers = rayon::current_num_threads().clamp(1, MAX_WORKERS);
        let read = rayon::in_place_scope(|scope| {
            for jobs in vec![jobs; n_workers] {
                scope.spawn(|_| work(jobs, &found, &each));
            }
            // The scope passes a panic on.
            let read = loop {
                let taken = self.read_block(|content, input, offset| {
                    let sizes = Sizes::from_tables(&content.tables);
                    let section = input.take_rest().to_vec();
                    drop(sender.send(Job {
                        offset,
                        sizes,
                        section,
                    }));
                    Ok(())
                });
                match taken {
                    Ok(None) => self.content.skips_spans |= enough(&self.content.tables),
                    Ok(Some(ending)) => break Ok(ending),
                    Err(error) => break Err(error),
                }
            };
            drop(sender);
            read
        });
        let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        // Blocks that workers got come before one that could not be read here.
        if let Some((offset, source)) = found.error {
            return Err(TraceError::Malformed { offset, source });
        }
        let ending = read?;
        self.content.summary = found.all;
        self.content.end();
        Ok((self.content.tables, ending, self.content.skips_spans))
    }
}

/// Does jobs until there are no more.
fn work(jobs: Arc<Mutex<Receiver<Job>>>, found: &Mutex<Found>, each: &impl Fn(&[Span])) {
    let mut spans = Vec::with_capacity(BATCH);
    let next = || {
        let jobs = jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.recv()
    };
    while let Ok(job) = next() {
        let mut input = Input(&job.section);
        let read = read_section(&mut input, &job.sizes, |span| {
            spans.push(span);
            if spans.len() == BATCH {
                each(&spans);
                spans.clear();
            }
            Ok(())
        });
        each(&spans);
        spans.clear();
        let read = read.and_then(|section| input.end().map(|()| section));
        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
        found.add(job.offset, read);
    }
}
