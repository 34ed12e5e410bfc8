//! Looks up one row of call frame information, and executes it. Ordinary rows are reduced to a few
//! offsets, which can be cached.
//!
//! Together with `walk.rs` this holds all that is particular to x86-64 registers. Only `rip`,
//! `rsp`, `rbp` and `rbx` are followed; registers that calls do not preserve are known at the leaf and,
//! as a checked guess, through assembler that calls within its module. A rule that needs another
//! register has no answer.

use gimli::{
    CfaRule, Encoding, EndianSlice, Evaluation, EvaluationResult, FrameDescriptionEntry,
    LittleEndian, Location, Register, RegisterRule, UnwindContext, UnwindExpression, UnwindSection,
    UnwindTableRow, Value, X86_64,
};
use wcprof_types::{Avma, FrameAddress, ScratchRegs, StackEnd};

use crate::code::ModuleCode;
use crate::index::{Cfi, SectionKind, Slice, fde_at};
use crate::memory::{ReadError, StackMemory};

/// Operations that one expression may take; real ones take about ten.
const MAX_OPERATIONS: u32 = 200;

/// A row, without its range.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Row {
    pub section: SectionKind,
    /// Augmentation `S`: the caller was interrupted, it did not call.
    pub signal: bool,
    /// First address of the row's FDE.
    pub start: u64,
    /// First address after it.
    end: u64,
    cfa: CfaRule<usize>,
    bp: Option<RegisterRule<usize>>,
    bx: Option<RegisterRule<usize>>,
    ra: Option<RegisterRule<usize>>,
    encoding: Encoding,
}

/// Most bytes of a trampoline that handlers of signals return to: two instructions, and padding.
const MAX_TRAMPOLINE: u64 = 64;

/// A row without expressions. The return address is right below the CFA.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct PlainRow {
    /// Places are relative to `rbp`, else to `rsp`.
    from_bp: bool,
    /// The CFA, in words of 8 bytes.
    cfa: i16,
    /// Where the caller's `rbp` is saved, in words; `None` where it is still in its register.
    bp: Option<i16>,
    /// The same of `rbx`; [`NOT_SAVED`] where it is still in its register, [`NOT_KEPT`] where that holds something else.
    bx: i16,
}

/// No offset of a register's place.
const NOT_SAVED: i16 = i16::MIN;
/// The same where functions need not save it: what it held is not known.
const NOT_KEPT: i16 = i16::MIN + 1;

/// What is known of a frame's `rbx`. Few frames need it: ld.so's, of calls that are bound lazily. It is not read before.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Rbx {
    Unknown,
    /// In the register, where the thread was sampled.
    Register(u64),
    /// In this place of the stack.
    SavedAt(u64),
}

/// A frame on the way up.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Cursor {
    pub address: FrameAddress<Avma>,
    pub sp: u64,
    pub bp: Option<u64>,
    pub bx: Rbx,
    pub scratch: ScratchRegs,
}

pub(crate) fn raw(address: FrameAddress<Avma>) -> u64 {
    match address {
        FrameAddress::InstructionPointer(Avma(a)) | FrameAddress::ReturnAddress(Avma(a)) => a,
    }
}

pub(crate) fn is_leaf(cursor: &Cursor) -> bool {
    matches!(cursor.address, FrameAddress::InstructionPointer(_))
}

/// Why a row gives no caller.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// It needs `rbp`, which is unknown.
    NeedsBp,
    /// Its CFA is in memory below the stack pointer, which was not copied.
    NeedsRedZone,
    End(StackEnd),
}

const NO_ANSWER: Fault = Fault::End(StackEnd::NoUnwindInfo);

impl Row {
    /// The row for a lookup address. Its entries are taken from the bytes that are left; with too few there is none, and
    /// none is left.
    pub fn find(
        code: &ModuleCode,
        svma: u64,
        context: &mut UnwindContext<usize>,
        n_bytes_left: &mut usize,
    ) -> Option<Self> {
        code.sections().find_map(|cfi| {
            let offset = cfi.fde_offset(svma)?;
            match cfi.kind {
                SectionKind::EhFrame => {
                    let at = (&cfi.eh_frame(), cfi, offset, svma);
                    with_row(at, context, n_bytes_left, |fde, row| {
                        row_of(cfi.kind, fde, row)
                    })
                }
                SectionKind::DebugFrame => {
                    let at = (&cfi.debug_frame(), cfi, offset, svma);
                    with_row(at, context, n_bytes_left, |fde, row| {
                        row_of(cfi.kind, fde, row)
                    })
                }
            }
        })
    }

