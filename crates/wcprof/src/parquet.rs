//! `wcprof report --format parquet`: the profile as a Parquet file, in builds with the feature `parquet`.

use wcprof_profile::model::Profile;
use wcprof_profile::{Rules, View};

use crate::args::{FormatArg, ReportArgs};
use crate::failure::Failure;
use crate::open::Spans;

/// Refuses the flags of a format that is not chosen, and the format where it is not built in.
pub(crate) fn check(args: &ReportArgs, format: FormatArg) -> Result<(), Failure> {
    if args.slice.is_some() && format != FormatArg::Parquet {
        let error = anyhow::anyhow!("--slice is a flag of --format parquet");
        return Err(Failure::usage(error).hint("--from and --to choose a part of the time"));
    }
    if format == FormatArg::Parquet && cfg!(not(feature = "parquet")) {
        let error = anyhow::anyhow!("this wcprof was built without --format parquet");
        return Err(Failure::usage(error).hint(
            "`cargo build --release -p wcprof --features parquet` has it; or write --format csv, which DuckDB reads",
        ));
    }
    Ok(())
}

/// Writes the file while the trace is read once more.
#[cfg(feature = "parquet")]
pub(crate) fn write(
    profile: &Profile,
    spans: &Spans,
    args: &ReportArgs,
    view: &View,
    rules: &Rules,
) -> Result<(), Failure> {
    use wcprof_parquet::{Options, ParquetWriter};

    let categories = rules.categories().map_err(Failure::usage)?;
    let mut options = Options::default();
    options.slice = args.slice.unwrap_or(options.slice);
    args.out.write_with(|out| {
        let mut parquet = ParquetWriter::new(profile, view, &categories, &options, out)?;
        spans.try_for_each(|span| parquet.add(span))?;
        parquet.finish()?;
        Ok(())
    })
}

/// [`check`] has refused it.
#[cfg(not(feature = "parquet"))]
pub(crate) fn write(
    _: &Profile,
    _: &Spans,
    _: &ReportArgs,
    _: &View,
    _: &Rules,
) -> Result<(), Failure> {
    Ok(())
}
