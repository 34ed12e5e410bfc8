//! Sections of blocks to tables and spans. What a section refers to must have come before.

use wcprof_types::Wait;

use crate::error::Malformed;
use crate::limits::{MAX_PROCESSES, MAX_RECORDED_AGAIN, MAX_SOURCES, MAX_TABLE_BYTES};
use crate::model::{Frame, Header, Module, Process, Span, Stack, StackNode, Stats, Tables, Thread};
use crate::v1::codec::{Codec, Sizes, read_all};
use crate::v1::entries::{self, Entry};
use crate::v1::facts::Seen;
use crate::v1::span_reader::SpanReader;
use crate::v1::wire::{Input, unknown, within};
use crate::v1::{OPTIONAL_SECTIONS, counters, facts, locks, section, symbols};

/// What was read of a trace so far.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pub(crate) tables: Tables,
    spans: SpanReader,
    counters_before: counters::Before,
    /// Of all spans, ns.
    weight: u64,
    /// Spans are no longer read.
    pub(crate) skips_spans: bool,
    /// The final counts were read.
    pub(crate) is_finished: bool,
    has_header: bool,
    /// Counts were read, be they final or not.
    has_stats: bool,
    memory: Memory,
}

/// Bytes of memory that tables took so far; hostile ones are limited.
#[derive(Debug, Default)]
struct Memory {
    tables: usize,
    symbols: usize,
    local_names: usize,
    later_names: usize,
}

impl Content {
    /// Takes over the sections of a block; `each` gets its spans.
    pub(crate) fn apply(
        &mut self,
        sections: &[u8],
        each: &mut impl FnMut(&Tables, Span) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        let mut rest = Input(sections);
        while !rest.is_empty() {
            let (tag, mut input) = next_section(&mut rest)?;
            if self.has_header == (tag == section::HEADER) {
                return Err(Malformed::Header);
            }
            if self.is_finished && !matches!(tag, section::SYMBOLS | OPTIONAL_SECTIONS..) {
                return Err(Malformed::AfterEnd(tag));
            }
            let is_of_tables = !matches!(
                tag,
                section::THREAD_FACTS | section::SPANS | section::STATS | section::SYMBOLS
            );
            if is_of_tables {
                self.memory.tables += input.0.len();
                let n = self.memory.tables as u64;
                within("bytes of tables", n, MAX_TABLE_BYTES)?;
            }
            match tag {
                section::SPANS if self.skips_spans => continue,
                section::SPANS => self.spans(&mut input, each)?,
                _ => self.section(tag, &mut input)?,
            }
            input.end()?;
        }
        Ok(())
    }

    fn spans(
        &mut self,
        input: &mut Input<'_>,
        each: &mut impl FnMut(&Tables, Span) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        let (tables, weight) = (&self.tables, &mut self.weight);
        self.spans.read(input, &Sizes::from_tables(tables), |span| {
            let sum = weight.checked_add(span.weight);
            *weight = sum.ok_or(Malformed::WeightTooLarge)?;
            each(tables, span)
        })
    }

    /// A section other than spans.
    fn section(&mut self, tag: u8, input: &mut Input<'_>) -> Result<(), Malformed> {
        let Self {
            tables: t, memory, ..
        } = self;
        let (sizes, n_frames) = (Sizes::from_tables(t), t.frames.len());
        match tag {
            section::HEADER => {
                self.has_header = true;
                entries::header(&mut Codec::reader(input, sizes), &mut t.header)
            }
            section::PROCESSES => read_table::<Process>(input, &mut t.processes, sizes),
            section::MODULES => read_table::<Module>(input, &mut t.modules, sizes),
            section::THREADS => read_table::<Thread>(input, &mut t.threads, sizes),
            section::THREAD_NAMES => read_all(input, sizes, facts::name, |(thread, seen, name)| {
                t.threads[thread.0 as usize].names.push((seen, name));
                Ok(())
            }),
            section::THREAD_FACTS => {
                let mut before = Seen::default();
                let fields =
                    |c: &mut Codec<'_, '_>, seen: &mut Seen| facts::seen(c, seen, &mut before);
                read_all(input, sizes, fields, |seen| {
                    let thread = &mut t.threads[seen.thread.0 as usize];
                    (thread.start, thread.end, thread.n_ticks) =
                        (seen.start, seen.end, seen.n_ticks);
                    Ok(())
                })
            }
            section::FRAMES => read_table::<Frame>(input, &mut t.frames, sizes),
            section::NODES => read_table::<StackNode>(input, &mut t.nodes, sizes),
            section::STACKS => read_table::<Stack>(input, &mut t.stacks, sizes),
            section::WAITS => read_table::<Wait>(input, &mut t.waits, sizes),
            section::STATS => {
                t.stats = Stats::default();
                let c = &mut Codec::reader(input, sizes);
                facts::stats(c, &mut t.stats, &mut self.is_finished)?;
                t.stats.complete &= self.is_finished;
                self.has_stats = true;
                Ok(())
            }
            section::SYMBOLS => {
                symbols::read(input, n_frames, &mut t.names.symbols, &mut memory.symbols)
            }
            section::SETUP => {
                within("setups", t.origins.setups.len() as u64 + 1, MAX_PROCESSES)?;
                t.origins.setups.push(facts::setup(input)?);
                Ok(())
            }
            section::LOCAL_NAMES => {
                let mut names = Some(std::mem::take(&mut t.names.local.names));
                symbols::read(input, n_frames, &mut names, &mut memory.local_names)?;
                t.names.local.names = names.unwrap_or_default();
                Ok(())
            }
            section::LATER_NAMES => {
                let later = &mut t.names.local.later;
                symbols::read_later(input, n_frames, later, &mut memory.later_names)
            }
            section::LOCKS => locks::read(input, t),
            section::COUNTERS => {
                let facts = &mut t.origins.counters;
                counters::read(input, sizes, facts, &mut self.counters_before)
            }
            _ => origin_section(t, tag, input, sizes),
        }
    }

