//! Keeps one [`ModuleCode`] for the same file in several processes.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use wcprof_types::BuildId;

use crate::code::ModuleCode;

/// Modules in use, by build-id. A file that claims another's build-id but has other contents is
/// kept apart, so that one container's file never unwinds another's stacks.
#[derive(Debug, Default)]
pub struct SharedModules {
    by_build_id: HashMap<BuildId, Vec<Weak<ModuleCode>>>,
}

impl SharedModules {
    /// The shared copy of `code`. Modules without a build-id are not shared.
    pub fn intern(&mut self, code: ModuleCode) -> Arc<ModuleCode> {
        let Some(id) = code.build_id().cloned() else {
            return Arc::new(code);
        };
        let known = self.by_build_id.entry(id).or_default();
        known.retain(|weak| weak.strong_count() > 0);
        if let Some(same) = known
            .iter()
            .filter_map(Weak::upgrade)
            .find(|k| k.same_as(&code))
        {
            return same;
        }
        let code = Arc::new(code);
        known.push(Arc::downgrade(&code));
        code
    }
}
