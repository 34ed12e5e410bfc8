//! Identity of a file: its build-id note and the name of its debug file.

use wcprof_types::BuildId;

use super::parse::c_string;
use super::{ElfError, ElfFile, u32_at};

/// Note sections and segments read at most, bytes.
const MAX_NOTES: u64 = 1 << 20;
/// `.gnu_debuglink` read at most, bytes.
const MAX_DEBUG_LINK: u64 = 4096;
/// `.gnu_debugaltlink` read at most, bytes: a path and a build-id.
const MAX_ALT_LINK: u64 = 4096 + 64;
const SHT_NOTE: u32 = 7;
const PT_NOTE: u32 = 4;
const NT_GNU_BUILD_ID: u32 = 3;

/// What `.gnu_debuglink` says about the debug file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DebugLink {
    /// Its file name; never holds a `/`.
    pub file_name: String,
    /// CRC-32 of the whole debug file.
    pub crc: u32,
}

/// What `.gnu_debugaltlink` says about the file that shares its DWARF with others (dwz).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct AltLink {
    /// Its path, absolute or from the folder of the file that names it.
    pub(crate) path: String,
    /// Its build-id.
    pub(crate) build_id: BuildId,
}

impl ElfFile {
    /// The file's `.gnu_debugaltlink`; `Ok(None)` without one.
    pub(crate) fn alt_link(&self) -> Result<Option<AltLink>, ElfError> {
        let Some(section) = self.section(".gnu_debugaltlink") else {
            return Ok(None);
        };
        let bytes = self.read(section, MAX_ALT_LINK)?;
        let malformed = || ElfError::Malformed("section .gnu_debugaltlink".to_owned());
        let name = c_string(&bytes, 0);
        let id = bytes.get(name.len() + 1..).ok_or_else(malformed)?;
        let path = std::str::from_utf8(name).map_err(|_| malformed())?;
        match BuildId::new(id) {
            Some(build_id) if !path.is_empty() => Ok(Some(AltLink {
                path: path.to_owned(),
                build_id,
            })),
            _ => Err(malformed()),
        }
    }

    /// The GNU build-id note; `None` without one. Unreadable notes count as absent.
    pub fn build_id(&self) -> Option<BuildId> {
        let sections = self
            .sections
            .iter()
            .filter(|s| s.kind == SHT_NOTE)
            // Linkers align notes to 4 bytes, except those of .note.gnu.property (8).
            .map(|s| (s.offset, s.size, 4));
        let segments = self
            .segments
            .iter()
            .filter(|s| s.kind == PT_NOTE)
            .map(|s| (s.offset, s.file_size, if s.align == 8 { 8 } else { 4 }));
        sections
            .chain(segments)
            .filter_map(|(offset, size, align)| {
                let notes = self
                    .source
                    .read(|| "notes".to_owned(), offset, size, MAX_NOTES);
                Some((notes.ok()?, align))
            })
            .find_map(|(notes, align)| build_id(&notes, align))
    }

    /// The file's `.gnu_debuglink`; `Ok(None)` without one.
    pub fn debug_link(&self) -> Result<Option<DebugLink>, ElfError> {
        let Some(section) = self.section(".gnu_debuglink") else {
            return Ok(None);
        };
        let bytes = self.read(section, MAX_DEBUG_LINK)?;
        let malformed = || ElfError::Malformed("section .gnu_debuglink".to_owned());
        let name = c_string(&bytes, 0);
        let crc_at = (name.len() + 1).next_multiple_of(4);
        let crc = u32_at(&bytes, crc_at).ok_or_else(malformed)?;
        let file_name = std::str::from_utf8(name).map_err(|_| malformed())?;
        // The name is joined to folders: it must not lead elsewhere.
        if file_name.is_empty() || file_name.contains('/') || matches!(file_name, "." | "..") {
            return Err(malformed());
        }
        Ok(Some(DebugLink {
            file_name: file_name.to_owned(),
            crc,
        }))
    }
}

fn build_id(notes: &[u8], align: usize) -> Option<BuildId> {
    let mut rest = notes;
    loop {
        let name_size = usize::try_from(u32_at(rest, 0)?).ok()?;
        let desc_size = usize::try_from(u32_at(rest, 4)?).ok()?;
        let kind = u32_at(rest, 8)?;
        let name_end = 12_usize.checked_add(name_size)?;
        let desc_at = name_end.checked_next_multiple_of(align)?;
        let desc_end = desc_at.checked_add(desc_size)?;
        let name = rest.get(12..name_end)?;
        let desc = rest.get(desc_at..desc_end)?;
        if kind == NT_GNU_BUILD_ID && name == b"GNU\0" {
            return BuildId::new(desc);
        }
        rest = rest.get(desc_end.checked_next_multiple_of(align)?..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(kind: u32, name: &[u8], desc: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for field in [
            u32::try_from(name.len()).unwrap(),
            u32::try_from(desc.len()).unwrap(),
            kind,
        ] {
            bytes.extend(field.to_le_bytes());
        }
        for part in [name, desc] {
            bytes.extend(part);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    }

    /// Check that the build-id is found behind other notes of the same section.
    #[test]
    fn behind_others() {
        let mut notes = note(1, b"stapsdt\0", b"abc");
        notes.extend(note(3, b"GNU\0", &[0xab, 0xcd]));
        assert_eq!(build_id(&notes, 4).unwrap().to_string(), "abcd");
    }

    /// Check that cut notes, and sizes that overflow, give nothing.
    #[test]
    fn cut() {
        let notes = note(3, b"GNU\0", &[0xab, 0xcd]);
        for len in 0..notes.len() - 2 {
            assert_eq!(build_id(&notes[..len], 4), None, "{len}");
        }
        let mut huge = notes;
        huge[..8].fill(0xff);
        assert_eq!(build_id(&huge, 4), None);
    }
}
