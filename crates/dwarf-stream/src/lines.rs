//! Line programs to the source line at an address, and to the paths that are needed.

use std::collections::HashMap;

use gimli::{DebugLine, DebugLineOffset, LittleEndian};

use crate::error::DwarfError;
use crate::text::Text;
use crate::wanted::{Wanted, between};

/// Most paths that are kept of one program.
const MAX_FILES: usize = 1 << 20;

/// A path as its parts, outermost first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Path {
    pub(crate) comp_dir: Text,
    pub(crate) directory: Text,
    pub(crate) file: Text,
}

/// What a line program says.
#[derive(Debug, Default)]
pub(crate) struct UnitLines {
    /// File (index) and line by the address's place in the caller's list.
    pub(crate) at: HashMap<usize, (u64, u32)>,
    /// Paths by file index: those of `at` and those asked for.
    pub(crate) paths: HashMap<u64, Path>,
}

/// Runs the program in `bytes`, which begin with its header. `wanted` is sorted.
pub(crate) fn run(
    bytes: &[u8],
    address_size: u8,
    comp_dir: &Text,
    wanted: &[Wanted],
    files: impl Iterator<Item = u64>,
) -> Result<UnitLines, DwarfError> {
    let section = DebugLine::new(bytes, LittleEndian);
    let program = section.program(DebugLineOffset(0), address_size, None, None)?;
    let mut lines = UnitLines::default();
    // Address, file and line of the row before, in the sequence that is being read.
    let mut last: Option<(u64, u64, u32)> = None;
    let mut found: Vec<(usize, u64, u32)> = Vec::new();
    let mut start = None;
    // A sequence that begins at 0 belongs to code that was not linked, or jumps from there to code
    // that was: GCC does not always end it in between.
    let mut unlinked: HashMap<usize, (u64, u32)> = HashMap::new();
    let mut rows = program.clone().rows();
    while let Some((_, row)) = rows.next_row()? {
        let address = row.address();
        if let Some((begin, file, line)) = last {
            let inside = between(wanted, begin, address).iter();
            found.extend(inside.map(|(_, idx)| (*idx, file, line)));
        }
        if row.end_sequence() {
            let at = match start {
                Some(1..) => &mut lines.at,
                _ => &mut unlinked,
            };
            for (idx, file, line) in found.drain(..) {
                at.entry(idx).or_insert((file, line));
            }
            (last, start) = (None, None);
        } else {
            let line = row.line().and_then(|line| u32::try_from(line.get()).ok());
            start = start.or(Some(address));
            last = Some((address, row.file_index(), line.unwrap_or(0)));
        }
    }
    for (idx, place) in unlinked {
        lines.at.entry(idx).or_insert(place);
    }
    let header = program.header();
    let path = |index: u64| {
        let file = header.file(index)?;
        // Directory 0 is the compilation directory itself.
        let directory = match file.directory_index() {
            0 => Text::None,
            _ => file
                .directory(header)
                .as_ref()
                .map_or(Text::None, Text::new),
        };
        Some(Path {
            comp_dir: comp_dir.clone(),
            directory,
            file: Text::new(&file.path_name()),
        })
    };
    let used: Vec<u64> = lines.at.values().map(|(file, _)| *file).collect();
    for index in used.into_iter().chain(files) {
        if lines.paths.len() < MAX_FILES
            && !lines.paths.contains_key(&index)
            && let Some(path) = path(index)
        {
            lines.paths.insert(index, path);
        }
    }
    Ok(lines)
}

/// Puts the parts of a path together: a later absolute part replaces those before it.
pub(crate) fn join(parts: [Option<&str>; 3]) -> String {
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
