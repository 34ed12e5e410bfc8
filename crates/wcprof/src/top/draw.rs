//! A model to the cells of a screen.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph};
use wcprof_profile::model::State;
use wcprof_report::{COLUMNS, threads_text};
use wcprof_text::{columns, cut};

use super::model::Model;
use super::row::{Row, RowKey};
use super::state::Ui;

/// Cells of a bar, as far as the columns beside it leave room.
const BAR: std::ops::RangeInclusive<usize> = 8..=30;
const NAME: usize = 24;
/// Width and name of the columns of threads on average: those of the first screen, and idle threads, of which each state has a
/// letter in the bar.
const FIGURES: [(usize, &str, &[State]); 6] = [
    (8, COLUMNS[0].0, COLUMNS[0].1),
    (8, COLUMNS[1].0, COLUMNS[1].1),
    (5, COLUMNS[2].0, COLUMNS[2].1),
    (5, COLUMNS[3].0, COLUMNS[3].1),
    (6, COLUMNS[4].0, COLUMNS[4].1),
    (6, "idle", &[State::Idle, State::PlaceUnknown]),
];

/// Draws all of it; a screen that is too small shows what has room. `status` says how long it records,
/// which time is shown, and what it costs.
pub(crate) fn draw(frame: &mut Frame<'_>, model: &Model, ui: &Ui, status: &str, color: bool) {
    let area = frame.area();
    let n_rows = u16::try_from(model.rows.len()).unwrap_or(u16::MAX);
    let most = (area.height / 2).max(3);
    let [head, table, pane, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(n_rows.saturating_add(1).min(most)),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(area);
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let lines = vec![
        Line::styled(model.headline.as_str(), bold),
        Line::raw(status),
    ];
    frame.render_widget(Paragraph::new(lines), head);
    draw_rows(frame, table, model, ui, color);
    let block = Block::new()
        .borders(Borders::TOP)
        .title(format!(" {} ", model.pane_title));
    let room = usize::from(pane.height.saturating_sub(1));
    let from = ui.scroll.min(model.pane.len().saturating_sub(room));
    let shown = model.pane.iter().skip(from).take(room);
    let lines: Vec<Line<'_>> = shown.map(|line| Line::raw(line.as_str())).collect();
    frame.render_widget(Paragraph::new(lines).block(block), pane);
    let keys = "? help  q end  p pause  s save  t tree  a answers  enter unfold";
    let foot_line = match (&ui.message, &ui.ended, ui.paused) {
        (Some(message), ..) => Line::styled(message.as_str(), bold),
        (None, Some(why), _) => Line::styled(format!("{why}  {keys}"), bold),
        (None, None, true) => Line::styled(format!("PAUSED  {keys}"), bold),
        (None, None, false) => Line::raw(keys),
    };
    frame.render_widget(Paragraph::new(foot_line), foot);
}

fn draw_rows(frame: &mut Frame<'_>, area: Rect, model: &Model, ui: &Ui, color: bool) {
    let room = usize::from(area.height.saturating_sub(1));
    let at = ui.at(&model.rows);
    let from = (at + 1).saturating_sub(room);
    // A blank before each, and before and behind the number of threads.
    let figures = FIGURES.map(|(width, ..)| width + 1);
    let beside = NAME + 6 + figures.iter().sum::<usize>();
    let cells = usize::from(area.width).saturating_sub(beside);
    let cells = cells.clamp(*BAR.start(), *BAR.end());
    let figures = FIGURES.map(|(width, name, _)| format!(" {name:>width$}"));
    let pool = "pool (average threads)";
    let title = format!(
        "{pool:<NAME$} {:>4} {:<cells$}{}",
        "n",
        "states",
        figures.concat()
    );
    let mut lines = vec![Line::raw(title)];
    for (i, row) in model.rows.iter().enumerate().skip(from).take(room) {
        let mut line = line_of(row, ui, cells, color);
        if i == at {
            line = line.style(Style::new().add_modifier(Modifier::REVERSED));
        }
        lines.push(line);
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn line_of(row: &Row, ui: &Ui, n_cells: usize, color: bool) -> Line<'static> {
    let name = match &row.key {
        RowKey::Pool(..) if ui.open.contains(&row.key) => format!("- {}", row.name),
        RowKey::Pool(..) => format!("+ {}", row.name),
        RowKey::Thread(..) => format!("    {}", row.name),
    };
    let name = cut(&name, Some(NAME));
    let blank = " ".repeat(NAME.saturating_sub(columns(&name)));
    let mut spans = vec![Span::raw(format!("{name}{blank} {:>4} ", row.n_threads))];
    for (state, cells) in bar(&row.states, n_cells) {
        let text = mark(state).to_string().repeat(cells);
        spans.push(match color {
            true => Span::styled(text, Style::new().fg(color_of(state))),
            false => Span::raw(text),
        });
    }
    let figures = FIGURES.map(|(width, _, states)| {
        let n: f64 = states.iter().map(|s| row.states[*s as usize]).sum();
        format!(" {:>width$}", threads_text(n))
    });
    spans.push(Span::raw(figures.concat()));
    Line::from(spans)
}

/// Cells of each state; together they fill the bar.
fn bar(states: &[f64; State::ALL.len()], n_cells: usize) -> Vec<(State, usize)> {
    let mut cells = Vec::new();
    let whole: f64 = states.iter().sum();
    let (mut sum, mut given) = (0.0, 0);
    for state in State::ALL {
        sum += states[state as usize] / whole.max(f64::MIN_POSITIVE);
        let upto = ((sum * n_cells as f64).round() as usize).clamp(given, n_cells);
        if upto > given {
            cells.push((state, upto - given));
        }
        given = upto;
    }
    if given < n_cells {
        cells.push((State::Unknown, n_cells - given));
    }
    cells
}

fn mark(state: State) -> char {
    match state {
        State::OnCpu => '#',
        State::Guest => 'G',
        State::Runnable => 'r',
        State::Lock => 'L',
        State::Disk => 'D',
        State::Net => 'N',
        State::Sleep => 's',
        State::Idle => '.',
        State::Blocked => 'b',
        State::StealIrq => '!',
        State::Unknown => '?',
        State::Throttle => 't',
        State::PlaceUnknown => ',',
        State::Stopped => 'T',
        State::VmExit => 'x',
    }
}

fn color_of(state: State) -> Color {
    match state {
        State::OnCpu => Color::Green,
        State::Guest | State::VmExit => Color::Cyan,
        State::Runnable => Color::Yellow,
        State::Lock => Color::Red,
        State::Disk => Color::Magenta,
        State::Net => Color::Blue,
        State::Sleep | State::Blocked | State::Throttle => Color::LightBlue,
        State::Idle | State::PlaceUnknown | State::Unknown | State::Stopped => Color::DarkGray,
        State::StealIrq => Color::LightRed,
    }
}
