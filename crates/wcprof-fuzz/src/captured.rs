//! What comes from a live process and its kernel: `/proc`, perf rings, the task iterator, the
//! target's libcrypto.

use wcprof_host::counters::parse_dump;
use wcprof_host::procfs::{parse_schedstat, parse_stat, parse_status, parse_syscall};
use wcprof_perf::{Record, parse_record};
use wcprof_types::parse_maps;

/// Which file (`u8`), and its text.
pub(crate) fn procfs(data: &[u8]) {
    let Some((which, text)) = data.split_first() else {
        return;
    };
    let text = String::from_utf8_lossy(text);
    match which % 5 {
        0 => {
            if let Ok(mappings) = parse_maps(&text) {
                assert!(mappings.iter().all(|m| m.start < m.end));
                assert!(mappings.len() <= text.lines().count());
            }
        }
        1 => {
            let _ = parse_stat(&text).map(|stat| (stat.is_kernel_thread(), format!("{stat:?}")));
        }
        2 => {
            let _ = format!("{:?}", parse_status(&text));
        }
        3 => {
            let _ = parse_syscall(&text);
        }
        _ => {
            let _ = parse_schedstat(&text);
        }
    }
}

/// What a Ceph process answers when it is asked for its counters.
pub(crate) fn counters(data: &[u8]) {
    if let Ok(counters) = parse_dump(data) {
        assert!(!counters.is_empty());
        assert!(counters.iter().all(|(name, _)| name.name.is_ascii()));
    }
}

/// A record of a perf ring: of a timer, and of a breakpoint.
pub(crate) fn perf_record(data: &[u8]) {
    for callchain in [false, true] {
        if let Some(Record::Sample(sample)) = parse_record(data, 0, callchain) {
            assert!(sample.stack.len() + sample.kernel.len() <= data.len());
        }
    }
    wcprof_perf::fuzz::uprobe_record(data);
}

/// What the task iterator wrote.
pub(crate) fn task_records(data: &[u8]) {
    wcprof_capture::fuzz::task_records(data);
}

/// The target's libcrypto.
pub(crate) fn crypto_module(data: &[u8]) {
    wcprof_perf::fuzz::crypto_module(data);
}
