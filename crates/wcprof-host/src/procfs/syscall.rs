//! `/proc/PID/task/TID/syscall` (`fs/proc/base.c`, `proc_pid_syscall`).

use wcprof_types::{Avma, ScratchRegs, UserRegs};

/// A thread as `syscall` shows it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum SyscallState {
    /// Executing or on a run queue: nothing is shown.
    Running,
    /// Blocked.
    Blocked {
        /// Number of the call; `None` outside one (page fault).
        number: Option<u32>,
        /// Its first three arguments; zero outside a call.
        args: [u64; 3],
        /// Stack and instruction pointer; `bp` is not shown.
        regs: UserRegs,
    },
}

/// Parses the line. `None` when it has another form.
pub fn parse_syscall(line: &str) -> Option<SyscallState> {
    let line = line.trim_end();
    if line == "running" {
        return Some(SyscallState::Running);
    }
    let mut fields = line.split_ascii_whitespace();
    let number: i64 = fields.next()?.parse().ok()?;
    let mut hex = || u64::from_str_radix(fields.next()?.strip_prefix("0x")?, 16).ok();
    let mut args = [0; 6];
    if number >= 0 {
        for arg in &mut args {
            *arg = hex()?;
        }
    }
    let (sp, ip) = (hex()?, hex()?);
    // The arguments are registers (`arch/x86/include/asm/syscall.h`).
    let [di, _, dx, r10, r8, r9] = args.map(|arg| Some(arg).filter(|_| number >= 0));
    Some(SyscallState::Blocked {
        number: u32::try_from(number).ok(),
        args: [args[0], args[1], args[2]],
        regs: UserRegs {
            ip: Avma(ip),
            sp: Avma(sp),
            scratch: ScratchRegs::new([(1, dx), (5, di), (8, r8), (9, r9), (10, r10)]),
            ..UserRegs::default()
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the three forms of the line.
    #[test]
    fn forms() {
        assert_eq!(parse_syscall("running\n"), Some(SyscallState::Running));
        let regs = UserRegs {
            ip: Avma(0x20),
            sp: Avma(0x10),
            ..UserRegs::default()
        };
        assert_eq!(
            parse_syscall("-1 0x10 0x20\n"),
            Some(SyscallState::Blocked {
                number: None,
                args: [0; 3],
                regs
            })
        );
        assert_eq!(
            parse_syscall("202 0x1 0x2 0x3 0x4 0x5 0x6 0x10 0x20\n"),
            Some(SyscallState::Blocked {
                number: Some(202),
                args: [1, 2, 3],
                regs: UserRegs {
                    scratch: ScratchRegs::new([
                        (1, Some(3)),
                        (5, Some(1)),
                        (8, Some(5)),
                        (9, Some(6)),
                        (10, Some(4)),
                    ]),
                    ..regs
                }
            })
        );
    }

    /// Check that anything else is refused.
    #[test]
    fn malformed() {
        for bad in ["", "-1", "202 0x1 0x2", "x 0x1 0x2", "-1 16 32"] {
            assert_eq!(parse_syscall(bad), None, "{bad}");
        }
    }
}
