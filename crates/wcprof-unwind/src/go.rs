//! One step from a frame of a Go function to its caller, by the table that Go programs carry for their own
//! tracebacks. It knows the size of each frame, also in stripped programs, and names the functions that change to
//! another stack, at which call frame information (of a program that has any) leads into a wrong frame.

use std::collections::HashMap;

use dwarf_stream::elf::{ElfError, ElfFile};
use dwarf_stream::go::{FrameSize, GoFunction, GoFunctions};
use wcprof_types::{Avma, FrameAddress, LoadBias, StackEnd, Svma};

use crate::memory::{StackMemory, TextMemory};
use crate::row::{Cursor, Fault, PlainRow, raw};
use crate::unwinder::Step;

/// Most frame sizes of all functions together; containerd has 100 000.
const MAX_SIZES: usize = 4 << 20;
/// Ends a list of frame sizes.
const LAST: FrameSize = FrameSize {
    until: u32::MAX,
    bytes: u32::MAX,
};
/// Bytes behind the call in `runtime.asmcgocall` in which the code takes its stack back.
const AFTER_CALL: usize = 48;
/// `g.stack.hi`: the first address after a goroutine's stack.
const STACK_HIGH: u64 = 8;

/// What kind of function.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Kind {
    /// Its frame has the size that the table says.
    Sized,
    /// Nothing called it on its stack: the first of a goroutine or of a thread, or one that leaves a goroutine for the
    /// scheduler.
    Root,
    /// It goes on on the stack of the thread, and leaves the frame pointer as it was.
    Switches,
    /// `runtime.asmcgocall`, which calls C on the stack of the thread.
    CallsC,
    /// The trampoline that handlers of signals return to.
    Sigreturn,
}

impl Kind {
    fn of(function: &GoFunction<'_>) -> Self {
        let name = function
            .name
            .strip_suffix(b".abi0")
            .unwrap_or(function.name);
        match name {
            b"runtime.goexit" | b"runtime.mstart" | b"runtime.rt0_go" | b"runtime.mcall"
            | b"runtime.morestack" => Self::Root,
            b"runtime.asmcgocall" => Self::CallsC,
            b"runtime.sigreturn" | b"runtime.sigreturn__sigaction" => Self::Sigreturn,
            // The frames below it are those of the goroutine that called C.
            b"runtime.cgocallback" => Self::Sized,
            // Go 1.16 does not say that they write the stack pointer.
            b"runtime.systemstack"
            | b"runtime.nanotime1"
            | b"runtime.walltime1"
            | b"runtime.walltime"
            | b"time.now" => Self::Switches,
            _ if function.writes_sp => Self::Switches,
            _ => Self::Sized,
        }
    }
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Function {
    /// From the first function's start.
    start: u32,
    /// First of its frame sizes.
    sizes: u32,
    kind: Kind,
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

/// Frame sizes of a Go program's functions.
#[derive(PartialEq, Eq)]
pub(crate) struct GoFrames {
    /// First address of the first function, and the first one after the last.
    start: u64,
    end: u64,
    /// By address.
    functions: Vec<Function>,
    /// Lists of sizes, each with a last one.
    sizes: Vec<FrameSize>,
}

impl std::fmt::Debug for GoFrames {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GoFrames")
            .field("n_functions", &self.functions.len())
            .finish_non_exhaustive()
    }
}

impl GoFrames {
    /// Those of a file; `Ok(None)` for one that is no Go program.
    pub fn read(elf: &ElfFile, limit: u64) -> Result<Option<Self>, ElfError> {
        let functions = GoFunctions::read(elf, limit)?;
        Ok(functions.and_then(|functions| Self::new(&functions)))
    }

    fn new(table: &GoFunctions) -> Option<Self> {
        let mut own = Self {
            start: table.iter().next()?.start,
            end: 0,
            functions: Vec::new(),
            sizes: Vec::new(),
        };
        let mut known = HashMap::new();
        for function in table.iter() {
            let next = own.sizes.len();
            let sizes = *known.entry(function.sizes).or_insert(next);
            if sizes == next {
                own.sizes.extend(table.frame_sizes(function.sizes));
                own.sizes.push(LAST);
            }
            if own.sizes.len() > MAX_SIZES {
                return None;
            }
            own.end = function.end;
            own.functions.push(Function {
                start: u32::try_from(function.start.checked_sub(own.start)?).ok()?,
                sizes: u32::try_from(sizes).ok()?,
                kind: Kind::of(&function),
            });
        }
        own.functions.shrink_to_fit();
        own.sizes.shrink_to_fit();
        Some(own)
    }

    /// Functions in it.
    pub fn len(&self) -> usize {
        self.functions.len()
    }

    pub fn heap_bytes(&self) -> usize {
        self.functions.len() * size_of::<Function>() + self.sizes.len() * size_of::<FrameSize>()
    }

    /// The function that has an address, and how far into it that is.
    fn function_at(&self, svma: u64) -> Option<(&Function, u32)> {
        let into = svma.checked_sub(self.start).filter(|_| svma < self.end)?;
        let into = u32::try_from(into).ok()?;
        let n_before = self.functions.partition_point(|f| f.start <= into);
        let function = self.functions.get(n_before.checked_sub(1)?)?;
        Some((function, into - function.start))
    }

    /// First address of the function that has an address.
    pub fn function_start(&self, svma: u64) -> Option<u64> {
        let (function, _) = self.function_at(svma)?;
        Some(self.start + u64::from(function.start))
    }

    /// The row that the size of the frame gives.
    fn row(&self, function: &Function, into: u32) -> Option<PlainRow> {
        let sizes = self.sizes.get(function.sizes as usize..)?.iter();
        let size = sizes.take_while(|s| **s != LAST).find(|s| into < s.until)?;
        PlainRow::of_frame(size.bytes)
    }

    /// What to do at a frame; `None` outside of Go's functions.
    pub fn step(
        &self,
        address: FrameAddress<Avma>,
        bias: LoadBias,
        text: &mut dyn TextMemory,
    ) -> Option<Step> {
        // No call precedes it.
        let exact = bias.to_svma(Avma(raw(address))).0;
        let sigreturn = self.function_at(exact);
        if sigreturn.is_some_and(|(function, _)| function.kind == Kind::Sigreturn) {
            return Some(Step::Sigreturn);
        }
        let Svma(lookup) = bias.to_svma(address.for_lookup());
        let (function, into) = self.function_at(lookup)?;
        let row = self.row(function, into);
        let own =
            |row: Option<PlainRow>| row.map_or(Step::End(StackEnd::NoUnwindInfo), Step::Plain);
        let is_leaf = matches!(address, FrameAddress::InstructionPointer(_));
        Some(match function.kind {
            Kind::Root => Step::End(StackEnd::Root),
            Kind::Switches => Step::FramePointer,
            Kind::CallsC if !is_leaf => match row.and_then(|row| call_of_c(address, row, text)) {
                Some(call) => Step::CallOfC(call),
                None => own(row),
            },
            Kind::CallsC | Kind::Sized | Kind::Sigreturn => own(row),
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
