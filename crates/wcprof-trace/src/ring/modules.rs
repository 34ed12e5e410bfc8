//! Modules of a ring. Any user can map thousands of files: what they take is counted as they come and go, not each time it
//! is asked for, and a snapshot shares them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::{Malformed, TraceError};
use crate::model::{Module, ModuleId};

/// All modules, by id.
#[derive(Clone, Debug, Default)]
pub(super) struct RingModules {
    by_id: BTreeMap<ModuleId, Arc<Module>>,
    next: u32,
    bytes: usize,
}

/// Bytes of memory of a module, about.
fn bytes_of(module: &Module) -> usize {
    module.path.len() + size_of::<Module>()
}

impl RingModules {
    pub(super) fn add(&mut self, module: Module) -> Result<ModuleId, TraceError> {
        let id = ModuleId(self.next);
        self.next = self.next.checked_add(1).ok_or(Malformed::NumberTooLarge)?;
        self.bytes += bytes_of(&module);
        self.by_id.insert(id, Arc::new(module));
        Ok(id)
    }

    pub(super) fn remove(&mut self, id: ModuleId) {
        if let Some(module) = self.by_id.remove(&id) {
            self.bytes -= bytes_of(&module);
        }
    }

    pub(super) fn retain(&mut self, is_kept: impl Fn(&Module) -> bool) {
        self.by_id.retain(|_, module| is_kept(module));
        self.bytes = self.by_id.values().map(|module| bytes_of(module)).sum();
    }

    /// Bytes of memory, about.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// In the order of their ids.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ModuleId, &Module)> {
        self.by_id.iter().map(|(id, module)| (*id, &**module))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ProcessId;
    use wcprof_types::{Avma, FileOffset, LoadBias, Svma};

    fn module(process: u32) -> Module {
        Module {
            process: ProcessId(process),
            path: "/lib/x.so".to_owned(),
            build_id: None,
            start: Avma(0x1000),
            end: Avma(0x2000),
            offset: FileOffset(0),
            bias: LoadBias::default(),
            base: Svma(0),
            deleted: false,
        }
    }

    /// Check that the bytes are those of the modules that are there.
    #[test]
    fn bytes() {
        let mut modules = RingModules::default();
        let ids: Vec<_> = (0..3).map(|n| modules.add(module(n)).unwrap()).collect();
        let each = size_of::<Module>() + 9;
        assert_eq!(modules.bytes(), 3 * each);
        modules.remove(ids[0]);
        modules.remove(ids[0]);
        assert_eq!(modules.bytes(), 2 * each);
        modules.retain(|module| module.process == ProcessId(2));
        assert_eq!(modules.bytes(), each);
        assert_eq!(
            modules.iter().map(|(id, _)| id).collect::<Vec<_>>(),
            [ids[2]]
        );
    }
}
