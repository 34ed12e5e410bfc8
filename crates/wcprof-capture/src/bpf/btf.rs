//! The kernel's type information to the few types that the programs read.
//!
//! `/sys/kernel/btf/vmlinux` describes more than a hundred thousand types; parsing them all into
//! structures takes tens of milliseconds. Here they are walked once, in place, and only the
//! structs of the given names are kept, with what their members' offsets depend on: pointers
//! point to `void`, other structs are opaque. Format: `Documentation/bpf/btf.rst`.

use std::collections::HashMap;

use thiserror::Error;

use crate::sys::word;

const MAGIC: u16 = 0xeb9f;
const HEADER_LEN: usize = 24;
const TYPE_LEN: usize = 12;

const KIND_INT: u32 = 1;
const KIND_PTR: u32 = 2;
const KIND_ARRAY: u32 = 3;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_ENUM: u32 = 6;
const KIND_TYPEDEF: u32 = 8;
const KIND_VOLATILE: u32 = 9;
const KIND_CONST: u32 = 10;
const KIND_RESTRICT: u32 = 11;
const KIND_FUNC: u32 = 12;
const KIND_FUNC_PROTO: u32 = 13;
const KIND_VAR: u32 = 14;
const KIND_DATASEC: u32 = 15;
const KIND_FLOAT: u32 = 16;
const KIND_DECL_TAG: u32 = 17;
const KIND_TYPE_TAG: u32 = 18;
const KIND_ENUM64: u32 = 19;

/// Structs inside structs, modifiers on modifiers: deeper is no real kernel.
const MAX_DEPTH: u32 = 64;

/// Bytes that are no type information, or not consistent.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Error)]
pub(super) enum BtfError {
    #[error("no BTF, or of another byte order")]
    Header,
    #[error("a table lies outside of the {0} bytes")]
    Table(usize),
    #[error("type {id} is of unknown kind {kind}")]
    Kind { id: u32, kind: u32 },
    #[error("type {0} does not exist")]
    NoSuchType(u32),
    #[error("types are nested too deeply")]
    Depth,
}

/// What the programs need to know of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct KernelTypes {
    /// The wanted structs as BTF of their own.
    pub(super) btf: Vec<u8>,
    /// Type ids of the wanted functions in the whole BTF, in their order; `None` of one that does
    /// not exist.
    pub(super) functions: Vec<Option<u32>>,
}

/// Keeps the structs named in `structs`, and finds `functions`.
pub(super) fn reduce(
    bytes: &[u8],
    structs: &[String],
    functions: &[&str],
) -> Result<KernelTypes, BtfError> {
    let tables = Tables::read(bytes)?;
    // The kernel's strings are unique, so that names can be compared by their offset.
    let structs: Vec<&str> = structs.iter().map(String::as_str).collect();
    let names = tables.name_offsets(&[&structs, functions].concat());
    // Of a hundred thousand types nearly all fail this test.
    let mut is_near = [false; 1 << 12];
    for &name in names.iter().flatten() {
        is_near[name as usize % is_near.len()] = true;
    }
    let mut near = Vec::new();
    let all = AllTypes::read(tables, |id, kind, name| {
        let is_wanted = is_near[name as usize % is_near.len()];
        if is_wanted && matches!(kind, KIND_STRUCT | KIND_FUNC) {
            near.push(id);
        }
    })?;
    let (wanted, names) = names.split_at(structs.len());
    let wanted: Vec<u32> = wanted.iter().copied().flatten().collect();
    let mut out = Reduced::new(&all, &wanted);
    let mut function_ids = vec![None; names.len()];
    for id in near {
        let ty = all.get(id)?;
        if ty.kind == KIND_STRUCT && wanted.contains(&ty.name) {
            out.add(id, 0)?;
        } else if ty.kind == KIND_FUNC
            && let Some(at) = names.iter().position(|name| *name == Some(ty.name))
        {
            function_ids[at] = Some(id);
        }
    }
    Ok(KernelTypes {
        btf: out.finish(),
        functions: function_ids,
    })
}

/// Names of the structs in `bytes`, without what follows three underscores (a "flavor").
pub(super) fn struct_names(bytes: &[u8]) -> Result<Vec<String>, BtfError> {
    let all = AllTypes::read(Tables::read(bytes)?, |_, _, _| ())?;
    let mut names = Vec::new();
    for id in 1..=all.offsets.len() as u32 {
        let ty = all.get(id)?;
        let name = all.tables.string(ty.name);
        let plain = name.split("___").next().unwrap_or_default();
        if ty.kind == KIND_STRUCT && !plain.is_empty() {
            names.push(plain.to_owned());
        }
    }
    names.sort();
    names.dedup();
    Ok(names)
}

