//! Frames of a trace to functions: by symbols, else by module and offset.

use std::collections::HashMap;

use wcprof_trace::model::{Frame, FrameId, SymbolTable, Tables};

use crate::model::{Function, FunctionId};

/// The module name of kernel places.
pub(crate) const KERNEL: &str = "[kernel]";

/// Interned functions, and the functions of each frame met so far.
#[derive(Debug, Default)]
pub(crate) struct Functions {
    pub(crate) list: Vec<Function>,
    ids: HashMap<Function, FunctionId>,
    of_frame: HashMap<FrameId, Box<[FunctionId]>>,
}

impl Functions {
    pub(crate) fn intern(&mut self, function: Function) -> FunctionId {
        if let Some(&id) = self.ids.get(&function) {
            return id;
        }
        let id = FunctionId(self.list.len() as u32);
        self.list.push(function.clone());
        self.ids.insert(function, id);
        id
    }

    /// The functions at a frame, innermost inline function first. Empty for a frame that the
    /// tables lack.
    pub(crate) fn of_frame(
        &mut self,
        frame: FrameId,
        tables: &Tables,
        symbols: Option<&SymbolTable>,
    ) -> &[FunctionId] {
        if !self.of_frame.contains_key(&frame) {
            let ids = resolve(frame, tables, symbols)
                .into_iter()
                .map(|function| self.intern(function))
                .collect();
            self.of_frame.insert(frame, ids);
        }
        &self.of_frame[&frame]
    }
}

fn resolve(id: FrameId, tables: &Tables, symbols: Option<&SymbolTable>) -> Vec<Function> {
    let Some(frame) = tables.frames.get(id.0 as usize) else {
        return Vec::new();
    };
    let module = match frame {
        Frame::Native { module, .. } => tables
            .modules
            .get(module.0 as usize)
            .map_or("", |m| m.file_name()),
        Frame::Unmapped(_) => "",
        Frame::Kernel(_) => KERNEL,
    };
    if let Some(names) = symbols.and_then(|s| s.frames.get(&id))
        && !names.is_empty()
    {
        return names
            .iter()
            .map(|symbol| Function {
                name: symbol.name.clone(),
                module: module.to_owned(),
                resolved: symbol.resolved,
            })
            .collect();
    }
    vec![Function {
        name: unnamed(frame, tables),
        module: module.to_owned(),
        resolved: matches!(frame, Frame::Kernel(_)),
    }]
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
        Frame::Unmapped(address) => format!("{:#x}", address.0),
        Frame::Kernel(name) => name.clone(),
    }
}
