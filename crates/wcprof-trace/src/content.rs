//! Sections of blocks to tables and spans. What a section refers to must have come before.

use wcprof_types::{FdKind, StackEnd, StopCause, Wait};

use crate::error::Malformed;
use crate::format::codec::{Codec, Entries, Sizes, read_all};
use crate::format::entries::{self, Entry};
use crate::format::facts::Seen;
use crate::format::section::next_section;
use crate::format::span_reader::{Summary, read_section};
use crate::format::wire::{Input, unknown, within};
use crate::format::{counters, facts, locks, section, symbols};
use crate::limits::{
    MAX_ACCOUNTS, MAX_PROCESSES, MAX_RECORDED_AGAIN, MAX_SOURCES, MAX_TABLE_BYTES, STRING_BYTES,
};
use crate::lost::Lost;
use crate::model::{Frame, Header, Module, Process, Span, Stack, StackNode, Stats, Tables, Thread};

/// What was read of a trace so far.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pub(crate) tables: Tables,
    pub(crate) entries: Entries,
    /// Of all spans.
    pub(crate) summary: Summary,
    counters_before: counters::Before,
    lost: Lost,
    /// Spans are no longer read.
    pub(crate) skips_spans: bool,
    /// The final counts were read.
    pub(crate) is_finished: bool,
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

impl Memory {
    fn add_tables(&mut self, n_bytes: usize) -> Result<(), Malformed> {
        self.tables += n_bytes;
        within("bytes of tables", self.tables as u64, MAX_TABLE_BYTES)
    }

    /// Strings in lists: an empty one has a byte in the file.
    fn add_strings(&mut self, n: usize) -> Result<(), Malformed> {
        self.add_tables(n * STRING_BYTES)
    }
}

