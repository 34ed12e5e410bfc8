//! The headers and notes of a core file of x86-64 (`fs/binfmt_elf.c`, `include/uapi/linux/elf.h`, `elf(5)`).

use wcprof_types::BuildId;

/// Bytes of the file header, and of a program header.
pub(super) const HEADER: usize = 64;
pub(super) const PROGRAM_HEADER: usize = 56;

const ET_CORE: u16 = 4;
const EM_X86_64: u16 = 62;
/// `e_phnum` of a file with more program headers than that field holds.
const PN_XNUM: u16 = 0xffff;
const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const PF_X: u32 = 1;
const NT_GNU_BUILD_ID: u32 = 3;

/// Bytes at a place; zeros where there are fewer.
fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let found = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
    found.copied().unwrap_or([0; N])
}

/// A little-endian number in bytes; 0 where there is none.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array_at(bytes, at))
}

/// As [`u16_at`].
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

/// As [`u16_at`].
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

/// Whether the first bytes of a file are those of an ELF core file of any machine.
pub(crate) fn is_core(head: &[u8]) -> bool {
    head.starts_with(b"\x7fELF") && head.len() >= HEADER && u16_at(head, 16) == ET_CORE
}

/// Where program headers are in a file.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct ProgramHeaders {
    pub(super) offset: u64,
    /// `None`: more than the file header can say.
    pub(super) count: Option<u16>,
}

impl ProgramHeaders {
    /// By the file header.
    ///
    /// # Errors
    /// What the file is, where it is no core file of 64-bit x86-64.
    pub(super) fn new(header: &[u8]) -> Result<Self, String> {
        let machine = u16_at(header, 18);
        let (is_64_bit, is_little_endian) = (header[4] == 2, header[5] == 1);
        if !is_64_bit || !is_little_endian || machine != EM_X86_64 {
            return Err(format!(
                "this core file is of another kind of processor (e_machine {machine}); those of 64-bit x86-64 are read"
            ));
        }
        if usize::from(u16_at(header, 54)) != PROGRAM_HEADER {
            return Err("its program headers have another size than those of 64-bit files".into());
        }
        let count = u16_at(header, 56);
        Ok(Self {
            offset: u64_at(header, 32),
            count: Some(count).filter(|count| *count != PN_XNUM),
        })
    }
}

/// A program header of a core file.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Segment {
    kind: u32,
    flags: u32,
    pub(super) offset: u64,
    pub(super) start: u64,
    /// Bytes of it in the file; what is beyond was not dumped.
    pub(super) in_file: u64,
    in_memory: u64,
}

impl Segment {
    pub(super) fn parse(bytes: &[u8]) -> Self {
        Self {
            kind: u32_at(bytes, 0),
            flags: u32_at(bytes, 4),
            offset: u64_at(bytes, 8),
            start: u64_at(bytes, 16),
            in_file: u64_at(bytes, 32),
            in_memory: u64_at(bytes, 40),
        }
    }

    pub(super) fn is_notes(&self) -> bool {
        self.kind == PT_NOTE
    }

    pub(super) fn is_memory(&self) -> bool {
        self.kind == PT_LOAD
    }

    pub(super) fn is_code(&self) -> bool {
        self.flags & PF_X != 0
    }

    /// First address behind it.
    pub(super) fn end(&self) -> u64 {
        self.start.saturating_add(self.in_memory)
    }

    pub(super) fn contains(&self, address: u64) -> bool {
        (self.start..self.end()).contains(&address)
    }

    /// Addresses of it that are in the file, and where there: of those from `from` to `to`.
    pub(super) fn dumped(&self, from: u64, to: u64) -> Option<(u64, std::ops::Range<u64>)> {
        let from = from.max(self.start);
        let to = to
            .min(self.start.checked_add(self.in_file)?)
            .min(self.end());
        let offset = self.offset.checked_add(from.checked_sub(self.start)?)?;
        (from < to).then_some((offset, from..to))
    }
}

/// A note: the name of who defines it, its type, and its bytes.
pub(super) type Note<'a> = (&'a [u8], u32, &'a [u8]);

/// The notes of a segment, up to the first that is damaged.
pub(super) fn notes(mut bytes: &[u8]) -> impl Iterator<Item = Note<'_>> {
    let padded = |n: u32| (n as usize).checked_next_multiple_of(4);
    std::iter::from_fn(move || {
        let rest = bytes.get(12..)?;
        let (name, desc) = (u32_at(bytes, 0), u32_at(bytes, 4));
        let kind = u32_at(bytes, 8);
        let after_name = rest.get(padded(name)?..)?;
        let note = (
            rest.get(..name as usize)?,
            kind,
            after_name.get(..desc as usize)?,
        );
        bytes = after_name.get(padded(desc)?..).unwrap_or_default();
        Some(note)
    })
}

/// The build-id of a loaded file by the first bytes of its image.
pub(super) fn build_id(image: &[u8]) -> Option<BuildId> {
    if !image.starts_with(b"\x7fELF") {
        return None;
    }
    let at = usize::try_from(u64_at(image, 32)).ok()?;
    let headers = image.get(at..)?.chunks_exact(PROGRAM_HEADER);
    let headers = headers.take(usize::from(u16_at(image, 56)));
    let mut notes_of = headers.map(Segment::parse).filter(Segment::is_notes);
    notes_of.find_map(|segment| {
        let from = usize::try_from(segment.offset).ok()?;
        let to = from.checked_add(usize::try_from(segment.in_file).ok()?)?;
        let mut found = notes(image.get(from..to)?);
        let id = found.find(|(name, kind, _)| *name == b"GNU\0" && *kind == NT_GNU_BUILD_ID);
        BuildId::new(id?.2)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(name: &[u8], kind: u32, desc: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in [name.len() as u32, desc.len() as u32, kind] {
            bytes.extend(number.to_le_bytes());
        }
        for part in [name, desc] {
            bytes.extend(part);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    }

    /// Check that notes are found one behind the other, and that one which is longer than the rest ends them.
    #[test]
    fn damaged_notes() {
        let mut bytes = note(b"CORE\0", 1, b"abc");
        bytes.extend(note(b"LINUX\0", 2, b""));
        bytes.extend([9, 0, 0, 0, 255, 255, 255, 255, 1, 0, 0, 0]);
        let found: Vec<Note<'_>> = notes(&bytes).collect();
        let expected: [Note<'_>; 2] = [(b"CORE\0", 1, b"abc"), (b"LINUX\0", 2, b"")];
        assert_eq!(found, expected);
        assert_eq!(notes(&bytes[..11]).count(), 0);
    }

    /// Check the part of a segment that is in the file: what was not dumped is unknown.
    #[test]
    fn dumped_part() {
        let segment = Segment {
            offset: 0x2000,
            start: 0x10000,
            in_file: 0x1000,
            in_memory: 0x3000,
            ..Segment::default()
        };
        let all = segment.dumped(0, u64::MAX);
        assert_eq!(all, Some((0x2000, 0x10000..0x11000)));
        assert_eq!(segment.dumped(0x11000, 0x12000), None);
        let end = segment.dumped(0x10ff0, 0x12000);
        assert_eq!(end, Some((0x2ff0, 0x10ff0..0x11000)));
        let huge = Segment {
            start: u64::MAX - 1,
            in_file: u64::MAX,
            ..segment
        };
        assert_eq!(huge.dumped(0, u64::MAX), None);
    }
}
