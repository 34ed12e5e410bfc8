//! Entries of the tables (processes, modules, threads, frames, stack nodes, stacks, waits) and the
//! header, as bytes and back.

use wcprof_types::{Avma, BuildId, FdKind, FdTarget, RelativeAddress, StackEnd, StopCause, Wait};

use super::codec::{Codec, Sizes, Table, write};
use super::wire::unknown;
use crate::error::Malformed;
use crate::model::{Frame, Header, Module, ModuleId, NodeId, Process, Stack, StackNode, Thread};

/// An entry of a table. The tables' ids count entries in the order in which they were written.
pub(crate) trait Entry: Clone + Default {
    const TABLE: Table;

    /// What is written of it; its own id is `id`.
    fn fields(&mut self, c: &mut Codec<'_, '_>, id: u32) -> Result<(), Malformed>;

    /// Bytes of memory of its texts.
    fn text_bytes(&self) -> usize {
        0
    }
}

impl Entry for Process {
    const TABLE: Table = Table::Processes;

    /// The control group has a section of its own.
    fn fields(&mut self, c: &mut Codec<'_, '_>, _id: u32) -> Result<(), Malformed> {
        c.signed(&mut self.pid.0)?;
        c.name(&mut self.comm)?;
        c.list(&mut self.cmdline, |c, arg| c.string(arg))
    }
}

impl Entry for Module {
    const TABLE: Table = Table::Modules;

    fn fields(&mut self, c: &mut Codec<'_, '_>, _id: u32) -> Result<(), Malformed> {
        c.id(Table::Processes, &mut self.process.0)?;
        c.string(&mut self.path)?;
        let mut build_id = match &self.build_id {
            Some(id) => id.as_bytes().to_vec(),
            None => Vec::new(),
        };
        c.bytes(&mut build_id)?;
        self.build_id = BuildId::new(&build_id);
        if self.build_id.is_none() && !build_id.is_empty() {
            return Err(Malformed::BuildId(build_id.len()));
        }
        for n in [
            &mut self.start.0,
            &mut self.end.0,
            &mut self.offset.0,
            &mut self.bias.0,
            &mut self.base.0,
        ] {
            c.number(n)?;
        }
        c.flag(&mut self.deleted)
    }
}

impl Entry for Thread {
    const TABLE: Table = Table::Threads;

    /// As it was first seen: what is learned later has sections of its own.
    fn fields(&mut self, c: &mut Codec<'_, '_>, _id: u32) -> Result<(), Malformed> {
        c.id(Table::Processes, &mut self.process.0)?;
        c.signed(&mut self.tid.0)?;
        c.time(&mut self.start)?;
        let mut name = self.name().to_owned();
        c.name(&mut name)?;
        *self = Self::new(self.process, self.tid, self.start, name);
        Ok(())
    }
}

const FRAME_NATIVE: u8 = 0;
const FRAME_NATIVE_WITH_FUNCTION: u8 = 1;
const FRAME_UNMAPPED: u8 = 2;
const FRAME_KERNEL: u8 = 3;
const FRAME_KERNEL_CODE: u8 = 4;
/// A frame of a kind that whoever wrote the trace did not know; the kind follows.
const FRAME_UNKNOWN: u8 = 255;

impl Entry for Frame {
    const TABLE: Table = Table::Frames;

    fn fields(&mut self, c: &mut Codec<'_, '_>, _id: u32) -> Result<(), Malformed> {
        let mut kind = match self {
            Self::Native { function: None, .. } => FRAME_NATIVE,
            Self::Native { .. } => FRAME_NATIVE_WITH_FUNCTION,
            Self::Unmapped(_) => FRAME_UNMAPPED,
            Self::Kernel(_) => FRAME_KERNEL,
            Self::KernelCode(_) => FRAME_KERNEL_CODE,
            Self::Unknown(_) => FRAME_UNKNOWN,
        };
        c.byte(&mut kind)?;
        if c.reads() {
            let zero = RelativeAddress(0);
            *self = match kind {
                FRAME_NATIVE | FRAME_NATIVE_WITH_FUNCTION => Self::Native {
                    module: ModuleId(0),
                    address: zero,
                    function: (kind == FRAME_NATIVE_WITH_FUNCTION).then_some(zero),
                },
                FRAME_UNMAPPED => Self::Unmapped(Avma(0)),
                FRAME_KERNEL => Self::Kernel(String::new()),
                FRAME_KERNEL_CODE => Self::KernelCode(Avma(0)),
                FRAME_UNKNOWN => Self::Unknown(0),
                kind => {
                    *self = Self::Unknown(kind);
                    return Err(unknown("frame", kind));
                }
            };
        }
        match self {
            Self::Native {
                module,
                address,
                function,
            } => {
                c.id(Table::Modules, &mut module.0)?;
                c.number(&mut address.0)?;
                if let Some(function) = function {
                    let mut distance = address.0.wrapping_sub(function.0);
                    c.delta(&mut distance, 0)?;
                    function.0 = address.0.wrapping_sub(distance);
                }
                Ok(())
            }
            Self::Unmapped(address) | Self::KernelCode(address) => c.number(&mut address.0),
            Self::Kernel(name) => c.string(name),
            Self::Unknown(kind) => c.byte(kind),
        }
    }

