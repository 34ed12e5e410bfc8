//! Identity of a file: its build-id note, and what it says about its debug files.

use object::LittleEndian as LE;
use object::elf::{FileHeader64, NT_GNU_BUILD_ID, PT_NOTE, SHT_NOTE};
use object::read::elf::NoteIterator;

use super::error::ElfError;
use super::file::ElfFile;
use super::table::c_string;

/// Largest note section or segment, bytes.
const MAX_NOTES: u64 = 1 << 20;
/// Largest `.gnu_debuglink`, bytes.
const MAX_DEBUG_LINK: u64 = 4096;
/// Largest `.gnu_debugaltlink` or `.debug_sup`, bytes: a path and a build-id.
const MAX_ALT_LINK: u64 = 4096 + 64;

/// What `.gnu_debuglink` says about the debug file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DebugLink {
    /// Its file name; never holds a `/`.
    pub file_name: String,
    /// CRC-32 of the whole debug file.
    pub crc: u32,
}

/// What `.gnu_debugaltlink`, or `.debug_sup` of DWARF 5, says about the file that shares its DWARF with others (dwz).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AltLink {
    /// The section that says it.
    pub section: &'static str,
    /// Its path, absolute or from the folder of the file that names it; never empty.
    pub path: String,
    /// Its build-id, or the checksum that stands for one in `.debug_sup`.
    pub build_id: Vec<u8>,
}

/// A `.debug_sup` section (DWARF 5, section 7.3.6).
struct Supplementary {
    /// It is of the file that others name.
    is_named: bool,
    /// Empty in that file.
    path: String,
    checksum: Vec<u8>,
}

/// dwz before DWARF 5.
const ALT_LINK: &str = ".gnu_debugaltlink";
const DEBUG_SUP: &str = ".debug_sup";

impl ElfFile {
    /// The file's `.gnu_debugaltlink` or `.debug_sup`; `Ok(None)` without one.
    pub fn alt_link(&self) -> Result<Option<AltLink>, ElfError> {
        let link = self.link(ALT_LINK, MAX_ALT_LINK, |path, bytes| {
            let build_id = bytes.get(path.len() + 1..)?.to_vec();
            (!path.is_empty()).then_some(AltLink {
                section: ALT_LINK,
                path,
                build_id,
            })
        })?;
        if link.is_some() {
            return Ok(link);
        }
        let link = self.supplementary()?.filter(|sup| !sup.is_named);
        Ok(link.map(|sup| AltLink {
            section: DEBUG_SUP,
            path: sup.path,
            build_id: sup.checksum,
        }))
    }

    fn supplementary(&self) -> Result<Option<Supplementary>, ElfError> {
        let Some(found) = self.section(DEBUG_SUP) else {
            return Ok(None);
        };
        let bytes = self.read(found, MAX_ALT_LINK)?;
        let parse = || {
            let [5, 0, is_named @ (0 | 1), rest @ ..] = &bytes[..] else {
                return None;
            };
            let is_named = *is_named == 1;
            let path = String::from_utf8(c_string(rest, 0).to_vec()).ok()?;
            let (&n, rest) = rest.get(path.len() + 1..)?.split_first()?;
            // LEB128; longer ones than 127 bytes are none that dwz writes.
            let checksum = rest.get(..usize::from(n))?.to_vec();
            let is_valid = n < 0x80 && is_named == path.is_empty();
            is_valid.then_some(Supplementary {
                is_named,
                path,
                checksum,
            })
        };
        let malformed = || ElfError::Malformed(format!("section {DEBUG_SUP}"));
        parse().map(Some).ok_or_else(malformed)
    }

    /// The file's `.gnu_debuglink`; `Ok(None)` without one.
    pub fn debug_link(&self) -> Result<Option<DebugLink>, ElfError> {
        self.link(".gnu_debuglink", MAX_DEBUG_LINK, |file_name, bytes| {
            let crc_at = (file_name.len() + 1).next_multiple_of(4);
            let crc = u32::from_le_bytes(*bytes.get(crc_at..)?.first_chunk()?);
            // The name is joined to folders: it must not lead elsewhere.
            let is_name = !file_name.contains('/') && !matches!(&*file_name, "" | "." | "..");
            is_name.then_some(DebugLink { file_name, crc })
        })
    }

    /// Parses a section that begins with a name.
    fn link<T>(
        &self,
        section: &str,
        limit: u64,
        parse: impl FnOnce(String, &[u8]) -> Option<T>,
    ) -> Result<Option<T>, ElfError> {
        let Some(found) = self.section(section) else {
            return Ok(None);
        };
        let bytes = self.read(found, limit)?;
        let name = String::from_utf8(c_string(&bytes, 0).to_vec()).ok();
        match name.and_then(|name| parse(name, &bytes)) {
            Some(link) => Ok(Some(link)),
            None => Err(ElfError::Malformed(format!("section {section}"))),
        }
    }

    /// The GNU build-id note, or the checksum of a file that is named by `.debug_sup` of others and has no note; `None`
    /// without either. Unreadable ones count as absent.
    pub fn build_id(&self) -> Option<Vec<u8>> {
        self.build_id_note().or_else(|| {
            let sup = self.supplementary().ok()??;
            sup.is_named.then_some(sup.checksum)
        })
    }

    fn build_id_note(&self) -> Option<Vec<u8>> {
        // Linkers align notes to 4 bytes, except those of .note.gnu.property (8).
        let sections = self.sections.iter().filter(|s| s.kind == SHT_NOTE.0);
        let sections = sections.map(|s| (s.offset, s.size, 4));
        let segments = self.segments.iter().filter(|s| s.kind == PT_NOTE.0);
        let segments = segments.map(|s| (s.offset, s.file_size, s.align));
        sections.chain(segments).find_map(|(offset, size, align)| {
            let notes = self.read_range(format_args!("notes"), offset, size, MAX_NOTES);
            build_id(&notes.ok()?, if align == 8 { 8 } else { 4 }).map(<[u8]>::to_vec)
        })
    }
}

fn build_id(notes: &[u8], align: u64) -> Option<&[u8]> {
    let notes = NoteIterator::<FileHeader64<LE>>::new(LE, align, notes).ok()?;
    notes
        .flatten()
        .find(|note| note.n_type(LE) == NT_GNU_BUILD_ID && note.name_bytes() == b"GNU\0")
        .map(|note| note.desc())
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
        assert_eq!(build_id(&notes, 4), Some(&[0xab, 0xcd][..]));
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