    /// Whether the return address is undefined: a thread's or coroutine's first frame.
    pub fn is_root(&self) -> bool {
        matches!(self.ra, None | Some(RegisterRule::Undefined))
    }

    /// Whether this is a function that has the address and more code than a trampoline of signals.
    pub fn is_function_at(&self, svma: u64) -> bool {
        let range = self.start..self.end;
        range.contains(&svma) && range.end - range.start > MAX_TRAMPOLINE
    }

    /// The same without expressions, if it has none, and offsets are ordinary ones.
    pub fn plain(&self) -> Option<PlainRow> {
        let CfaRule::RegisterAndOffset { register, offset } = self.cfa else {
            return None;
        };
        if self.signal || self.ra != Some(RegisterRule::Offset(-8)) || offset < 8 {
            return None;
        }
        let words = |offset: i64| i16::try_from(offset / 8).ok().filter(|_| offset % 8 == 0);
        let saved_bp = match self.bp {
            None | Some(RegisterRule::SameValue | RegisterRule::Undefined) => None,
            Some(RegisterRule::Offset(at)) => Some(at),
            _ => return None,
        };
        let from_bp = match (register, saved_bp) {
            (X86_64::RSP, _) => false,
            (X86_64::RBP, Some(-16)) if offset == 16 => true,
            _ => return None,
        };
        let saved_bx = match self.bx {
            None | Some(RegisterRule::SameValue) => NOT_SAVED,
            Some(RegisterRule::Offset(at)) => words(at.checked_add(offset)?)?,
            _ => return None,
        };
        Some(PlainRow {
            from_bp,
            bx: saved_bx,
            cfa: words(offset)?,
            bp: match saved_bp {
                Some(at) => Some(words(at.checked_add(offset)?)?),
                None => None,
            },
        })
    }

    /// Whether the CFA is based on a register that calls do not preserve.
    pub fn is_scratch_based(&self) -> bool {
        matches!(self.cfa, CfaRule::RegisterAndOffset { register, .. }
            if !matches!(register, X86_64::RSP | X86_64::RBP | X86_64::RBX))
    }

    /// Whether the caller can depend on `rbx`.
    pub fn may_need_rbx(&self, code: &ModuleCode) -> bool {
        /// Of expressions (DWARF 5, section 7.7.1): `DW_OP_breg3` and `DW_OP_bregx`.
        const NAMES_RBX: [u8; 2] = [0x73, 0x92];
        let names_it = |expression: &UnwindExpression<usize>| {
            let bytes = self.bytes(expression, code);
            bytes.iter().any(|byte| NAMES_RBX.contains(byte))
        };
        let cfa_needs_it = match &self.cfa {
            CfaRule::RegisterAndOffset { register, .. } => *register == X86_64::RBX,
            CfaRule::Expression(expression) => names_it(expression),
        };
        let rules = [&self.bp, &self.ra];
        cfa_needs_it
            || rules.into_iter().flatten().any(|rule| match rule {
                RegisterRule::Register(register) => *register == X86_64::RBX,
                RegisterRule::Expression(e) | RegisterRule::ValExpression(e) => names_it(e),
                _ => false,
            })
    }

    /// Whether the CFA is in memory: an expression with `DW_OP_deref` (DWARF 5, section 7.7.1), or with a byte like it.
    pub fn loads_cfa(&self, code: &ModuleCode) -> bool {
        const DEREF: u8 = 0x06;
        match &self.cfa {
            CfaRule::RegisterAndOffset { .. } => false,
            CfaRule::Expression(expression) => self.bytes(expression, code).contains(&DEREF),
        }
    }

