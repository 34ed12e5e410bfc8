//! A debug file in, one with N times as much debug information out: to measure that this costs
//! time, not memory.
//!
//! ```sh
//! cargo run --release -p wcprof-symbols --example enlarge -- FROM TO 10
//! ```
//!
//! `.debug_info` is repeated, `.debug_aranges` describes the last copy, so that all others come before
//! it. A compressed section is repeated as it is stored: zlib streams may follow each other.

use std::error::Error;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

use wcprof_symbols::elf::{ElfFile, Section};

const MAX_ARANGES: u64 = 64 << 20;
/// Bytes of `Elf64_Chdr`.
const COMPRESSION_HEADER: usize = 24;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [from, to, n] = args.as_slice() else {
        return Err("usage: enlarge FROM TO N".into());
    };
    let n: u64 = n.parse()?;
    let elf = ElfFile::from_file(File::open(from)?)?;
    let find = |name: &str| -> Result<(usize, &Section), Box<dyn Error>> {
        let at = elf.sections.iter().position(|s| s.name == name);
        let at = at.ok_or_else(|| format!("no section {name}"))?;
        Ok((at, &elf.sections[at]))
    };
    let (info_at, info) = find(".debug_info")?;
    let (aranges_at, aranges) = find(".debug_aranges")?;
    let size = elf.expanded_size(info)?;
    let aranges = shifted(elf.read(aranges, MAX_ARANGES)?, (n - 1) * size)?;

    std::fs::copy(from, to)?;
    let source = File::open(from)?;
    let mut out = File::options().read(true).write(true).open(to)?;
    let mut headers = [0; 8];
    out.read_exact_at(&mut headers, 40)?;
    let headers = u64::from_le_bytes(headers);
    let field = |section: usize, at: u64| headers + 64 * section as u64 + at;

    let mut stored = vec![0; usize::try_from(info.size)?];
    source.read_exact_at(&mut stored, info.offset)?;
    let is_compressed = size != info.size;
    let (head, data) = stored.split_at(if is_compressed { COMPRESSION_HEADER } else { 0 });
    let begin = out.seek(SeekFrom::End(0))?;
    let mut head = head.to_vec();
    if let Some(total) = head.get_mut(8..16) {
        if !matches!(data.first(), Some(0x78)) {
            return Err("only zlib streams may follow each other".into());
        }
        total.copy_from_slice(&(n * size).to_le_bytes());
    }
    out.write_all(&head)?;
    for _ in 0..n {
        out.write_all(data)?;
    }
    let end = out.stream_position()?;
    out.write_all(&aranges)?;
    for (section, flags, offset, size) in [
        (info_at, info.flags, begin, end - begin),
        (aranges_at, 0, end, aranges.len() as u64),
    ] {
        out.write_all_at(&flags.to_le_bytes(), field(section, 8))?;
        out.write_all_at(&offset.to_le_bytes(), field(section, 24))?;
        out.write_all_at(&size.to_le_bytes(), field(section, 32))?;
    }
    Ok(())
}

/// `.debug_aranges` (DWARF 5, section 6.1.2) for units that lie further back by `by` bytes.
fn shifted(mut aranges: Vec<u8>, by: u64) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut at = 0;
    while at < aranges.len() {
        let mut word = [0; 4];
        let mut head = aranges.get(at..).ok_or("cut")?;
        head.read_exact(&mut word)?;
        let length = u32::from_le_bytes(word);
        let place = aranges.get_mut(at + 6..at + 10).ok_or("cut")?;
        let offset = u32::from_le_bytes((&*place).try_into()?);
        let offset = u32::try_from(u64::from(offset) + by)?;
        place.copy_from_slice(&offset.to_le_bytes());
        at += 4 + usize::try_from(length)?;
    }
    Ok(aranges)
}
