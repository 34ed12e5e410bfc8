//! Entries of the tables (processes, modules, threads, frames, stack nodes, stacks, waits) and the
//! header, as bytes and back.

use wcprof_types::{
    Avma, BuildId, FdKind, FdTarget, FileOffset, LoadBias, Pid, RelativeAddress, StackEnd, Svma,
    Tid, Wait,
};

use super::section;
use super::wire::{
    Input, checked_time, known, put, put_delta, put_list, put_optional, put_signed, put_str,
    unknown, within,
};
use crate::error::Malformed;
use crate::limits;
use crate::model::{
    Frame, FrameId, Header, Module, ModuleId, NodeId, Process, ProcessId, Stack, StackNode, Tables,
    Thread,
};

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
}

/// By table: its section, what its entries are called in errors, and most of them in a trace.
const TABLES: [(u8, &str, usize); 7] = [
    (section::PROCESSES, "processes", limits::MAX_PROCESSES),
    (section::MODULES, "modules", limits::MAX_MODULES),
    (section::THREADS, "threads", limits::MAX_THREADS),
    (section::FRAMES, "frames", limits::MAX_FRAMES),
    (section::NODES, "stack nodes", limits::MAX_NODES),
    (section::STACKS, "stacks", limits::MAX_STACKS),
    (section::WAITS, "waits", limits::MAX_WAITS),
];

impl Table {
    /// The table's section.
    pub(crate) fn tag(self) -> u8 {
        TABLES[self as usize].0
    }

    /// What its entries are called in errors.
    pub(crate) fn what(self) -> &'static str {
        TABLES[self as usize].1
    }

    /// Refuses more entries than a trace may have.
    pub(crate) fn check_len(self, n: usize) -> Result<(), Malformed> {
        let (_, what, limit) = TABLES[self as usize];
        within(what, n as u64, limit)
    }
}

/// Sizes of the tables that ids refer to.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Sizes(pub(crate) [usize; 7]);

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
        ])
    }

    pub(crate) fn get(&self, table: Table) -> usize {
        self.0[table as usize]
    }

    /// Refuses an id that is not in its table; `what` is what it names.
    pub(crate) fn check(
        &self,
        table: Table,
        what: &'static str,
        id: Option<u32>,
    ) -> Result<(), Malformed> {
        id.map_or(Ok(()), |id| known(what, id, self.get(table)))
    }
}

/// An entry of a table. The tables' ids count entries in the order in which they were written.
pub(crate) trait Entry: Sized {
    const TABLE: Table;

    /// Refuses what refers to entries that are not there.
    fn check(&self, _sizes: &Sizes) -> Result<(), Malformed> {
        Ok(())
    }

    /// Appends the entry, whose own id is `id`.
    fn put(&self, out: &mut Vec<u8>, id: u32);

    /// Reads an entry, whose own id is `id`. It is not checked yet.
    fn read(input: &mut Input<'_>, id: u32) -> Result<Self, Malformed>;
}

impl Entry for Process {
    const TABLE: Table = Table::Processes;

    /// The control group has a section of its own.
    fn put(&self, out: &mut Vec<u8>, _id: u32) {
        put_signed(out, self.pid.0);
        put_str(out, &self.comm);
        put_list(out, &self.cmdline, |out, arg| put_str(out, arg));
    }

    fn read(input: &mut Input<'_>, _id: u32) -> Result<Self, Malformed> {
        Ok(Self {
            pid: Pid(input.signed()?),
            comm: input.string()?,
            cmdline: input.list(Input::string)?,
            cgroup: String::new(),
        })
    }
}

impl Entry for Module {
    const TABLE: Table = Table::Modules;

    fn check(&self, sizes: &Sizes) -> Result<(), Malformed> {
        sizes.check(Table::Processes, "process", Some(self.process.0))
    }

    fn put(&self, out: &mut Vec<u8>, _id: u32) {
        put(out, self.process.0.into());
        put_str(out, &self.path);
        let build_id = self.build_id.as_ref().map_or(&[][..], BuildId::as_bytes);
        put(out, build_id.len() as u64);
        out.extend_from_slice(build_id);
        for n in [
            self.start.0,
            self.end.0,
            self.offset.0,
            self.bias.0,
            self.base.0,
        ] {
            put(out, n);
        }
        out.push(self.deleted.into());
    }