/// The two tables of BTF.
#[derive(Copy, Clone)]
struct Tables<'a> {
    types: &'a [u8],
    strings: &'a [u8],
}

/// All types, in place.
struct AllTypes<'a> {
    tables: Tables<'a>,
    /// Where type `i + 1` begins.
    offsets: Vec<u32>,
}

#[derive(Copy, Clone)]
struct Type<'a> {
    name: u32,
    /// With its count of members and its flag.
    info: u32,
    kind: u32,
    /// Bytes, or the type it refers to.
    size: u32,
    /// What follows.
    rest: &'a [u8],
}

impl<'a> Tables<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, BtfError> {
        let magic = bytes.first_chunk().map(|b| u16::from_ne_bytes(*b));
        if bytes.len() < HEADER_LEN || magic != Some(MAGIC) {
            return Err(BtfError::Header);
        }
        let table = |at: usize| {
            let begin = word(bytes, 4) as usize + word(bytes, at) as usize;
            bytes
                .get(begin..begin + word(bytes, at + 4) as usize)
                .ok_or(BtfError::Table(bytes.len()))
        };
        Ok(Self {
            types: table(8)?,
            strings: table(16)?,
        })
    }

    fn bytes_of(&self, offset: u32) -> &'a [u8] {
        let rest = self.strings.get(offset as usize..).unwrap_or_default();
        rest.split(|&b| b == 0).next().unwrap_or_default()
    }

    fn string(&self, offset: u32) -> std::borrow::Cow<'a, str> {
        String::from_utf8_lossy(self.bytes_of(offset))
    }

    /// Where the strings have each of the names; the first where one is there twice.
    fn name_offsets(&self, names: &[&str]) -> Vec<Option<u32>> {
        let mut out = vec![None; names.len()];
        let mut at = 0;
        // Few strings are as long as one of them and begin as it does.
        let longest = names.iter().map(|name| name.len()).max().unwrap_or(0);
        let mut begins = vec![[false; 256]; longest + 1];
        for name in names.iter().map(|name| name.as_bytes()) {
            if let (Some(of_length), Some(&b)) = (begins.get_mut(name.len()), name.first()) {
                of_length[usize::from(b)] = true;
            }
        }
        // Once through megabytes of strings, not once a name.
        for end in memchr::memchr_iter(0, self.strings) {
            let string = self.strings.get(at..end).unwrap_or_default();
            if let (Some(of_length), Some(&b)) = (begins.get(string.len()), string.first())
                && of_length[usize::from(b)]
                && let Some(i) = names.iter().position(|name| name.as_bytes() == string)
            {
                out[i] = out[i].or(u32::try_from(at).ok());
            }
            at = end + 1;
        }
        out
    }
}

impl<'a> AllTypes<'a> {
    /// Walks all types, and shows the id, kind and name of each.
    fn read(tables: Tables<'a>, mut show: impl FnMut(u32, u32, u32)) -> Result<Self, BtfError> {
        let types = tables.types;
        // Types take about 20 bytes with what follows them.
        let mut offsets = Vec::with_capacity(types.len() / 20);
        let mut at = 0;
        while at < types.len() {
            offsets.push(at as u32);
            let id = offsets.len() as u32;
            let info = word(types, at + 4);
            let (kind, n) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
            show(id, kind, word(types, at));
            at += TYPE_LEN
                + match kind {
                    KIND_INT | KIND_VAR | KIND_DECL_TAG => 4,
                    KIND_ARRAY => 12,
                    KIND_STRUCT | KIND_UNION | KIND_DATASEC | KIND_ENUM64 => n * 12,
                    KIND_ENUM | KIND_FUNC_PROTO => n * 8,
                    KIND_PTR..=KIND_TYPE_TAG => 0,
                    kind => return Err(BtfError::Kind { id, kind }),
                };
        }
        Ok(Self { tables, offsets })
    }

    fn get(&self, id: u32) -> Result<Type<'a>, BtfError> {
        let at = id
            .checked_sub(1)
            .and_then(|i| self.offsets.get(i as usize))
            .ok_or(BtfError::NoSuchType(id))?;
        let bytes = self.tables.types.get(*at as usize..).unwrap_or_default();
        let info = word(bytes, 4);
        Ok(Type {
            name: word(bytes, 0),
            info,
            kind: info >> 24 & 0x1f,
            size: word(bytes, 8),
            rest: bytes.get(TYPE_LEN..).unwrap_or_default(),
        })
    }
}

/// The types kept so far.
struct Reduced<'a> {
    all: &'a AllTypes<'a>,
    wanted: &'a [u32],
    types: Vec<u8>,
    strings: Vec<u8>,
    n_types: u32,
    /// By their id in the whole.
    known: HashMap<u32, u32>,
    /// The integer types, by size and encoding, and the pointer.
    scalars: HashMap<(u32, u32), u32>,
}

