//! Frames that are known by memory below the stack pointer, with and without a copy of it.

use wcprof_types::{Avma, RED_ZONE, StackEnd, UserRegs};
use wcprof_unwind::StackCopy;

use crate::common::Assembled;

/// `in_red_zone` keeps its CFA 8 bytes below the stack pointer; `chooser` goes on as it.
const SOURCE: &str = r#"
    .text
    .globl root, first, second, by_choice, chooser, in_red_zone
root:
    .cfi_startproc
    .cfi_undefined rip
    call first
    call second
    call by_choice
    nop
    .cfi_endproc
first:
    .cfi_startproc
    sub $8, %rsp
    .cfi_adjust_cfa_offset 8
    call in_red_zone
    add $8, %rsp
    ret
    .cfi_endproc
second:
    .cfi_startproc
    sub $8, %rsp
    .cfi_adjust_cfa_offset 8
    call in_red_zone
    add $8, %rsp
    ret
    .cfi_endproc
by_choice:
    .cfi_startproc
    sub $8, %rsp
    .cfi_adjust_cfa_offset 8
    call chooser
    add $8, %rsp
    ret
    .cfi_endproc
chooser:
    .cfi_startproc
    test %edi, %edi
    jne in_red_zone_start
    ret
    .cfi_endproc
    .skip 300
in_red_zone:
in_red_zone_start:
    .cfi_startproc
    .cfi_escape 0x0f, 3, 0x77, 0x78, 0x06
    nop
    nop
    ret
    .cfi_endproc
    .section .note.GNU-stack, "", @progbits
"#;

/// Where the stack pointer is.
const SP: u64 = 0x7000_0000;

/// Unwinds from `in_red_zone` with these words from the stack pointer on, and the word below it.
fn unwind(program: &Assembled, words: &[u64], red_zone: Option<u64>) -> (Vec<u64>, StackEnd, u32) {
    let regs = UserRegs {
        ip: Avma(program.address("in_red_zone") + 1),
        sp: Avma(SP),
        bp: Some(0),
        ..UserRegs::default()
    };
    let mut copy = vec![0; if red_zone.is_some() { RED_ZONE - 8 } else { 0 }];
    let base = SP - copy.len() as u64 - 8 * u64::from(red_zone.is_some());
    for word in red_zone.iter().chain(words) {
        copy.extend(word.to_le_bytes());
    }
    let mut memory = StackCopy::new(Avma(base), &copy, Avma(SP + 0x10000));
    let (unwinder, stack) = program.unwind(&regs, &mut memory);
    let starts = stack.frames.iter().map(|frame| {
        let start = unwinder.fde_start(frame.address.for_lookup());
        start.map_or(0, |start| start.0)
    });
    (starts.collect(), stack.end, stack.n_guessed)
}

/// Check that the one call that leads to the function says where its frame ends, also by way of a function that chooses it; that
/// nothing is taken where two do, or none; and that the word itself goes before all that.
#[test]
fn without_a_copy() {
    let program = Assembled::build(SOURCE);
    // Where the `n`th call of `root` returns to, and the call that another function makes after `sub $8, %rsp`.
    let in_root = |n: u64| program.address("root") + 5 * n;
    let after_call = |symbol| program.address(symbol) + 9;
    let [root, first, second, by_choice, leaf] =
        ["root", "first", "second", "by_choice", "in_red_zone"].map(|name| program.address(name));
    let of_first = [after_call("first"), 0, in_root(1)];
    let of_second = [after_call("second"), 0, in_root(2)];
    let of_choice = [after_call("by_choice"), 0, in_root(3)];
    let stack = |parts: &[&[u64]]| [&[7, 8], &parts.concat()[..], &[9; 8]].concat();
    let one = stack(&[&of_first]);
    let whole = |of| (vec![leaf, of, root], StackEnd::Root, 1);
    assert_eq!(unwind(&program, &one, None), whole(first));
    assert_eq!(
        unwind(&program, &stack(&[&of_choice]), None),
        whole(by_choice)
    );
    let cut = (vec![leaf], StackEnd::CopyTooShort, 0);
    let two = stack(&[&of_first, &of_second]);
    assert_eq!(unwind(&program, &two, None), cut);
    // What does not go on to the root is no candidate.
    let left_over = stack(&[&of_first[..1], &[3, 4], &of_second]);
    assert_eq!(unwind(&program, &left_over, None), whole(second));
    assert_eq!(unwind(&program, &stack(&[&[in_root(1)]]), None), cut);
    let known = (vec![leaf, second, root], StackEnd::Root, 0);
    assert_eq!(unwind(&program, &two, Some(SP + 8 * 6)), known);
}
