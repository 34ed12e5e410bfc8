//! The columns of the file: names, types, and where their values come from.

use wcprof_export::Cells;

/// What a line says of a row.
pub(crate) struct RowText<'a> {
    pub(crate) cells: Cells<'a>,
    /// The kind of work; empty where it is not known, and for what no rule covers.
    pub(crate) work: String,
    /// The function that waits for a lock; empty in other states.
    pub(crate) lock: String,
}

/// What a line says beside its slice and its weight.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Key {
    pub(crate) pid: i32,
    pub(crate) tid: i32,
    /// Texts by number, in the order of the columns with text; 0 is empty.
    pub(crate) texts: Box<[u32]>,
    /// The same, root first.
    pub(crate) stack: Box<[u32]>,
}

/// One line of the file.
pub(crate) struct Line<'a> {
    pub(crate) key: &'a Key,
    /// When its slice begins, ns since 1970.
    pub(crate) start_ns: u64,
    /// How much of the slice was recorded, ns.
    pub(crate) slice_ns: u64,
    pub(crate) weight: u64,
    pub(crate) n_samples: u64,
    /// Between two ticks, ns.
    pub(crate) interval_ns: u64,
}

/// Where the values of a column come from.
pub(crate) enum Values {
    /// Microseconds since 1970 (UTC).
    Time(fn(&Line<'_>) -> i64),
    Number(fn(&Line<'_>) -> i64),
    /// Empty text is null.
    Text(for<'a> fn(&'a RowText<'_>) -> &'a str),
    /// A list of texts.
    Stack,
}

/// The columns in order.
pub(crate) const COLUMNS: [(&str, Values); 23] = [
    ("start", Values::Time(|line| signed(line.start_ns / 1000))),
    ("slice_ns", Values::Number(|line| signed(line.slice_ns))),
    ("host", Values::Text(|row| &row.cells.thread.host)),
    ("fsid", Values::Text(|row| &row.cells.thread.fsid)),
    ("class", Values::Text(|row| &row.cells.thread.class)),
    ("daemon", Values::Text(|row| &row.cells.thread.process)),
    ("process", Values::Text(|row| &row.cells.thread.comm)),
    ("pid", Values::Number(|line| line.key.pid.into())),
    ("cgroup", Values::Text(|row| &row.cells.thread.cgroup)),
    ("pool", Values::Text(|row| &row.cells.thread.pool)),
    ("thread", Values::Text(|row| &row.cells.thread.name)),
    ("tid", Values::Number(|line| line.key.tid.into())),
    ("state", Values::Text(|row| row.cells.state)),
    ("work", Values::Text(|row| &row.work)),
    ("lock", Values::Text(|row| &row.lock)),
    ("syscall", Values::Text(|row| &row.cells.syscall)),
    ("file", Values::Text(|row| &row.cells.file)),
    ("function", Values::Text(|row| &row.cells.function)),
    ("module", Values::Text(|row| &row.cells.module)),
    ("stack", Values::Stack),
    ("weight_ns", Values::Number(|line| signed(line.weight))),
    ("samples", Values::Number(|line| signed(line.n_samples))),
    (
        "interval_ns",
        Values::Number(|line| signed(line.interval_ns)),
    ),
];

/// The type of a line, in Parquet's notation.
pub(crate) fn message_type() -> String {
    let fields = COLUMNS.iter().map(|(name, values)| match values {
        Values::Time(_) => format!("required int64 {name} (TIMESTAMP(MICROS,true));\n"),
        Values::Number(_) => format!("required int64 {name};\n"),
        Values::Text(_) => format!("optional binary {name} (STRING);\n"),
        Values::Stack => format!(
            "required group {name} (LIST) {{ repeated group list {{ required binary element (STRING); }} }}\n"
        ),
    });
    format!("message wcprof {{\n{}}}", fields.collect::<String>())
}

/// The texts of a row, in the order of their columns.
pub(crate) fn texts<'a>(row: &'a RowText<'_>) -> impl Iterator<Item = &'a str> {
    COLUMNS.iter().filter_map(move |(_, values)| match values {
        Values::Text(text) => Some(text(row)),
        _ => None,
    })
}

/// Parquet has no unsigned numbers that all readers know.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
