//! `.symtab` and `.dynsym` to an index that names an address, or says that nothing does.

use std::cmp::Reverse;

use dwarf_stream::elf::{DynamicSymbols, ElfError, ElfFile, c_string, entries, read_table};
use dwarf_stream::go::{GoFunction, GoFunctions};
use object::LittleEndian as LE;
use object::elf::{
    SHN_LORESERVE, SHN_UNDEF, SHN_XINDEX, SHT_SYMTAB, STB_GLOBAL, STB_LOCAL, STT_FUNC,
    STT_GNU_IFUNC, STT_NOTYPE, Sym64,
};
use wcprof_types::Svma;

/// Largest table of Go's functions, bytes.
const MAX_TABLE: u64 = 128 << 20;

/// Bytes of names with their versions that are added to those of a file.
const MAX_ADDED: usize = 64 << 20;

/// Which table of a file.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Table {
    /// `.symtab`: all symbols.
    Full,
    /// `.dynsym`: exported and imported ones. Or those of one language.
    Dynamic,
}

/// One symbol table, as read.
#[derive(Debug)]
pub(crate) struct SymbolTable {
    symbols: Vec<Symbol>,
    strings: Vec<u8>,
    which: Table,
}

#[derive(Copy, Clone, Debug)]
struct Symbol {
    start: u64,
    /// Exclusive; equal to `start` when the symbol has no size.
    end: u64,
    /// End of its section, exclusive.
    section_end: u64,
    name: u32,
    table: u8,
    rank: Rank,
}

/// How well a symbol names its address, best last. The fields stand in order of their importance.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Rank {
    kind: Kind,
    /// Exported names are those that callers know: `malloc`, not the local `__malloc`.
    exported: bool,
    /// Not the name of a version for programs that were linked with an older library (`memcpy@GLIBC_2.2.5`).
    current: bool,
    /// `poll` rather than `__poll`, which libc exports too.
    underscores: Reverse<u8>,
    /// Weak names are often the public ones in libc (`write`), hence only here.
    global: bool,
    name_len: Reverse<u32>,
}

#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    NoType,
    /// The function that chooses an implementation.
    Ifunc,
    Func,
}

impl SymbolTable {
    /// Reads a table; `Ok(None)` when the file has none, or an empty one.
    pub(crate) fn read(elf: &ElfFile, which: Table) -> Result<Option<Self>, ElfError> {
        let places = Places::of(elf);
        let (symbols, strings) = match which {
            Table::Full => {
                let mut sections = elf.sections.iter();
                let found = sections.find(|s| s.kind == SHT_SYMTAB.0 && s.has_data());
                let Some(section) = found else {
                    return Ok(None);
                };
                let (bytes, strings) = read_table(elf, section)?;
                let symbols = entries(&bytes).iter();
                let symbols = symbols.filter_map(|entry| symbol(entry, &places, &strings));
                (symbols.collect::<Vec<Symbol>>(), strings)
            }
            Table::Dynamic => match DynamicSymbols::read(elf)? {
                Some(dynamic) => with_versions(dynamic, &places),
                None => return Ok(None),
            },
        };
        Ok((!symbols.is_empty()).then_some(Self {
            symbols,
            strings,
            which,
        }))
    }

    /// The table that a Go program has for its own tracebacks; `Ok(None)` for another program.
    pub(crate) fn read_go(elf: &ElfFile) -> Result<Option<Self>, ElfError> {
        let Some(functions) = GoFunctions::read(elf, MAX_TABLE)? else {
            return Ok(None);
        };
        let symbol = |function: GoFunction<'_>| Symbol {
            start: function.start,
            end: function.end,
            section_end: function.end,
            name: function.name_at,
            table: 0,
            rank: Rank {
                kind: Kind::Func,
                exported: false,
                current: true,
                underscores: Reverse(0),
                global: false,
                name_len: Reverse(0),
            },
        };
        let named = functions.iter().filter(|f| !f.name.is_empty());
        Ok(Some(Self {
            symbols: named.map(symbol).collect(),
            strings: functions.names().to_vec(),
            which: Table::Dynamic,
        }))
    }

    /// Functions in it.
    pub(crate) fn len(&self) -> usize {
        self.symbols.len()
    }
}

