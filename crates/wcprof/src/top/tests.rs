//! Pictures of a saved recording, keys, and names that are hostile.

use std::path::Path;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use wcprof_findings::RuleSet;
use wcprof_profile::model::Profile;
use wcprof_profile::{Direction, ProfileBuilder, Rules};
use wcprof_report::Answers;
use wcprof_trace::TraceReader;
use wcprof_trace::model::Tables;
use wcprof_types::CounterValue;

use super::draw::draw;
use super::model::Model;
use super::row::RowKey;
use super::state::{Action, Pane, Ui};
use crate::views::answers;

fn fixtures() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}

fn profile() -> Profile {
    let path = fixtures().join("traces/ceph-osd-secure-randread.wct");
    let mut builder = ProfileBuilder::new();
    let (tables, _) = TraceReader::open(path)
        .and_then(|reader| reader.read(|_, span| builder.add_span(&span)))
        .unwrap();
    builder.finish(&tables, None, &Rules::builtin().unwrap())
}

fn press(ui: &mut Ui, profile: &Profile, code: KeyCode) -> Action {
    let rows = Model::new(profile, &Answers::default(), ui, 80).rows;
    ui.key(KeyEvent::new(code, KeyModifiers::NONE), &rows)
}

fn answers_of(profile: &Profile) -> Answers {
    let categories = Rules::builtin().unwrap().categories().unwrap();
    let rules = RuleSet::builtin().unwrap();
    answers(profile, &Tables::default(), &rules, &categories)
}

/// Check that the headline says how many operations a process counted.
#[test]
fn operations() {
    let mut profile = profile();
    let process = &mut profile.processes[0];
    process.counters.covered_ns = process.recorded_ns;
    let counted = CounterValue {
        count: 2 * process.recorded_ns / 1_000_000,
        time_ns: 0,
    };
    process.counters.grown.insert("osd.op_r".into(), counted);
    let model = Model::new(&profile, &Answers::default(), &Ui::new(), 80);
    let words = "2000 operations a second";
    assert!(model.headline.contains(words), "{}", model.headline);
}