    fn read(input: &mut Input<'_>, _id: u32) -> Result<Self, Malformed> {
        let process = ProcessId(input.number32()?);
        let path = input.string()?;
        let len = input.number()?;
        let bytes = input.bytes(len)?;
        let build_id = BuildId::new(bytes);
        if build_id.is_none() && !bytes.is_empty() {
            return Err(Malformed::BuildId(bytes.len()));
        }
        Ok(Self {
            process,
            path,
            build_id,
            start: Avma(input.number()?),
            end: Avma(input.number()?),
            offset: FileOffset(input.number()?),
            bias: LoadBias(input.number()?),
            base: Svma(input.number()?),
            deleted: match input.byte()? {
                0 => false,
                1 => true,
                code => return Err(unknown("flag", code)),
            },
        })
    }
}

impl Entry for Thread {
    const TABLE: Table = Table::Threads;

    fn check(&self, sizes: &Sizes) -> Result<(), Malformed> {
        sizes.check(Table::Processes, "process", Some(self.process.0))?;
        checked_time(self.start.0).map(drop)
    }

    /// As it was first seen: what is learned later has sections of its own.
    fn put(&self, out: &mut Vec<u8>, _id: u32) {
        put(out, self.process.0.into());
        put_signed(out, self.tid.0);
        put(out, self.start.0);
        put_str(out, self.name());
    }

    fn read(input: &mut Input<'_>, _id: u32) -> Result<Self, Malformed> {
        let process = ProcessId(input.number32()?);
        let tid = Tid(input.signed()?);
        let seen = input.time()?;
        Ok(Self::new(process, tid, seen, input.string()?))
    }
}

const FRAME_NATIVE: u8 = 0;
const FRAME_NATIVE_WITH_FUNCTION: u8 = 1;
const FRAME_UNMAPPED: u8 = 2;
const FRAME_KERNEL: u8 = 3;
const FRAME_KERNEL_CODE: u8 = 4;

impl Entry for Frame {
    const TABLE: Table = Table::Frames;

    fn check(&self, sizes: &Sizes) -> Result<(), Malformed> {
        match self {
            Self::Native { module, .. } => sizes.check(Table::Modules, "module", Some(module.0)),
            _ => Ok(()),
        }
    }

    fn put(&self, out: &mut Vec<u8>, _id: u32) {
        match self {
            Self::Native {
                module,
                address,
                function,
            } => {
                out.push(match function {
                    Some(_) => FRAME_NATIVE_WITH_FUNCTION,
                    None => FRAME_NATIVE,
                });
                put(out, module.0.into());
                put(out, address.0);
                if let Some(function) = function {
                    put_delta(out, address.0, function.0);
                }
            }
            Self::Unmapped(address) => {
                out.push(FRAME_UNMAPPED);
                put(out, address.0);
            }
            Self::Kernel(name) => {
                out.push(FRAME_KERNEL);
                put_str(out, name);
            }
            Self::KernelCode(address) => {
                out.push(FRAME_KERNEL_CODE);
                put(out, address.0);
            }
        }
    }

    fn read(input: &mut Input<'_>, _id: u32) -> Result<Self, Malformed> {
        Ok(match input.byte()? {
            kind @ (FRAME_NATIVE | FRAME_NATIVE_WITH_FUNCTION) => {
                let module = ModuleId(input.number32()?);
                let address = input.number()?;
                let function = match kind {
                    FRAME_NATIVE => None,
                    _ => Some(RelativeAddress(address.wrapping_sub(input.delta(0)?))),
                };
                Self::Native {
                    module,
                    address: RelativeAddress(address),
                    function,
                }
            }
            FRAME_UNMAPPED => Self::Unmapped(Avma(input.number()?)),
            FRAME_KERNEL => Self::Kernel(input.string()?),
            FRAME_KERNEL_CODE => Self::KernelCode(Avma(input.number()?)),
            code => return Err(unknown("frame", code)),
        })
    }
}

impl Entry for StackNode {
    const TABLE: Table = Table::Nodes;

