//! Keys to what is chosen. Pure: no terminal, no profile.

use std::collections::BTreeSet;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use wcprof_profile::Direction;

use super::row::{Row, RowKey};

/// What the user has chosen.
#[derive(Clone, Debug)]
pub(crate) struct Ui {
    pub(crate) selected: Option<RowKey>,
    /// Its place when it was last seen.
    place: usize,
    pub(crate) open: BTreeSet<RowKey>,
    pub(crate) pane: Pane,
    pub(crate) direction: Direction,
    pub(crate) scroll: usize,
    pub(crate) paused: bool,
    /// What happened last: a file was saved.
    pub(crate) message: Option<String>,
    /// Why there will be no more pictures.
    pub(crate) ended: Option<String>,
}

/// What the lower half shows.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Pane {
    Tree,
    Answers,
    Help,
}

/// What is to be done for a key.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    None,
    Save,
    Quit,
}

/// Lines of a page.
const PAGE: usize = 10;

impl Ui {
    pub(crate) fn new() -> Self {
        Self {
            selected: None,
            place: 0,
            open: BTreeSet::new(),
            pane: Pane::Answers,
            direction: Direction::LeafFirst,
            scroll: 0,
            paused: false,
            message: None,
            ended: None,
        }
    }

    /// The row that is chosen; one that is gone leaves its place to another.
    pub(crate) fn at(&self, rows: &[Row]) -> usize {
        let same = |row: &Row| Some(&row.key) == self.selected.as_ref();
        let found = rows.iter().position(same);
        found.unwrap_or(self.place.min(rows.len().saturating_sub(1)))
    }

    /// Takes a key; `rows` are those that are shown.
    pub(crate) fn key(&mut self, key: KeyEvent, rows: &[Row]) -> Action {
        if key.kind == KeyEventKind::Release {
            return Action::None;
        }
        let at = self.at(rows);
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                return Action::Quit;
            }
            KeyCode::Char('q') => return Action::Quit,
            KeyCode::Char('s') => return Action::Save,
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('t') => self.show_tree(),
            KeyCode::Char('a') => self.show(Pane::Answers),
            KeyCode::Char('?' | 'h') => self.show(Pane::Help),
            KeyCode::Up | KeyCode::Char('k') => self.choose(rows, at.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.choose(rows, at + 1),
            KeyCode::Home => self.choose(rows, 0),
            KeyCode::End => self.choose(rows, usize::MAX),
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(PAGE),
            KeyCode::PageDown => self.scroll = self.scroll.saturating_add(PAGE),
            KeyCode::Enter | KeyCode::Right | KeyCode::Left => self.fold(rows, at, key.code),
            _ => {}
        }
        Action::None
    }

    fn choose(&mut self, rows: &[Row], at: usize) {
        let at = at.min(rows.len().saturating_sub(1));
        self.place = at;
        self.selected = rows.get(at).map(|row| row.key.clone());
        self.scroll = 0;
    }

    fn fold(&mut self, rows: &[Row], at: usize, code: KeyCode) {
        let is_pool = |row: &Row| matches!(row.key, RowKey::Pool(..));
        let above = rows.iter().take(at + 1).rposition(is_pool);
        let Some((at, row)) = above.and_then(|at| Some((at, rows.get(at)?))) else {
            return;
        };
        let open = self.open.contains(&row.key);
        let wanted = match code {
            KeyCode::Right => true,
            KeyCode::Left => false,
            _ => !open,
        };
        match wanted {
            true => self.open.insert(row.key.clone()),
            false => self.open.remove(&row.key),
        };
        if !wanted {
            self.choose(rows, at);
        }
    }

    fn show_tree(&mut self) {
        if self.pane == Pane::Tree {
            self.direction = match self.direction {
                Direction::LeafFirst => Direction::RootFirst,
                Direction::RootFirst => Direction::LeafFirst,
            };
        }
        self.show(Pane::Tree);
    }

    /// The same again goes back to the tree.
    fn show(&mut self, pane: Pane) {
        self.scroll = 0;
        self.pane = match self.pane == pane {
            true => Pane::Tree,
            false => pane,
        };
    }
}
