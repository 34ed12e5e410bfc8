//! System call numbers of x86-64 to names and back (`arch/x86/entry/syscalls/syscall_64.tbl`).

use std::collections::HashMap;
use std::sync::LazyLock;

const TABLE: &str = include_str!("../data/syscalls.txt");

/// Rules name dozens of calls.
static NUMBERS: LazyLock<HashMap<&str, u32>> =
    LazyLock::new(|| entries().map(|(number, name)| (name, number)).collect());

fn entries() -> impl Iterator<Item = (u32, &'static str)> {
    TABLE.lines().filter_map(|line| {
        let (number, name) = line.split_once(' ')?;
        Some((number.parse().ok()?, name))
    })
}

/// The name of a system call; `None` for a number that is not in the table.
pub fn syscall_name(number: u32) -> Option<&'static str> {
    entries().find(|&(n, _)| n == number).map(|(_, name)| name)
}

/// The number of a system call; `None` for a name that is not in the table.
pub fn syscall_number(name: &str) -> Option<u32> {
    NUMBERS.get(name).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check numbers that the kernel's ABI fixes, both ways, and one that does not exist.
    #[test]
    fn both_ways() {
        for (number, name) in [
            (0, "read"),
            (16, "ioctl"),
            (202, "futex"),
            (449, "futex_waitv"),
        ] {
            assert_eq!(syscall_name(number), Some(name));
            assert_eq!(syscall_number(name), Some(number));
        }
        assert_eq!(syscall_name(100_000), None);
        assert_eq!(syscall_number("frobnicate"), None);
    }

    /// Check that every line of the table is read.
    #[test]
    fn every_line() {
        assert_eq!(entries().count(), TABLE.lines().count());
    }
}