    fn text_bytes(&self) -> usize {
        match self {
            Self::Kernel(name) => name.len(),
            _ => 0,
        }
    }
}

impl Entry for StackNode {
    const TABLE: Table = Table::Nodes;

    /// The caller is stored as the distance from the node, 0 for none.
    fn fields(&mut self, c: &mut Codec<'_, '_>, id: u32) -> Result<(), Malformed> {
        let no_caller = |distance: u32| Malformed::UnknownId {
            what: "caller at distance",
            id: distance.into(),
            len: id.into(),
        };
        let mut distance = match self.caller {
            Some(caller) => id.checked_sub(caller.0).ok_or_else(|| no_caller(0))?,
            None => 0,
        };
        c.number32(&mut distance)?;
        self.caller = match distance {
            0 => None,
            _ => Some(NodeId(
                id.checked_sub(distance)
                    .ok_or_else(|| no_caller(distance))?,
            )),
        };
        c.id(Table::Frames, &mut self.frame.0)
    }
}

impl Entry for Stack {
    const TABLE: Table = Table::Stacks;

    fn fields(&mut self, c: &mut Codec<'_, '_>, _id: u32) -> Result<(), Malformed> {
        let (mut leaf, mut code) = (self.leaf.map(|id| id.0), self.end.code());
        c.optional(Some(Table::Nodes), &mut leaf)?;
        self.leaf = leaf.map(NodeId);
        c.byte(&mut code)?;
        self.end = StackEnd::from_code(code);
        Ok(())
    }
}

impl Entry for Wait {
    const TABLE: Table = Table::Waits;

    /// The address of a futex is among what was seen of locks.
    fn fields(&mut self, c: &mut Codec<'_, '_>, _id: u32) -> Result<(), Malformed> {
        c.optional(None, &mut self.syscall)?;
        c.number32(&mut self.op)?;
        let mut code = self
            .fd
            .as_ref()
            .map_or(0, |fd| fd.kind.code().saturating_add(1));
        c.byte(&mut code)?;
        if let Some(kind) = code.checked_sub(1).map(FdKind::from_code) {
            let mut path = self.fd.take().map_or(String::new(), |fd| fd.path);
            c.string(&mut path)?;
            self.fd = Some(FdTarget { kind, path });
        }
        c.string(&mut self.kernel)?;
        let mut stop = self.stop.map(StopCause::code);
        c.byte_at_end(&mut stop)?;
        self.stop = stop.map(StopCause::from_code);
        Ok(())
    }

    fn text_bytes(&self) -> usize {
        self.kernel.len() + self.fd.as_ref().map_or(0, |fd| fd.path.len())
    }
}

pub(crate) fn header(c: &mut Codec<'_, '_>, header: &mut Header) -> Result<(), Malformed> {
    c.string(&mut header.wcprof_version)?;
    c.string(&mut header.engine)?;
    c.list(&mut header.notes, |c, note| c.string(note))?;
    c.number32(&mut header.rate_hz)?;
    c.string(&mut header.host)?;
    c.string(&mut header.kernel)?;
    c.number32(&mut header.n_cpus)?;
    c.number(&mut header.started_unix_ns)?;
    c.number32_at_end(&mut header.n_snapshots)
}

pub(crate) fn put_header(out: &mut Vec<u8>, of: &Header) -> Result<(), Malformed> {
    write(out, &Sizes::default(), |c| header(c, &mut of.clone()))
}
