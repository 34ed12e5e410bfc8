//! `cargo xtask toolchains`: one program whose stack is known, as many compilers, linkers and tools make it, recorded by wcprof and
//! compared with that stack and with eu-stack; a row each in `docs/toolchains.md`.

mod list;
mod score;

use crate::programs::{Program, Recorded, Row, Table};
use list::VARIANTS;
use score::Score;

/// The table of the document.
pub const TABLE: Table = Table {
    name: "toolchains",
    document: "docs/toolchains.md",
    head: &[
        "Variant",
        "Whole / cut and said / wrong",
        "Said to be cut",
        "Names",
        "Inline",
        "Lines",
        "Witness",
        "eu-stack has of it",
    ],
    programs: VARIANTS,
    with_lines: true,
    row,
};

fn row(variant: &Program, recorded: &Recorded) -> Row {
    let score = Score::new(&recorded.all, &recorded.screen);
    let witness = score::of_witness(recorded.stacks.values());
    let cells = vec![
        score.stacks(),
        score.said(),
        score.names(),
        score.inlines(),
        score.lines(),
        variant.witness.to_owned(),
        witness.unwrap_or_else(|| "nothing".to_owned()),
    ];
    Row {
        cells,
        details: score.details(),
    }
}