    fn bytes<'c>(&self, expression: &UnwindExpression<usize>, code: &'c ModuleCode) -> &'c [u8] {
        let end = expression.offset.saturating_add(expression.length);
        let bytes = self.data(code).get(expression.offset..end);
        bytes.unwrap_or_default()
    }

    /// The section that its expressions are in.
    fn data<'c>(&self, code: &'c ModuleCode) -> &'c [u8] {
        let cfi = match self.section {
            SectionKind::EhFrame => &code.cfi,
            SectionKind::DebugFrame => &code.debug_cfi,
        };
        cfi.as_ref().map_or(&[][..], |c| &c.data[..])
    }

    /// The caller. Its address is 0 when the return address is.
    pub fn execute<M: StackMemory + ?Sized>(
        &self,
        code: &ModuleCode,
        cursor: &Cursor,
        memory: &mut M,
    ) -> Result<Cursor, Fault> {
        let mut machine = self.machine(code, cursor, memory);
        let cfa = match &self.cfa {
            CfaRule::RegisterAndOffset { register, offset } => machine
                .register(*register)?
                .checked_add_signed(*offset)
                .ok_or(NO_ANSWER)?,
            CfaRule::Expression(expression) => machine.evaluate(*expression, None)?,
        };
        self.execute_at(code, cursor, cfa, memory)
    }

    fn machine<'a, M: ?Sized>(
        &self,
        code: &'a ModuleCode,
        cursor: &'a Cursor,
        memory: &'a mut M,
    ) -> Machine<'a, M> {
        Machine {
            data: self.data(code),
            encoding: self.encoding,
            cursor,
            memory,
        }
    }

    /// The caller of a frame whose CFA is known.
    pub fn execute_at<M: StackMemory + ?Sized>(
        &self,
        code: &ModuleCode,
        cursor: &Cursor,
        cfa: u64,
        memory: &mut M,
    ) -> Result<Cursor, Fault> {
        let mut machine = self.machine(code, cursor, memory);
        let ip = match &self.ra {
            None | Some(RegisterRule::Undefined) => return Err(Fault::End(StackEnd::Root)),
            Some(rule) => machine.value(rule, cfa, raw(cursor.address))?,
        };
        let bp = match &self.bp {
            None | Some(RegisterRule::SameValue | RegisterRule::Undefined) => cursor.bp,
            // In an epilogue the register may be restored already while the row still says
            // that it is saved, below the stack pointer, where a copy of the stack begins.
            Some(RegisterRule::Offset(at))
                if is_leaf(cursor)
                    && cfa.checked_add_signed(*at).is_some_and(|a| a < cursor.sp) =>
            {
                machine
                    .value(&RegisterRule::Offset(*at), cfa, 0)
                    .ok()
                    .or(cursor.bp)
            }
            Some(rule) => match machine.value(rule, cfa, 0) {
                Ok(value) => Some(value),
                // A rule in terms of a register that is not followed.
                Err(NO_ANSWER | Fault::NeedsBp) => None,
                Err(fault) => return Err(fault),
            },
        };
        let bx = match &self.bx {
            None | Some(RegisterRule::SameValue) => cursor.bx,
            Some(RegisterRule::Offset(at)) => {
                saved_rbx(cursor, cfa.checked_add_signed(*at).ok_or(NO_ANSWER)?)
            }
            Some(rule) => match machine.value(rule, cfa, 0) {
                Ok(value) => Rbx::Register(value),
                Err(_) => Rbx::Unknown,
            },
        };
        let address = match self.signal {
            true => FrameAddress::InstructionPointer(Avma(ip)),
            false => FrameAddress::ReturnAddress(Avma(ip)),
        };
        Ok(Cursor {
            address,
            sp: cfa,
            bp,
            bx,
            scratch: ScratchRegs::default(),
        })
    }
}

impl PlainRow {
    /// That of a frame of so many bytes between the stack pointer and the return address, which begins with the
    /// caller's `rbp` if there are any.
    pub fn of_frame(bytes: u32) -> Option<Self> {
        let words = i16::try_from(bytes / 8)
            .ok()
            .filter(|_| bytes.is_multiple_of(8))?;
        Some(Self {
            from_bp: false,
            cfa: words.checked_add(1)?,
            bp: words.checked_sub(1).filter(|at| *at >= 0),
            bx: NOT_KEPT,
        })
    }

