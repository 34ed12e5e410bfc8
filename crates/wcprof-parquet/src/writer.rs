//! Lines to a Parquet file, a row group for so many lines: columns with dictionaries, compressed with zstd.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;
use wcprof_export::recorded;
use wcprof_profile::model::{Profile, TimeAxis};
use wcprof_profile::{Categories, RowSpan, View};

use crate::columns::{COLUMNS, Line, Values, message_type};
use crate::keys::Keys;
use crate::sums::{Slice, Sums};

/// Sums that are kept; half of them are then a row group.
const MAX_SUMS: usize = 1 << 18;
/// Lines of which values are handed over at a time: a stack has many.
const BATCH: usize = 1024;
/// Bytes of a column's dictionary; of more texts the rest is written out.
const MAX_DICTIONARY: usize = 8 << 20;

/// How the file is made.
#[derive(Clone, Debug)]
pub struct Options {
    /// Length of the slices of time, which begin at whole multiples of it since 1970 (UTC).
    pub slice: Duration,
    /// Sums that are kept in memory.
    pub max_sums: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            slice: Duration::from_secs(1),
            max_sums: MAX_SUMS,
        }
    }
}

/// Writes spans as lines of a Parquet file.
pub struct ParquetWriter<W: Write + Send> {
    file: SerializedFileWriter<W>,
    keys: Keys,
    sums: Sums,
    max_sums: usize,
    times: Times,
}

impl<W: Write + Send> std::fmt::Debug for ParquetWriter<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ParquetWriter").finish_non_exhaustive()
    }
}

/// When slices are.
#[derive(Debug)]
struct Times {
    axis: TimeAxis,
    began_unix_ns: u64,
    slice_ns: u64,
    interval_ns: u64,
}

impl Times {
    /// When a slice begins, ns since 1970, and how much of it was recorded, ns.
    fn of(&self, slice: u64) -> (u64, u64) {
        let start = slice.saturating_mul(self.slice_ns);
        let covered = |time: u64| {
            let time = time.saturating_sub(self.began_unix_ns);
            self.axis.covered_until(time.min(self.axis.duration_ns()))
        };
        let end = start.saturating_add(self.slice_ns);
        (start, covered(end) - covered(start))
    }
}

impl<W: Write + Send> ParquetWriter<W> {
    /// Begins a file with the rows that `view` shows. Functions of the profile must have their full names.
    pub fn new(
        profile: &Profile,
        view: &View,
        categories: &Categories,
        options: &Options,
        out: W,
    ) -> io::Result<Self> {
        let schema = parse_message_type(&message_type()).map_err(failed)?;
        let about = vec![
            KeyValue::new("wcprof.schema".to_owned(), "1".to_owned()),
            KeyValue::new("wcprof.recorded".to_owned(), recorded(profile).join("\n")),
        ];
        let properties = WriterProperties::builder()
            .set_created_by(concat!("wcprof ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_key_value_metadata(Some(about))
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_dictionary_page_size_limit(MAX_DICTIONARY)
            .set_max_row_group_row_count(None)
            // The smallest and the largest function name say nothing.
            .set_column_statistics_enabled(
                ColumnPath::from("stack.list.element"),
                EnabledStatistics::None,
            )
            .build();
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
        let rate = u64::from(profile.header.rate_hz);
        Ok(Self {
            file: SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties))
                .map_err(failed)?,
            keys: Keys::new(profile, view, categories),
            sums: Sums::default(),
            max_sums: options.max_sums.max(1),
            times: Times {
                axis: profile.time.clone(),
                began_unix_ns: profile.began_unix_ns(),
                slice_ns: ns(options.slice),
                interval_ns: 1_000_000_000_u64.checked_div(rate).unwrap_or(0),
            },
        })
    }

