//! The parts of paths in line programs to paths as text.

use std::collections::HashMap;
use std::sync::Arc;

use crate::allowance::Allowance;
use crate::text::{Strings, Text, string_size};

/// A path as its parts, outermost first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Path {
    pub(crate) comp_dir: Text,
    pub(crate) directory: Text,
    pub(crate) file: Text,
}

impl Path {
    pub(crate) fn parts(&self) -> [&Text; 3] {
        [&self.comp_dir, &self.directory, &self.file]
    }

    /// Memory that it takes.
    pub(crate) fn size(&self) -> u64 {
        let parts = self.parts().map(Text::heap_size);
        size_of::<Self>() as u64 + parts.iter().sum::<u64>()
    }
}

/// The paths of a unit as text, as far as there is room.
pub(crate) fn as_text(
    paths: HashMap<u64, Path>,
    strings: &Strings,
    room: &Allowance,
) -> HashMap<u64, Arc<str>> {
    let mut paths: Vec<(u64, Path)> = paths.into_iter().collect();
    // So that it is always the same ones that do not fit.
    paths.sort_unstable_by_key(|(index, _)| *index);
    let text = |(index, path): (u64, Path)| {
        let [comp_dir, directory, file] = path.parts().map(|part| strings.get(part));
        let file = file?;
        let path = join([comp_dir.as_deref(), directory.as_deref(), Some(&file)]);
        Some((index, Arc::from(path)))
    };
    let texts = paths.into_iter().filter_map(text);
    texts
        .filter(|(_, text)| room.take(string_size(text)))
        .collect()
}

/// Puts the parts of a path together: a later absolute part replaces those before it.
fn join(parts: [Option<&str>; 3]) -> String {
    let mut path = String::new();
    for part in parts.into_iter().flatten() {
        if part.starts_with('/') {
            path.clear();
        } else if !path.is_empty() && !path.ends_with('/') {
            path.push('/');
        }
        path.push_str(part);
    }
    path
}
