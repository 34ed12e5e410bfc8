//! Kernel addresses and `/proc/kallsyms` in, names of kernel functions out.
//!
//! The list has some 200 000 lines, of which a recording needs a few hundred: it is gone through once,
//! and only what lies next to a wanted address is kept. It is not sorted (modules come last, in any
//! order), so nothing here relies on its order.

use std::io::{self, BufRead};

use thiserror::Error;
use wcprof_types::Avma;

use crate::demangle::printable;
use crate::text_lines::read_line;
use crate::wanted::Wanted;

/// Bytes read of the list; that of a large kernel with all its modules has 20 MB.
const MAX_BYTES: u64 = 256 << 20;
/// No function of the kernel is larger; what lies further behind a symbol is not its code.
const MAX_FUNCTION: u64 = 256 << 10;

/// Why there are no names.
#[derive(Debug, Error)]
pub enum KallsymsError {
    /// All addresses are zero.
    #[error(
        "/proc/kallsyms hides the kernel's addresses (kernel.kptr_restrict): run as root or with CAP_SYSLOG, and with kptr_restrict 1 or 0"
    )]
    Hidden,
    /// It could not be read.
    #[error("failed to read /proc/kallsyms: {0}")]
    Read(#[from] io::Error),
}

/// The symbol below a wanted address: address, rank, and name with its module.
type Near = (u64, u8, Vec<u8>);

/// How good a symbol is as a name of its address: code comes before data, global before local.
fn rank(kind: u8) -> u8 {
    match kind {
        b'T' => 3,
        b'W' | b'V' => 2,
        b't' | b'w' => 1,
        _ => 0,
    }
}

/// Names lookup addresses by the lines of `/proc/kallsyms` (`kernel/kallsyms.c`, `s_show`): for each address, in their order,
/// its function, with the module that it is in in brackets (`nvme_queue_rq [nvme]`).
///
/// # Errors
/// When the list cannot be read, or shows no address to this user.
pub fn kernel_names(
    kallsyms: impl BufRead,
    addresses: &[Avma],
) -> Result<Vec<Option<String>>, KallsymsError> {
    let wanted = Wanted::new(addresses);
    // Of each wanted address the last symbol between the one before it and itself.
    let mut below: Vec<Option<Near>> = vec![None; wanted.len()];
    let mut list = kallsyms.take(MAX_BYTES);
    let mut line = Vec::new();
    let (mut n_symbols, mut shown) = (0_u64, false);
    while read_line(&mut list, &mut line)? {
        let Some((address, kind, name)) = parse(&line) else {
            continue;
        };
        n_symbols += 1;
        shown |= address != 0;
        let Some(near) = below.get_mut(wanted.first_from(address)) else {
            continue;
        };
        let rank = rank(kind);
        let is_better = |known: &Near| (address, rank) > (known.0, known.1);
        if near.as_ref().is_none_or(is_better) {
            *near = Some((address, rank, name.to_vec()));
        }
    }
    if n_symbols > 0 && !shown {
        return Err(KallsymsError::Hidden);
    }
    let mut last: Option<&Near> = None;
    let mut names: Vec<Option<String>> = Vec::with_capacity(wanted.len());
    for (address, near) in wanted.0.iter().zip(&below) {
        last = near.as_ref().or(last);
        let found = last.filter(|(at, rank, _)| *rank > 0 && address - at < MAX_FUNCTION);
        // A tab stands before the module.
        let name = |(.., name): &Near| printable(&String::from_utf8_lossy(name).replace('\t', " "));
        names.push(found.map(name));
    }
    Ok(wanted.in_order(addresses, &names))
}

