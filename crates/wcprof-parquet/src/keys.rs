//! The rows of a profile to what tells lines of the file apart: rows that say the same are one.

use indexmap::IndexSet;
use parquet::data_type::ByteArray;
use wcprof_export::{RowCells, Strings};
use wcprof_profile::model::Profile;
use wcprof_profile::{Categories, Subject, Subjects, View};
use wcprof_text::terminal_name;

use crate::columns::{Key, RowText, texts};

/// The keys of a profile's rows.
#[derive(Debug)]
pub(crate) struct Keys {
    /// Distinct texts; the first is empty.
    pub(crate) names: Vec<ByteArray>,
    /// Those of one thread follow each other.
    pub(crate) keys: IndexSet<Key>,
    /// By row: the index of its key; `None` for what the view does not show.
    pub(crate) of_row: Vec<Option<u32>>,
}

impl Keys {
    pub(crate) fn new(profile: &Profile, view: &View, categories: &Categories) -> Self {
        let cells = RowCells::new(profile, view);
        let subjects = Subjects::new(profile, categories);
        let mut names = Strings::default();
        let mut id = |text: &str| names.number(text) as u32;
        id("");
        let mut keys = IndexSet::new();
        let mut of_row = vec![None; profile.rows.len()];
        let mut order: Vec<usize> = (0..profile.rows.len()).collect();
        order.sort_by_key(|&row| profile.rows[row].thread);
        for at in order {
            let Some(cells) = cells.of(at) else {
                continue;
            };
            let (work, lock) = match subjects.of(&profile.rows[at]) {
                Some(Subject::Work(kind)) => (kind.unwrap_or_default(), ""),
                Some(Subject::Lock(function)) => ("", function),
                None => ("", ""),
            };
            let row = RowText {
                work: terminal_name(work).into_owned(),
                lock: terminal_name(lock).into_owned(),
                cells,
            };
            let key = Key {
                pid: row.cells.thread.pid,
                tid: row.cells.thread.tid,
                texts: texts(&row).map(&mut id).collect(),
                stack: row.cells.stack.iter().map(|name| id(name)).collect(),
            };
            of_row[at] = Some(keys.insert_full(key).0 as u32);
        }
        let names = names.into_list().into_iter();
        Self {
            names: names.map(|name| name.into_bytes().into()).collect(),
            keys,
            of_row,
        }
    }
}