    /// Adds one span, if the view shows it.
    pub fn add(&mut self, span: RowSpan) -> io::Result<()> {
        let Some(key) = self.keys.of_row.get(span.row).copied().flatten() else {
            return Ok(());
        };
        for (slice, part) in span.by_slice(self.times.slice_ns, self.times.began_unix_ns) {
            if part.weight > 0 || part.n_samples > 0 {
                self.sums.add(slice, key, part.weight, part.n_samples);
            }
            if self.sums.len() > self.max_sums {
                let slices = self.sums.take_until(self.max_sums / 2);
                self.write(&slices)?;
            }
        }
        Ok(())
    }

    /// Writes what is left and ends the file.
    pub fn finish(mut self) -> io::Result<W> {
        let slices = self.sums.take_until(0);
        if !slices.is_empty() {
            self.write(&slices)?;
        }
        self.file.into_inner().map_err(failed)
    }

    /// Writes slices as a row group.
    fn write(&mut self, slices: &[Slice]) -> io::Result<()> {
        let (keys, times) = (&self.keys, &self.times);
        let lines: Vec<Line<'_>> = slices
            .iter()
            .flat_map(|(slice, sums)| {
                let (start_ns, slice_ns) = times.of(*slice);
                sums.iter().map(move |(key, sum)| Line {
                    key: &keys.keys[*key as usize],
                    start_ns,
                    slice_ns,
                    weight: sum.weight,
                    n_samples: sum.n_samples,
                    interval_ns: times.interval_ns,
                })
            })
            .collect();
        let mut group = self.file.next_row_group().map_err(failed)?;
        let mut n_texts = 0;
        for (_, values) in &COLUMNS {
            let Some(mut column) = group.next_column().map_err(failed)? else {
                return Err(failed(ParquetError::General("a column is missing".into())));
            };
            for lines in lines.chunks(BATCH) {
                let written = match values {
                    Values::Time(value) | Values::Number(value) => {
                        numbers(&mut column, lines, value)
                    }
                    Values::Text(_) => texts(&mut column, lines, &keys.names, n_texts),
                    Values::Stack => stacks(&mut column, lines, &keys.names),
                };
                written.map_err(failed)?;
            }
            n_texts += usize::from(matches!(values, Values::Text(_)));
            column.close().map_err(failed)?;
        }
        group.close().map_err(failed)?;
        Ok(())
    }
}

fn numbers(
    column: &mut SerializedColumnWriter<'_>,
    lines: &[Line<'_>],
    value: impl Fn(&Line<'_>) -> i64,
) -> Result<usize, ParquetError> {
    let values: Vec<i64> = lines.iter().map(value).collect();
    column.typed::<Int64Type>().write_batch(&values, None, None)
}

/// The column of the keys' text `at`; the empty text is null.
fn texts(
    column: &mut SerializedColumnWriter<'_>,
    lines: &[Line<'_>],
    names: &[ByteArray],
    at: usize,
) -> Result<usize, ParquetError> {
    let ids = || lines.iter().map(|line| line.key.texts[at]);
    let levels: Vec<i16> = ids().map(|id| i16::from(id != 0)).collect();
    let values: Vec<ByteArray> = ids()
        .filter(|&id| id != 0)
        .map(|id| names[id as usize].clone())
        .collect();
    let column = column.typed::<ByteArrayType>();
    column.write_batch(&values, Some(&levels), None)
}

/// A list for each line.
fn stacks(
    column: &mut SerializedColumnWriter<'_>,
    lines: &[Line<'_>],
    names: &[ByteArray],
) -> Result<usize, ParquetError> {
    // A line without frames has one level and no value.
    let (mut present, mut continues, mut values) = (Vec::new(), Vec::new(), Vec::new());
    for line in lines {
        let stack = &line.key.stack;
        values.extend(stack.iter().map(|&id| names[id as usize].clone()));
        present.extend((0..stack.len().max(1)).map(|_| i16::from(!stack.is_empty())));
        continues.extend((0..stack.len().max(1)).map(|at| i16::from(at > 0)));
    }
    let column = column.typed::<ByteArrayType>();
    column.write_batch(&values, Some(&present), Some(&continues))
}

/// The error of the file or the disk, if it is one of these.
fn failed(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(error) => io::Error::other(error),
        },
        error => io::Error::other(error),
    }
}