    /// The caller. Its address is 0 when the return address is.
    #[inline]
    pub fn execute<M: StackMemory + ?Sized>(
        self,
        cursor: &Cursor,
        memory: &mut M,
    ) -> Result<Cursor, Fault> {
        let base = match (self.from_bp, cursor.bp) {
            (false, _) => cursor.sp,
            (true, None) => return Err(Fault::NeedsBp),
            (true, Some(bp)) => bp,
        };
        let at = |words: i16| base.checked_add_signed(i64::from(words) * 8);
        let (Some(sp), Some(bp_at)) = (at(self.cfa), at(self.bp.unwrap_or(0))) else {
            return Err(Fault::End(StackEnd::DidNotAdvance));
        };
        if sp <= cursor.sp {
            return Err(Fault::End(StackEnd::DidNotAdvance));
        }
        let bx = match (self.bx, at(self.bx)) {
            (NOT_SAVED, _) => cursor.bx,
            (NOT_KEPT, _) => Rbx::Unknown,
            (_, Some(place)) => saved_rbx(cursor, place),
            (_, None) => Rbx::Unknown,
        };
        let mut read = |address| memory.read(address).map_err(|e| Fault::End(e.into()));
        let bp = match self.bp.map(|_| read(bp_at)) {
            None => cursor.bp,
            // As in an epilogue, see `Row::execute`.
            Some(Err(_)) if is_leaf(cursor) && !self.from_bp && bp_at < cursor.sp => cursor.bp,
            Some(saved) => Some(saved?),
        };
        Ok(Cursor {
            address: FrameAddress::ReturnAddress(Avma(read(sp - 8)?)),
            sp,
            bp,
            bx,
            // No rule says that they changed; see `Unwinder::unwind`.
            scratch: cursor.scratch,
        })
    }
}

/// `rbx` of the caller where a rule says that it is saved. In an epilogue it may be restored already, see [`Row::execute`].
fn saved_rbx(cursor: &Cursor, place: u64) -> Rbx {
    match is_leaf(cursor) && place < cursor.sp {
        true => cursor.bx,
        false => Rbx::SavedAt(place),
    }
}

/// Where an FDE is looked at: the section, the offset in it, and a lookup address.
type At<'s, S> = (&'s S, &'s Cfi, usize, u64);

/// Calls `read` with the FDE at an offset and its row for a lookup address. The bytes of both are taken from those that are left.
fn with_row<'a, S: UnwindSection<Slice<'a>>, T>(
    (section, cfi, offset, svma): At<'_, S>,
    context: &mut UnwindContext<usize>,
    n_bytes_left: &mut usize,
    read: impl FnOnce(&FrameDescriptionEntry<Slice<'a>>, &UnwindTableRow<usize>) -> T,
) -> Option<T> {
    let fde = fde_at(section, &cfi.bases, offset)?;
    let n_bytes = fde.entry_len() + fde.cie().entry_len();
    if n_bytes > *n_bytes_left {
        *n_bytes_left = 0;
        return None;
    }
    *n_bytes_left -= n_bytes;
    if !fde.contains(svma) || fde.cie().return_address_register() != X86_64::RA {
        return None;
    }
    let row = fde
        .unwind_info_for_address(section, &cfi.bases, context, svma)
        .ok()?;
    Some(read(&fde, row))
}

fn row_of(
    kind: SectionKind,
    fde: &FrameDescriptionEntry<Slice<'_>>,
    row: &UnwindTableRow<usize>,
) -> Row {
    Row {
        section: kind,
        signal: fde.is_signal_trampoline(),
        start: fde.initial_address(),
        end: fde.initial_address().saturating_add(fde.len()),
        cfa: row.cfa().clone(),
        bp: row.register(X86_64::RBP),
        bx: row.register(X86_64::RBX),
        ra: row.register(X86_64::RA),
        encoding: fde.cie().encoding(),
    }
}

/// Where the function at a lookup address has saved a register of its caller's, from the CFA.
pub(crate) fn saved_register(
    code: &ModuleCode,
    svma: u64,
    register: u16,
    context: &mut UnwindContext<usize>,
    n_bytes_left: &mut usize,
) -> Option<i64> {
    let place = |_: &FrameDescriptionEntry<_>, row: &UnwindTableRow<usize>| match row
        .register(Register(register))
    {
        Some(RegisterRule::Offset(offset)) => Some(offset),
        _ => None,
    };
    let found = code.sections().find_map(|cfi| {
        let offset = cfi.fde_offset(svma)?;
        match cfi.kind {
            SectionKind::EhFrame => {
                let at = (&cfi.eh_frame(), cfi, offset, svma);
                with_row(at, context, n_bytes_left, place)
            }
            SectionKind::DebugFrame => {
                let at = (&cfi.debug_frame(), cfi, offset, svma);
                with_row(at, context, n_bytes_left, place)
            }
        }
    });
    found.flatten()
}

/// What rules are evaluated with.
struct Machine<'a, M: ?Sized> {
    data: &'a [u8],
    encoding: Encoding,
    cursor: &'a Cursor,
    memory: &'a mut M,
}

