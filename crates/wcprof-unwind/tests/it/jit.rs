//! Code of a JIT compiler, which has no call frame information, by its frame pointers.

use std::ops::Range;

use wcprof_types::{Avma, StackEnd, UserRegs};
use wcprof_unwind::{StackCopy, Unwinder, UnwoundStack};

const CODE: Range<u64> = 0x10_0000..0x20_0000;
const STACK: u64 = 0x7000_0000;

/// The addresses of a stack whose leaf is JIT code, and why it ends. `words` lie at the stack pointer, to which
/// `rbp` points; with `calls` a call precedes every return address.
fn unwind(words: &[u64], calls: bool) -> (Vec<u64>, StackEnd) {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut memory = StackCopy::new(Avma(STACK), &bytes, Avma(STACK + bytes.len() as u64));
    // `call` with an offset of 0 five bytes before, or nothing but `nop`.
    let mut text = |_: Avma, to: &mut [u8]| {
        to.fill(0x90);
        if let (true, Some(at)) = (calls, to.len().checked_sub(5)) {
            to[at..].copy_from_slice(&[0xe8, 0, 0, 0, 0]);
        }
        true
    };
    let mut unwinder = Unwinder::default();
    let code = [Avma(CODE.start)..Avma(CODE.end)];
    assert!(unwinder.set_foreign_code(code.clone()) && !unwinder.set_foreign_code(code));
    let regs = UserRegs {
        ip: Avma(CODE.start + 0x10),
        sp: Avma(STACK),
        bp: Some(STACK),
        ..UserRegs::default()
    };
    let mut stack = UnwoundStack::default();
    unwinder.unwind(&regs, &mut memory, &mut text, &mut stack);
    let frames = stack.frames.iter();
    let addresses = frames.map(|frame| frame.address.for_lookup().0 - CODE.start);
    (addresses.collect(), stack.end)
}

/// Check that frame pointers lead through code of a JIT compiler, to where no code is.
#[test]
fn frame_pointers() {
    let words = [
        STACK + 0x20,
        CODE.start + 0x101,
        0,
        0,
        STACK + 0x30,
        CODE.start + 0x201,
        0,
        0x50_0000,
    ];
    let expected = (vec![0x10, 0x100, 0x200], StackEnd::NotInModule);
    assert_eq!(unwind(&words, true), expected);
    // An interpreter that puts the return address on the stack itself.
    assert_eq!(unwind(&words, false), expected);
}

/// Check that a register which is no frame pointer leads nowhere: one that points below the stack's frames, and
/// one to a value that is no code.
#[test]
fn no_frame_pointers() {
    let alone = (vec![0x10], StackEnd::NotInModule);
    assert_eq!(unwind(&[STACK + 0x20, 0x50_0000, 0, 0, 0, 0], true), alone);
    assert_eq!(unwind(&[0x1234, CODE.start + 0x101, 0, 0], false), alone);
}
