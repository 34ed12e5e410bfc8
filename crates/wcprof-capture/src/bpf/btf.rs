//! The kernel's type information to the few types that the programs read.
//!
//! `/sys/kernel/btf/vmlinux` describes more than a hundred thousand types; parsing them all into
//! structures takes tens of milliseconds. Here they are walked once, in place, and only the
//! structs of the given names are kept, with what their members' offsets depend on: pointers
//! point to `void`, other structs are opaque. Format: `Documentation/bpf/btf.rst`.

use std::borrow::Cow;
use std::collections::HashMap;

use aya_obj::btf::BtfKind;
use memchr::memmem;
use thiserror::Error;

use crate::sys::word;

const MAGIC: u16 = 0xeb9f;
const HEADER_LEN: usize = 24;
const TYPE_LEN: usize = 12;

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
    let mut all = AllTypes::tables(bytes)?;
    // The kernel's strings are unique, so that names can be compared by their offset.
    let structs: Vec<u32> = structs.iter().filter_map(|name| all.name(name)).collect();
    let functions: Vec<Option<u32>> = functions.iter().map(|name| all.name(name)).collect();
    let mut struct_ids = Vec::new();
    let mut function_ids = vec![None; functions.len()];
    all.walk(|id, kind, name| match kind {
        BtfKind::Struct if structs.contains(&name) => struct_ids.push(id),
        BtfKind::Func => {
            if let Some(at) = functions.iter().position(|wanted| *wanted == Some(name)) {
                function_ids[at] = Some(id);
            }
        }
        _ => {}
    })?;
    let mut out = Reduced::new(&all, &structs);
    for id in struct_ids {
        out.add(id, 0)?;
    }
    Ok(KernelTypes {
        btf: out.finish(),
        functions: function_ids,
    })
}

/// Names of the structs in `bytes`, without what follows three underscores (a "flavor").
pub(super) fn struct_names(bytes: &[u8]) -> Result<Vec<String>, BtfError> {
    let all = AllTypes::read(bytes)?;
    let structs = all.iter().filter(|(_, ty)| ty.kind == BtfKind::Struct);
    let mut names: Vec<String> = structs
        .map(|(_, ty)| {
            all.string(ty.name)
                .split("___")
                .next()
                .unwrap_or_default()
                .to_owned()
        })
        .filter(|name| !name.is_empty())
        .collect();
    names.sort();
    names.dedup();
    Ok(names)
}

/// Size of the struct `name`, and its members with their offsets in bytes.
#[cfg(test)]
pub(super) fn members_of(bytes: &[u8], name: &str) -> Option<(usize, Vec<(String, usize)>)> {
    let all = AllTypes::read(bytes).ok()?;
    let (_, ty) = all.iter().find(|(_, ty)| all.string(ty.name) == name)?;
    let members = (0..ty.n_members()).map(|i| ty.member(i));
    let members = members.map(|[name, _, bit]| (all.string(name).into_owned(), bit as usize / 8));
    Some((ty.size as usize, members.collect()))
}

/// All types, in place.
struct AllTypes<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    /// Where type `i + 1` begins.
    offsets: Vec<u32>,
}

#[derive(Copy, Clone)]
struct Type<'a> {
    name: u32,
    /// With its count of members and its flag.
    info: u32,
    kind: BtfKind,
    /// Bytes, or the type it refers to.
    size: u32,
    /// What follows.
    rest: &'a [u8],
}

impl Type<'_> {
    fn n_members(&self) -> usize {
        (self.info & 0xffff) as usize
    }

    /// Name, type and offset in bits of a struct's member.
    fn member(&self, i: usize) -> [u32; 3] {
        [0, 4, 8].map(|at| word(self.rest, i * 12 + at))
    }
}

