//! Small files whose parts refer to each other: reading each reference would take hours. The steps are
//! counted, and the lookup ends with a reason.

use dwarf_stream::elf::ElfFile;
use dwarf_stream::{Budget, DwarfError, DwarfFiles, DwarfFrame, look_up};

use crate::image::{
    ADDR, DATA8, FLAG_PRESENT, HIGH_PC, LOW_PC, NAME, RANGES, SEC_OFFSET, STMT_LIST, STRING, TEXT,
    abbreviations, addresses, elf, line_program, unit, words,
};

/// Looks up addresses, and checks that it ended for the work that it takes.
fn takes_too_much_work(elf: &ElfFile, n_addresses: u64) -> Vec<Vec<DwarfFrame>> {
    let files = DwarfFiles {
        main: elf,
        supplementary: None,
        split: None,
    };
    let found = look_up(files, &addresses(n_addresses), &Budget::new(64 << 20)).unwrap();
    let failed = found.failed.map(|(_, error)| error);
    assert!(
        matches!(failed, Some(DwarfError::Work { .. })),
        "{failed:?}"
    );
    found.frames
}

/// Check many functions with the same long list of ranges.
#[test]
fn shared_list() {
    let abbreviations = abbreviations(
        &[[LOW_PC, ADDR], [HIGH_PC, DATA8]],
        &[[NAME, STRING], [RANGES, SEC_OFFSET]],
    );
    let mut entries = vec![1];
    entries.extend(words(&[TEXT, 10]));
    entries.extend(b"\x02f\0\0\0\0\0".repeat(1 << 16));
    let mut ranges = words(&[0, 1]).repeat(1 << 16);
    ranges.extend(words(&[0, 0]));
    let elf = elf(&[
        (".debug_abbrev", &abbreviations),
        (".debug_info", &unit(&entries)),
        (".debug_ranges", &ranges),
    ]);
    takes_too_much_work(&elf, 10);
}

/// Check many functions that each hold all of many addresses.
#[test]
fn functions_of_all() {
    let abbreviations = abbreviations(
        &[[LOW_PC, ADDR], [HIGH_PC, DATA8]],
        &[[NAME, STRING], [LOW_PC, ADDR], [HIGH_PC, DATA8]],
    );
    let n_addresses = 4096;
    let all = words(&[TEXT, n_addresses]);
    let mut entries = vec![1];
    entries.extend(&all);
    let function = [b"\x02f\0".as_slice(), &all].concat();
    entries.extend(function.repeat(1 << 16));
    let elf = elf(&[
        (".debug_abbrev", &abbreviations),
        (".debug_info", &unit(&entries)),
    ]);
    takes_too_much_work(&elf, n_addresses);
}

/// Check many entries of one byte that have many attributes without a size.
#[test]
fn attributes_without_size() {
    let flags = vec![[NAME, FLAG_PRESENT]; 1 << 16];
    let abbreviations = abbreviations(&[[LOW_PC, ADDR], [HIGH_PC, DATA8]], &flags);
    let mut entries = vec![1];
    entries.extend(words(&[TEXT, 10]));
    entries.extend(vec![2; 1 << 20]);
    let elf = elf(&[
        (".debug_abbrev", &abbreviations),
        (".debug_info", &unit(&entries)),
    ]);
    takes_too_much_work(&elf, 10);
}

/// Check many small units that each have a long table of abbreviations of their own.
#[test]
fn tables_of_abbreviations() {
    let mut table = abbreviations(&[[LOW_PC, ADDR], [HIGH_PC, DATA8]], &[]);
    table.pop();
    for code in 3..200_u8 {
        table.extend([code | 0x80, 1, 0x34, 0]);
        table.extend([NAME, FLAG_PRESENT].repeat(1000));
        table.extend([0, 0]);
    }
    table.push(0);
    let size = u32::try_from(table.len()).unwrap();
    let table = table.repeat(2);
    let mut entries = vec![1];
    entries.extend(words(&[TEXT, 10]));
    let first = unit(&entries);
    let mut second = first.clone();
    second[6..10].copy_from_slice(&size.to_le_bytes());
    let info = [first, second].concat().repeat(1 << 16);
    let elf = elf(&[(".debug_abbrev", &table), (".debug_info", &info)]);
    takes_too_much_work(&elf, 10);
}

/// Check a line program with many sequences that each hold all of many addresses: the functions remain.
#[test]
fn sequences_of_all() {
    let abbreviations = abbreviations(
        &[[LOW_PC, ADDR], [HIGH_PC, DATA8], [STMT_LIST, SEC_OFFSET]],
        &[[NAME, STRING], [LOW_PC, ADDR], [HIGH_PC, DATA8]],
    );
    let n_addresses = 4096;
    let all = words(&[TEXT, n_addresses]);
    let mut entries = vec![1];
    entries.extend(&all);
    entries.extend(b"\0\0\0\0\x02f\0");
    entries.extend(&all);
    let program = line_program(&[TEXT, TEXT + n_addresses], 1 << 16);
    let elf = elf(&[
        (".debug_abbrev", &abbreviations),
        (".debug_info", &unit(&entries)),
        (".debug_line", &program),
    ]);
    for frames in takes_too_much_work(&elf, n_addresses) {
        assert_eq!(frames[0].name.as_deref(), Some("f"));
        assert_eq!(frames[0].line, None);
    }
}
