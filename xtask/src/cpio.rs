//! Files to a cpio archive in the form that the kernel unpacks as an initial file system ("newc").

/// An archive that grows.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    n_entries: u32,
}

impl Archive {
    /// Adds an empty folder.
    pub fn folder(&mut self, name: &str) {
        self.append(name, 0o040_755, &[]);
    }

    /// Adds a program.
    pub fn program(&mut self, name: &str, content: &[u8]) {
        self.append(name, 0o100_755, content);
    }

    /// Adds a file that is no program.
    pub fn file(&mut self, name: &str, content: &[u8]) {
        self.append(name, 0o100_644, content);
    }

    /// The bytes, with the entry that marks the end.
    pub fn finish(mut self) -> Vec<u8> {
        self.append("TRAILER!!!", 0, &[]);
        self.bytes
    }

    /// `mode` holds the file type, too. Header with name, and content, are padded to 4 bytes each.
    fn append(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.n_entries += 1;
        let (size, name_size) = (content.len() as u32, name.len() as u32 + 1);
        let inode = self.n_entries;
        let fields = [inode, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend(b"070701");
        self.bytes.extend(
            fields
                .iter()
                .flat_map(|field| format!("{field:08x}").into_bytes()),
        );
        self.bytes.extend(name.bytes().chain([0]));
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the fields of a header, and that header, name and content are each padded to four bytes.
    #[test]
    fn entries() {
        let mut archive = Archive::default();
        archive.file("ab", b"12345");
        let bytes = &archive.bytes;
        assert_eq!(bytes.len(), (110 + 3_usize).next_multiple_of(4) + 8);
        assert!(bytes.starts_with(b"07070100000001000081a4"));
        assert_eq!(&bytes[54..62], b"00000005");
        assert_eq!(&bytes[94..102], b"00000003");
        assert_eq!(&bytes[110..113], b"ab\0");
        let all = archive.finish();
        assert_eq!(all.len() % 4, 0);
        assert!(all.windows(10).any(|w| w == b"TRAILER!!!"));
    }
}
