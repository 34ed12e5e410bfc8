//! Values of entries as bytes, and back: each entry is described once, for both ways.

use wcprof_types::TimeNs;

use super::section::{self, put_section};
use super::wire::{Input, check_interval, known, put, put_delta, put_str, unknown, within};
use crate::error::Malformed;
use crate::limits::{
    MAX_COUNTERS, MAX_FRAMES, MAX_LIST, MAX_MODULES, MAX_NAME_BYTES, MAX_NODES, MAX_PROCESSES,
    MAX_STACKS, MAX_THREADS, MAX_WAITS,
};
use crate::model::Tables;

/// A table of a trace.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Table {
    Processes,
    Modules,
    Threads,
    Frames,
    Nodes,
    Stacks,
    Waits,
    Counters,
}

/// How many there are.
pub(crate) const N_TABLES: usize = 8;

/// By table: its section, what one of its entries and all are called in errors, and most of them in a
/// trace.
const TABLES: [(u8, &str, &str, usize); N_TABLES] = [
    (section::PROCESSES, "process", "processes", MAX_PROCESSES),
    (section::MODULES, "module", "modules", MAX_MODULES),
    (section::THREADS, "thread", "threads", MAX_THREADS),
    (section::FRAMES, "frame", "frames", MAX_FRAMES),
    (section::NODES, "stack node", "stack nodes", MAX_NODES),
    (section::STACKS, "stack", "stacks", MAX_STACKS),
    (section::WAITS, "wait", "waits", MAX_WAITS),
    (section::COUNTERS, "counter", "counters", MAX_COUNTERS),
];

/// Entries of a table that are left for what must come.
const RESERVE: usize = 1 << 16;

impl Table {
    /// All of them, in the order of their sizes in a file.
    pub(crate) const ALL: [Self; N_TABLES] = [
        Self::Processes,
        Self::Modules,
        Self::Threads,
        Self::Frames,
        Self::Nodes,
        Self::Stacks,
        Self::Waits,
        Self::Counters,
    ];

    /// The table's section.
    pub(crate) fn tag(self) -> u8 {
        TABLES[self as usize].0
    }

    /// What its entries are called in errors.
    pub(crate) fn what(self) -> &'static str {
        TABLES[self as usize].2
    }

    /// Whether there is room for many more than `n` entries: one stack may take thousands.
    pub(crate) fn has_room(self, n: usize) -> bool {
        self.check_len(n + RESERVE).is_ok()
    }

    /// Refuses more entries than a trace may have.
    pub(crate) fn check_len(self, n: usize) -> Result<(), Malformed> {
        let (.., what, limit) = TABLES[self as usize];
        within(what, n as u64, limit)
    }
}

/// Sizes of the tables that ids refer to.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Sizes(pub(crate) [usize; N_TABLES]);

impl Sizes {
    pub(crate) fn from_tables(tables: &Tables) -> Self {
        Self([
            tables.processes.len(),
            tables.modules.len(),
            tables.threads.len(),
            tables.frames.len(),
            tables.nodes.len(),
            tables.stacks.len(),
            tables.waits.len(),
            tables.origins.counters.names.len(),
        ])
    }

    /// Appends the section that every block begins with.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        let mut content = Vec::new();
        self.0
            .iter()
            .for_each(|size| put(&mut content, *size as u64));
        put_section(out, section::SIZES, &content);
    }

    /// The inverse. A newer wcprof may have more tables.
    pub(crate) fn read(input: &mut Input<'_>) -> Result<Self, Malformed> {
        let mut sizes = Self::default();
        for (size, (.., what, limit)) in sizes.0.iter_mut().zip(TABLES) {
            let n = input.number()?;
            within(what, n, limit)?;
            *size = n as usize;
        }
        input.take_rest();
        Ok(sizes)
    }

    pub(crate) fn get(&self, table: Table) -> usize {
        self.0[table as usize]
    }

    /// One more entry of a table can be referred to.
    pub(crate) fn add(&mut self, table: Table) {
        self.0[table as usize] += 1;
    }

    /// Refuses an id that is not in its table.
    pub(crate) fn check(&self, table: Table, id: Option<u32>) -> Result<(), Malformed> {
        let what = TABLES[table as usize].1;
        id.map_or(Ok(()), |id| known(what, id, self.get(table)))
    }
}

/// Writes values, or reads them in place of what they are.
pub(crate) struct Codec<'a, 'b> {
    bytes: Bytes<'a, 'b>,
    sizes: Sizes,
}

