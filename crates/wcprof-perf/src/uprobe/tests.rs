//! Tests of the pure parts, and of a burst on this very process where it is permitted.

use std::fs;
use std::io::Write;
use std::path::Path;

use dwarf_stream::elf::Source;
use perf_event_open_sys::bindings;
use wcprof_types::Tid;

use super::record::{Parsed, parse};
use super::site::functions;
use super::*;

fn record(kind: u32, words: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(2_u16.to_ne_bytes());
    bytes.extend((8 + 8 * words.len() as u16).to_ne_bytes());
    words
        .iter()
        .for_each(|word| bytes.extend(word.to_ne_bytes()));
    bytes
}

/// A record in the ring of thread 4, where event 77 is `EVP_DecryptUpdate`.
fn parsed(bytes: &[u8]) -> Option<Parsed> {
    let function = |id| (id == 77).then_some(UpdateFunction::Decrypt);
    parse(bytes, Tid(4), function)
}

/// Check that each register lands where it belongs, and that the upper half of `inl` is dropped.
#[test]
fn sample() {
    let words = [77, 7 | 9 << 32, 123, 2, 0, 0xc0de, 0xdead_beef_0000_4000];
    let call = UpdateCall {
        function: UpdateFunction::Decrypt,
        tid: Tid(9),
        time: 123,
        context: 0xc0de,
        len: 16384,
        is_aad: true,
    };
    let bytes = record(bindings::PERF_RECORD_SAMPLE, &words);
    assert_eq!(parsed(&bytes), Some(Parsed::Event(BurstEvent::Call(call))));
    for n in 0..bytes.len() {
        assert_eq!(parsed(&bytes[..n]), None, "cut at {n}");
    }
    let other = |id| (id == 78).then_some(UpdateFunction::Decrypt);
    assert_eq!(parse(&bytes, Tid(4), other), None);
    let lost = record(bindings::PERF_RECORD_LOST, &[77, 5]);
    let event = BurstEvent::Lost(Tid(4), 5);
    assert_eq!(parsed(&lost), Some(Parsed::Event(event)));
    assert_eq!(parsed(&record(3, &[])), Some(Parsed::Other));
}

/// Check that a negative length stays one.
#[test]
fn negative_length() {
    let words = [77, 2, 3, 2, 4, 5, u64::from(u32::MAX)];
    match parsed(&record(bindings::PERF_RECORD_SAMPLE, &words)) {
        Some(Parsed::Event(BurstEvent::Call(call))) => assert_eq!(call.len, -1),
        other => panic!("{other:?}"),
    }
}

/// Check the kernel's event source in a sysfs of our own: absent, strange, sound.
#[test]
fn event_source() {
    let root = tempfile::tempdir().unwrap();
    let error = UprobePmu::find_in(root.path()).unwrap_err();
    assert!(error.to_string().contains("no uprobe events"), "{error}");
    let folder = root.path().join("bus/event_source/devices/uprobe/format");
    fs::create_dir_all(&folder).unwrap();
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
    write("../type", "eight\n");
    assert!(matches!(
        UprobePmu::find_in(root.path()),
        Err(UprobeError::Pmu { .. })
    ));
    write("../type", "8\n");
    assert_eq!(UprobePmu::find_in(root.path()).unwrap().kind, 8);
    write("retprobe", "config:0\n");
    assert!(UprobePmu::find_in(root.path()).is_ok());
    write("retprobe", "config1:3\n");
    assert!(matches!(
        UprobePmu::find_in(root.path()),
        Err(UprobeError::Pmu { .. })
    ));
}

/// Check that what is no libcrypto is refused with the reason, whatever bytes it has.
#[test]
fn no_library() {
    let functions = |bytes: &[u8]| functions(Source::Bytes(bytes.to_vec()));
    assert!(functions(b"").is_err());
    assert!(functions(b"\x7fELF\x02\x01\x01").is_err());
    let own = fs::read("/proc/self/exe").unwrap();
    let error = functions(&own).unwrap_err();
    assert!(error.contains("no symbol `EVP_EncryptUpdate`"), "{error}");
    for cut in [100, 1000, 5000, own.len() / 2] {
        assert!(functions(&own[..cut]).is_err());
    }
    assert!(Path::new("/proc/self/exe").exists());
}

/// Check that a sparse file with a symbol table, or names, of 4 GiB is refused for that, not read.
#[test]
fn huge_tables() {
    for (n_symbols, n_names) in [(4 << 30, 1), (24, 4 << 30)] {
        let mut bytes = Vec::from(*b"\x7fELF\x02\x01\x01");
        let mut put = |at: usize, field: &[u8]| {
            bytes.resize(bytes.len().max(at + field.len()), 0);
            bytes[at..at + field.len()].copy_from_slice(field);
        };
        // ET_DYN for x86-64; section headers, three of 64 bytes, follow the header.
        let fields = [(16, 3_u16), (18, 62), (40, 64), (58, 64), (60, 3)];
        let fields = fields.into_iter();
        fields.for_each(|(at, field)| put(at, &field.to_le_bytes()));
        // Kind, offset, size, and the section that has the names.
        for (header, section) in [(128, [2, 4096, n_symbols, 2]), (192, [3, 4096, n_names, 0])] {
            let fields = [4, 24, 32, 40].into_iter().zip(section);
            fields.for_each(|(at, field): (usize, u64)| put(header + at, &field.to_le_bytes()));
        }
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        file.set_len(8 << 30).unwrap();
        let error = functions(Source::from_file(file).unwrap()).unwrap_err();
        assert!(error.contains("the limit is"), "{error}");
    }
}

/// Check that a probe on this process costs something and is gone afterwards, or that its refusal
/// names the privilege.
#[test]
fn own_cost() {
    let Ok(pmu) = UprobePmu::find() else {
        eprintln!("SKIPPED own_cost: no uprobe events");
        return;
    };
    match cost::measure(pmu, cost::like([0x55; 4])) {
        Ok(cost) => assert!(cost.sampled_ns > 0.0 && cost.trap_ns > 0.0, "{cost:?}"),
        Err(error) => assert!(error.is_circumstance(), "{error}"),
    }
}
