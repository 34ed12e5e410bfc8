//! Mappings of a target -> where its update functions are: offset in the file, addresses in memory.
//!
//! Symbols come from `.dynsym`, or `.symtab` of a program that holds OpenSSL itself. A value becomes a
//! file offset through the `PT_LOAD` segment that holds it (ELF gABI, chapter 5).

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;

use dwarf_stream::elf::{ElfFile, Kind, Section, Source, entries};
use object::LittleEndian as LE;
use object::elf::{EM_X86_64, PF_X, PT_LOAD, SHN_UNDEF, SHT_DYNSYM, SHT_SYMTAB, Sym64};
use wcprof_host::Target;
use wcprof_host::open::{LiveFiles, TargetFile};
use wcprof_host::procfs::live_folder;
use wcprof_types::{Avma, Mapping, file_name, undeleted};

use super::{UpdateFunction, UprobeError};

/// Copies of OpenSSL in one process; more are not looked at.
const MAX_MODULES: usize = 4;
/// Bytes of a symbol table, and of its names: five million symbols.
const MAX_TABLE: u64 = 128 << 20;

type Offsets = Vec<(UpdateFunction, u64)>;

/// Where a function is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Site {
    pub(super) function: UpdateFunction,
    pub(super) offset: u64,
    /// In the target's memory, one for each mapping of that part of the file.
    pub(super) addresses: Vec<Avma>,
}

/// A mapped file with update functions.
#[derive(Debug)]
pub struct CryptoModule {
    /// Its path in the target, as the kernel prints it.
    pub path: String,
    /// It is the program itself, not a shared library.
    pub is_program: bool,
    /// The file that is mapped, open, whatever its name leads to now.
    pub file: TargetFile,
    pub(super) sites: Vec<Site>,
}

impl CryptoModule {
    /// First bytes of an update function; zero when they cannot be read.
    pub(super) fn first_bytes(&self) -> [u8; 4] {
        let mut bytes = [0; 4];
        if let Some(site) = self.sites.first() {
            // What cannot be read counts as the slowest kind.
            let _ = self.file.read_exact_at(&mut bytes, site.offset);
        }
        bytes
    }
}

/// Finds OpenSSL in a target: its libcrypto, or functions of its program.
///
/// # Errors
/// When there is none, or its file cannot be opened or understood.
pub fn find_crypto_modules(target: &Target) -> Result<Vec<CryptoModule>, UprobeError> {
    let mappings = target.mappings()?;
    let files = LiveFiles::new(target.pid());
    let exe = std::fs::read_link(format!("{}/exe", live_folder(target.pid())))
        .map(|path| path.to_string_lossy().into_owned())
        .unwrap_or_default();
    let code = || mappings.iter().filter(|m| m.executable && m.inode != 0);
    let mut seen = BTreeSet::new();
    let libraries: Vec<_> = code()
        .filter(|m| is_libcrypto(&m.path) && seen.insert((m.device, m.inode)))
        .take(MAX_MODULES)
        .collect();
    if libraries.is_empty() {
        let Some(mapping) = code().find(|m| m.path == exe) else {
            return Err(UprobeError::NoLibrary(target.pid().0));
        };
        return match open(&files, &mappings, mapping, true) {
            Ok(module) => Ok(vec![module]),
            Err(UprobeError::Symbols { .. }) => Err(UprobeError::NoLibrary(target.pid().0)),
            Err(error) => Err(error),
        };
    }
    libraries
        .into_iter()
        .map(|mapping| open(&files, &mappings, mapping, false))
        .collect()
}

/// `libcrypto.so.3`, `libcrypto-1a2b3c.so.1.1`, deleted or not.
fn is_libcrypto(path: &str) -> bool {
    let name = file_name(undeleted(path));
    name.starts_with("libcrypto") && name.contains(".so")
}

