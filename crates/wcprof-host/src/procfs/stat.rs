//! `/proc/PID/task/TID/stat` and `schedstat` (`fs/proc/array.c`, `fs/proc/base.c`).

/// What wcprof reads of `stat`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskStat {
    /// Name, up to 15 bytes; may hold spaces and parentheses.
    pub comm: String,
    /// `R`, `S`, `D`, `Z`, ...
    pub state: char,
    /// Pid of the process that is told of its end; 0 outside this pid namespace.
    pub parent: i32,
    /// `PF_*` flags of the kernel (`include/linux/sched.h`).
    pub flags: u32,
    /// Start time, clock ticks (1/100 s) since boot.
    pub start_ticks: u64,
    /// First address of the program's text; changes with exec. 0 without permission.
    pub start_code: u64,
    /// Address of the bottom of the stack, likewise.
    pub start_stack: u64,
    /// Run time in guests, clock ticks (1/100 s); 0 where the kernel does not say it.
    pub guest_ticks: u64,
}

impl TaskStat {
    /// `PF_KTHREAD`.
    pub fn is_kernel_thread(&self) -> bool {
        self.flags & 0x0020_0000 != 0
    }

    /// See [`has_ended`].
    pub fn has_ended(&self) -> bool {
        has_ended(self.state)
    }

    /// `PF_IO_WORKER` (io_uring) or `PF_USER_WORKER` (vhost since 6.4): a thread of the process
    /// that never runs user code.
    pub fn is_kernel_side_worker(&self) -> bool {
        self.flags & (0x10 | 0x4000) != 0
    }
}

/// Parses `stat`. `None` when it has another form.
pub fn parse_stat(line: &str) -> Option<TaskStat> {
    let open = line.find('(')?;
    let close = line.rfind(')')?;
    let comm = line.get(open + 1..close)?.to_owned();
    // Field 3 (state) is the first after the name; proc(5) counts from 1.
    let fields: Vec<&str> = line.get(close + 1..)?.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).copied();
    Some(TaskStat {
        comm,
        state: field(3)?.chars().next()?,
        parent: field(4)?.parse().ok()?,
        flags: field(9)?.parse().ok()?,
        start_ticks: field(22)?.parse().ok()?,
        start_code: field(26)?.parse().ok()?,
        start_stack: field(28)?.parse().ok()?,
        guest_ticks: field(43).and_then(|text| text.parse().ok()).unwrap_or(0),
    })
}

/// Whether a task with this state letter has ended and is only waited for (zombie, dead).
pub fn has_ended(state: char) -> bool {
    matches!(state, 'Z' | 'X' | 'x')
}

/// State letter and `PF_*` flags of `stat`, without the cost of the rest. `None` when it has another form.
pub fn parse_task_state(line: &[u8]) -> Option<(char, u32)> {
    /// More than a name and its pid take, and the fields up to the flags.
    const PART: usize = 96;
    let head = &line[..line.len().min(PART)];
    let close = head.iter().rposition(|&byte| byte == b')')?;
    let rest = &line[close + 1..];
    let rest = std::str::from_utf8(&rest[..rest.len().min(PART)]).ok()?;
    // Fields 3 and 9 of proc(5).
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(5)?.parse().ok()?))
}

/// `schedstat`: exact since the last context switch or scheduler tick.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct SchedStat {
    /// Run time, ns.
    pub run_ns: u64,
    /// Run-queue delay, ns.
    pub delay_ns: u64,
    /// Times it was put on a CPU.
    pub n_runs: u64,
}

/// Parses `schedstat`. `None` when it has another form.
pub fn parse_schedstat(line: &str) -> Option<SchedStat> {
    let mut fields = line.split_ascii_whitespace().map(|f| f.parse().ok());
    Some(SchedStat {
        run_ns: fields.next()??,
        delay_ns: fields.next()??,
        n_runs: fields.next()??,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check a name that holds what the fields are separated by.
    #[test]
    fn hostile_name() {
        let line = "12 (a) R (b) S 1 12 12 0 -1 4194304 9 0 0 0 1 2 0 0 20 0 1 0 4711 8 9 10 \
                    4096 12 140737488 0";
        let stat = parse_stat(line).unwrap();
        assert_eq!(stat.comm, "a) R (b");
        assert_eq!((stat.state, stat.parent, stat.start_ticks), ('S', 1, 4711));
        assert_eq!((stat.start_code, stat.start_stack), (4096, 140_737_488));
        assert!(!stat.is_kernel_thread());
        assert_eq!(parse_task_state(line.as_bytes()), Some(('S', 4_194_304)));
        let bytes = b"12 (\xff) T) t 1 12 12 0 -1 64 9";
        assert_eq!(parse_task_state(bytes), Some(('t', 64)));
        assert_eq!(parse_task_state(b"12 (x) T 1 12"), None);
    }

    /// Check that every cut of a line is refused or parsed, never a panic.
    #[test]
    fn cut_lines() {
        let line = "12 (x) S 1 12 12 0 -1 2129984 9 0 0 0 1 2 0 0 20 0 1 0 47 8 9 10 0 0 0 0";
        assert!(parse_stat(line).unwrap().is_kernel_thread());
        for n in 0..line.len() - 4 {
            parse_stat(&line[..n]);
        }
        assert_eq!(parse_schedstat("1 2"), None);
        assert_eq!(parse_schedstat("1 2 x"), None);
        assert_eq!(
            parse_schedstat("1 2 3\n"),
            Some(SchedStat {
                run_ns: 1,
                delay_ns: 2,
                n_runs: 3
            })
        );
    }
}
