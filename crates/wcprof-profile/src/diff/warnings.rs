//! Why two profiles may not be comparable.

use std::collections::BTreeSet;

use crate::model::Profile;

use super::model::Warning;

/// File names of modules of which the two sides have no build in common, in order.
pub(crate) fn rebuilt_modules(profiles: [&Profile; 2]) -> Vec<String> {
    let [before, after] = profiles.map(|p| {
        let ids = p
            .modules
            .iter()
            .filter_map(|m| Some((m.name.as_str(), m.build_id.as_ref()?)));
        ids.collect::<BTreeSet<_>>()
    });
    let after_names: BTreeSet<&str> = after.iter().map(|(name, _)| *name).collect();
    let both: BTreeSet<&str> = before
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| after_names.contains(name))
        .collect();
    let same: BTreeSet<&str> = before.intersection(&after).map(|(name, _)| *name).collect();
    both.into_iter()
        .filter(|name| !same.contains(name))
        .map(str::to_owned)
        .collect()
}

/// All but [`Warning::Nothing`].
pub(crate) fn warnings(profiles: [&Profile; 2], rebuilt: &[String]) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let [before, after] = profiles.map(|p| {
        let comms: BTreeSet<_> = p.processes.iter().map(|p| p.comm.clone()).collect();
        comms.into_iter().collect::<Vec<_>>()
    });
    if before != after {
        warnings.push(Warning::Programs { before, after });
    }
    if let Some(name) = rebuilt.first() {
        let id = |p: &Profile| {
            let module = p
                .modules
                .iter()
                .find(|m| m.name == *name && m.build_id.is_some());
            module.and_then(|m| m.build_id.clone())
        };
        warnings.push(Warning::Rebuilt {
            modules: rebuilt.to_vec(),
            first: profiles.map(id),
        });
    }
    let engines = profiles.map(|p| p.header.engine.clone());
    if engines[0] != engines[1] {
        warnings.push(Warning::Engines(engines));
    }
    let cut = profiles.map(|p| !p.stats.complete);
    if cut.contains(&true) {
        warnings.push(Warning::Cut(cut));
    }
    // Text that was imported says how much, and neither how long nor when.
    let timeless = profiles.map(|p| p.header.rate_hz == 0);
    if timeless.contains(&true) {
        warnings.push(Warning::NoTime(timeless));
    }
    let short = profiles.map(|p| p.header.rate_hz > 0 && p.estimator().is_none());
    if short.contains(&true) {
        warnings.push(Warning::TooShort(short));
    }
    warnings
}