impl<M: StackMemory + ?Sized> Machine<'_, M> {
    fn register(&mut self, register: Register) -> Result<u64, Fault> {
        match register {
            X86_64::RBX => match self.cursor.bx {
                Rbx::Unknown => Err(NO_ANSWER),
                Rbx::Register(value) => Ok(value),
                Rbx::SavedAt(place) => self.read(place),
            },
            X86_64::RA => Ok(raw(self.cursor.address)),
            X86_64::RSP => Ok(self.cursor.sp),
            X86_64::RBP => self.cursor.bp.ok_or(Fault::NeedsBp),
            other => self.cursor.scratch.get(other.0).ok_or(NO_ANSWER),
        }
    }

    fn read(&mut self, address: u64) -> Result<u64, Fault> {
        self.memory.read(address).map_err(|error| match error {
            ReadError::RedZone => Fault::NeedsRedZone,
            error => Fault::End(error.into()),
        })
    }

    fn value(&mut self, rule: &RegisterRule<usize>, cfa: u64, same: u64) -> Result<u64, Fault> {
        let at = |offset: i64| cfa.checked_add_signed(offset).ok_or(NO_ANSWER);
        match rule {
            RegisterRule::SameValue => Ok(same),
            RegisterRule::Offset(offset) => self.read(at(*offset)?),
            RegisterRule::ValOffset(offset) => at(*offset),
            RegisterRule::Register(register) => self.register(*register),
            RegisterRule::Expression(expression) => {
                let address = self.evaluate(*expression, Some(cfa))?;
                self.read(address)
            }
            RegisterRule::ValExpression(expression) => self.evaluate(*expression, Some(cfa)),
            RegisterRule::Constant(value) => Ok(*value),
            _ => Err(NO_ANSWER),
        }
    }

    /// The value on top of the expression's stack, which for a register's rule begins with the
    /// CFA (DWARF 5, section 6.4.2.3).
    fn evaluate(
        &mut self,
        expression: UnwindExpression<usize>,
        initial: Option<u64>,
    ) -> Result<u64, Fault> {
        let UnwindExpression { offset, length } = expression;
        let code = offset
            .checked_add(length)
            .and_then(|end| self.data.get(offset..end))
            .ok_or(NO_ANSWER)?;
        let mut evaluation = Evaluation::new(EndianSlice::new(code, LittleEndian), self.encoding);
        evaluation.set_max_iterations(MAX_OPERATIONS);
        if let Some(value) = initial {
            evaluation.set_initial_value(value);
        }
        let mut result = evaluation.evaluate();
        loop {
            result = match result.map_err(|_| NO_ANSWER)? {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresRegister { register, .. } => {
                    evaluation.resume_with_register(Value::Generic(self.register(register)?))
                }
                EvaluationResult::RequiresMemory {
                    address,
                    size,
                    space: None,
                    ..
                } => {
                    let all = self.read(address)?;
                    let value = match size {
                        8 => all,
                        1..8 => all & ((1 << (size * 8)) - 1),
                        _ => return Err(NO_ANSWER),
                    };
                    evaluation.resume_with_memory(Value::Generic(value))
                }
                _ => return Err(NO_ANSWER),
            };
        }
        match evaluation.as_result() {
            [piece] => match piece.location {
                Location::Address { address } => Ok(address),
                Location::Value {
                    value: Value::Generic(value),
                } => Ok(value),
                _ => Err(NO_ANSWER),
            },
            _ => Err(NO_ANSWER),
        }
    }
}
