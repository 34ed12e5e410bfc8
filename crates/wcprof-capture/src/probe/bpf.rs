//! What of the BPF engine works on this machine.

use wcprof_types::Pid;

use super::{ProbeLine, Subject};
use crate::bpf::{BpfEngine, BpfError, Features};

/// Loads the programs for wcprof itself and says what works. Leaves nothing behind.
pub(super) fn lines() -> Vec<ProbeLine> {
    let own = i32::try_from(std::process::id()).map_or(Pid(0), Pid);
    let engine = BpfEngine::new(&[own], false);
    lines_of(engine.as_ref().map(BpfEngine::features))
}

/// One thing: what was found where it works, or why it does not, and what wcprof does without it.
fn line(
    (id, name): (&'static str, &'static str),
    works: &str,
    why_not: Option<&str>,
    without: &str,
) -> ProbeLine {
    let line = ProbeLine::ok(Subject::Kernel, id, name, why_not.unwrap_or(works));
    match why_not {
        None => line,
        Some(_) => line.limited(without),
    }
}

fn lines_of(engine: Result<&Features, &BpfError>) -> Vec<ProbeLine> {
    let iterator = ("bpf-task-iterator", "BPF task iterator");
    let features = match engine {
        Ok(features) => features,
        Err(e) => {
            let line = ProbeLine::ok(Subject::Kernel, iterator.0, iterator.1, e.to_string());
            return vec![line.missing("the engines `procfs` and `procfs-only` do not need it")];
        }
    };
    let passes = line(
        ("bpf-own-passes", "BPF passes of its own"),
        "loaded and run; the task iterator is not needed",
        features.no_own_passes.as_deref(),
        "the task iterator is used instead, at about twice the cost (needs Linux 6.10 and the \
         initial pid namespace)",
    );
    let perf_filter = line(
        ("bpf-perf-filter", "BPF filter of timers"),
        "loaded",
        features.no_perf_filter.as_deref(),
        "per-thread events are used instead, which cost the target about 2.4 us a context switch",
    );
    if features.no_own_passes.is_none() {
        return vec![passes, perf_filter];
    }
    let all_threads = "visits every thread of the machine (the filter came with Linux 6.1)";
    vec![
        passes,
        line(iterator, "loaded, attached and read", None, ""),
        line(
            ("bpf-link-filter", "BPF link filter"),
            "visits the target's threads alone",
            (!features.link_filter).then_some(all_threads),
            "nothing to do; on a machine with thousands of threads a tick costs more",
        ),
        line(
            ("bpf-stack-copies", "BPF stack copies"),
            "loaded",
            features.no_stack_copies.as_deref(),
            "stacks are read from outside instead (process_vm_readv), at about twice the cost \
             (sleepable iterators came with Linux 5.18)",
        ),
        perf_filter,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::Verdict;

    /// Check that each missing thing is a line with advice, and a working one is not.
    #[test]
    fn features() {
        let failed = lines_of(Err(&BpfError::NoBtf("no such file".to_owned())));
        assert_eq!(failed.len(), 1);
        assert_eq!(failed[0].verdict, Verdict::Missing);
        assert!(failed[0].detail.contains("no such file"));
        let partly = lines_of(Ok(&Features {
            no_own_passes: Some("refused".to_owned()),
            link_filter: false,
            no_perf_filter: Some("refused".to_owned()),
            no_stack_copies: None,
        }));
        let works: Vec<bool> = partly.iter().map(|l| l.verdict == Verdict::Ok).collect();
        assert_eq!(works, [false, true, false, true, false]);
        let is_advised = |l: &ProbeLine| (l.verdict == Verdict::Ok) == l.advice.is_empty();
        assert!(partly.iter().all(is_advised));
        let best = lines_of(Ok(&Features {
            no_own_passes: None,
            link_filter: true,
            no_perf_filter: None,
            no_stack_copies: None,
        }));
        let found: Vec<_> = best.iter().map(|l| (l.id, l.verdict)).collect();
        let ok = Verdict::Ok;
        assert_eq!(found, [("bpf-own-passes", ok), ("bpf-perf-filter", ok)]);
    }
}