impl<'a> Reduced<'a> {
    fn new(all: &'a AllTypes<'a>, wanted: &'a [u32]) -> Self {
        Self {
            all,
            wanted,
            types: Vec::new(),
            strings: vec![0],
            n_types: 0,
            known: HashMap::new(),
            scalars: HashMap::new(),
        }
    }

    /// Keeps type `id` as far as offsets depend on it, and gives its new id.
    fn add(&mut self, mut id: u32, depth: u32) -> Result<u32, BtfError> {
        if depth > MAX_DEPTH {
            return Err(BtfError::Depth);
        }
        let mut ty = self.all.get(id)?;
        for _ in 0..MAX_DEPTH {
            match ty.kind {
                KIND_TYPEDEF | KIND_VOLATILE | KIND_CONST | KIND_RESTRICT | KIND_TYPE_TAG => {
                    id = ty.size;
                    ty = self.all.get(id)?;
                }
                _ => break,
            }
        }
        if let Some(&known) = self.known.get(&id) {
            return Ok(known);
        }
        let new = match ty.kind {
            KIND_PTR => self.scalar(KIND_PTR, 0, 0),
            KIND_INT => self.scalar(KIND_INT, ty.size, word(ty.rest, 0)),
            KIND_ENUM | KIND_ENUM64 | KIND_FLOAT => self.scalar(KIND_INT, ty.size, ty.size * 8),
            KIND_ARRAY => {
                let element = self.add(word(ty.rest, 0), depth + 1)?;
                let index = self.scalar(KIND_INT, 4, 32);
                self.emit(0, KIND_ARRAY << 24, 0, &[element, index, word(ty.rest, 8)])
            }
            KIND_STRUCT | KIND_UNION => self.add_struct(ty, depth)?,
            _ => self.emit(0, KIND_STRUCT << 24, 0, &[]),
        };
        self.known.insert(id, new);
        Ok(new)
    }

    fn add_struct(&mut self, ty: Type<'a>, depth: u32) -> Result<u32, BtfError> {
        let wanted = self.wanted.contains(&ty.name);
        // The members of an unnamed struct are members of the one around it.
        if !wanted && ty.name != 0 {
            return Ok(self.emit(0, ty.kind << 24, ty.size, &[]));
        }
        let n = (ty.info & 0xffff) as usize;
        let mut members = Vec::with_capacity(n * 3);
        for i in 0..n {
            let name = self.intern(word(ty.rest, i * 12));
            let member = self.add(word(ty.rest, i * 12 + 4), depth + 1)?;
            members.extend([name, member, word(ty.rest, i * 12 + 8)]);
        }
        let name = self.intern(ty.name);
        Ok(self.emit(name, ty.info, ty.size, &members))
    }

    fn scalar(&mut self, kind: u32, size: u32, encoding: u32) -> u32 {
        if let Some(&id) = self.scalars.get(&(size, encoding)) {
            return id;
        }
        let id = match kind {
            KIND_PTR => self.emit(0, KIND_PTR << 24, 0, &[]),
            _ => self.emit(0, KIND_INT << 24, size, &[encoding]),
        };
        self.scalars.insert((size, encoding), id);
        id
    }

    fn intern(&mut self, name: u32) -> u32 {
        let name = self.all.tables.bytes_of(name);
        if name.is_empty() {
            return 0;
        }
        let at = self.strings.len() as u32;
        self.strings.extend(name);
        self.strings.push(0);
        at
    }

    fn emit(&mut self, name: u32, info: u32, size: u32, rest: &[u32]) -> u32 {
        for v in [name, info, size].iter().chain(rest) {
            self.types.extend(v.to_ne_bytes());
        }
        self.n_types += 1;
        self.n_types
    }

    fn finish(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_LEN + self.types.len() + self.strings.len());
        out.extend(MAGIC.to_ne_bytes());
        // Version 1, no flags.
        out.extend([1, 0]);
        let (types, strings) = (self.types.len() as u32, self.strings.len() as u32);
        for v in [HEADER_LEN as u32, 0, types, types, strings] {
            out.extend(v.to_ne_bytes());
        }
        out.extend(self.types);
        out.extend(self.strings);
        out
    }
}

#[cfg(test)]
mod tests {
    use aya_obj::btf::BtfKind;
    use proptest::prelude::*;

    use super::super::load::parse_btf as parse;

    use super::*;

