//! Why two profiles may not be comparable.

use std::collections::{BTreeMap, BTreeSet};

use wcprof_types::BuildId;

use super::model::Warning;
use crate::model::Profile;

/// File names of modules of which the two sides have no build in common, in order.
pub(crate) fn rebuilt_modules(profiles: [&Profile; 2]) -> Vec<String> {
    let [before, after] = profiles.map(|p| {
        let mut ids: BTreeMap<&str, BTreeSet<&BuildId>> = BTreeMap::new();
        for module in &p.modules {
            if let Some(id) = &module.build_id {
                ids.entry(&module.name).or_default().insert(id);
            }
        }
        ids
    });
    let both = before
        .iter()
        .filter_map(|(name, ids)| Some((*name, ids, after.get(name)?)));
    let rebuilt = both.filter(|(_, before, after)| before.is_disjoint(after));
    rebuilt.map(|(name, ..)| name.to_owned()).collect()
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
            let mut modules = p.modules.iter().filter(|module| module.name == *name);
            modules.find_map(|module| module.build_id.clone())
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
    // Text that was imported says how much, and neither how long nor when.
    let timeless = |p: &Profile| p.header.rate_hz == 0;
    let short = |p: &Profile| !timeless(p) && p.estimator().is_none();
    type OfSides = (fn([bool; 2]) -> Warning, [bool; 2]);
    let of_sides: [OfSides; 3] = [
        (Warning::Cut, profiles.map(|p| !p.stats.complete)),
        (Warning::NoTime, profiles.map(timeless)),
        (Warning::TooShort, profiles.map(short)),
    ];
    let of_sides = of_sides
        .into_iter()
        .filter(|(_, sides)| sides.contains(&true));
    warnings.extend(of_sides.map(|(warning, sides)| warning(sides)));
    warnings
}
