//! The bytes before an address to whether a call could return to it.
//!
//! The forms are `e8 rel32` and `ff /2` (Intel SDM volume 2, CALL, and table 2-2 for the lengths
//! of ModRM, SIB and displacement). Prefixes come before the opcode, so they do not matter.

/// Most bytes before a return address that [`is_preceded_by_call`] reads.
pub const CALL_LOOKBEHIND: usize = 7;

/// Whether the bytes before an address, in memory order, end in a call instruction.
pub fn is_preceded_by_call(bytes_before: &[u8]) -> bool {
    direct_displacement(bytes_before).is_some()
        || (2..=CALL_LOOKBEHIND).any(|len| ends_in_indirect_call(bytes_before, len))
}

/// Where the call before `return_address` went, when it is a direct one (`e8 rel32`).
pub fn direct_call_target(bytes_before: &[u8], return_address: u64) -> Option<u64> {
    let displacement = direct_displacement(bytes_before)?;
    Some(return_address.wrapping_add_signed(i64::from(displacement)))
}

/// Where the pointer is that the call before `return_address` went by, when it lies beside the code (`ff 15 rel32`): an entry of
/// the global offset table.
pub(crate) fn called_pointer(bytes_before: &[u8], return_address: u64) -> Option<u64> {
    let Some(&[0xff, 0x15, a, b, c, d]) = bytes_before.last_chunk::<6>() else {
        return None;
    };
    let displacement = i32::from_le_bytes([a, b, c, d]);
    Some(return_address.wrapping_add_signed(i64::from(displacement)))
}

/// The register that the call before a return address went by, if calls preserve it: `rbx` and `r12` to `r15`, by DWARF number
/// (System V ABI for AMD64, figure 3.36).
pub(crate) fn called_register(bytes_before: &[u8]) -> Option<u16> {
    match *bytes_before {
        [.., 0x41, 0xff, modrm @ 0xd4..=0xd7] => Some(u16::from(modrm - 0xd4) + 12),
        [.., 0x41, 0xff, 0xd3] => None,
        [.., 0xff, 0xd3] => Some(3),
        _ => None,
    }
}

fn direct_displacement(bytes: &[u8]) -> Option<i32> {
    match bytes.last_chunk::<5>() {
        Some(&[0xe8, a, b, c, d]) => Some(i32::from_le_bytes([a, b, c, d])),
        _ => None,
    }
}

/// Whether the last `len` bytes are one `call r/m64`.
fn ends_in_indirect_call(bytes: &[u8], len: usize) -> bool {
    let Some(&[opcode, modrm, ref rest @ ..]) = bytes
        .len()
        .checked_sub(len)
        .and_then(|from| bytes.get(from..))
    else {
        return false;
    };
    if opcode != 0xff || (modrm >> 3) & 7 != 2 {
        return false;
    }
    let (mode, rm) = (modrm >> 6, modrm & 7);
    let has_sib = mode != 3 && rm == 4;
    let displacement = match mode {
        0 if rm == 5 => 4,
        0 if has_sib && rest.first().is_some_and(|sib| sib & 7 == 5) => 4,
        1 => 1,
        2 => 4,
        _ => 0,
    };
    rest.len() == usize::from(has_sib) + displacement
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check every addressing form of `call`, as GNU as encodes them.
    #[test]
    fn all_forms() {
        let forms: [(&[u8], &str); 16] = [
            (&[0xe8, 1, 2, 3, 4], "call rel32"),
            (&[0xff, 0xd0], "call *%rax"),
            (&[0x41, 0xff, 0xd7], "call *%r15"),
            (&[0xff, 0x10], "call *(%rax)"),
            (&[0xff, 0x14, 0x24], "call *(%rsp)"),
            (&[0xff, 0x55, 0x00], "call *0x0(%rbp)"),
            (&[0xff, 0x50, 0x18], "call *0x18(%rax)"),
            (&[0xff, 0x54, 0x24, 0x08], "call *0x8(%rsp)"),
            (&[0xff, 0x90, 0, 1, 0, 0], "call *0x100(%rax)"),
            (&[0xff, 0x94, 0x24, 0, 1, 0, 0], "call *0x100(%rsp)"),
            (&[0xff, 0x15, 0, 1, 0, 0], "call *0x100(%rip)"),
            (&[0xff, 0x14, 0xc5, 0, 1, 0, 0], "call *0x100(,%rax,8)"),
            (&[0xff, 0x14, 0xc3], "call *(%rbx,%rax,8)"),
            (&[0x43, 0xff, 0x54, 0xec, 0x10], "call *0x10(%r12,%r13,8)"),
            (&[0x3e, 0xff, 0xd0], "notrack call *%rax"),
            (&[0xf2, 0xe8, 1, 2, 3, 4], "bnd call rel32"),
        ];
        for (bytes, what) in forms {
            assert!(is_preceded_by_call(bytes), "{what}");
            let mut longer = vec![0x90; 8];
            longer.extend_from_slice(bytes);
            assert!(is_preceded_by_call(&longer), "{what} after other code");
        }
    }

    /// Check that jumps, other `ff` groups, wrong lengths and too few bytes are not calls.
    #[test]
    fn not_calls() {
        for bytes in [
            &[][..],
            &[0xff],
            &[0xe8, 1, 2, 3],
            &[0xe9, 1, 2, 3, 4],
            &[0xff, 0xe0],                    // jmp *%rax
            &[0xff, 0xd0, 0x90],              // something follows the call
            &[0xff, 0x14],                    // SIB missing
            &[0xff, 0x15, 1, 2, 3],           // displacement cut
            &[0xff, 0x50],                    // displacement missing
            &[0x48, 0xc7, 0xc0, 15, 0, 0, 0], // mov $15,%rax (sigreturn)
            &[0x0f, 0x05],                    // syscall
        ] {
            assert!(!is_preceded_by_call(bytes), "{bytes:02x?}");
        }
    }

    /// Check calls by registers, of which `rax` and `r11` hold something else when they return.
    #[test]
    fn registers() {
        for (bytes, register) in [
            (&[0xff, 0xd3][..], Some(3)),
            (&[0x90, 0xff, 0xd3], Some(3)),
            (&[0x41, 0xff, 0xd4], Some(12)),
            (&[0x41, 0xff, 0xd7], Some(15)),
            (&[0x41, 0xff, 0xd3], None),
            (&[0xff, 0xd0], None),
            (&[0xff, 0x13], None),
        ] {
            assert_eq!(called_register(bytes), register, "{bytes:02x?}");
        }
    }

    /// Check forward and backward targets: `call` at 0x1000 returns to 0x1005.
    #[test]
    fn targets() {
        assert_eq!(
            direct_call_target(&[0xe8, 0x10, 0, 0, 0], 0x1005),
            Some(0x1015)
        );
        assert_eq!(
            direct_call_target(&[0xe8, 0xfb, 0xff, 0xff, 0xff], 0x1005),
            Some(0x1000)
        );
        assert_eq!(direct_call_target(&[0xff, 0xd0], 0x1005), None);
    }
}
