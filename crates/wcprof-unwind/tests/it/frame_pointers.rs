//! Functions without call frame information that keep a frame pointer.

use wcprof_types::{Avma, StackEnd, UserRegs};
use wcprof_unwind::StackCopy;

use crate::common::Assembled;

/// `outer` calls `inner` by a register, which tells nothing of where the call went.
const SOURCE: &str = r#"
    .text
    .globl root, outer, inner, leaf
root:
    .cfi_startproc
    .cfi_undefined rip
    call outer
in_root:
    nop
    .cfi_endproc
outer:
    push %rbp
    mov %rsp, %rbp
    call *%rax
in_outer:
    pop %rbp
    ret
inner:
    push %rbp
    mov %rsp, %rbp
    sub $16, %rsp
    call leaf
in_inner:
    leave
    ret
leaf:
    nop
    ret
    .section .note.GNU-stack, "", @progbits
"#;

const SP: u64 = 0x7000_0000;

/// Check that a call further up, which might have led to the function, is not taken for its caller's: the frame pointer says
/// that it belongs to another frame.
#[test]
fn called_by_register() {
    let program = Assembled::build(SOURCE);
    let [in_inner, in_outer, in_root] =
        ["in_inner", "in_outer", "in_root"].map(|place| program.address(place));
    let frame = |n: u64| SP + 8 * n;
    let words = [
        in_inner,
        5,
        6,
        frame(5),
        in_outer,
        frame(9),
        in_root,
        0,
        0,
        0,
    ];
    let copy: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let regs = UserRegs {
        ip: Avma(program.address("leaf")),
        sp: Avma(SP),
        bp: Some(frame(3)),
        ..UserRegs::default()
    };
    let mut memory = StackCopy::new(Avma(SP), &copy, Avma(SP + 0x10000));
    let (_, stack) = program.unwind(&regs, &mut memory);
    let addresses = stack
        .frames
        .iter()
        .map(|frame| frame.address.for_lookup().0);
    let addresses: Vec<_> = addresses.collect();
    let expected = [regs.ip.0, in_inner - 1, in_outer - 1, in_root - 1];
    assert_eq!((&addresses[..], stack.end), (&expected[..], StackEnd::Root));
}
