//! Files of users to their parsers: rules, shapes, calibrations.

use std::path::Path;

use msgr_crypto::calibration::{Calibration, parse_speed_table};
use msgr_crypto::shapes::parse_shapes;
use wcprof_findings::RuleSet;
use wcprof_profile::Rules;

/// A file of rules for states and pools.
pub(crate) fn state_rules(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = Rules::without_builtin(&[("fuzz.toml", text)]).map_err(|e| e.to_string());
    }
}

/// A hotspot rule.
pub(crate) fn hotspot_rules(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        let mut rules = RuleSet::default();
        match rules.add_text(Path::new("fuzz.toml"), text) {
            Ok(()) => assert_eq!(rules.rules().len(), 1),
            Err(error) => {
                let _ = error.to_string();
                assert!(rules.rules().is_empty());
            }
        }
    }
}

/// Which file (`u8`), and its text.
pub(crate) fn crypto_files(data: &[u8]) {
    let Some((which, text)) = data.split_first() else {
        return;
    };
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    match which % 3 {
        0 => {
            if let Ok(shapes) = parse_shapes(text) {
                assert!(shapes.len() <= text.len());
            }
        }
        1 => {
            if let Ok(calibration) = Calibration::from_json(text) {
                let _ = format!("{calibration:?}");
            }
        }
        _ => {
            let _ = parse_speed_table(text).map(|c| format!("{c:?}"));
        }
    }
}
