//! Entries of the tables: processes, modules, threads, frames, stack nodes, stacks, waits.

use wcprof_types::{
    Avma, BuildId, FdKind, FdTarget, FileOffset, LoadBias, Pid, RelativeAddress, StackEnd, Svma,
    Tid, TimeNs, Wait,
};

use super::wire::{Input, known, put, put_delta, put_list, put_str};
use crate::error::Malformed;
use crate::limits::MAX_TIME_NS;
use crate::model::{
    Frame, FrameId, Header, Module, ModuleId, NodeId, Process, ProcessId, Stack, StackNode, Thread,
};

pub(crate) fn put_header(out: &mut Vec<u8>, header: &Header) {
    let Header {
        wcprof_version,
        engine,
        notes,
        rate_hz,
        host,
        kernel,
        n_cpus,
        started_unix_ns,
    } = header;
    put_str(out, wcprof_version);
    put_str(out, engine);
    put_list(out, notes, |out, note| put_str(out, note));
    put(out, (*rate_hz).into());
    put_str(out, host);
    put_str(out, kernel);
    put(out, (*n_cpus).into());
    put(out, *started_unix_ns);
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

fn put_id(out: &mut Vec<u8>, id: i32) {
    put_delta(out, i64::from(id) as u64, 0);
}

fn id(input: &mut Input<'_>) -> Result<i32, Malformed> {
    i32::try_from(input.delta(0)? as i64).map_err(|_| Malformed::NumberTooLarge)
}

pub(crate) fn put_process(out: &mut Vec<u8>, process: &Process) {
    // The control group has a section of its own.
    let Process {
        pid,
        comm,
        cmdline,
        cgroup: _,
    } = process;
    put_id(out, pid.0);
    put_str(out, comm);
    put_list(out, cmdline, |out, arg| put_str(out, arg));
}

pub(crate) fn process(input: &mut Input<'_>) -> Result<Process, Malformed> {
    Ok(Process {
        pid: Pid(id(input)?),
        comm: input.string()?,
        cmdline: input.list(Input::string)?,
        cgroup: String::new(),
    })
}

pub(crate) fn put_module(out: &mut Vec<u8>, module: &Module) {
    let Module {
        process,
        path,
        build_id,
        start,
        end,
        offset,
        bias,
        base,
        deleted,
    } = module;
    put(out, process.0.into());
    put_str(out, path);
    let build_id = build_id.as_ref().map_or(&[][..], BuildId::as_bytes);
    put(out, build_id.len() as u64);
    out.extend_from_slice(build_id);
    put(out, start.0);
    put(out, end.0);
    put(out, offset.0);
    put(out, bias.0);
    put(out, base.0);
    out.push((*deleted).into());
}

pub(crate) fn module(input: &mut Input<'_>, n_processes: usize) -> Result<Module, Malformed> {
    let process = input.number32()?;
    known("process", process, n_processes)?;
    let path = input.string()?;
    let len = input.number()?;
    let bytes = input.bytes(len)?;
    let build_id = BuildId::new(bytes);
    if build_id.is_none() && !bytes.is_empty() {
        return Err(Malformed::BuildId(bytes.len()));
    }
    Ok(Module {
        process: ProcessId(process),
        path,
        build_id,
        start: Avma(input.number()?),
        end: Avma(input.number()?),
        offset: FileOffset(input.number()?),
        bias: LoadBias(input.number()?),
        base: Svma(input.number()?),
        deleted: flag(input)?,
    })
}

fn flag(input: &mut Input<'_>) -> Result<bool, Malformed> {
    match input.byte()? {
        0 => Ok(false),
        1 => Ok(true),
        code => Err(Malformed::UnknownCode {
            what: "flag",
            code: code.into(),
        }),
    }
}

/// A thread as first seen.
pub(crate) fn put_thread(
    out: &mut Vec<u8>,
    process: ProcessId,
    tid: Tid,
    seen: TimeNs,
    name: &str,
) {
    put(out, process.0.into());
    put_id(out, tid.0);
    put(out, seen.0);
    put_str(out, name);
}

pub(crate) fn thread(input: &mut Input<'_>, n_processes: usize) -> Result<Thread, Malformed> {
    let process = input.number32()?;
    known("process", process, n_processes)?;
    let tid = Tid(id(input)?);
    let seen = time(input.number()?)?;
    Ok(Thread {
        process: ProcessId(process),
        tid,
        names: vec![(seen, input.string()?)],
        start: seen,
        end: seen,
        n_ticks: 0,
    })
}

pub(crate) fn time(ns: u64) -> Result<TimeNs, Malformed> {
    if ns > MAX_TIME_NS {
        return Err(Malformed::Interval { start: ns, end: ns });
    }
    Ok(TimeNs(ns))
}

const FRAME_NATIVE: u8 = 0;
const FRAME_NATIVE_WITH_FUNCTION: u8 = 1;
const FRAME_UNMAPPED: u8 = 2;
const FRAME_KERNEL: u8 = 3;
const FRAME_KERNEL_CODE: u8 = 4;

pub(crate) fn put_frame(out: &mut Vec<u8>, frame: &Frame) {
    match frame {
        Frame::Native {
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
        Frame::Unmapped(address) => {
            out.push(FRAME_UNMAPPED);
            put(out, address.0);
        }
        Frame::Kernel(name) => {
            out.push(FRAME_KERNEL);
            put_str(out, name);
        }
        Frame::KernelCode(address) => {
            out.push(FRAME_KERNEL_CODE);
            put(out, address.0);
        }
    }
}

pub(crate) fn frame(input: &mut Input<'_>, n_modules: usize) -> Result<Frame, Malformed> {
    match input.byte()? {
        kind @ (FRAME_NATIVE | FRAME_NATIVE_WITH_FUNCTION) => {
            let module = input.number32()?;
            known("module", module, n_modules)?;
            let address = input.number()?;
            let function = (kind == FRAME_NATIVE_WITH_FUNCTION)
                .then(|| Ok(RelativeAddress(address.wrapping_sub(input.delta(0)?))))
                .transpose()?;
            Ok(Frame::Native {
                module: ModuleId(module),
                address: RelativeAddress(address),
                function,
            })
        }
        FRAME_UNMAPPED => Ok(Frame::Unmapped(Avma(input.number()?))),
        FRAME_KERNEL => Ok(Frame::Kernel(input.string()?)),
        FRAME_KERNEL_CODE => Ok(Frame::KernelCode(Avma(input.number()?))),
        code => Err(Malformed::UnknownCode {
            what: "frame",
            code: code.into(),
        }),
    }
}

/// `id` is the node's own id; its caller is stored as the distance from it, 0 for none.
pub(crate) fn put_node(out: &mut Vec<u8>, id: u32, node: StackNode) {
    put(
        out,
        node.caller
            .map_or(0, |caller| u64::from(id) - u64::from(caller.0)),
    );
    put(out, node.frame.0.into());
}

pub(crate) fn node(
    input: &mut Input<'_>,
    id: u32,
    n_frames: usize,
) -> Result<StackNode, Malformed> {
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
    let frame = input.number32()?;
    known("frame", frame, n_frames)?;
    Ok(StackNode {
        caller,
        frame: FrameId(frame),
    })
}

pub(crate) fn put_stack(out: &mut Vec<u8>, stack: Stack) {
    put(out, stack.leaf.map_or(0, |leaf| u64::from(leaf.0) + 1));
    out.push(end_code(stack.end));
}

pub(crate) fn stack(input: &mut Input<'_>, n_nodes: usize) -> Result<Stack, Malformed> {
    let leaf = match input.number32()? {
        0 => None,
        n => {
            known("stack node", n - 1, n_nodes)?;
            Some(NodeId(n - 1))
        }
    };
    Ok(Stack {
        leaf,
        end: end(input.byte()?)?,
    })
}

pub(crate) fn end_code(end: StackEnd) -> u8 {
    match end {
        StackEnd::Root => 0,
        StackEnd::NoUnwindInfo => 1,
        StackEnd::NotInModule => 2,
        StackEnd::UnreadableStack => 3,
        StackEnd::CopyTooShort => 4,
        StackEnd::DidNotAdvance => 5,
        StackEnd::TooManyFrames => 6,
        StackEnd::ModuleUnreadable => 7,
        StackEnd::NoUserStack => 8,
        StackEnd::NotSampled => 9,
    }
}

pub(crate) fn end(code: u8) -> Result<StackEnd, Malformed> {
    StackEnd::ALL
        .into_iter()
        .find(|&end| end_code(end) == code)
        .ok_or(Malformed::UnknownCode {
            what: "stack end",
            code: code.into(),
        })
}

pub(crate) fn put_wait(out: &mut Vec<u8>, wait: &Wait) {
    let Wait {
        syscall,
        op,
        fd,
        futex: _,
        kernel,
    } = wait;
    put(out, syscall.map_or(0, |n| u64::from(n) + 1));
    put(out, (*op).into());
    match fd {
        None => out.push(0),
        Some(FdTarget { kind, path }) => {
            out.push(match kind {
                FdKind::Regular => 1,
                FdKind::Block => 2,
                FdKind::Char => 3,
                FdKind::Directory => 4,
                FdKind::Socket => 5,
                FdKind::Pipe => 6,
                FdKind::Anon => 7,
                FdKind::Unknown => 8,
            });
            put_str(out, path);
        }
    }
    put_str(out, kernel);
}

pub(crate) fn wait(input: &mut Input<'_>) -> Result<Wait, Malformed> {
    let syscall = match input.number()? {
        0 => None,
        n => Some(u32::try_from(n - 1).map_err(|_| Malformed::NumberTooLarge)?),
    };
    let op = input.number32()?;
    let kind = match input.byte()? {
        0 => None,
        1 => Some(FdKind::Regular),
        2 => Some(FdKind::Block),
        3 => Some(FdKind::Char),
        4 => Some(FdKind::Directory),
        5 => Some(FdKind::Socket),
        6 => Some(FdKind::Pipe),
        7 => Some(FdKind::Anon),
        8 => Some(FdKind::Unknown),
        code => {
            return Err(Malformed::UnknownCode {
                what: "file kind",
                code: code.into(),
            });
        }
    };
    let fd = kind
        .map(|kind| {
            let path = input.string()?;
            Ok(FdTarget { kind, path })
        })
        .transpose()?;
    Ok(Wait {
        syscall,
        op,
        fd,
        futex: None,
        kernel: input.string()?,
    })
}
