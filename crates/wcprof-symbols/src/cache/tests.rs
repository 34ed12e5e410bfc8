//! Tests of what is kept of names.

use std::collections::BTreeMap;
use std::sync::Arc;

use dwarf_stream::DwarfFrame;
use proptest::prelude::*;

use super::format::{Entries, decode, encode};

fn frame(name: &str, line: u32) -> DwarfFrame {
    DwarfFrame {
        name: Some(Arc::from(name)),
        file: Some(Arc::from("a.cc")),
        line: Some(line).filter(|line| *line > 0),
    }
}

fn entries() -> Entries {
    Entries::from([
        (0x10, vec![frame("inner", 3), frame("outer", 7)]),
        (0x20, vec![DwarfFrame::default()]),
        (0x30, Vec::new()),
        (0x40, vec![frame("outer", 0)]),
    ])
}

/// Check that what was encoded is read.
#[test]
fn encoded_and_decoded() {
    assert_eq!(decode(&encode(&entries()).unwrap()), Some(entries()));
    assert_eq!(
        decode(&encode(&BTreeMap::new()).unwrap()),
        Some(BTreeMap::new())
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Check that damaged content gives entries of some kind or none, and never a panic; and that what
    /// was cut gives none.
    #[test]
    fn damaged(
        flips in prop::collection::vec((any::<prop::sample::Index>(), 1_u8..), 1..8),
        cut in 1_usize..20,
    ) {
        let good = encode(&entries()).unwrap();
        let mut bytes = good.clone();
        for (index, mask) in &flips {
            let i = index.index(bytes.len());
            bytes[i] ^= mask;
        }
        let _ = decode(&bytes);
        prop_assert_eq!(decode(&good[..good.len() - cut]), None);
    }
}