    /// Fills in what the end of a recording says, for one that has no end.
    pub(crate) fn reconstruct(&mut self) {
        let t = &mut self.tables;
        for (thread, seen) in t.threads.iter_mut().zip(self.spans.seen()) {
            if let Some((start, end)) = seen {
                thread.start = thread.start.min(start);
                thread.end = thread.end.max(end);
            }
        }
        let ends = t.threads.iter().map(|thread| thread.end);
        t.stats.duration = ends.fold(t.stats.duration, Ord::max);
        if !self.has_stats {
            let ticks = t.threads.iter().map(|thread| thread.n_ticks);
            t.stats.n_ticks = ticks.clone().max().unwrap_or(0);
            t.stats.n_observations = ticks.fold(0, u64::saturating_add);
        }
    }
}

/// What is known of where processes come from, and sections that a reader may skip.
fn origin_section(
    t: &mut Tables,
    tag: u8,
    input: &mut Input<'_>,
    sizes: Sizes,
) -> Result<(), Malformed> {
    match tag {
        section::CGROUPS => read_all(input, sizes, facts::of_process, |(process, path)| {
            t.processes[process.0 as usize].cgroup = path;
            Ok(())
        }),
        section::BIRTHS => read_all(input, sizes, facts::of_process, |(process, birth)| {
            t.processes[process.0 as usize].birth = birth;
            Ok(())
        }),
        section::PROCESS_ENDS => read_all(input, sizes, facts::process_end, |(process, end)| {
            t.origins.process_ends.insert(process, end);
            Ok(())
        }),
        section::FOLDED => read_all(input, sizes, facts::folded, |(process, n)| {
            t.origins.folded.insert(process, n);
            Ok(())
        }),
        section::SOURCES => read_all(input, sizes, facts::source, |source| {
            t.origins.sources.push(source);
            within("sources", t.origins.sources.len() as u64, MAX_SOURCES)
        }),
        section::RECORDED_AGAIN => read_all(input, sizes, facts::recorded_again, |again| {
            t.origins.recorded_again.push(again);
            let n = t.origins.recorded_again.len() as u64;
            within("processes recorded again", n, MAX_RECORDED_AGAIN)
        }),
        _ if tag >= OPTIONAL_SECTIONS => {
            input.take_rest();
            Ok(())
        }
        _ => Err(unknown("section", tag)),
    }
}

/// The header in the first section of a block.
pub(crate) fn first_header(sections: &[u8]) -> Result<Header, Malformed> {
    let (section::HEADER, mut input) = next_section(&mut Input(sections))? else {
        return Err(Malformed::Header);
    };
    let mut header = Header::default();
    entries::header(
        &mut Codec::reader(&mut input, Sizes::default()),
        &mut header,
    )?;
    Ok(header)
}

fn next_section<'a>(rest: &mut Input<'a>) -> Result<(u8, Input<'a>), Malformed> {
    let tag = rest.byte()?;
    let len = rest.number()?;
    Ok((tag, Input(rest.bytes(len)?)))
}

/// Reads a section of a table: first id, count, entries.
fn read_table<T: Entry>(
    input: &mut Input<'_>,
    table: &mut Vec<T>,
    sizes: Sizes,
) -> Result<(), Malformed> {
    let found = input.number()?;
    let expected = table.len() as u64;
    if found != expected {
        return Err(Malformed::Gap {
            what: T::TABLE.what(),
            found,
            expected,
        });
    }
    let n = input.count()?;
    T::TABLE.check_len(table.len() + n)?;
    let mut c = Codec::reader(input, sizes);
    for _ in 0..n {
        let mut entry = T::default();
        // Limits are far below 2^32.
        entry.fields(&mut c, table.len() as u32)?;
        table.push(entry);
        c.add(T::TABLE);
    }
    Ok(())
}
