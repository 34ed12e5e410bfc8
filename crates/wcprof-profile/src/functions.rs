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
    /// By frame, and the name of [`later_names`] that holds.
    of_frame: HashMap<(FrameId, usize), Box<[FunctionId]>, FastState>,
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
        let n_past = later.partition_point(|name| name.since <= time);
        let key = (frame, n_past);
        if !self.of_frame.contains_key(&key) {
            let now = n_past.checked_sub(1).and_then(|i| later.get(i));
            let ids = resolve(frame, now, tables, symbols)
                .into_iter()
                .map(|function| {
                    let line = function.line.filter(|_| self.lines);
                    self.intern(Function { line, ..function })
                })
                .collect();
            self.of_frame.insert(key, ids);
        }
        &self.of_frame[&key]
    }
}

/// The later names of a frame, by time.
pub(crate) fn later_names(tables: &Tables, frame: FrameId) -> &[LaterName] {
    let later = &tables.local_names.later;
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
