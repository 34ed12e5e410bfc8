//! What of the BPF engine works on this machine, for `wcprof check`.

use wcprof_types::Pid;

use super::engine::{BpfEngine, Features};
use super::error::BpfError;

/// One thing that was tried.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Check {
    /// What was tried.
    pub(crate) feature: &'static str,
    /// It works.
    pub(crate) ok: bool,
    /// What was found.
    pub(crate) detail: String,
    /// What to do, or what wcprof does without it; empty when it works.
    pub(crate) advice: String,
}

/// Loads the programs for wcprof itself and says what works. Leaves nothing behind.
pub(crate) fn probe() -> Vec<Check> {
    let own = i32::try_from(std::process::id()).map_or(Pid(0), Pid);
    checks(
        BpfEngine::new(&[own], false)
            .as_ref()
            .map(BpfEngine::features),
    )
}

fn checks(engine: Result<&Features, &BpfError>) -> Vec<Check> {
    let features = match engine {
        Ok(features) => features,
        Err(e) => {
            return vec![Check {
                feature: ITERATOR,
                ok: false,
                detail: e.to_string(),
                advice: "the engines `procfs` and `procfs-only` do not need it".to_owned(),
            }];
        }
    };
    let works = |feature, detail: &str| Check {
        feature,
        ok: true,
        detail: detail.to_owned(),
        advice: String::new(),
    };
    let perf_filter = match &features.no_perf_filter {
        None => works(PERF_FILTER, "loaded"),
        Some(why) => Check {
            feature: PERF_FILTER,
            ok: false,
            detail: why.clone(),
            advice: "per-thread events are used instead, which cost the target about 2.4 us a \
                     context switch"
                .to_owned(),
        },
    };
    let Some(no_own_passes) = &features.no_own_passes else {
        let passes = works(PASSES, "loaded and run; the task iterator is not needed");
        return vec![passes, perf_filter];
    };
    vec![
        Check {
            feature: PASSES,
            ok: false,
            detail: no_own_passes.clone(),
            advice: "the task iterator is used instead, at about twice the cost (needs Linux 6.10 \
                     and the initial pid namespace)"
                .to_owned(),
        },
        works(ITERATOR, "loaded, attached and read"),
        if features.link_filter {
            works(LINK_FILTER, "visits the target's threads alone")
        } else {
            Check {
                feature: LINK_FILTER,
                ok: false,
                detail: "visits every thread of the machine (the filter came with Linux 6.1)"
                    .to_owned(),
                advice: "nothing to do; on a machine with thousands of threads a tick costs more"
                    .to_owned(),
            }
        },
        match &features.no_stack_copies {
            None => works(STACK_COPIES, "loaded"),
            Some(why) => Check {
                feature: STACK_COPIES,
                ok: false,
                detail: why.clone(),
                advice: "stacks are read from outside instead (process_vm_readv), at about twice \
                         the cost (sleepable iterators came with Linux 5.18)"
                    .to_owned(),
            },
        },
        perf_filter,
    ]
}

const PASSES: &str = "BPF program that wcprof runs";
const ITERATOR: &str = "BPF task iterator";
const LINK_FILTER: &str = "BPF iterator restricted to a process";
const STACK_COPIES: &str = "BPF iterator that copies stacks";
const PERF_FILTER: &str = "BPF filter of perf events";

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that each missing thing is a failed line with advice, and a working one is not.
    #[test]
    fn lines() {
        let failed = checks(Err(&BpfError::NoBtf("no such file".to_owned())));
        assert_eq!(failed.len(), 1);
        assert!(!failed[0].ok && failed[0].detail.contains("no such file"));
        let partly = checks(Ok(&Features {
            no_own_passes: Some("refused".to_owned()),
            link_filter: false,
            no_perf_filter: Some("refused".to_owned()),
            no_stack_copies: None,
        }));
        assert_eq!(
            partly.iter().map(|c| c.ok).collect::<Vec<_>>(),
            [false, true, false, true, false]
        );
        assert!(partly.iter().all(|c| c.ok == c.advice.is_empty()));
        let best = checks(Ok(&Features {
            no_own_passes: None,
            link_filter: true,
            no_perf_filter: None,
            no_stack_copies: None,
        }));
        assert_eq!(
            best.iter().map(|c| (c.feature, c.ok)).collect::<Vec<_>>(),
            [(PASSES, true), (PERF_FILTER, true)]
        );
    }
}
