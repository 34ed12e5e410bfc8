//! `cargo xtask runtimes`: programs of many runtimes whose threads wait and work in known ways, recorded by wcprof and compared
//! with what the programs, their runtimes and eu-stack say; a row each in `docs/runtimes.md`.

mod list;
mod score;

use crate::programs::{Program, Recorded, Row, Table};
use list::RUNTIMES;
use score::{Score, Truth};

/// The table of the document.
pub const TABLE: Table = Table {
    name: "runtimes",
    document: "docs/runtimes.md",
    head: &[
        "Runtime",
        "Threads",
        "Depth",
        "Names",
        "States: right / unknown / wrong",
        "Witness",
        "Hint",
    ],
    programs: RUNTIMES,
    with_lines: false,
    row,
};

fn row(runtime: &Program, recorded: &Recorded) -> Row {
    // A runtime tells where a thread was at one look; what the program is made to do counts more.
    let made = runtime.threads.iter();
    let made = made.map(|&(name, state)| Truth::new(name, state));
    let looked_at = recorded.said.lines().filter_map(Truth::parse);
    let truths: Vec<Truth> = looked_at.chain(made).collect();
    let score = Score::new(&recorded.all, &recorded.busy, &truths, &recorded.stacks);
    let cells = vec![
        score.threads(),
        score.depth(),
        score.names(),
        score.states(),
        runtime.witness.to_owned(),
        hint(&recorded.screen),
    ];
    Row {
        cells,
        details: score.details(),
    }
}

/// What the first screen says of names that are missing.
fn hint(screen: &str) -> String {
    let words: Vec<&str> = screen.split_whitespace().collect();
    let screen = words.join(" ");
    let hint = screen.split_once("names come from ").map(|(_, rest)| rest);
    let end = |hint: &str| hint.find(" quality ").unwrap_or(hint.len());
    hint.map_or_else(|| "-".to_owned(), |hint| hint[..end(hint)].to_owned())
}
