//! One step from a frame of a Go function to its caller, by the size of its frame. At functions that change to another
//! stack, call frame information (of a program that has any) leads into a wrong frame; here they are known by name.

use wcprof_types::{Avma, FrameAddress, LoadBias, StackEnd, Svma};

use crate::go::{GoFrames, Kind};
use crate::memory::{StackMemory, TextMemory};
use crate::row::{Cursor, Fault, PlainRow, raw};

/// Bytes behind the call in `runtime.asmcgocall` in which the code takes its stack back.
const AFTER_CALL: usize = 48;
/// `g.stack.hi`: the first address after a goroutine's stack.
const STACK_HIGH: u64 = 8;

/// What to do at a frame of a Go function.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum GoStep {
    End(StackEnd),
    Plain(PlainRow),
    /// The same at the start of a function that nothing called.
    Uncalled(PlainRow),
    /// The trampoline that handlers of signals return to.
    Sigreturn,
    /// It has changed to another stack.
    FramePointer,
    /// It calls C on another stack.
    CallOfC(CallOfC),
}

/// How the frame of `runtime.asmcgocall` is found from the stack of the thread, as its code does it after the call.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct CallOfC {
    /// Offset from the stack pointer of the goroutine's address; `None` where C was called from the stack of the thread.
    goroutine: Option<u8>,
    /// Offset of the depth in the goroutine's stack, else of the stack pointer itself.
    place: u8,
    row: PlainRow,
}

impl GoFrames {
    /// What to do at a frame; `None` outside of Go's functions.
    pub fn step(
        &self,
        address: FrameAddress<Avma>,
        bias: LoadBias,
        text: &mut dyn TextMemory,
    ) -> Option<GoStep> {
        let row = |function, into| {
            self.frame_bytes(function, into)
                .and_then(PlainRow::of_frame)
        };
        // No call precedes these.
        let exact = bias.to_svma(Avma(raw(address))).0;
        match self.function_at(exact) {
            Some((function, _)) if function.kind == Kind::Sigreturn => {
                return Some(GoStep::Sigreturn);
            }
            Some((function, 0)) if function.kind == Kind::Switched => {
                return row(function, 0).map(GoStep::Uncalled);
            }
            _ => {}
        }
        let Svma(lookup) = bias.to_svma(address.for_lookup());
        let (function, into) = self.function_at(lookup)?;
        let row = row(function, into);
        let own =
            |row: Option<PlainRow>| row.map_or(GoStep::End(StackEnd::NoUnwindInfo), GoStep::Plain);
        let is_leaf = matches!(address, FrameAddress::InstructionPointer(_));
        Some(match function.kind {
            Kind::Root => GoStep::End(StackEnd::Root),
            Kind::Switches => GoStep::FramePointer,
            // On one of both stacks.
            Kind::CallsC if is_leaf => GoStep::FramePointer,
            Kind::CallsC => match row.and_then(|row| call_of_c(address, row, text)) {
                Some(call) => GoStep::CallOfC(call),
                None => own(row),
            },
            Kind::Sized | Kind::Sigreturn | Kind::Switched => own(row),
        })
    }
}

/// Reads from the code behind the call how it takes its stack back. `None` for calls that are made before the change.
fn call_of_c(
    address: FrameAddress<Avma>,
    row: PlainRow,
    text: &mut dyn TextMemory,
) -> Option<CallOfC> {
    let mut code = [0; AFTER_CALL];
    if !text.read_text(Avma(raw(address)), &mut code) {
        return None;
    }
    (0..code.len()).find_map(|at| {
        let code = code.get(at..)?;
        let (goroutine, place) = match code {
            // mov N(%rsp),%rdi; mov 8(%rdi),%rsi; sub M(%rsp),%rsi
            [
                0x48,
                0x8b,
                0x7c,
                0x24,
                n,
                0x48,
                0x8b,
                0x77,
                8,
                0x48,
                0x2b,
                rest @ ..,
            ] => (Some(*n), offset(rest)?),
            // mov M(%rsp),%rsi; mov %rsi,%rsp
            [0x48, 0x8b, 0x74, 0x24, n, 0x48, 0x89, 0xf4, ..] => (None, *n),
            [0x48, 0x8b, 0x34, 0x24, 0x48, 0x89, 0xf4, ..] => (None, 0),
            _ => return None,
        };
        Some(CallOfC {
            goroutine,
            place,
            row,
        })
    })
}

/// The offset from `%rsp` of an operand that is loaded to `%rsi`.
fn offset(operand: &[u8]) -> Option<u8> {
    match operand {
        [0x34, 0x24, ..] => Some(0),
        [0x74, 0x24, offset, ..] => Some(*offset),
        _ => None,
    }
}

impl CallOfC {
    /// The caller of `runtime.asmcgocall`.
    pub fn find_caller<M: StackMemory + ?Sized>(
        self,
        cursor: &Cursor,
        memory: &mut M,
    ) -> Result<Cursor, Fault> {
        let mut read = |address: u64, offset: u64| {
            let address = address.checked_add(offset);
            let address = address.ok_or(Fault::End(StackEnd::UnreadableStack))?;
            memory.read(address).map_err(|e| Fault::End(e.into()))
        };
        let place = read(cursor.sp, u64::from(self.place))?;
        let sp = match self.goroutine {
            None => place,
            Some(at) => {
                let goroutine = read(cursor.sp, u64::from(at))?;
                read(goroutine, STACK_HIGH)?.wrapping_sub(place)
            }
        };
        self.row.execute(&Cursor { sp, ..*cursor }, memory)
    }
}

/// The caller of a function that has changed to another stack, by the frame pointer, which it leaves alone.
pub(crate) fn by_frame_pointer<M: StackMemory + ?Sized>(
    cursor: &Cursor,
    memory: &mut M,
) -> Result<Cursor, Fault> {
    let no_answer = Fault::End(StackEnd::NoUnwindInfo);
    let bp = cursor.bp.filter(|bp| bp % 8 == 0).ok_or(no_answer)?;
    let sp = bp.checked_add(16).ok_or(no_answer)?;
    let mut read = |address| memory.read(address).map_err(|e| Fault::End(e.into()));
    let (saved, return_address) = (read(bp)?, read(sp - 8)?);
    Ok(Cursor {
        address: FrameAddress::ReturnAddress(Avma(return_address)),
        sp,
        bp: Some(saved),
        ..*cursor
    })
}
