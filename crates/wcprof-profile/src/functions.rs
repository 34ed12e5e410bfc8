//! Frames of a trace to functions: by symbols, else by module and offset.

use std::collections::HashMap;

use wcprof_trace::FastState;
use wcprof_trace::model::{Frame, FrameId, LaterName, SymbolFrame, SymbolTable, Tables};
use wcprof_types::TimeNs;

use crate::model::{Function, FunctionId};

/// The module name of kernel places.
pub(crate) const KERNEL: &str = "[kernel]";

/// Interned functions, and the functions of each frame met so far.
#[derive(Debug, Default)]
pub(crate) struct Functions {
    pub(crate) list: Vec<Function>,
    /// Each source line is a function of its own.
    lines: bool,
    ids: HashMap<Function, FunctionId, FastState>,
    /// By frame.
    of_frame: Vec<Option<Box<[FunctionId]>>>,
    /// Where one of its [`later_names`] holds: by frame and how many of them began.
    of_later: HashMap<(FrameId, usize), Box<[FunctionId]>, FastState>,
}

impl Functions {
    /// Functions that are told apart by source lines, too, or are not.
    pub(crate) fn new(lines: bool) -> Self {
        Self {
            lines,
            ..Self::default()
        }
    }

    pub(crate) fn intern(&mut self, function: Function) -> FunctionId {
        if let Some(&id) = self.ids.get(&function) {
            return id;
        }
        let id = FunctionId(self.list.len() as u32);
        self.list.push(function.clone());
        self.ids.insert(function, id);
        id
    }

    /// Takes the kernel's functions off the leaf side of a stack, root first. Of one without others
    /// the innermost stays: it says where the thread is.
    pub(crate) fn drop_kernel(&self, frames: &mut Vec<FunctionId>) {
        let is_kernel = |id: &FunctionId| {
            let function = self.list.get(id.0 as usize);
            function.is_some_and(|f| f.module == KERNEL)
        };
        match frames.iter().rposition(|id| !is_kernel(id)) {
            Some(last) => frames.truncate(last + 1),
            None => {
                frames.drain(..frames.len().saturating_sub(1));
            }
        }
    }

    /// The functions at a frame at a time, innermost inline function first. Empty for a frame that
    /// the tables lack.
    pub(crate) fn of_frame(
        &mut self,
        frame: FrameId,
        time: TimeNs,
        tables: &Tables,
        symbols: Option<&SymbolTable>,
    ) -> &[FunctionId] {
        let later = later_names(tables, frame);
        match later.partition_point(|name| name.since <= time) {
            0 => self.of_first(frame, tables, symbols),
            n_past => {
                let key = (frame, n_past);
                if !self.of_later.contains_key(&key) {
                    let ids = self.resolve(frame, later.get(n_past - 1), tables, symbols);
                    self.of_later.insert(key, ids);
                }
                &self.of_later[&key]
            }
        }
    }

    /// The same while no later name holds.
    fn of_first(
        &mut self,
        frame: FrameId,
        tables: &Tables,
        symbols: Option<&SymbolTable>,
    ) -> &[FunctionId] {
        let at = frame.0 as usize;
        if at >= tables.frames.len() {
            return &[];
        }
        if at >= self.of_frame.len() {
            self.of_frame.resize(tables.frames.len(), None);
        }
        if self.of_frame[at].is_none() {
            self.of_frame[at] = Some(self.resolve(frame, None, tables, symbols));
        }
        self.of_frame[at].as_deref().unwrap_or_default()
    }

    fn resolve(
        &mut self,
        frame: FrameId,
        now: Option<&LaterName>,
        tables: &Tables,
        symbols: Option<&SymbolTable>,
    ) -> Box<[FunctionId]> {
        let functions = resolve(frame, now, tables, symbols).into_iter();
        let intern = |function: Function| {
            let line = function.line.filter(|_| self.lines);
            self.intern(Function { line, ..function })
        };
        functions.map(intern).collect()
    }
}

/// The later names of a frame, by time.
pub(crate) fn later_names(tables: &Tables, frame: FrameId) -> &[LaterName] {
    let later = &tables.local_names.later;
    if later.is_empty() {
        return &[];
    }
    let begin = later.partition_point(|name| name.frame < frame);
    let rest = later.get(begin..).unwrap_or_default();
    let n = rest.partition_point(|name| name.frame == frame);
    rest.get(..n).unwrap_or_default()
}

fn resolve(
    id: FrameId,
    now: Option<&LaterName>,
    tables: &Tables,
    symbols: Option<&SymbolTable>,
) -> Vec<Function> {
    let Some(frame) = tables.frames.get(id.0 as usize) else {
        return Vec::new();
    };
    let module = match frame {
        Frame::Native { module, .. } => tables
            .modules
            .get(module.0 as usize)
            .map_or("", |m| m.file_name()),
        Frame::Unmapped(_) => "",
        Frame::Kernel(_) | Frame::KernelCode(_) => KERNEL,
    };
    let local = match now {
        Some(now) => Some(&now.functions),
        None => tables.local_names.names.frames.get(&id),
    };
    let found = |names: Option<&'_ Vec<SymbolFrame>>| names.is_some_and(|n| !n.is_empty());
    let names = match found(local) {
        true => local,
        false => symbols.and_then(|s| s.frames.get(&id)),
    };
    if let Some(names) = names
        && !names.is_empty()
    {
        return names
            .iter()
            .map(|symbol| Function {
                name: symbol.name.clone(),
                module: module.to_owned(),
                resolved: symbol.resolved,
                line: line(symbol),
            })
            .collect();
    }
    vec![Function {
        name: unnamed(frame, tables),
        module: module.to_owned(),
        resolved: matches!(frame, Frame::Kernel(_)),
        line: None,
    }]
}

fn line(symbol: &SymbolFrame) -> Option<String> {
    let file = symbol.file.as_deref()?.rsplit('/').next()?;
    Some(format!("{file}:{}", symbol.line?))
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
    }
}
