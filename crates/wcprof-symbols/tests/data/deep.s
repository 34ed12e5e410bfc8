# A unit whose entries are nested 300000 deep: one byte a level.
    .text
    .globl deep
    .type deep, @function
    .p2align 6
deep:
    nop
    ret
    .size deep, . - deep
end:
    .section .debug_abbrev, "", @progbits
    .uleb128 1, 0x11    # DW_TAG_compile_unit
    .byte 1             # with children
    .uleb128 0x11, 1    # DW_AT_low_pc, DW_FORM_addr
    .uleb128 0x12, 7    # DW_AT_high_pc, DW_FORM_data8
    .uleb128 0, 0
    .uleb128 2, 0x2e    # DW_TAG_subprogram
    .byte 1
    .uleb128 0x11, 1
    .uleb128 0x12, 7
    .uleb128 0, 0
    .uleb128 3, 0x1d    # DW_TAG_inlined_subroutine
    .byte 1
    .uleb128 0, 0
    .byte 0
    .section .debug_info, "", @progbits
    .long info_end - info_start
info_start:
    .value 4            # version
    .long 0             # abbreviations
    .byte 8             # address size
    .uleb128 1
    .quad deep
    .quad end - deep
    .uleb128 2
    .quad deep
    .quad end - deep
    .fill 300000, 1, 3
info_end:
    .section .note.GNU-stack, "", @progbits
