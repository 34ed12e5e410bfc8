//! A synthetic trace to the lines of its file.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use parquet::file::reader::FileReader;
use parquet::file::serialized_reader::SerializedFileReader;
use parquet::record::Field;
use wcprof_parquet::{Options, ParquetWriter};
use wcprof_profile::{ProfileBuilder, Rules, View};
use wcprof_types::TimeNs;

use crate::support::Maker;

static RULES: LazyLock<Rules> = LazyLock::new(|| Rules::builtin().unwrap());

/// A line by the names of its columns.
pub type Line = BTreeMap<String, Field>;

/// Writes a trace, or its time from one point to another in ns.
pub fn reader(
    maker: &Maker,
    view: &View,
    options: &Options,
    window: Option<(u64, u64)>,
) -> SerializedFileReader<impl parquet::file::reader::ChunkReader + 'static> {
    let mut builder = ProfileBuilder::new();
    if let Some((from, to)) = window {
        builder = builder.with_window(TimeNs(from), TimeNs(to));
    }
    builder.add_spans(&maker.spans);
    let (profile, rows) = builder.finish_indexed(&maker.tables, None, &RULES, false);
    let categories = RULES.categories().unwrap();
    let mut file = tempfile::tempfile().unwrap();
    let mut writer = ParquetWriter::new(&profile, view, &categories, options, &mut file).unwrap();
    for span in maker.spans.iter().filter_map(|span| rows.find(span)) {
        writer.add(span).unwrap();
    }
    writer.finish().unwrap();
    SerializedFileReader::new(file).unwrap()
}

/// The lines of a file.
pub fn lines<R: parquet::file::reader::ChunkReader + 'static>(
    reader: &SerializedFileReader<R>,
) -> Vec<Line> {
    let rows = reader.get_row_iter(None).unwrap().map(Result::unwrap);
    rows.map(|row| {
        row.get_column_iter()
            .map(|(n, f)| (n.clone(), f.clone()))
            .collect()
    })
    .collect()
}

/// A number, a time in us, a text, or a list with `;` between its texts; null is empty.
pub fn text(line: &Line, column: &str) -> String {
    match &line[column] {
        Field::Long(number) | Field::TimestampMicros(number) => number.to_string(),
        Field::Str(text) => text.clone(),
        Field::Null => String::new(),
        Field::ListInternal(list) => {
            let texts = list.elements().iter().map(|field| match field {
                Field::Str(text) => text.as_str(),
                other => panic!("{other:?}"),
            });
            texts.collect::<Vec<_>>().join(";")
        }
        other => panic!("{column}: {other:?}"),
    }
}

/// Some columns of all lines.
pub fn table(lines: &[Line], columns: &[&str]) -> Vec<String> {
    let row = |line: &Line| {
        let texts: Vec<String> = columns.iter().map(|column| text(line, column)).collect();
        texts.join(" | ")
    };
    lines.iter().map(row).collect()
}

/// The sum of a column.
pub fn sum(lines: &[Line], column: &str) -> u64 {
    let numbers = lines.iter().map(|line| text(line, column));
    numbers.map(|text| text.parse::<u64>().unwrap()).sum()
}