/// The screen as text.
fn screen(profile: &Profile, ui: &Ui, (width, height): (u16, u16)) -> String {
    let model = Model::new(profile, &answers_of(profile), ui, width.into());
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal
        .draw(|frame| draw(frame, &model, ui, "the last 5.0 s", false))
        .unwrap();
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    for y in 0..height {
        let cells = (0..width).filter_map(|x| buffer.cell((x, y)));
        let line: String = cells.map(|cell| cell.symbol()).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Check the pictures of a saved recording: tree of a pool, a thread of an unfolded one, hotspots,
/// help.
#[test]
fn golden() {
    let profile = profile();
    let mut ui = Ui::new();
    let mut all = String::new();
    let mut show = |name: &str, ui: &Ui| {
        all.push_str(&format!("== {name}\n{}", screen(&profile, ui, (110, 34))));
    };
    show("begin", &ui);
    press(&mut ui, &profile, KeyCode::Down);
    press(&mut ui, &profile, KeyCode::Right);
    // The third one of the pool is busy.
    for _ in 0..3 {
        press(&mut ui, &profile, KeyCode::Down);
    }
    press(&mut ui, &profile, KeyCode::Char('t'));
    show("a thread, roots first", &ui);
    press(&mut ui, &profile, KeyCode::Char('a'));
    ui.paused = true;
    show("answers, paused", &ui);
    press(&mut ui, &profile, KeyCode::Char('?'));
    ui.ended = Some("the target has ended".into());
    show("help, ended", &ui);
    let file = fixtures().join("traces/ceph-osd-secure-randread.top.txt");
    wcprof_testkit::golden(file, all);
}

/// Check that screens of any size are drawn, down to one cell.
#[test]
fn sizes() {
    let profile = profile();
    for size in [(1, 1), (20, 3), (40, 7), (300, 100)] {
        for pane in [Pane::Tree, Pane::Answers, Pane::Help] {
            let mut ui = Ui::new();
            ui.pane = pane;
            ui.scroll = 10_000;
            let text = screen(&profile, &ui, size);
            assert_eq!(text.lines().count(), usize::from(size.1));
        }
    }
}

/// Check that names of threads, pools, processes and functions can not steer the terminal.
#[test]
fn hostile_names() {
    let mut profile = profile();
    let evil = "a\x1b]0;x\x07\u{202e}b\nc";
    for pool in &mut profile.pools {
        pool.name = evil.into();
    }
    for thread in &mut profile.threads {
        thread.comm = evil.into();
        thread.process_comm = evil.into();
    }
    for process in &mut profile.processes {
        process.title = evil.into();
        process.comm = evil.into();
    }
    for function in &mut profile.functions {
        function.name = evil.into();
        function.module = evil.into();
    }
    let mut ui = Ui::new();
    press(&mut ui, &profile, KeyCode::Enter);
    for pane in [Pane::Tree, Pane::Answers] {
        ui.pane = pane;
        let model = Model::new(&profile, &answers_of(&profile), &ui, 100);
        let rows = model.rows.iter().map(|row| &row.name);
        let lines = rows
            .chain(&model.pane)
            .chain([&model.headline, &model.pane_title]);
        for line in lines {
            let bad = |c: char| c.is_control() || c == '\u{202e}';
            assert!(!line.contains(bad), "{line:?}");
        }
        assert!(model.headline.contains("a?]0;x??b?c"));
    }
}

/// Check what keys do: choice moves within the rows and stays at its row when others come before it,
/// pools unfold, panes change and change back, and the ways to end.
#[test]
fn keys() {
    let profile = profile();
    let mut ui = Ui::new();
    let rows = |ui: &Ui| Model::new(&profile, &Answers::default(), ui, 80).rows;
    let n = rows(&ui).len();
    assert!(n > 3);
    press(&mut ui, &profile, KeyCode::Up);
    assert_eq!(ui.at(&rows(&ui)), 0);
    press(&mut ui, &profile, KeyCode::End);
    press(&mut ui, &profile, KeyCode::Down);
    assert_eq!(ui.at(&rows(&ui)), n - 1);
    let chosen = ui.selected.clone();
    let mut fewer = rows(&ui);
    fewer.remove(0);
    assert_eq!(fewer[ui.at(&fewer)].key, chosen.clone().unwrap());
    fewer.pop();
    assert_eq!(ui.at(&fewer), n - 3, "its neighbor when it is gone");
    press(&mut ui, &profile, KeyCode::Enter);
    let unfolded = rows(&ui);
    assert!(unfolded.len() > n);
    press(&mut ui, &profile, KeyCode::Down);
    assert!(matches!(ui.selected, Some(RowKey::Thread(..))));
    press(&mut ui, &profile, KeyCode::Left);
    assert_eq!((ui.selected.clone(), rows(&ui).len()), (chosen, n));

    assert_eq!(ui.pane, Pane::Answers);
    press(&mut ui, &profile, KeyCode::PageDown);
    assert!(ui.scroll > 0);
    press(&mut ui, &profile, KeyCode::Char('a'));
    assert_eq!((ui.pane, ui.scroll), (Pane::Tree, 0));
    assert_eq!(ui.direction, Direction::LeafFirst);
    press(&mut ui, &profile, KeyCode::Char('t'));
    assert_eq!(ui.direction, Direction::RootFirst);
    press(&mut ui, &profile, KeyCode::Char('p'));
    assert!(ui.paused);
    assert_eq!(press(&mut ui, &profile, KeyCode::Char('s')), Action::Save);
    assert_eq!(press(&mut ui, &profile, KeyCode::Char('q')), Action::Quit);
    let ctrl_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(ui.key(ctrl_c, &[]), Action::Quit);
    assert_eq!(press(&mut ui, &profile, KeyCode::Char('c')), Action::None);
}
