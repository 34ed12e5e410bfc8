//! `.dynsym` with what belongs to it: found by section headers or, in a file without these, by `PT_DYNAMIC`, as the
//! dynamic linker does.

use object::LittleEndian as LE;
use object::elf::{
    DT_GNU_HASH, DT_HASH, DT_STRSZ, DT_STRTAB, DT_SYMTAB, DT_VERDEF, DT_VERSYM, Dyn64, DynamicTag,
    GnuHashHeader, HashHeader, PT_DYNAMIC, SHN_UNDEF, SHT_DYNSYM, SHT_GNU_VERDEF, SHT_GNU_VERSYM,
    Sym64, Verdaux, Verdef, Versym,
};

use super::error::ElfError;
use super::file::ElfFile;
use super::parse::Section;
use super::table::{c_string, entries};

/// Largest symbol table and string table, bytes.
const MAX_TABLE: u64 = 128 << 20;
const MAX_STRINGS: u64 = 512 << 20;
/// Largest `PT_DYNAMIC` and version definitions that are read, bytes.
const MAX_DYNAMIC: u64 = 1 << 20;
/// Most version definitions that are followed; libc has 46.
const MAX_VERSIONS: usize = 1 << 16;

const SYMBOL: u64 = size_of::<Sym64<LE>>() as u64;

/// The dynamic symbols of a file, as they are stored.
#[derive(Debug, Default)]
pub struct DynamicSymbols {
    /// Entries of [`Sym64`].
    pub symbols: Vec<u8>,
    /// Their names, zero-terminated.
    pub strings: Vec<u8>,
    /// `.gnu.version`: one [`Versym`] a symbol, or none.
    versions: Vec<u8>,
    /// `.gnu.version_d`.
    definitions: Vec<u8>,
}

impl DynamicSymbols {
    /// Those of a file; `Ok(None)` when it has none.
    pub fn read(elf: &ElfFile) -> Result<Option<Self>, ElfError> {
        match elf.sections.is_empty() {
            true => by_segment(elf),
            false => by_sections(elf),
        }
    }

    /// Address of the symbol of a name that the file defines.
    pub fn find(&self, name: &str) -> Option<u64> {
        let mut symbols = entries::<Sym64<LE>>(&self.symbols).iter();
        let is_it = |symbol: &&Sym64<LE>| {
            symbol.st_shndx.get(LE) != SHN_UNDEF
                && c_string(&self.strings, symbol.st_name.get(LE)) == name.as_bytes()
        };
        symbols.find(is_it).map(|symbol| symbol.st_value.get(LE))
    }

    /// The version of a symbol that only programs get which were linked with an older library; `None` of others.
    pub fn old_version(&self, index: usize) -> Option<&[u8]> {
        let version: &Versym<LE> = entries(&self.versions).get(index)?;
        let version = version.0.get(LE);
        let wanted = version.is_hidden().then_some(version.index())?;
        let mut at = 0_usize;
        for _ in 0..MAX_VERSIONS {
            let definition: &Verdef<LE> = first(&self.definitions, at)?;
            if definition.vd_ndx.get(LE) == wanted {
                let name_at = at.checked_add(definition.vd_aux.get(LE) as usize)?;
                let name: &Verdaux<LE> = first(&self.definitions, name_at)?;
                let name = c_string(&self.strings, name.vda_name.get(LE));
                return Some(name).filter(|name| !name.is_empty());
            }
            match definition.vd_next.get(LE) {
                0 => return None,
                next => at = at.checked_add(next as usize)?,
            }
        }
        None
    }
}

fn first<T: object::Pod>(bytes: &[u8], at: usize) -> Option<&T> {
    entries(bytes.get(at..)?).first()
}

/// The bytes of a symbol table and of its string table.
pub fn read_table(elf: &ElfFile, section: &Section) -> Result<(Vec<u8>, Vec<u8>), ElfError> {
    let strings = usize::try_from(section.link)
        .ok()
        .and_then(|i| elf.sections.get(i))
        .filter(|s| s.has_data())
        .ok_or_else(|| ElfError::Malformed(format!("string table of {}", section.name)))?;
    if section.entry_size != SYMBOL {
        return Err(ElfError::Malformed(format!("section {}", section.name)));
    }
    Ok((
        elf.read(section, MAX_TABLE)?,
        elf.read(strings, MAX_STRINGS)?,
    ))
}

fn by_sections(elf: &ElfFile) -> Result<Option<DynamicSymbols>, ElfError> {
    let find = |kind: u32| elf.sections.iter().find(|s| s.kind == kind && s.has_data());
    let Some(section) = find(SHT_DYNSYM.0) else {
        return Ok(None);
    };
    let (symbols, strings) = read_table(elf, section)?;
    // Without versions symbols have their names.
    let read = |kind| find(kind).and_then(|section| elf.read(section, MAX_TABLE).ok());
    Ok(Some(DynamicSymbols {
        symbols,
        strings,
        versions: read(SHT_GNU_VERSYM.0).unwrap_or_default(),
        definitions: read(SHT_GNU_VERDEF.0).unwrap_or_default(),
    }))
}