fn open(
    files: &LiveFiles,
    mappings: &[Mapping],
    mapping: &Mapping,
    is_program: bool,
) -> Result<CryptoModule, UprobeError> {
    if files.may_hang(mapping) {
        return Err(UprobeError::MayHang(mapping.path.clone()));
    }
    let file = files.open_mapping(mapping)?;
    let failed = |reason: String| UprobeError::Symbols {
        path: mapping.path.clone(),
        reason,
    };
    let find = |file| functions(Source::from_file(file).map_err(|e| e.to_string())?);
    let found = files.read_in_time(mapping, &file, find)?;
    let (offsets, is_boring) = found.map_err(failed)?;
    if is_boring {
        return Err(UprobeError::NotOpenSsl(mapping.path.clone()));
    }
    let is_code_of_file =
        |m: &&Mapping| m.executable && m.inode == mapping.inode && m.device == mapping.device;
    let of_file: Vec<&Mapping> = mappings.iter().filter(is_code_of_file).collect();
    let site = |(function, offset)| Site {
        function,
        offset,
        addresses: addresses(&of_file, offset),
    };
    let sites: Vec<Site> = offsets.into_iter().map(site).collect();
    if let Some(site) = sites.iter().find(|site| site.addresses.is_empty()) {
        let name = site.function.symbol();
        return Err(failed(format!("`{name}` is not in a part that is mapped")));
    }
    Ok(CryptoModule {
        path: mapping.path.clone(),
        is_program,
        file,
        sites,
    })
}

fn addresses(mappings: &[&Mapping], offset: u64) -> Vec<Avma> {
    let address = |m: &&Mapping| {
        let distance = offset.checked_sub(m.offset.0)?;
        let address = Avma(m.start.0.checked_add(distance)?);
        m.contains(address).then_some(address)
    };
    mappings.iter().filter_map(address).collect()
}

/// File offsets of both functions in an ELF file, and whether it is BoringSSL.
pub(super) fn functions(source: Source) -> Result<(Offsets, bool), String> {
    let elf = ElfFile::parse(source, Kind::Linked).map_err(|e| e.to_string())?;
    if elf.machine != EM_X86_64.0 {
        return Err("not code for x86-64".into());
    }
    let mut values = [None; 2];
    let mut is_boring = false;
    let read = |section| elf.read(section, MAX_TABLE).map_err(|e| e.to_string());
    for kind in [SHT_DYNSYM.0, SHT_SYMTAB.0] {
        let table = elf.sections.iter().find(|section| section.kind == kind);
        let names = |table: &Section| elf.sections.get(table.link as usize);
        let Some((table, names)) = table.and_then(|table| Some((table, names(table)?))) else {
            continue;
        };
        let (symbols, names) = (read(table)?, read(names)?);
        for symbol in entries::<Sym64<LE>>(&symbols) {
            let name = names
                .get(symbol.st_name.get(LE) as usize..)
                .unwrap_or_default();
            // A name without an end is not gone through.
            let is = |wanted: &str| {
                let rest = name.strip_prefix(wanted.as_bytes());
                rest.is_some_and(|rest| rest.starts_with(&[0]))
            };
            is_boring |= is("BORINGSSL_self_test");
            if symbol.st_shndx.get(LE) == SHN_UNDEF {
                continue;
            }
            for (function, value) in UpdateFunction::ALL.iter().zip(&mut values) {
                if is(function.symbol()) {
                    value.get_or_insert(symbol.st_value.get(LE));
                }
            }
        }
    }
    let mut offsets = Vec::new();
    for (function, value) in UpdateFunction::ALL.into_iter().zip(values) {
        let name = function.symbol();
        let value = value.ok_or_else(|| format!("no symbol `{name}`"))?;
        let offset = elf.segments.iter().find_map(|segment| {
            let is_code = segment.kind == PT_LOAD.0 && segment.flags & PF_X.0 != 0;
            let distance = value.checked_sub(segment.address)?;
            let is_inside = is_code && distance < segment.file_size;
            is_inside.then(|| segment.offset.checked_add(distance))?
        });
        let offset = offset.ok_or_else(|| format!("`{name}` is in no executable segment"))?;
        offsets.push((function, offset));
    }
    Ok((offsets, is_boring))
}