impl<'a> AllTypes<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, BtfError> {
        let mut all = Self::tables(bytes)?;
        all.walk(|_, _, _| {})?;
        Ok(all)
    }

    /// Before [`Self::walk`] strings alone are known.
    fn tables(bytes: &'a [u8]) -> Result<Self, BtfError> {
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
            offsets: Vec::new(),
        })
    }

    /// Finds where each type begins; `see` is given id, kind and name of each.
    fn walk(&mut self, mut see: impl FnMut(u32, BtfKind, u32)) -> Result<(), BtfError> {
        let types = self.types;
        // Types take about 20 bytes with what follows them.
        self.offsets.reserve(types.len() / 20);
        let mut at = 0;
        while at < types.len() {
            self.offsets.push(at as u32);
            let info = word(types, at + 4);
            let (id, kind) = (self.offsets.len() as u32, kind_of(info));
            see(id, kind, word(types, at));
            let n = (info & 0xffff) as usize;
            at += TYPE_LEN
                + match kind {
                    BtfKind::Int | BtfKind::Var | BtfKind::DeclTag => 4,
                    BtfKind::Array => 12,
                    BtfKind::Struct | BtfKind::Union | BtfKind::DataSec | BtfKind::Enum64 => n * 12,
                    BtfKind::Enum | BtfKind::FuncProto => n * 8,
                    BtfKind::Unknown => {
                        let kind = info >> 24 & 0x1f;
                        return Err(BtfError::Kind { id, kind });
                    }
                    _ => 0,
                };
        }
        Ok(())
    }

    fn get(&self, id: u32) -> Result<Type<'a>, BtfError> {
        let at = id
            .checked_sub(1)
            .and_then(|i| self.offsets.get(i as usize))
            .ok_or(BtfError::NoSuchType(id))?;
        let bytes = self.types.get(*at as usize..).unwrap_or_default();
        let info = word(bytes, 4);
        Ok(Type {
            name: word(bytes, 0),
            info,
            kind: kind_of(info),
            size: word(bytes, 8),
            rest: bytes.get(TYPE_LEN..).unwrap_or_default(),
        })
    }

    fn iter(&self) -> impl Iterator<Item = (u32, Type<'a>)> {
        (1..=self.offsets.len() as u32).filter_map(|id| Some((id, self.get(id).ok()?)))
    }

    fn string(&self, offset: u32) -> Cow<'a, str> {
        String::from_utf8_lossy(self.bytes_of(offset))
    }

    fn bytes_of(&self, offset: u32) -> &'a [u8] {
        let rest = self.strings.get(offset as usize..).unwrap_or_default();
        rest.split(|&b| b == 0).next().unwrap_or_default()
    }

    /// Where the strings have a name.
    fn name(&self, name: &str) -> Option<u32> {
        let at = memmem::find(self.strings, &[b"\0", name.as_bytes(), b"\0"].concat())?;
        u32::try_from(at + 1).ok()
    }
}

/// `Unknown` for kinds that the format did not have yet.
fn kind_of(info: u32) -> BtfKind {
    BtfKind::try_from(info >> 24 & 0x1f).unwrap_or_default()
}

