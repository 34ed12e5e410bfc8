//! Keeps one [`ModuleCode`] for the same file in several processes.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use wcprof_types::BuildId;

use crate::code::ModuleCode;

/// Modules in use, by build-id. A file that claims another's build-id but has other contents is
/// kept apart, so that one container's file never unwinds another's stacks.
#[derive(Debug, Default)]
pub struct SharedModules {
    by_build_id: HashMap<Option<BuildId>, Vec<Weak<ModuleCode>>>,
}

impl SharedModules {
    /// The shared copy of `code`. Modules without a build-id are not shared.
    pub fn intern(&mut self, code: ModuleCode) -> Arc<ModuleCode> {
        let id = code.build_id().cloned();
        let is_shared = id.is_some();
        let known = self.by_build_id.entry(id).or_default();
        known.retain(|weak| weak.strong_count() > 0);
        let mut all = known.iter().filter_map(Weak::upgrade);
        if let Some(same) = all.find(|known| is_shared && known.same_as(&code)) {
            return same;
        }
        let code = Arc::new(code);
        known.push(Arc::downgrade(&code));
        code
    }

    /// Forgets modules that are in use no more. Gives the estimated heap memory of the others, bytes.
    pub fn heap_bytes(&mut self) -> usize {
        self.by_build_id.retain(|_, known| {
            known.retain(|weak| weak.strong_count() > 0);
            !known.is_empty()
        });
        let all = self.by_build_id.values().flatten();
        let all = all.filter_map(Weak::upgrade);
        all.map(|code| code.heap_bytes()).sum()
    }
}