    /// BTF of `struct outer { struct { const T *p; int x[2]; }; struct other o; }`, `struct
    /// other`, and a function `visit`.
    fn sample() -> Vec<u8> {
        let strings = b"\0outer\0other\0visit\0p\0x\0o\0int\0";
        let at = |name: &str| {
            let name = format!("\0{name}\0");
            strings
                .windows(name.len())
                .position(|w| w == name.as_bytes())
                .unwrap() as u32
                + 1
        };
        let types: &[&[u32]] = &[
            &[at("int"), KIND_INT << 24, 4, 0x0100_0020],
            &[0, KIND_PTR << 24, 5],
            &[0, KIND_ARRAY << 24, 0, 1, 1, 2],
            &[0, KIND_STRUCT << 24 | 2, 16, at("p"), 2, 0, at("x"), 3, 64],
            &[at("other"), KIND_STRUCT << 24 | 1, 4, at("x"), 1, 0],
            &[
                at("outer"),
                KIND_STRUCT << 24 | 2,
                24,
                0,
                4,
                0,
                at("o"),
                7,
                128,
            ],
            &[0, KIND_CONST << 24, 5],
            &[at("visit"), KIND_FUNC << 24, 9],
            &[0, KIND_FUNC_PROTO << 24, 0],
        ];
        let types: Vec<u8> = types
            .concat()
            .iter()
            .flat_map(|v| v.to_ne_bytes())
            .collect();
        let mut out = MAGIC.to_ne_bytes().to_vec();
        out.extend([1, 0]);
        let (n, m) = (types.len() as u32, strings.len() as u32);
        for v in [24, 0, n, n, m] {
            out.extend(v.to_ne_bytes());
        }
        out.extend(types);
        out.extend(strings);
        out
    }

    /// Check that wanted structs keep members and sizes, that others become opaque, and that the
    /// function is found by its number in the whole.
    #[test]
    fn keeps_what_is_wanted() {
        let names = ["outer".to_owned(), "missing".to_owned()];
        let kept = reduce(&sample(), &names, &["visit", "x"]).unwrap();
        assert_eq!(kept.functions, [Some(8), None]);
        let all = AllTypes::read(Tables::read(&kept.btf).unwrap(), |_, _, _| ()).unwrap();
        let string = |name| all.tables.string(name);
        let id = (1..).find(|&id| string(all.get(id).unwrap().name) == "outer");
        let outer = all.get(id.unwrap()).unwrap();
        assert_eq!((outer.size, outer.info), (24, KIND_STRUCT << 24 | 2));
        let inner = all.get(word(outer.rest, 4)).unwrap();
        assert_eq!(string(word(inner.rest, 12)), "x");
        assert_eq!(word(inner.rest, 20), 64);
        let other = all.get(word(outer.rest, 16)).unwrap();
        assert_eq!((other.size, other.info & 0xffff), (4, 0));
        // The loader's own parser takes it.
        let parsed = parse(&kept.btf).unwrap();
        let found = parsed.id_by_type_name_kind("outer", BtfKind::Struct);
        assert_eq!(found.unwrap(), id.unwrap());
    }

    /// Check the names of structs, flavors cut off.
    #[test]
    fn names() {
        assert_eq!(struct_names(&sample()).unwrap(), ["other", "outer"]);
    }

    /// Check that this machine's kernel can be reduced to the programs' needs.
    #[test]
    fn own_kernel() {
        let Ok(bytes) = std::fs::read("/sys/kernel/btf/vmlinux") else {
            println!("SKIPPED no /sys/kernel/btf/vmlinux");
            return;
        };
        let kept = reduce(&bytes, &["task_struct".to_owned()], &["bpf_iter_task"]).unwrap();
        assert!(kept.btf.len() < 100_000, "{}", kept.btf.len());
        let all = parse(&bytes).unwrap();
        let id = all.id_by_type_name_kind("bpf_iter_task", BtfKind::Func);
        assert_eq!(kept.functions, [id.ok()]);
    }

    /// Check that types that contain themselves are refused.
    #[test]
    fn endless() {
        let mut bytes = sample();
        // The array's element becomes the array.
        let at = HEADER_LEN + 16 + 12 + 12;
        bytes[at..at + 4].copy_from_slice(&3u32.to_ne_bytes());
        let names = ["outer".to_owned()];
        assert_eq!(reduce(&bytes, &names, &[]), Err(BtfError::Depth));
    }

    proptest! {
        /// Check that no change of bytes, and no cut, makes the reader panic or run on.
        #[test]
        fn damaged(at in 0usize..400, byte: u8, len in 0usize..400) {
            let mut bytes = sample();
            if let Some(b) = bytes.get_mut(at) {
                *b = byte;
            }
            bytes.truncate(len);
            let _ = reduce(&bytes, &["outer".to_owned()], &["visit"]);
            let _ = struct_names(&bytes);
        }
    }
}
