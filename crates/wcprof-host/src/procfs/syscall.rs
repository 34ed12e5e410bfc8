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
        /// Its six arguments; zero outside a call.
        args: [u64; 6],
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
    let [di, _, _, r10, r8, r9] = args.map(|arg| Some(arg).filter(|_| number >= 0));
    Some(SyscallState::Blocked {
        number: u32::try_from(number).ok(),
        args,
        regs: UserRegs {
            ip: Avma(ip),
            sp: Avma(sp),
            scratch: ScratchRegs {
                di,
                r8_to_r11: [r8, r9, r10, None],
                ..ScratchRegs::default()
            },
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
                args: [0; 6],
                regs
            })
        );
        assert_eq!(
            parse_syscall("202 0x1 0x2 0x3 0x4 0x5 0x6 0x10 0x20\n"),
            Some(SyscallState::Blocked {
                number: Some(202),
                args: [1, 2, 3, 4, 5, 6],
                regs: UserRegs {
                    scratch: ScratchRegs {
                        di: Some(1),
                        r8_to_r11: [Some(5), Some(6), Some(4), None],
                        ..ScratchRegs::default()
                    },
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