fn by_segment(elf: &ElfFile) -> Result<Option<DynamicSymbols>, ElfError> {
    let Some(dynamic) = elf.segments.iter().find(|s| s.kind == PT_DYNAMIC.0) else {
        return Ok(None);
    };
    let (what, size) = (format_args!("PT_DYNAMIC"), dynamic.file_size);
    let dynamic = elf.read_range(what, dynamic.offset, size, MAX_DYNAMIC)?;
    let dynamic: &[Dyn64<LE>] = entries(&dynamic);
    let value = |tag: DynamicTag| {
        let entry = dynamic.iter().find(|entry| entry.d_tag.get(LE) == tag);
        entry.map(|entry| entry.d_val.get(LE))
    };
    let (Some(symbols), Some(strings)) = (value(DT_SYMTAB), value(DT_STRTAB)) else {
        return Ok(None);
    };
    let image = Image(elf);
    let n = match (value(DT_GNU_HASH), value(DT_HASH)) {
        (Some(table), _) => image.n_by_gnu_hash(table),
        (None, Some(table)) => image.n_by_hash(table),
        (None, None) => None,
    };
    let malformed = || ElfError::Malformed("PT_DYNAMIC".to_owned());
    let n = n.ok_or_else(malformed)?;
    let read = |address, size, limit| image.read(address, size, limit).ok_or_else(malformed);
    Ok(Some(DynamicSymbols {
        symbols: read(symbols, n.saturating_mul(SYMBOL), MAX_TABLE)?,
        strings: read(strings, value(DT_STRSZ).unwrap_or_default(), MAX_STRINGS)?,
        versions: value(DT_VERSYM)
            .and_then(|at| image.read(at, n.saturating_mul(2), MAX_TABLE))
            .unwrap_or_default(),
        // Its size is stated nowhere.
        definitions: value(DT_VERDEF)
            .and_then(|at| image.read_up_to(at, MAX_DYNAMIC))
            .unwrap_or_default(),
    }))
}

/// A file by the addresses that its parts are loaded at.
struct Image<'e>(&'e ElfFile);

impl Image<'_> {
    /// Where the bytes of an address are, and how many follow.
    fn place(&self, address: u64) -> Option<(u64, u64)> {
        self.0
            .segments
            .iter()
            .filter(|s| s.is_load())
            .find_map(|s| {
                let into = address.checked_sub(s.address)?;
                let left = s.file_size.checked_sub(into).filter(|left| *left > 0)?;
                Some((s.offset.checked_add(into)?, left))
            })
    }

    fn read(&self, address: u64, size: u64, limit: u64) -> Option<Vec<u8>> {
        let (offset, left) = self.place(address)?;
        let what = format_args!("what PT_DYNAMIC refers to");
        let bytes = (size <= left).then(|| self.0.read_range(what, offset, size, limit));
        bytes?.ok()
    }

    fn read_up_to(&self, address: u64, limit: u64) -> Option<Vec<u8>> {
        let (_, left) = self.place(address)?;
        self.read(address, left.min(limit), limit)
    }

    /// Symbols that a table of `DT_HASH` has.
    fn n_by_hash(&self, table: u64) -> Option<u64> {
        let header = self.read(table, size_of::<HashHeader<LE>>() as u64, MAX_DYNAMIC)?;
        let header: &HashHeader<LE> = first(&header, 0)?;
        Some(header.chain_count.get(LE).into())
    }

    /// The same of `DT_GNU_HASH`, which ends the chain of its last bucket after the last symbol.
    fn n_by_gnu_hash(&self, table: u64) -> Option<u64> {
        const HEADER: u64 = size_of::<GnuHashHeader<LE>>() as u64;
        let header = self.read(table, HEADER, HEADER)?;
        let header: &GnuHashHeader<LE> = first(&header, 0)?;
        let base = u64::from(header.symbol_base.get(LE));
        let n_buckets = u64::from(header.bucket_count.get(LE));
        let buckets = table + HEADER + u64::from(header.bloom_count.get(LE)) * 8;
        let chains = buckets.checked_add(n_buckets * 4)?;
        let word = |bytes: &[u8]| bytes.first_chunk().map(|word| u32::from_le_bytes(*word));
        let all = self.read(buckets, n_buckets * 4, MAX_TABLE)?;
        let last = all.chunks_exact(4).filter_map(word).max().unwrap_or(0);
        let Some(into) = u64::from(last).checked_sub(base) else {
            // Nothing is exported.
            return Some(base);
        };
        let chain = self.read_up_to(chains.checked_add(into * 4)?, MAX_TABLE)?;
        let mut chain = chain.chunks_exact(4).filter_map(word);
        let n = chain.position(|word| word & 1 == 1)?;
        Some(u64::from(last) + n as u64 + 1)
    }
}