    fn check(&self, sizes: &Sizes) -> Result<(), Malformed> {
        sizes.check(Table::Frames, "frame", Some(self.frame.0))?;
        sizes.check(Table::Nodes, "stack node", self.caller.map(|id| id.0))
    }

    /// The caller is stored as the distance from the node, 0 for none.
    fn put(&self, out: &mut Vec<u8>, id: u32) {
        let distance = self.caller.map_or(0, |caller| id - caller.0);
        put(out, distance.into());
        put(out, self.frame.0.into());
    }

    fn read(input: &mut Input<'_>, id: u32) -> Result<Self, Malformed> {
        let caller = match input.number32()? {
            0 => None,
            distance => Some(NodeId(id.checked_sub(distance).ok_or(
                Malformed::UnknownId {
                    what: "caller at distance",
                    id: distance.into(),
                    len: id.into(),
                },
            )?)),
        };
        let frame = FrameId(input.number32()?);
        Ok(Self { caller, frame })
    }
}

impl Entry for Stack {
    const TABLE: Table = Table::Stacks;

    fn check(&self, sizes: &Sizes) -> Result<(), Malformed> {
        sizes.check(Table::Nodes, "stack node", self.leaf.map(|id| id.0))
    }

    fn put(&self, out: &mut Vec<u8>, _id: u32) {
        put_optional(out, self.leaf.map(|leaf| leaf.0));
        out.push(end_code(self.end));
    }

    fn read(input: &mut Input<'_>, _id: u32) -> Result<Self, Malformed> {
        Ok(Self {
            leaf: input.optional()?.map(NodeId),
            end: end(input.byte()?)?,
        })
    }
}

impl Entry for Wait {
    const TABLE: Table = Table::Waits;

    /// The address of a futex is among what was seen of locks.
    fn put(&self, out: &mut Vec<u8>, _id: u32) {
        put_optional(out, self.syscall);
        put(out, self.op.into());
        match &self.fd {
            None => out.push(0),
            Some(FdTarget { kind, path }) => {
                out.push(*kind as u8 + 1);
                put_str(out, path);
            }
        }
        put_str(out, &self.kernel);
    }

    fn read(input: &mut Input<'_>, _id: u32) -> Result<Self, Malformed> {
        Ok(Self {
            syscall: input.optional()?,
            op: input.number32()?,
            fd: match input.byte()? {
                0 => None,
                code => {
                    let kind = FdKind::ALL.get(usize::from(code) - 1);
                    let kind = *kind.ok_or_else(|| unknown("file kind", code))?;
                    let path = input.string()?;
                    Some(FdTarget { kind, path })
                }
            },
            futex: None,
            kernel: input.string()?,
        })
    }
}

/// The code of an end is its place in [`StackEnd::ALL`].
pub(crate) fn end_code(end: StackEnd) -> u8 {
    end as u8
}

pub(crate) fn end(code: u8) -> Result<StackEnd, Malformed> {
    let end = StackEnd::ALL.get(usize::from(code));
    end.copied().ok_or_else(|| unknown("stack end", code))
}

pub(crate) fn put_header(out: &mut Vec<u8>, header: &Header) {
    put_str(out, &header.wcprof_version);
    put_str(out, &header.engine);
    put_list(out, &header.notes, |out, note| put_str(out, note));
    put(out, header.rate_hz.into());
    put_str(out, &header.host);
    put_str(out, &header.kernel);
    put(out, header.n_cpus.into());
    put(out, header.started_unix_ns);
}

pub(crate) fn header(input: &mut Input<'_>) -> Result<Header, Malformed> {
    Ok(Header {
        wcprof_version: input.string()?,
        engine: input.string()?,
        notes: input.list(Input::string)?,
        rate_hz: input.number32()?,
        host: input.string()?,
        kernel: input.string()?,
        n_cpus: input.number32()?,
        started_unix_ns: input.number()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that an end and a kind of file are read back from the code they are written as.
    #[test]
    fn codes() {
        for (code, known) in (0..).zip(StackEnd::ALL) {
            assert_eq!((end_code(known), end(code)), (code, Ok(known)));
        }
        assert!(end(StackEnd::ALL.len() as u8).is_err());
        for (code, kind) in (0..).zip(FdKind::ALL) {
            assert_eq!(kind as u8, code);
        }
    }
}