/// `ffffffffc0123450 t nvme_queue_rq\t[nvme]`
fn parse(line: &[u8]) -> Option<(u64, u8, &[u8])> {
    let mut fields = line.splitn(3, |&b| b == b' ');
    let address = u64::from_str_radix(std::str::from_utf8(fields.next()?).ok()?, 16).ok()?;
    let &[kind] = fields.next()? else { return None };
    let name = fields.next()?.trim_ascii();
    (!name.is_empty()).then_some((address, kind, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &str, addresses: &[u64]) -> Vec<Option<String>> {
        let addresses: Vec<Avma> = addresses.iter().copied().map(Avma).collect();
        kernel_names(list.as_bytes(), &addresses).unwrap()
    }

    /// Check names inside, at the beginning of, before and far behind functions; modules in
    /// brackets; that order does not matter; and that data is no function.
    #[test]
    fn lookup() {
        let list = "ffffffff81000500 t pipe_read\n\
                    ffffffff81000000 T _stext\n\
                    ffffffff81000800 D some_data\n\
                    ffffffffc0001000 t nvme_queue_rq\t[nvme]\n\
                    ffffffff81000400 T do_pipe\n";
        let found = names(
            list,
            &[
                0xffff_ffff_8100_0510,
                0xffff_ffff_8100_0400,
                0xffff_ffff_8100_04ff,
                0xffff_ffff_8100_0810,
                0xffff_ffff_c000_1004,
                0xffff_ffff_c100_0000,
                0x1000,
                0xffff_ffff_8100_0511,
            ],
        );
        let found: Vec<&str> = found.iter().map(|n| n.as_deref().unwrap_or("-")).collect();
        assert_eq!(
            found,
            [
                "pipe_read",
                "do_pipe",
                "do_pipe",
                "-",
                "nvme_queue_rq [nvme]",
                "-",
                "-",
                "pipe_read"
            ]
        );
    }

    /// Check that of several symbols at an address the global one is taken, else the first.
    #[test]
    fn aliases() {
        let list = "1000 t b\n1000 t a\n1000 d c\n2000 t __do_sys_read\n2000 T ksys_read\n";
        let found = names(list, &[0x1001, 0x2001]);
        assert_eq!(found, [Some("b".into()), Some("ksys_read".into())]);
    }

    /// Check that a list without addresses is an error that says what to do, and that per-CPU
    /// symbols, which begin at zero, do not make it one.
    #[test]
    fn hidden() {
        let error = kernel_names(&b"0000000000000000 T a\n0 t b\n"[..], &[Avma(1)]).unwrap_err();
        assert!(error.to_string().contains("kptr_restrict"), "{error}");
        assert_eq!(
            names("0 A fixed_percpu_data\n10 T a\n", &[0x11]),
            [Some("a".into())]
        );
        assert_eq!(names("", &[0x11]), [None]);
    }

    /// Check 200 000 lines with rubbish, lines without end and bytes that are no text among them.
    #[test]
    fn large_and_hostile() {
        let mut list = Vec::new();
        for i in 0..200_000_u64 {
            list.extend(format!("{:016x} t f{i}\n", 0xffff_ffff_8100_0000 + i * 64).bytes());
            match i % 50_000 {
                1 => list.extend(vec![b'x'; 100_000]),
                2 => list.extend(b"\nzz T a\n12 TT a\n13\n\n"),
                3 => list.extend(b"1 t \xff\x1b[31m\n"),
                _ => {}
            }
        }
        let addresses = [Avma(0xffff_ffff_8100_0000 + 150_000 * 64 + 63), Avma(2)];
        let found = kernel_names(list.as_slice(), &addresses).unwrap();
        assert_eq!(found[0].as_deref(), Some("f150000"));
        let hostile = found[1].as_deref().unwrap();
        assert!(!hostile.contains('\u{1b}'), "{hostile:?}");
    }

    /// Check that the running kernel's own list gives names, or says that it hides them.
    #[test]
    fn own_kernel() {
        let file = std::fs::File::open("/proc/kallsyms").unwrap();
        let result = kernel_names(io::BufReader::new(file), &[Avma(u64::MAX)]);
        assert!(matches!(result, Ok(_) | Err(KallsymsError::Hidden)));
    }
}
