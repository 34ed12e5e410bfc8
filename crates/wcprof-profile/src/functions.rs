//! Frames of a trace to functions: by symbols, else by module and offset.

use std::collections::HashMap;

use indexmap::IndexSet;
use wcprof_trace::FastState;
use wcprof_trace::model::{
    Frame, FrameId, LOST_FRAME, LaterName, SymbolFrame, SymbolTable, Tables,
};
use wcprof_types::TimeNs;

use crate::model::{Detail, Function, FunctionId, KERNEL, Source};
use crate::processes::images;
use crate::rust_path::with_path;

/// The functions of a trace's frames, each once.
#[derive(Debug)]
pub(crate) struct Functions<'a> {
    pub(crate) tables: &'a Tables,
    symbols: Option<&'a SymbolTable>,
    detail: Detail,
    /// By module of the tables; see [`Function::image`].
    images: Vec<usize>,
    list: IndexSet<Function, FastState>,
    /// By frame, and by how many of its [`later_names`] hold already.
    of_frame: HashMap<(FrameId, usize), Box<[FunctionId]>, FastState>,
}

impl<'a> Functions<'a> {
    /// No functions yet. `symbols` name the frames of `tables`.
    pub(crate) fn new(
        tables: &'a Tables,
        symbols: Option<&'a SymbolTable>,
        detail: Detail,
    ) -> Self {
        Self {
            tables,
            symbols,
            detail,
            images: match detail {
                Detail::Frames => images(tables),
                Detail::Functions | Detail::Lines => Vec::new(),
            },
            list: IndexSet::default(),
            of_frame: HashMap::default(),
        }
    }

    pub(crate) fn intern(&mut self, function: Function) -> FunctionId {
        FunctionId(self.list.insert_full(function).0 as u32)
    }

    pub(crate) fn get(&self, id: FunctionId) -> Option<&Function> {
        self.list.get_index(id.0 as usize)
    }

    /// By function: the first that differs from it in nothing but what is kept apart for detail; `None`
    /// where nothing is.
    pub(crate) fn without_detail(&self) -> Option<Vec<FunctionId>> {
        let mut firsts = HashMap::new();
        let ids = (0..).map(FunctionId).zip(&self.list);
        let ids = ids.map(|(id, f)| *firsts.entry((&f.name, &f.module, f.resolved)).or_insert(id));
        (self.detail != Detail::Functions).then(|| ids.collect())
    }

    /// All functions; a [`FunctionId`] is an index into them.
    pub(crate) fn into_list(self) -> Vec<Function> {
        self.list.into_iter().collect()
    }

    /// How many frames of a stack (root first) are left without the kernel's functions on its leaf
    /// side; `None` when all are the kernel's.
    pub(crate) fn n_without_kernel(&self, frames: &[FunctionId]) -> Option<usize> {
        let is_kernel = |id: &FunctionId| self.get(*id).is_some_and(|f| f.module == KERNEL);
        Some(frames.iter().rposition(|id| !is_kernel(id))? + 1)
    }

    /// The functions at a frame at a time, innermost inline function first. Empty for a frame that
    /// the tables lack.
    pub(crate) fn of_frame(&mut self, frame: FrameId, time: TimeNs) -> &[FunctionId] {
        let later = later_names(self.tables, frame);
        let n_past = later.partition_point(|name| name.since <= time);
        let key = (frame, n_past);
        if !self.of_frame.contains_key(&key) {
            let latest = n_past.checked_sub(1).and_then(|at| later.get(at));
            let functions = self.resolve(frame, latest).into_iter();
            let ids = functions.map(|function| self.intern(function)).collect();
            self.of_frame.insert(key, ids);
        }
        &self.of_frame[&key]
    }

    /// `latest` is the frame's later name that holds, if one does.
    fn resolve(&self, id: FrameId, latest: Option<&LaterName>) -> Vec<Function> {
        let Some(frame) = self.tables.frames.get(id.0 as usize) else {
            return Vec::new();
        };
        let (module, image) = match frame {
            Frame::Native { module, .. } => {
                let at = module.0 as usize;
                let module = self.tables.modules.get(at);
                (module.map_or("", |m| m.file_name()), self.images.get(at))
            }
            Frame::Unmapped(_) | Frame::Unknown(_) => ("", None),
            Frame::Kernel(_) | Frame::KernelCode(_) => (KERNEL, None),
        };
        let local = match latest {
            Some(name) => Some(&name.functions),
            None => self.tables.names.local.names.frames.get(&id),
        };
        let names = local.filter(|names| !names.is_empty());
        let names = names.or_else(|| self.symbols?.frames.get(&id));
        let named = names.into_iter().flatten().map(|symbol| Function {
            name: path_of(symbol).unwrap_or_else(|| symbol.name.clone()),
            module: module.to_owned(),
            resolved: symbol.resolved,
            source: self.source(symbol),
            inlined: symbol.inlined && self.detail == Detail::Frames,
            image: image.copied(),
        });
        let mut functions: Vec<Function> = named.collect();
        if functions.is_empty() {
            functions.push(Function {
                name: unnamed(frame, self.tables),
                module: module.to_owned(),
                resolved: matches!(frame, Frame::Kernel(_)),
                image: image.copied(),
                ..Function::default()
            });
        }
        functions
    }

    fn source(&self, symbol: &SymbolFrame) -> Option<Source> {
        let line = symbol.line.unwrap_or(0);
        let is_shown = match self.detail {
            Detail::Functions => false,
            Detail::Lines => line > 0,
            Detail::Frames => true,
        };
        let file = symbol.file.as_ref().filter(|_| is_shown)?.clone();
        Some(Source { file, line })
    }
}

/// The name of an inline function with the path of its file, where it is Rust's and has none.
fn path_of(symbol: &SymbolFrame) -> Option<String> {
    let file = symbol.file.as_ref().filter(|_| symbol.inlined)?;
    with_path(&symbol.name, file)
}

/// The later names of a frame, by time.
pub(crate) fn later_names(tables: &Tables, frame: FrameId) -> &[LaterName] {
    let later = &tables.names.local.later;
    let begin = later.partition_point(|name| name.frame < frame);
    let n = later[begin..].partition_point(|name| name.frame == frame);
    &later[begin..begin + n]
}

/// `module+0xoffset` with the SVMA of the function's start by its FDE (else of the address).
fn unnamed(frame: &Frame, tables: &Tables) -> String {
    match frame {
        Frame::Native {
            module,
            address,
            function,
        } => {
            let relative = function.unwrap_or(*address);
            match tables.modules.get(module.0 as usize) {
                Some(m) => format!("{}+{:#x}", m.file_name(), m.svma(relative).0),
                None => format!("???+{:#x}", relative.0),
            }
        }
        Frame::Unmapped(address) | Frame::KernelCode(address) => format!("{:#x}", address.0),
        Frame::Kernel(name) => name.clone(),
        Frame::Unknown(LOST_FRAME) => "[lost]".to_owned(),
        Frame::Unknown(kind) => format!("[frame of unknown kind {kind}]"),
    }
}