impl Content {
    /// Takes over the sections of a block; `spans` gets those of spans, and takes all of each.
    pub(crate) fn apply(
        &mut self,
        sections: &[u8],
        mut spans: impl FnMut(&mut Self, &mut Input<'_>) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        let mut rest = Input(sections);
        while !rest.is_empty() {
            let (tag, mut input) = next_section(&mut rest)?;
            if section::is_of_tables(tag) {
                self.memory.add_tables(input.0.len())?;
            }
            match tag {
                section::SPANS if self.skips_spans => continue,
                section::SPANS => spans(self, &mut input)?,
                _ => self.section(tag, &mut input)?,
            }
            if matches!(tag, section::HEADER | section::STATS) {
                // Fields of a newer wcprof.
                self.entries.n_unknown += u64::from(!input.take_rest().is_empty());
            }
            input.end()?;
        }
        Ok(())
    }

    /// A section of a table.
    fn table(&mut self, tag: u8, input: &mut Input<'_>, sizes: Sizes) -> Result<(), Malformed> {
        let (t, entries) = (&mut self.tables, &mut self.entries);
        match tag {
            section::PROCESSES => {
                let from = t.processes.len();
                read_table::<Process>(input, entries, &mut t.processes, sizes)?;
                let n_args = t.processes[from..].iter().map(|p| p.cmdline.len()).sum();
                self.memory.add_strings(n_args)
            }
            section::MODULES => read_table::<Module>(input, entries, &mut t.modules, sizes),
            section::THREADS => read_table::<Thread>(input, entries, &mut t.threads, sizes),
            section::FRAMES => read_table::<Frame>(input, entries, &mut t.frames, sizes),
            section::NODES => {
                let from = t.nodes.len();
                read_table::<StackNode>(input, entries, &mut t.nodes, sizes)?;
                self.lost.repair_nodes(t, from);
                Ok(())
            }
            section::STACKS => {
                let from = t.stacks.len();
                read_table::<Stack>(input, entries, &mut t.stacks, sizes)?;
                self.lost.repair_stacks(t, from);
                Ok(())
            }
            section::WAITS => read_table::<Wait>(input, entries, &mut t.waits, sizes),
            _ => Err(unknown("section", tag)),
        }
    }

    /// A section of names.
    fn names(&mut self, tag: u8, input: &mut Input<'_>) -> Result<(), Malformed> {
        let (t, memory) = (&mut self.tables, &mut self.memory);
        let (entries, n_frames) = (&mut self.entries, t.frames.len());
        match tag {
            section::SYMBOLS => symbols::read(
                input,
                entries,
                n_frames,
                &mut t.names.symbols,
                &mut memory.symbols,
            ),
            section::LOCAL_NAMES => {
                let mut names = Some(std::mem::take(&mut t.names.local.names));
                symbols::read(
                    input,
                    entries,
                    n_frames,
                    &mut names,
                    &mut memory.local_names,
                )?;
                t.names.local.names = names.unwrap_or_default();
                Ok(())
            }
            section::LATER_NAMES => {
                let later = &mut t.names.local.later;
                symbols::read_later(input, entries, n_frames, later, &mut memory.later_names)
            }
            _ => Err(unknown("section", tag)),
        }
    }

    /// Completes what is known when all was read.
    pub(crate) fn end(&mut self) {
        if !self.is_finished {
            self.reconstruct();
        }
        let t = &mut self.tables;
        let ends = t.stacks.iter().map(|stack| stack.end);
        let ends = ends.filter(|end| matches!(end, StackEnd::Other(_)));
        let kinds = t.waits.iter().filter_map(|wait| wait.fd.as_ref());
        let kinds = kinds.filter(|fd| matches!(fd.kind, FdKind::Other(_)));
        let stops = t.waits.iter().filter_map(|wait| wait.stop);
        let stops = stops.filter(|stop| matches!(stop, StopCause::Other(_)));
        let n_codes = ends.count() + kinds.count() + stops.count();
        t.origins.unread.n_unknown =
            self.entries.n_unknown + self.summary.n_unknown + n_codes as u64;
    }

    /// Reads a section of spans; `each` gets them.
    pub(crate) fn spans(
        &mut self,
        input: &mut Input<'_>,
        each: &mut impl FnMut(&Tables, Span) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        let tables = &self.tables;
        let sizes = Sizes::from_tables(tables);
        let section = read_section(input, &sizes, |span| each(tables, span))?;
        self.summary.add(section)
    }

    /// A section other than spans.
    fn section(&mut self, tag: u8, input: &mut Input<'_>) -> Result<(), Malformed> {
        let (t, entries, memory) = (&mut self.tables, &mut self.entries, &mut self.memory);
        let sizes = Sizes::from_tables(t);
        match tag {
            section::PROCESSES..=section::THREADS | section::FRAMES..=section::WAITS => {
                self.table(tag, input, sizes)
            }
            section::SIZES => {
                let sizes = Sizes::read(input)?;
                self.lost.catch_up(t, &sizes)
            }
            section::HEADER => entries::header(&mut Codec::reader(input, sizes), &mut t.header),
            section::THREAD_NAMES => read_all(
                input,
                entries,
                sizes,
                facts::name,
                |(thread, seen, name)| {
                    t.threads[thread.0 as usize].names.push((seen, name));
                    memory.add_strings(1)
                },
            ),
            section::THREAD_FACTS => {
                let mut before = Seen::default();
                let fields =
                    |c: &mut Codec<'_, '_>, seen: &mut Seen| facts::seen(c, seen, &mut before);
                read_all(input, entries, sizes, fields, |seen| {
                    let thread = &mut t.threads[seen.thread.0 as usize];
                    (thread.start, thread.end, thread.n_ticks) =
                        (seen.start, seen.end, seen.n_ticks);
                    Ok(())
                })
            }
            section::STATS => {
                t.stats = Stats::default();
                let c = &mut Codec::reader(input, sizes);
                facts::stats(c, &mut t.stats, &mut self.is_finished)?;
                t.stats.complete &= self.is_finished;
                self.has_stats = true;
                Ok(())
            }
            section::SETUP => {
                within("setups", t.origins.setups.len() as u64 + 1, MAX_PROCESSES)?;
                t.origins.setups.push(facts::setup(input)?);
                Ok(())
            }
            section::ACCOUNTS => {
                within(
                    "accounts",
                    t.origins.accounts.len() as u64 + 1,
                    MAX_ACCOUNTS,
                )?;
                t.origins.accounts.push(facts::accounts(input, sizes)?);
                Ok(())
            }
            section::SYMBOLS | section::LOCAL_NAMES | section::LATER_NAMES => {
                self.names(tag, input)
            }
            section::LOCKS => locks::read(input, entries, t),
            section::COUNTERS => {
                let facts = &mut t.origins.counters;
                counters::read(input, entries, sizes, facts, &mut self.counters_before)
            }
            _ => origin_section(t, tag, input, (entries, sizes)),
        }
    }

    /// Fills in what the end of a recording says, for one that has no end.
    fn reconstruct(&mut self) {
        let t = &mut self.tables;
        for (thread, seen) in t.threads.iter_mut().zip(&self.summary.bounds) {
            if let Some((start, end)) = *seen {
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
    (entries, sizes): (&mut Entries, Sizes),
) -> Result<(), Malformed> {
    match tag {
        section::CGROUPS => read_all(
            input,
            entries,
            sizes,
            facts::of_process,
            |(process, path)| {
                t.processes[process.0 as usize].cgroup = path;
                Ok(())
            },
        ),
        section::BIRTHS => read_all(
            input,
            entries,
            sizes,
            facts::of_process,
            |(process, birth)| {
                t.processes[process.0 as usize].birth = birth;
                Ok(())
            },
        ),
        section::PROCESS_ENDS => read_all(
            input,
            entries,
            sizes,
            facts::process_end,
            |(process, end)| {
                t.origins.process_ends.insert(process, end);
                Ok(())
            },
        ),
        section::FOLDED => read_all(input, entries, sizes, facts::folded, |(process, n)| {
            t.origins.folded.insert(process, n);
            Ok(())
        }),
        section::SOURCES => read_all(input, entries, sizes, facts::source, |source| {
            t.origins.sources.push(source);
            within("sources", t.origins.sources.len() as u64, MAX_SOURCES)
        }),
        section::RECORDED_AGAIN => {
            read_all(input, entries, sizes, facts::recorded_again, |again| {
                t.origins.recorded_again.push(again);
                let n = t.origins.recorded_again.len() as u64;
                within("processes recorded again", n, MAX_RECORDED_AGAIN)
            })
        }
        _ => {
            input.take_rest();
            entries.n_unknown += 1;
            Ok(())
        }
    }
}

/// The header in the first block: its first section, but for that of sizes.
pub(crate) fn first_header(sections: &[u8]) -> Result<Header, Malformed> {
    let mut rest = Input(sections);
    let mut first = next_section(&mut rest)?;
    if first.0 == section::SIZES {
        first = next_section(&mut rest)?;
    }
    let (section::HEADER, mut input) = first else {
        return Err(Malformed::Header);
    };
    let mut header = Header::default();
    entries::header(
        &mut Codec::reader(&mut input, Sizes::default()),
        &mut header,
    )?;
    Ok(header)
}

/// Reads a section of a table: first id, count, entries.
fn read_table<T: Entry>(
    input: &mut Input<'_>,
    entries: &mut Entries,
    table: &mut Vec<T>,
    mut sizes: Sizes,
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
    for _ in 0..n {
        let mut entry = T::default();
        // Limits are far below 2^32.
        let id = table.len() as u32;
        // Of one that is not known, what could be read.
        entries.read(input, |input| {
            entry.fields(&mut Codec::reader(input, sizes), id)
        })?;
        table.push(entry);
        sizes.add(T::TABLE);
    }
    Ok(())
}
