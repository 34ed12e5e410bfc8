//! The rows of a profile to what tells lines of the file apart: rows that say the same are one.

use std::collections::HashMap;

use parquet::data_type::ByteArray;
use wcprof_export::RowCells;
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
    pub(crate) keys: Vec<Key>,
    /// By row: the index of its key; `None` for what the view does not show.
    pub(crate) of_row: Vec<Option<u32>>,
}

impl Keys {
    pub(crate) fn new(profile: &Profile, view: &View, categories: &Categories) -> Self {
        let cells = RowCells::new(profile, view);
        let subjects = Subjects::new(profile, categories);
        let mut names = Names::default();
        names.id("");
        let mut known: HashMap<Key, u32> = HashMap::new();
        let mut keys = Vec::new();
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
                texts: texts(&row).map(|text| names.id(text)).collect(),
                stack: row.cells.stack.iter().map(|name| names.id(name)).collect(),
            };
            let next = keys.len() as u32;
            let id = *known.entry(key).or_insert_with_key(|key| {
                keys.push(key.clone());
                next
            });
            of_row[at] = Some(id);
        }
        Self {
            names: names.texts,
            keys,
            of_row,
        }
    }
}

/// Texts by number.
#[derive(Default)]
struct Names {
    known: HashMap<String, u32>,
    texts: Vec<ByteArray>,
}

impl Names {
    fn id(&mut self, text: &str) -> u32 {
        if let Some(&id) = self.known.get(text) {
            return id;
        }
        let id = self.texts.len() as u32;
        self.texts.push(ByteArray::from(text));
        self.known.insert(text.to_owned(), id);
        id
    }
}
