# Functions with gaps between them; `sized` has a size, `with_cfi` only an FDE, `bare` neither: it goes on until
# the code of the next FDE.
    .text
    .globl sized, with_cfi, bare
    .type sized, @function
    .type with_cfi, @function
    .type bare, @function
    .p2align 6
sized:
    nop
    ret
    .size sized, . - sized
    .p2align 6
with_cfi:
    .cfi_startproc
    nop
    nop
inside:
    nop
    ret
    .cfi_endproc
    .p2align 6
bare:
    nop
    ret
    .p2align 6
# Code with an FDE and no name at all.
    .cfi_startproc
    nop
nameless_inside:
    nop
    ret
    .cfi_endproc
    .section .note.GNU-stack, "", @progbits
