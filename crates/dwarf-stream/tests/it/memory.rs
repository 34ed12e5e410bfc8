//! Many addresses, and much that says something about each of them: all of it would take gigabytes.

use dwarf_stream::elf::ElfFile;
use dwarf_stream::{Budget, DwarfError, DwarfFiles, DwarfFrames, look_up};

use crate::child::within_memory;
use crate::image::{
    ADDR, COMP_DIR, DATA8, HIGH_PC, LOW_PC, NAME, RANGES, SEC_OFFSET, STMT_LIST, STRING, STRP,
    TEXT, abbreviations, addresses, elf, line_program, unit, words, zlib,
};

/// Memory of the process: the limit of the lookup, the file, and what a process has.
const MEMORY: u64 = 192 << 20;
const BUDGET: u64 = 64 << 20;
const N_ADDRESSES: u64 = 4096;
const N_RANGES: usize = 1 << 18;
/// Their code: all addresses.
const ALL: [u64; 2] = [TEXT, N_ADDRESSES];

fn look_up_in(elf: &ElfFile, addresses: &[u64]) -> DwarfFrames {
    let files = DwarfFiles {
        main: elf,
        supplementary: None,
        split: None,
    };
    look_up(files, addresses, &Budget::new(BUDGET)).unwrap()
}

/// Check a function with many ranges, each of which holds all addresses.
#[test]
fn ranges_of_a_function() {
    within_memory("memory::ranges_of_a_function", MEMORY, || {
        let abbreviations = abbreviations(
            &[[LOW_PC, ADDR], [HIGH_PC, DATA8]],
            &[[NAME, STRING], [RANGES, SEC_OFFSET]],
        );
        let mut entries = vec![1];
        entries.extend(words(&ALL));
        entries.extend(b"\x02f\0\0\0\0\0");
        // From the unit's address on; a pair of zeros ends it.
        let mut ranges = words(&[0, N_ADDRESSES]).repeat(N_RANGES);
        ranges.extend(words(&[0, 0]));
        let elf = elf(&[
            (".debug_abbrev", &abbreviations),
            (".debug_info", &unit(&entries)),
            // Expanded in memory, where a list of any length is read at once.
            (".zdebug_ranges", &zlib(&ranges)),
        ]);
        let found = look_up_in(&elf, &addresses(N_ADDRESSES));
        assert!(found.failed.is_none());
        for frames in found.frames {
            assert_eq!(frames[0].name.as_deref(), Some("f"));
        }
    });
}

/// Check many units, each of which holds all addresses, and of which the last but one knows the function.
#[test]
fn units_that_claim_all() {
    within_memory("memory::units_that_claim_all", MEMORY, || {
        let abbreviations = abbreviations(&[[LOW_PC, ADDR], [HIGH_PC, DATA8]], &[]);
        let mut entries = vec![1];
        entries.extend(words(&ALL));
        entries.push(0);
        let info = unit(&entries).repeat(N_RANGES);
        let elf = elf(&[(".debug_abbrev", &abbreviations), (".debug_info", &info)]);
        let found = look_up_in(&elf, &addresses(N_ADDRESSES));
        assert!(found.failed.is_none());
        assert!(found.frames.iter().all(|frames| frames.len() == 1));
    });
}

/// Check many claims of all addresses in `.debug_aranges`, each by another unit.
#[test]
fn claims_of_all() {
    within_memory("memory::claims_of_all", MEMORY, || {
        let mut aranges = Vec::new();
        for unit in 0..1_u32 << 15 {
            aranges.extend(44_u32.to_le_bytes());
            aranges.extend([2, 0]);
            aranges.extend(unit.to_le_bytes());
            aranges.extend([8, 0, 0, 0, 0, 0]);
            aranges.extend(words(&[TEXT, N_ADDRESSES, 0, 0]));
        }
        let abbreviations = abbreviations(&[], &[[NAME, STRING], [LOW_PC, ADDR], [HIGH_PC, DATA8]]);
        let mut entries = b"\x01\x02f\0".to_vec();
        entries.extend(words(&ALL));
        let elf = elf(&[
            (".debug_abbrev", &abbreviations),
            (".debug_info", &unit(&entries)),
            (".debug_aranges", &aranges),
        ]);
        let found = look_up_in(&elf, &addresses(N_ADDRESSES));
        for frames in found.frames {
            assert_eq!(frames[0].name.as_deref(), Some("f"));
        }
    });
}

/// Check names that begin inside each other, and have no end: together they are a gigabyte.
#[test]
fn names_inside_each_other() {
    within_memory("memory::names_inside_each_other", MEMORY, || {
        let n_names = 1 << 14;
        let abbreviations = abbreviations(
            &[[LOW_PC, ADDR], [HIGH_PC, DATA8]],
            &[[NAME, STRP], [LOW_PC, ADDR], [HIGH_PC, DATA8]],
        );
        let mut entries = vec![1];
        entries.extend(words(&[TEXT, n_names]));
        for i in 0..n_names {
            entries.push(2);
            // All but the first where a part of the section ends, if it is read in parts of 256 KiB.
            let at = if i == 0 { 0 } else { (192 << 10) + i };
            entries.extend(u32::try_from(at).unwrap().to_le_bytes());
            entries.extend(words(&[TEXT + i, 1]));
        }
        let elf = elf(&[
            (".debug_abbrev", &abbreviations),
            (".debug_info", &unit(&entries)),
            (".debug_str", &vec![b'x'; 1 << 20]),
        ]);
        let found = look_up_in(&elf, &addresses(n_names));
        let failed = found.failed.unwrap();
        assert!(
            matches!(failed, (_, DwarfError::Strings { .. })),
            "{failed:?}"
        );
        let named = found
            .frames
            .iter()
            .filter_map(|frames| frames[0].name.as_ref());
        let lengths: Vec<usize> = named.map(|name| name.len()).collect();
        assert!(
            lengths.len() > 10 && lengths.len() + failed.0 == 1 << 14,
            "{failed:?}"
        );
        assert!(lengths.iter().all(|length| *length == 64 << 10));
    });
}

/// Check a path of 64 KiB at each of many addresses: they share it.
#[test]
fn long_path() {
    within_memory("memory::long_path", MEMORY, || {
        let abbreviations = abbreviations(
            &[
                [LOW_PC, ADDR],
                [HIGH_PC, DATA8],
                [STMT_LIST, SEC_OFFSET],
                [COMP_DIR, STRING],
            ],
            &[[NAME, STRING], [LOW_PC, ADDR], [HIGH_PC, DATA8]],
        );
        let n_addresses = 1 << 14;
        let all = words(&[TEXT, n_addresses]);
        let mut entries = vec![1];
        entries.extend(&all);
        entries.extend([0; 4]);
        entries.push(b'/');
        entries.extend(vec![b'd'; 60 << 10]);
        entries.extend(b"\0\x02f\0");
        entries.extend(&all);
        let program = line_program(&[TEXT, TEXT + n_addresses], 1);
        let elf = elf(&[
            (".debug_abbrev", &abbreviations),
            (".debug_info", &unit(&entries)),
            (".debug_line", &program),
        ]);
        let found = look_up_in(&elf, &addresses(n_addresses));
        assert!(found.failed.is_none(), "{:?}", found.failed);
        for frames in found.frames {
            assert!(frames[0].file.as_deref().unwrap().ends_with("ddd/f"));
        }
    });
}
