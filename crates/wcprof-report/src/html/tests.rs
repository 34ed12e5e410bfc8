//! Which findings a page holds.

use wcprof_findings::{Basis, Finding, SettingsFound, Severity};
use wcprof_types::Pid;

use super::some_of_each;

fn finding(rule: &str, pid: i32) -> Finding {
    Finding {
        rule: rule.to_owned(),
        title: String::new(),
        severity: Severity::Medium,
        action: String::new(),
        remedy: Default::default(),
        returns: 1.0,
        gain: None,
        pid: Pid(pid),
        process: String::new(),
        host: String::new(),
        pools: Vec::new(),
        basis: Basis::Setting(SettingsFound::default()),
        evidence: Vec::new(),
        explanation: String::new(),
        advice: String::new(),
        sources: Vec::new(),
        verify: String::new(),
    }
}

/// Check that many findings of one rule leave room for those of others.
#[test]
fn rules_share() {
    let mut findings: Vec<Finding> = (0..100).map(|pid| finding("a", pid)).collect();
    findings.extend([finding("b", 1), finding("c", 1), finding("c", 2)]);
    let of = |most| -> Vec<(String, i32)> {
        let some = some_of_each(&findings, most);
        some.iter().map(|f| (f.rule.clone(), f.pid.0)).collect()
    };
    let rules = |most| {
        of(most)
            .into_iter()
            .map(|(rule, _)| rule)
            .collect::<String>()
    };
    assert_eq!(rules(3), "abc");
    assert_eq!(rules(5), "aabcc");
    assert_eq!(of(8).last(), Some(&("c".to_owned(), 2)));
    assert_eq!(of(1000).len(), 103);
    assert!(some_of_each(&[], 5).is_empty());
}
