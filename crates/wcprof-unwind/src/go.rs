//! The table that Go programs carry for their own tracebacks to the size of each function's frame, and the kind of those that
//! are called, or go on, in another way than others.

use std::collections::HashMap;

use dwarf_stream::elf::{ElfError, ElfFile};
use dwarf_stream::go::{FrameSize, GoFunction, GoFunctions};

/// Frame sizes that each function may have on average, and these. Go's linker writes equal lists once, about two sizes a
/// function; lists that overlap could be as long as the table each.
const MAX_SIZES: (usize, usize) = (32, 1 << 12);
/// Ends a list of frame sizes.
const LAST: FrameSize = FrameSize {
    until: u32::MAX,
    bytes: u32::MAX,
};
/// What kind of function.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
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
    /// Stands for the function that has changed to the stack of the thread. Up to Go 1.20 its start is where that
    /// seems to return to.
    Switched,
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
            b"runtime.systemstack_switch" => Self::Switched,
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
pub(crate) struct Function {
    /// From the first function's start.
    start: u32,
    /// First of its frame sizes.
    sizes: u32,
    pub kind: Kind,
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
            let (each, more) = MAX_SIZES;
            if own.sizes.len() > each * (own.functions.len() + 1) + more {
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
    pub fn function_at(&self, svma: u64) -> Option<(&Function, u32)> {
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

    /// Bytes of the frame of a function at an offset into it; `None` where the table does not say it.
    pub fn frame_bytes(&self, function: &Function, into: u32) -> Option<u32> {
        let sizes = self.sizes.get(function.sizes as usize..)?.iter();
        let size = sizes.take_while(|s| **s != LAST).find(|s| into < s.until)?;
        Some(size.bytes)
    }
}