/// The functions among dynamic symbols, and their names: those of old versions end in `@VERSION`, as `.symtab` has them.
fn with_versions(dynamic: DynamicSymbols, places: &Places) -> (Vec<Symbol>, Vec<u8>) {
    let mut added = Vec::new();
    let mut symbols = Vec::new();
    for (i, entry) in entries(&dynamic.symbols).iter().enumerate() {
        let Some(mut symbol) = symbol(entry, places, &dynamic.strings) else {
            continue;
        };
        if let Some(version) = dynamic.old_version(i)
            && let Ok(at) = u32::try_from(dynamic.strings.len() + added.len())
            && added.len() < MAX_ADDED
        {
            let begin = added.len();
            added.extend_from_slice(c_string(&dynamic.strings, symbol.name));
            added.push(b'@');
            added.extend_from_slice(version);
            let name_len = u32::try_from(added.len() - begin).unwrap_or(u32::MAX);
            added.push(0);
            symbol.name = at;
            (symbol.rank.current, symbol.rank.name_len) = (false, Reverse(name_len));
        }
        symbols.push(symbol);
    }
    let mut strings = dynamic.strings;
    strings.append(&mut added);
    (symbols, strings)
}

/// Where the code of a file is, by which symbols are judged.
struct Places {
    /// By section header; empty where the file has none.
    sections: Vec<Place>,
    /// By program header.
    segments: Vec<Place>,
}

struct Place {
    is_code: bool,
    start: u64,
    /// Exclusive.
    end: u64,
}

impl Place {
    fn has_code_at(&self, address: u64) -> bool {
        self.is_code && (self.start..self.end).contains(&address)
    }
}

impl Places {
    fn of(elf: &ElfFile) -> Self {
        let sections = elf.sections.iter().map(|s| Place {
            is_code: s.is_executable(),
            start: s.address,
            end: s.end(),
        });
        let segments = elf.segments.iter().map(|s| Place {
            is_code: s.is_code(),
            start: s.address,
            end: s.address.saturating_add(s.memory_size),
        });
        Self {
            sections: sections.collect(),
            segments: segments.collect(),
        }
    }

    /// Where the code ends that the section of a symbol has at an address; `None` where it has none there.
    fn code_end(&self, section: u16, address: u64) -> Option<u64> {
        let place = match self.sections.is_empty() {
            true => self.segments.iter().find(|s| s.has_code_at(address)),
            false => self.sections.get(usize::from(section)),
        };
        place.filter(|p| p.has_code_at(address)).map(|p| p.end)
    }
}

/// The function that a table entry defines.
fn symbol(entry: &Sym64<LE>, places: &Places, strings: &[u8]) -> Option<Symbol> {
    let kind = match entry.st_type() {
        STT_NOTYPE => Kind::NoType,
        STT_FUNC => Kind::Func,
        STT_GNU_IFUNC => Kind::Ifunc,
        _ => return None,
    };
    let index = entry.st_shndx.get(LE);
    if index == SHN_UNDEF || (index.0 >= SHN_LORESERVE && index != SHN_XINDEX) {
        return None;
    }
    let start = entry.st_value.get(LE);
    let mut end = start.checked_add(entry.st_size.get(LE))?;
    let mut section_end = end;
    if index != SHN_XINDEX {
        section_end = places.code_end(index.0, start)?;
        end = end.min(section_end);
    }
    let name_at = entry.st_name.get(LE);
    let name = c_string(strings, name_at);
    // `$x` and the like mark code and data inside functions.
    if name.is_empty() || (kind == Kind::NoType && name.starts_with(b"$")) {
        return None;
    }
    let binding = entry.st_bind();
    let version = name.iter().position(|byte| *byte == b'@').map(|at| at + 1);
    let is_old = version.is_some_and(|at| name.get(at) != Some(&b'@'));
    let is_mangled = name.starts_with(b"_Z") || name.starts_with(b"_R");
    let underscores = match is_mangled {
        true => 0,
        false => name.iter().take_while(|b| **b == b'_').count(),
    };
    Some(Symbol {
        start,
        end,
        section_end,
        name: name_at,
        table: 0,
        rank: Rank {
            kind,
            exported: binding != STB_LOCAL,
            current: !is_old,
            underscores: Reverse(u8::try_from(underscores).unwrap_or(u8::MAX)),
            global: binding == STB_GLOBAL,
            name_len: Reverse(u32::try_from(name.len()).unwrap_or(u32::MAX)),
        },
    })
}

