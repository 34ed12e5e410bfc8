//! What a ring held to a trace file of its own, with names.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use wcprof_record::NamedSnapshot;
use wcprof_symbols::SymbolOptions;
use wcprof_trace::ring::Cut;
use wcprof_trace::{TraceError, TraceSink, TraceWriter};
use wcprof_types::TimeNs;

use crate::args::SymbolArgs;
use crate::failure::Failure;
use crate::local_names::{self, Origin};
use crate::names;
use crate::output::{NewTrace, create_first_free};

/// `osd.wct` to `osd-1.wct`.
pub(crate) fn numbered(base: &Path, number: u32) -> PathBuf {
    let stem = base.file_stem().unwrap_or_default().to_string_lossy();
    let suffix = match base.extension() {
        Some(extension) => format!(".{}", extension.to_string_lossy()),
        None => ".wct".to_owned(),
    };
    base.with_file_name(format!("{stem}-{number}{suffix}"))
}

/// Creates the first numbered trace that is not there, from `number` on, which is set to the one after it.
pub(crate) fn create_numbered(base: &Path, number: &mut u32) -> Result<NewTrace, Failure> {
    create_first_free((*number..).map(|n| {
        *number = n.saturating_add(1);
        numbered(base, n)
    }))
}

/// Refuses a folder that no file can be written to, before anything is recorded.
pub(crate) fn check_folder(base: &Path) -> Result<(), Failure> {
    let (path, _) = create_numbered(base, &mut 1)?;
    Ok(fs::remove_file(path)?)
}

/// A file that was written.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) path: PathBuf,
    pub(crate) duration: TimeNs,
    pub(crate) n_threads: usize,
    pub(crate) bytes: u64,
    /// Names are missing: the search for them was ended early.
    pub(crate) is_cancelled: bool,
    /// Why it has none for another reason.
    pub(crate) unnamed: Option<String>,
}

/// How names are found, and whether they go into the file.
#[derive(Debug)]
pub(crate) struct NameOptions<'a> {
    pub(crate) args: &'a SymbolArgs,
    pub(crate) options: SymbolOptions,
    /// Leave function names out.
    pub(crate) raw: bool,
}

/// What becomes of a file that could not be written whole.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum OnFailure {
    Remove,
    Keep,
}

/// Writes all that a ring held, and names if they can be written.
pub(crate) fn write(
    kept: &NamedSnapshot,
    (path, file): NewTrace,
    reason: &str,
    names: &NameOptions<'_>,
    on_failure: OnFailure,
) -> Result<Written, Failure> {
    let write = || -> Result<_, Failure> {
        let cut = kept.snapshot.cut(TimeNs(0))?;
        let tables = cut.tables();
        let mut writer = TraceWriter::for_file(file, &tables.header)?;
        cut.write(&mut writer, reason)?;
        let named = write_names(kept, &cut, &mut writer, names);
        Ok((
            writer.len_bytes(),
            named.map_err(|failure| format!("{:#}", failure.error)),
            tables.stats.duration,
            tables.threads.len(),
        ))
    };
    match write() {
        Ok((bytes, named, duration, n_threads)) => Ok(Written {
            duration,
            n_threads,
            bytes,
            is_cancelled: named == Ok(true),
            unnamed: named.err(),
            path,
        }),
        Err(failure) => {
            // What is there of it is of little use, and takes room where there is none.
            let is_empty = fs::metadata(&path).is_ok_and(|metadata| metadata.len() == 0);
            let hint = if on_failure == OnFailure::Keep && !is_empty {
                "what was written until then is kept"
            } else {
                let _ = fs::remove_file(&path);
                "the file is removed"
            };
            Err(match failure.error.downcast() {
                Ok(TraceError::Write(source)) => {
                    let text = format!("failed to write `{}`", path.display());
                    let error = anyhow::Error::from(source).context(text);
                    Failure::from(error).hint(hint)
                }
                Ok(error) => Failure::from(error),
                Err(error) => Failure { error, ..failure },
            })
        }
    }
}

/// Adds names to a trace; gives whether some are missing because the user did not want to wait.
fn write_names(
    kept: &NamedSnapshot,
    cut: &Cut<'_>,
    writer: &mut TraceWriter<File>,
    names: &NameOptions<'_>,
) -> Result<bool, Failure> {
    let tables = cut.tables();
    let origin = Origin::of_cut(kept, cut);
    let (mut symbols, report) =
        names::of_recording(tables, &origin.files, names.args, &names.options)?;
    // What stands in the way of single names is said when the trace is read.
    let cancel = &names.options.cancel;
    let (local, _) = local_names::of_recording(tables, &origin, &mut symbols, cancel);
    writer.write_local_names(&local)?;
    if !names.raw {
        writer.write_symbols(&names::finished(&symbols, &report))?;
    }
    Ok(report.is_cancelled())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the names of numbered files, that one that is there is not taken, and that a folder
    /// that is none is refused.
    #[test]
    fn numbers() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().join("a.b.wct");
        fs::write(folder.path().join("a.b-2.wct"), "mine").unwrap();
        let mut number = 1;
        let names = [(); 3].map(|()| {
            let (path, _) = create_numbered(&base, &mut number).unwrap();
            path.file_name().unwrap().to_string_lossy().into_owned()
        });
        assert_eq!(names, ["a.b-1.wct", "a.b-3.wct", "a.b-4.wct"]);
        assert_eq!(numbered(Path::new("x"), 7), Path::new("x-7.wct"));
        fs::remove_file(folder.path().join("a.b-1.wct")).unwrap();
        check_folder(&base).unwrap();
        assert!(!folder.path().join("a.b-1.wct").exists());
        let failure = check_folder(&folder.path().join("none/x.wct")).unwrap_err();
        assert!(failure.to_string().contains("none/x-1.wct"), "{failure}");
    }
}