enum Bytes<'a, 'b> {
    Out(&'a mut Vec<u8>),
    In(&'a mut Input<'b>),
}

/// Appends what `fields` writes: all of it or, when it fails, nothing.
pub(crate) fn write(
    out: &mut Vec<u8>,
    sizes: &Sizes,
    fields: impl FnOnce(&mut Codec<'_, '_>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    let (len, sizes) = (out.len(), *sizes);
    let bytes = Bytes::Out(out);
    let written = fields(&mut Codec { bytes, sizes });
    written.inspect_err(|_| out.truncate(len))
}

/// The same as an entry: behind its length, so that a reader can skip what it does not know.
pub(crate) fn write_entry(
    out: &mut Vec<u8>,
    sizes: &Sizes,
    fields: impl FnOnce(&mut Codec<'_, '_>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    let before = out.len();
    write(out, sizes, fields)?;
    put_len(out, before);
    Ok(())
}

/// Puts the length of what `out` has from `at` on before it.
pub(crate) fn put_len(out: &mut Vec<u8>, at: usize) {
    let mut len = Vec::new();
    put(&mut len, (out.len() - at) as u64);
    out.splice(at..at, len);
}

/// Reads entries, each of which is behind its length.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Entries {
    /// Entries that this version does not know in part or at all.
    pub(crate) n_unknown: u64,
}

impl Entries {
    /// Reads an entry; `None` for one of which this version does not know what it is.
    pub(crate) fn read<'a, T>(
        &mut self,
        input: &mut Input<'a>,
        read: impl FnOnce(&mut Input<'a>) -> Result<T, Malformed>,
    ) -> Result<Option<T>, Malformed> {
        let len = input.number()?;
        let mut entry = Input(input.bytes(len)?);
        match read(&mut entry) {
            Ok(known) => {
                self.n_unknown += u64::from(!entry.is_empty());
                Ok(Some(known))
            }
            Err(Malformed::UnknownCode { .. }) => {
                self.n_unknown += 1;
                Ok(None)
            }
            Err(malformed) => Err(malformed),
        }
    }
}

/// Reads a whole section of entries without ids of their own.
pub(crate) fn read_all<T: Default>(
    input: &mut Input<'_>,
    entries: &mut Entries,
    sizes: Sizes,
    mut fields: impl FnMut(&mut Codec<'_, '_>, &mut T) -> Result<(), Malformed>,
    mut take: impl FnMut(T) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    while !input.is_empty() {
        let mut entry = T::default();
        let known = entries.read(input, |input| {
            fields(&mut Codec::reader(input, sizes), &mut entry)
        })?;
        known.map_or(Ok(()), |()| take(entry))?;
    }
    Ok(())
}

impl<'a, 'b> Codec<'a, 'b> {
    /// `sizes` are of the tables that ids may refer to.
    pub(crate) fn reader(input: &'a mut Input<'b>, sizes: Sizes) -> Self {
        let bytes = Bytes::In(input);
        Self { bytes, sizes }
    }

    pub(crate) fn reads(&self) -> bool {
        matches!(self.bytes, Bytes::In(_))
    }

    pub(crate) fn byte(&mut self, byte: &mut u8) -> Result<(), Malformed> {
        match &mut self.bytes {
            Bytes::Out(out) => out.push(*byte),
            Bytes::In(input) => *byte = input.byte()?,
        }
        Ok(())
    }

    /// The last field of an entry, which not every entry has.
    pub(crate) fn byte_at_end(&mut self, byte: &mut Option<u8>) -> Result<(), Malformed> {
        match &mut self.bytes {
            Bytes::Out(out) => out.extend(*byte),
            Bytes::In(input) if input.is_empty() => *byte = None,
            Bytes::In(input) => *byte = Some(input.byte()?),
        }
        Ok(())
    }

    /// The last field of an entry, which is left out where it is 0.
    pub(crate) fn number32_at_end(&mut self, n: &mut u32) -> Result<(), Malformed> {
        let is_there = match &self.bytes {
            Bytes::Out(_) => *n != 0,
            Bytes::In(input) => !input.is_empty(),
        };
        match is_there {
            true => self.number32(n),
            false => {
                *n = 0;
                Ok(())
            }
        }
    }

    pub(crate) fn number(&mut self, n: &mut u64) -> Result<(), Malformed> {
        match &mut self.bytes {
            Bytes::Out(out) => put(out, *n),
            Bytes::In(input) => *n = input.number()?,
        }
        Ok(())
    }

    /// See [`put_delta`].
    pub(crate) fn delta(&mut self, n: &mut u64, base: u64) -> Result<(), Malformed> {
        match &mut self.bytes {
            Bytes::Out(out) => put_delta(out, *n, base),
            Bytes::In(input) => *n = input.delta(base)?,
        }
        Ok(())
    }

    /// A length, then the bytes.
    pub(crate) fn bytes(&mut self, bytes: &mut Vec<u8>) -> Result<(), Malformed> {
        let mut len = bytes.len() as u64;
        self.number(&mut len)?;
        match &mut self.bytes {
            Bytes::Out(out) => out.extend_from_slice(bytes),
            Bytes::In(input) => *bytes = input.bytes(len)?.to_vec(),
        }
        Ok(())
    }

    /// A string; when written, cut to what a trace can hold.
    pub(crate) fn string(&mut self, s: &mut String) -> Result<(), Malformed> {
        match &mut self.bytes {
            Bytes::Out(out) => put_str(out, s),
            Bytes::In(input) => input.str()?.clone_into(s),
        }
        Ok(())
    }

    /// The name of a process, thread or host, which profiles repeat for all that is of it.
    pub(crate) fn name(&mut self, s: &mut String) -> Result<(), Malformed> {
        s.truncate(s.floor_char_boundary(MAX_NAME_BYTES));
        self.string(s)?;
        s.truncate(s.floor_char_boundary(MAX_NAME_BYTES));
        Ok(())
    }

    /// How many items follow, of at least one byte each and at most `limit`; more are not written.
    pub(crate) fn items<T: Clone + Default>(
        &mut self,
        what: &'static str,
        items: &mut Vec<T>,
        limit: usize,
        mut item: impl FnMut(&mut Self, &mut T) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        items.truncate(limit);
        match &mut self.bytes {
            Bytes::Out(out) => put(out, items.len() as u64),
            Bytes::In(input) => {
                let n = input.count()?;
                within(what, n as u64, limit)?;
                items.resize(n, T::default());
            }
        }
        items.iter_mut().try_for_each(|each| item(self, each))
    }

    /// A list of at most [`MAX_LIST`] items.
    pub(crate) fn list<T: Clone + Default>(
        &mut self,
        items: &mut Vec<T>,
        item: impl FnMut(&mut Self, &mut T) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        self.items("entries in a list", items, MAX_LIST, item)
    }

    pub(crate) fn number32(&mut self, n: &mut u32) -> Result<(), Malformed> {
        let mut wide = u64::from(*n);
        self.number(&mut wide)?;
        *n = narrow(wide)?;
        Ok(())
    }

    /// A number that may be below zero.
    pub(crate) fn signed(&mut self, n: &mut i32) -> Result<(), Malformed> {
        let mut wide = i64::from(*n).cast_unsigned();
        self.delta(&mut wide, 0)?;
        *n = narrow(wide.cast_signed())?;
        Ok(())
    }

    pub(crate) fn flag(&mut self, flag: &mut bool) -> Result<(), Malformed> {
        let mut code = u8::from(*flag);
        self.byte(&mut code)?;
        if code > 1 {
            return Err(unknown("flag", code));
        }
        *flag = code == 1;
        Ok(())
    }

    /// A time within the limit.
    pub(crate) fn time(&mut self, time: &mut TimeNs) -> Result<(), Malformed> {
        self.number(&mut time.0)?;
        check_interval(time.0, time.0)
    }

    /// An id of a table.
    pub(crate) fn id(&mut self, table: Table, id: &mut u32) -> Result<(), Malformed> {
        self.number32(id)?;
        self.sizes.check(table, Some(*id))
    }

    /// The same as the difference from another one.
    pub(crate) fn delta_id(
        &mut self,
        table: Table,
        id: &mut u32,
        base: u32,
    ) -> Result<(), Malformed> {
        let mut wide = u64::from(*id);
        self.delta(&mut wide, base.into())?;
        *id = narrow(wide)?;
        self.sizes.check(table, Some(*id))
    }

    /// A number, or an id of a table, + 1, or 0 for none.
    pub(crate) fn optional(
        &mut self,
        table: Option<Table>,
        n: &mut Option<u32>,
    ) -> Result<(), Malformed> {
        let mut wide = n.map_or(0, |n| u64::from(n) + 1);
        self.number(&mut wide)?;
        *n = wide.checked_sub(1).map(narrow).transpose()?;
        table.map_or(Ok(()), |table| self.sizes.check(table, *n))
    }
}

fn narrow<W, N: TryFrom<W>>(wide: W) -> Result<N, Malformed> {
    N::try_from(wide).map_err(|_| Malformed::NumberTooLarge)
}