/// A stretch of addresses and the symbol that names it.
#[derive(Copy, Clone, Debug)]
struct Stretch {
    start: u64,
    end: u64,
    symbol: u32,
}

/// Symbols of one module, from all its tables, by address.
///
/// Among symbols that begin at the same address the best is taken: functions before untyped
/// symbols, exported before local ones, those that programs are linked with now before old versions, then fewer leading underscores, global before weak, the
/// shorter name, the bytewise smaller name. Where symbols overlap, the one that begins last (the
/// innermost) names the address.
#[derive(Debug, Default)]
pub(crate) struct SymbolIndex {
    strings: Vec<Vec<u8>>,
    symbols: Vec<Symbol>,
    /// Sorted, without overlaps.
    stretches: Vec<Stretch>,
    /// Positions in `symbols` of those without a size, one an address, by address.
    sizeless: Vec<u32>,
    /// Positions in `symbols` of those that begin something, by address: functions, and exported
    /// symbols of any kind. Of all tables, since mini debug info leaves out what `.dynsym` has;
    /// empty unless one of them is full.
    begins: Vec<u32>,
}

impl SymbolIndex {
    /// Merges tables; among equal symbols those of earlier tables win.
    pub(crate) fn new(tables: Vec<SymbolTable>) -> Self {
        let mut index = Self::default();
        let has_full = tables.iter().any(|table| table.which == Table::Full);
        for (i, table) in (0..=u8::MAX).zip(tables) {
            index.strings.push(table.strings);
            index
                .symbols
                .extend(table.symbols.into_iter().map(|s| Symbol { table: i, ..s }));
        }
        let mut symbols = std::mem::take(&mut index.symbols);
        // Best last at each address, so that it ends up on top of the others below.
        symbols.sort_by(|a, b| {
            (a.start, a.rank)
                .cmp(&(b.start, b.rank))
                .then_with(|| index.name(b).cmp(index.name(a)))
                .then_with(|| b.table.cmp(&a.table))
        });
        index.symbols = symbols;
        index.stretches = stretches(&index.symbols);
        for (i, symbol) in (0_u32..).zip(&index.symbols) {
            let begins = symbol.rank.kind != Kind::NoType || symbol.rank.exported;
            if begins && has_full {
                index.begins.push(i);
            }
            if symbol.start == symbol.end {
                match index.sizeless.last_mut() {
                    Some(last) if index.symbols[*last as usize].start == symbol.start => *last = i,
                    _ => index.sizeless.push(i),
                }
            }
        }
        index
    }

    fn name(&self, symbol: &Symbol) -> &[u8] {
        self.strings
            .get(usize::from(symbol.table))
            .map_or(&[], |strings| c_string(strings, symbol.name))
    }

    /// The linkage name of the symbol that `address` lies in.
    pub(crate) fn at(&self, address: Svma) -> Option<&[u8]> {
        let symbol = self.symbols.get(self.place(address)?)?;
        Some(self.name(symbol))
    }