/// The types kept so far.
struct Reduced<'a> {
    all: &'a AllTypes<'a>,
    /// Names of structs whose members are kept.
    wanted: &'a [u32],
    types: Vec<u8>,
    strings: Vec<u8>,
    n_types: u32,
    /// By their id in the whole.
    known: HashMap<u32, u32>,
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
        }
    }

    /// Keeps type `id` as far as offsets depend on it, and gives its new id.
    fn add(&mut self, mut id: u32, depth: u32) -> Result<u32, BtfError> {
        use BtfKind::{Const, Restrict, TypeTag, Typedef, Volatile};
        if depth > MAX_DEPTH {
            return Err(BtfError::Depth);
        }
        let mut ty = self.all.get(id)?;
        for _ in 0..MAX_DEPTH {
            if !matches!(ty.kind, Typedef | Volatile | Const | Restrict | TypeTag) {
                break;
            }
            id = ty.size;
            ty = self.all.get(id)?;
        }
        if let Some(&known) = self.known.get(&id) {
            return Ok(known);
        }
        let new = match ty.kind {
            BtfKind::Ptr => self.emit(0, BtfKind::Ptr, 0, 0, &[]),
            BtfKind::Int => self.integer(ty.size, word(ty.rest, 0)),
            BtfKind::Enum | BtfKind::Enum64 | BtfKind::Float => self.integer(ty.size, ty.size * 8),
            BtfKind::Array => {
                let element = self.add(word(ty.rest, 0), depth + 1)?;
                let index = self.integer(4, 32);
                let array = [element, index, word(ty.rest, 8)];
                self.emit(0, BtfKind::Array, 0, 0, &array)
            }
            BtfKind::Struct | BtfKind::Union => self.add_struct(ty, depth)?,
            _ => self.emit(0, BtfKind::Struct, 0, 0, &[]),
        };
        self.known.insert(id, new);
        Ok(new)
    }

    fn add_struct(&mut self, ty: Type<'a>, depth: u32) -> Result<u32, BtfError> {
        // The members of an unnamed struct are members of the one around it.
        if ty.name != 0 && !self.wanted.contains(&ty.name) {
            return Ok(self.emit(0, ty.kind, 0, ty.size, &[]));
        }
        let mut members = Vec::with_capacity(ty.n_members() * 3);
        for [name, member, bit] in (0..ty.n_members()).map(|i| ty.member(i)) {
            let name = self.intern(name);
            members.extend([name, self.add(member, depth + 1)?, bit]);
        }
        let name = self.intern(ty.name);
        // Members, and the flag for those that are fields of bits.
        Ok(self.emit(name, ty.kind, ty.info & 0x8000_ffff, ty.size, &members))
    }

    fn integer(&mut self, size: u32, encoding: u32) -> u32 {
        self.emit(0, BtfKind::Int, 0, size, &[encoding])
    }

    fn intern(&mut self, name: u32) -> u32 {
        let name = self.all.bytes_of(name);
        if name.is_empty() {
            return 0;
        }
        let at = self.strings.len() as u32;
        self.strings.extend(name);
        self.strings.push(0);
        at
    }

    fn emit(&mut self, name: u32, kind: BtfKind, info: u32, size: u32, rest: &[u32]) -> u32 {
        let info = (kind as u32) << 24 | info;
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
    use proptest::prelude::*;

    use super::super::object::parse_btf as parse;

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
            &[at("int"), (BtfKind::Int as u32) << 24, 4, 0x0100_0020],
            &[0, (BtfKind::Ptr as u32) << 24, 5],
            &[0, (BtfKind::Array as u32) << 24, 0, 1, 1, 2],
            &[
                0,
                (BtfKind::Struct as u32) << 24 | 2,
                16,
                at("p"),
                2,
                0,
                at("x"),
                3,
                64,
            ],
            &[
                at("other"),
                (BtfKind::Struct as u32) << 24 | 1,
                4,
                at("x"),
                1,
                0,
            ],
            &[
                at("outer"),
                (BtfKind::Struct as u32) << 24 | 2,
                24,
                0,
                4,
                0,
                at("o"),
                7,
                128,
            ],
            &[0, (BtfKind::Const as u32) << 24, 5],
            &[at("visit"), (BtfKind::Func as u32) << 24, 9],
            &[0, (BtfKind::FuncProto as u32) << 24, 0],
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
        let all = AllTypes::read(&kept.btf).unwrap();
        let string = |name| all.string(name);
        let id = (1..).find(|&id| string(all.get(id).unwrap().name) == "outer");
        let outer = all.get(id.unwrap()).unwrap();
        assert_eq!(
            (outer.size, outer.info),
            (24, (BtfKind::Struct as u32) << 24 | 2)
        );
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
            return crate::testing::skip("there is no /sys/kernel/btf/vmlinux");
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
