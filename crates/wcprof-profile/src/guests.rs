//! What KVM counted of the virtual machines of a profile: exits by reason, and polling for the end of halts.

use std::collections::BTreeMap;

use crate::model::Profile;

/// Before the kernel's name of a count.
const PREFIX: &str = "kvm.";
/// Reasons that are no `*_exits`.
const REASONS: [(&str, &str); 3] = [
    ("hypercalls", "hypercall"),
    ("insn_emulation", "emulated instruction"),
    ("pf_taken", "page fault"),
];

/// The exits of all virtual machines of a profile.
#[derive(Clone, PartialEq, Debug)]
pub struct VmExits {
    /// Exits a second.
    pub per_second: f64,
    /// By reason, a second, most first. An exit may have several, such as a port that an emulated instruction reads.
    pub reasons: Vec<(String, f64)>,
    /// CPUs in use at a time to poll for the end of a halt.
    pub polling: f64,
}

/// `None` where nothing was counted.
pub fn vm_exits(profile: &Profile) -> Option<VmExits> {
    let mut rates: BTreeMap<&str, f64> = BTreeMap::new();
    for process in &profile.processes {
        let counters = &process.counters;
        for (name, value) in &counters.grown {
            if let Some(name) = name.strip_prefix(PREFIX) {
                let rate = value.count as f64 * 1e9 / counters.covered_ns.max(1) as f64;
                *rates.entry(name).or_default() += rate;
            }
        }
    }
    let rate = |name: &str| rates.get(name).copied().unwrap_or_default();
    let reason = |(name, rate): (&&str, &f64)| {
        let of_exit = name
            .strip_suffix("_exits")
            .map(|reason| reason.replace('_', " "));
        let known = || REASONS.iter().find(|(known, _)| known == name);
        let text = of_exit.or_else(|| Some(known()?.1.to_owned()))?;
        (*rate > 0.0).then_some((text, *rate))
    };
    let mut reasons: Vec<(String, f64)> = rates.iter().filter_map(reason).collect();
    reasons.sort_by(|a, b| b.1.total_cmp(&a.1));
    let per_second = rate("exits");
    let polling = (rate("halt_poll_success_ns") + rate("halt_poll_fail_ns")) / 1e9;
    (per_second > 0.0 || !reasons.is_empty()).then_some(VmExits {
        per_second,
        reasons,
        polling,
    })
}