    /// The linkage names of all C++ and Rust functions with the extent of the one that [`at`](Self::at) names,
    /// in order.
    pub(crate) fn all_at(&self, address: Svma) -> Vec<&[u8]> {
        let Some(place) = self.place(address) else {
            return Vec::new();
        };
        let Symbol { start, end, .. } = self.symbols[place];
        let is_same = |symbol: &&Symbol| symbol.start == start;
        let (before, after) = self.symbols.split_at(place);
        let before = before.iter().rev().take_while(is_same);
        let same = before.chain(after.iter().take_while(is_same));
        let names = same.filter(|s| s.end == end).map(|s| self.name(s));
        let is_mangled = |name: &&[u8]| name.starts_with(b"_Z") || name.starts_with(b"_R");
        let mut names: Vec<&[u8]> = names.filter(is_mangled).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Position in `symbols` of the one that `address` lies in.
    fn place(&self, address: Svma) -> Option<usize> {
        let i = self.stretches.partition_point(|s| s.start <= address.0);
        let stretch = self.stretches.get(i.checked_sub(1)?)?;
        (address.0 < stretch.end).then_some(stretch.symbol as usize)
    }

    /// First address after the symbol that ends last at or before an address that lies in none.
    pub(crate) fn end_before(&self, address: Svma) -> Option<Svma> {
        let i = self.stretches.partition_point(|s| s.start <= address.0);
        let end = self.stretches.get(i.checked_sub(1)?)?.end;
        (end <= address.0).then_some(Svma(end))
    }

    /// Start and linkage name of the function without a size, as assemblers write it, that begins last at
    /// or before `address`. Only of a full table, in which every function has a symbol: then it
    /// goes on until the next one begins, or its section ends. A symbol with a size, or another
    /// exported one, also ends it.
    pub(crate) fn sizeless_around(&self, address: Svma) -> Option<(Svma, &[u8])> {
        let symbol = |i: &u32| self.symbols.get(*i as usize);
        let after = |i: &u32| symbol(i).is_none_or(|s| s.start > address.0);
        let i = self.begins.partition_point(|i| !after(i));
        let last = symbol(self.begins.get(i.checked_sub(1)?)?)?;
        let is_sizeless = last.start == last.end && last.rank.kind == Kind::Func;
        (is_sizeless && address.0 < last.section_end).then(|| (Svma(last.start), self.name(last)))
    }

    /// The linkage name of a symbol without a size that begins at `start`: right for a whole
    /// function only if call frame information says that a function begins there.
    pub(crate) fn sizeless_at(&self, start: Svma) -> Option<&[u8]> {
        let symbol = |i: &u32| self.symbols.get(*i as usize);
        let i = self
            .sizeless
            .binary_search_by_key(&Some(start.0), |i| symbol(i).map(|s| s.start))
            .ok()?;
        Some(self.name(symbol(self.sizeless.get(i)?)?))
    }
}

/// Cuts sorted symbols into stretches without overlaps. The symbols whose end lies ahead are held
/// on a stack; its top names what follows.
fn stretches(symbols: &[Symbol]) -> Vec<Stretch> {
    let mut out: Vec<Stretch> = Vec::new();
    let mut open: Vec<(u64, u32)> = Vec::new();
    let mut cursor = 0;
    let mut advance = |to: u64, open: &mut Vec<(u64, u32)>| {
        while let Some(&(end, symbol)) = open.last() {
            let stop = end.min(to);
            if cursor < stop {
                out.push(Stretch {
                    start: cursor,
                    end: stop,
                    symbol,
                });
                cursor = stop;
            }
            if end > to {
                break;
            }
            open.pop();
        }
        cursor = cursor.max(to);
    };
    for (i, symbol) in (0_u32..).zip(symbols) {
        if symbol.start < symbol.end {
            advance(symbol.start, &mut open);
            open.push((symbol.end, i));
        }
    }
    advance(u64::MAX, &mut open);
    out
}

#[cfg(test)]
mod tests;
