//! Long lists of ranges.

use dwarf_stream::{Budget, DwarfFiles, look_up};

use crate::image::{
    ADDR, DATA8, HIGH_PC, LOW_PC, NAME, RANGES, SEC_OFFSET, STRING, TEXT, abbreviations, elf, unit,
    words,
};

/// Check that a function has the last of many ranges, in a file whose sections are not compressed: those
/// are read in parts.
#[test]
fn last_range() {
    let n_ranges = 5000;
    let abbreviations = abbreviations(
        &[[LOW_PC, ADDR], [HIGH_PC, DATA8]],
        &[[NAME, STRING], [RANGES, SEC_OFFSET]],
    );
    let mut entries = vec![1];
    entries.extend(words(&[TEXT, 2 * n_ranges]));
    entries.extend(b"\x02f\0\0\0\0\0");
    let mut ranges: Vec<u64> = (0..n_ranges).flat_map(|i| [2 * i, 2 * i + 1]).collect();
    ranges.extend([0, 0]);
    let elf = elf(&[
        (".debug_abbrev", &abbreviations),
        (".debug_info", &unit(&entries)),
        (".debug_ranges", &words(&ranges)),
    ]);
    let files = DwarfFiles {
        main: &elf,
        supplementary: None,
        split: None,
    };
    let addresses = [0, 255, 256, n_ranges - 1].map(|i| TEXT + 2 * i);
    let found = look_up(files, &addresses, &Budget::new(64 << 20)).unwrap();
    for frames in found.frames {
        assert_eq!(frames[0].name.as_deref(), Some("f"));
    }
}
