//! Probing this very process.

use super::*;

fn own() -> Pid {
    Pid(std::process::id() as i32)
}

/// Check that this process can be read by itself, so that at least one engine works and is chosen,
/// and that no line is without a detail or, when something lacks, without advice.
#[test]
fn own_process() {
    let probe = probe(Some(own())).unwrap();
    let find = |id: &str| probe.lines.iter().find(|line| line.id == id).unwrap();
    assert_eq!(find("memory").verdict, Verdict::Ok);
    assert_eq!(find("syscall").verdict, Verdict::Ok);
    let choice = probe.choice.unwrap();
    assert_ne!(find(choice.name()).verdict, Verdict::Missing);
    for line in &probe.lines {
        assert!(!line.detail.is_empty(), "{line:?}");
        assert_eq!(
            line.verdict == Verdict::Ok,
            line.advice.is_empty(),
            "{line:?}"
        );
    }
}

/// Check that ids are unique in their subject, and subjects come one after the other.
#[test]
fn ids() {
    let lines = probe(None).unwrap().lines;
    let mut keys: Vec<_> = lines.iter().map(|line| (line.subject, line.id)).collect();
    assert!(keys.is_sorted_by_key(|key| key.0));
    let n = keys.len();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), n);
}

/// Check that a pid that cannot be a target is an error.
#[test]
fn absent() {
    assert!(matches!(
        probe(Some(Pid(i32::MAX))),
        Err(TargetError::NoSuchProcess(_))
    ));
}
