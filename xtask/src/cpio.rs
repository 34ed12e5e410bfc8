//! Files to a cpio archive in the form that the kernel unpacks as an initial file system ("newc").

/// Mode of an empty folder.
pub const FOLDER: u32 = 0o040_755;
/// Mode of a program.
pub const PROGRAM: u32 = 0o100_755;
/// Mode of another file.
pub const FILE: u32 = 0o100_644;

/// The archive of these files: name, mode and content. Header with name, and content, are padded to 4 bytes each.
pub fn archive(files: &[(&str, u32, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let end = [("TRAILER!!!", 0, &[][..])];
    for (inode, (name, mode, content)) in (1..).zip(files.iter().chain(&end)) {
        let (size, name_size) = (content.len() as u32, name.len() as u32 + 1);
        let fields = [inode, *mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        bytes.extend(b"070701");
        bytes.extend(
            fields
                .map(|field| format!("{field:08x}").into_bytes())
                .concat(),
        );
        bytes.extend(name.bytes().chain([0]));
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes.extend(*content);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the fields of a header, and that header, name and content are each padded to four bytes.
    #[test]
    fn entries() {
        let bytes = archive(&[("ab", FILE, b"12345")]);
        let n_first = (110 + 3_usize).next_multiple_of(4) + 8;
        assert!(bytes[n_first..].starts_with(b"07070100000002"));
        assert!(bytes.starts_with(b"07070100000001000081a4"));
        assert_eq!(&bytes[54..62], b"00000005");
        assert_eq!(&bytes[94..102], b"00000003");
        assert_eq!(&bytes[110..113], b"ab\0");
        assert_eq!(bytes.len() % 4, 0);
        assert!(bytes.windows(10).any(|w| w == b"TRAILER!!!"));
    }
}
