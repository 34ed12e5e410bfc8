//! The strings and paths that frames consist of.

use std::sync::Arc;

use gimli::SectionId;

use crate::budget::Shares;
use crate::error::DwarfError;
use crate::files::{DwarfFiles, section_of};
use crate::lines::{Path, UnitLines, join};
use crate::table::Table;
use crate::text::{MAX_TEXT, Strings, Text};

/// All strings that the frames need.
#[derive(Debug)]
pub(crate) struct Texts<'a> {
    pub(crate) strings: Strings,
    line_str: Table<'a>,
}

impl<'a> Texts<'a> {
    /// Adds what the paths of `lines` need to `strings`.
    pub(crate) fn read(
        files: DwarfFiles<'a>,
        lines: &[UnitLines],
        mut strings: Strings,
        shares: Shares,
    ) -> Result<Self, DwarfError> {
        let paths = lines.iter().flat_map(|lines| lines.paths.values());
        let wanted = paths.flat_map(|path| [&path.directory, &path.file]);
        strings.read(files, wanted, shares.strings)?;
        let section = section_of(files.main, SectionId::DebugLineStr);
        let mut room = shares.tables;
        Ok(Self {
            strings,
            line_str: Table::open(files.main, section, &mut room)?,
        })
    }

    pub(crate) fn get(&self, text: &Text) -> Option<Arc<str>> {
        match text {
            Text::None => None,
            Text::Inline(text) => Some(Arc::clone(text)),
            Text::Str(_) | Text::SupStr(_) => self.strings.get(text).cloned(),
            Text::LineStr(offset) => {
                let part = self.line_str.part(*offset, MAX_TEXT as u64).ok()?;
                let end = part.iter().position(|b| *b == 0)?;
                Some(String::from_utf8_lossy(part.get(..end)?).into())
            }
        }
    }

    pub(crate) fn path(&self, path: &Path) -> Option<String> {
        let file = self.get(&path.file)?;
        let (comp_dir, directory) = (self.get(&path.comp_dir), self.get(&path.directory));
        Some(join([
            comp_dir.as_deref(),
            directory.as_deref(),
            Some(&file),
        ]))
    }
}
