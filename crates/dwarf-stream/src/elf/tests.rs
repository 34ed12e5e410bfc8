//! Tests of ELF headers written by hand; whole files are in the integration tests.

use super::*;

/// An ELF header that says nothing but its kind.
fn header(class: u8, kind: u16) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1]);
    bytes[16..18].copy_from_slice(&kind.to_le_bytes());
    bytes
}

/// Check that an image without section and program headers is empty, not an error.
#[test]
fn only_a_header() {
    let elf = ElfFile::from_bytes(header(2, 3)).unwrap();
    assert!(elf.sections.is_empty() && elf.segments.is_empty());
    assert_eq!(elf.build_id(), None);
    assert!(!elf.has_dwarf());
}

/// Check that other files, 32-bit ones and object files are told apart.
#[test]
fn not_supported() {
    let parse = |bytes| ElfFile::from_bytes(bytes).unwrap_err();
    assert!(matches!(parse(b"#!/bin/sh\n".to_vec()), ElfError::NotElf));
    assert!(matches!(parse(vec![0; 64]), ElfError::NotElf));
    assert!(matches!(
        parse(header(2, 3)[..63].to_vec()),
        ElfError::NotElf
    ));
    assert!(matches!(parse(header(1, 3)), ElfError::Unsupported(_)));
    assert!(matches!(parse(header(2, 1)), ElfError::Unsupported(_)));
}

/// Check that the extended section count, which may be anything, is held to the limit.
#[test]
fn too_many_sections() {
    let mut bytes = header(2, 3);
    bytes[40..48].copy_from_slice(&64_u64.to_le_bytes());
    bytes[58..60].copy_from_slice(&64_u16.to_le_bytes());
    bytes.resize(128, 0);
    bytes[96..104].copy_from_slice(&(1_u64 << 40).to_le_bytes());
    let error = ElfFile::from_bytes(bytes).unwrap_err();
    assert!(matches!(error, ElfError::TooLarge { .. }), "{error}");
}

/// Check that every way to read contents fails once it is cancelled, at the next piece, and that clones share the request.
#[test]
fn cancelled() {
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    let cancel = crate::Cancel::default();
    let elf = ElfFile::from_file(file).unwrap().with_cancel(&cancel);
    let code = elf.section(".text").unwrap();
    let mut stream = elf.stream(code).unwrap();
    let mut piece = [0; 16];
    assert_eq!(stream.read(&mut piece).unwrap(), 16);
    let mut n_chunks = 0;
    let all = elf.for_each_chunk(|_| {
        n_chunks += 1;
        cancel.clone().cancel();
    });
    assert!(matches!(all, Err(ElfError::Cancelled)) && n_chunks == 1);
    let reads = [
        stream.read(&mut piece).err(),
        elf.read(code, u64::MAX).err(),
        elf.read_part(code, 0, 16).err(),
    ];
    assert!(
        reads
            .iter()
            .all(|error| matches!(error, Some(ElfError::Cancelled)))
    );
}

/// Check that a string ends at its NUL or with its table, and that one of any length costs a bounded effort.
#[test]
fn strings() {
    assert_eq!(c_string(b"ab\0c\0d", 1), b"b");
    assert_eq!(c_string(b"ab\0c\0d", 5), b"d");
    assert_eq!(c_string(b"ab", 7), b"");
    let endless = vec![b'x'; 1 << 20];
    // One more byte than names that are demangled have.
    assert_eq!(c_string(&endless, 3).len(), (64 << 10) + 1);
}
