//! Bytes to files: the one place that creates output files. They are private (mode 0600), never written through
//! a link, and never in the place of a file that is there, unless `--force` is given.

mod place;

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::libc;
use nix::unistd::linkat;
use tempfile::NamedTempFile;

use crate::args::{ForceArgs, OutputArgs};
use crate::failure::Failure;
use crate::same_file::refuse_input;
pub(crate) use place::path_of;
use place::{Found, Place};

/// A trace that was created, and its path.
pub(crate) type NewTrace = (PathBuf, File);

impl OutputArgs {
    /// Whether standard output gets it.
    pub fn is_stdout(&self) -> bool {
        self.output.is_none()
    }

    /// Refuses, before the work begins, what its end would refuse, and to write where an input is.
    pub fn check(&self, inputs: &[&Path]) -> Result<(), Failure> {
        let Some(path) = &self.output else {
            return Ok(());
        };
        let mut inputs = inputs.iter();
        inputs.try_for_each(|input| refuse_input(input, path))?;
        check(path, self.force)
    }

    /// Writes to the file or to standard output.
    pub fn write(&self, bytes: &[u8]) -> Result<(), Failure> {
        match &self.output {
            Some(path) => write_whole(path, self.force, bytes),
            None => print(bytes),
        }
    }

    /// Writes what `write` makes, to the file or to standard output.
    pub fn write_with(
        &self,
        write: impl FnOnce(&mut (dyn Write + Send)) -> anyhow::Result<()>,
    ) -> Result<(), Failure> {
        match &self.output {
            Some(path) => write_with(path, self.force, write),
            None => {
                let mut out = io::stdout();
                write(&mut out)?;
                Ok(out.flush()?)
            }
        }
    }
}

/// Writes to standard output.
pub fn print(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let written = out.write_all(bytes).and_then(|()| out.flush());
    let written = written.or_else(ignore_gone_terminal);
    Ok(written.context("failed to write to standard output")?)
}

/// A terminal that has gone is no failure, as a reader that has gone is none: nobody waits for the output.
fn ignore_gone_terminal(error: io::Error) -> io::Result<()> {
    let is_io = error.raw_os_error() == Some(Errno::EIO as i32);
    let out = io::stdout().as_fd().try_clone_to_owned().map(File::from);
    let file = out.and_then(|file| file.metadata());
    match is_io && file.is_ok_and(|file| file.file_type().is_char_device()) {
        true => Ok(()),
        false => Err(error),
    }
}

/// Refuses what [`write_whole`] and `create` would refuse because something is there.
pub fn check(path: &Path, force: ForceArgs) -> Result<(), Failure> {
    let place = Place::find(path).with_context(|| failed(path))?;
    match place.found {
        Found::File(_) => may_replace(path, &place, force),
        Found::Nothing | Found::Device(_) => Ok(()),
    }
}

/// Writes a file that appears when it is whole. A pipe or a device is written as it is.
pub fn write_whole(path: &Path, force: ForceArgs, bytes: &[u8]) -> Result<(), Failure> {
    write_with(path, force, |out| Ok(out.write_all(bytes)?))
}

fn write_with(
    path: &Path,
    force: ForceArgs,
    write: impl FnOnce(&mut (dyn Write + Send)) -> anyhow::Result<()>,
) -> Result<(), Failure> {
    let context = || failed(path);
    let place = Place::find(path).with_context(context)?;
    if let Found::Device(device) = &place.found {
        let mut file = device.open().with_context(context)?;
        return Ok(write(&mut file).with_context(context)?);
    }
    make_whole(path, &place, force, |file| {
        write(file).with_context(context)
    })
}

/// Writes a trace from other files: it appears when it is whole.
pub(crate) fn write_trace<T>(
    path: &Path,
    force: ForceArgs,
    write: impl FnOnce(File) -> anyhow::Result<T>,
) -> Result<T, Failure> {
    let place = Place::find(path).with_context(|| failed(path))?;
    if matches!(place.found, Found::Device(_)) {
        return Err(no_trace(path));
    }
    make_whole(path, &place, force, |file| write(file.try_clone()?))
}

/// Writes a file that has no name yet, and puts it in its place.
fn make_whole<T>(
    path: &Path,
    place: &Place,
    force: ForceArgs,
    write: impl FnOnce(&mut File) -> anyhow::Result<T>,
) -> Result<T, Failure> {
    may_replace(path, place, force)?;
    let mut unfinished = Unfinished::in_folder(place).with_context(|| failed(path))?;
    // What is left of a failure goes with it.
    let written = write(unfinished.file())?;
    match unfinished.finish(place, force) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(exists(path)),
        named => Ok(named.map(|()| written).with_context(|| failed(path))?),
    }
}

/// A file until it is whole.
enum Unfinished {
    /// Whatever ends wcprof, nothing is left of it.
    Nameless(File),
    /// Where the file system has no such files.
    Named(NamedTempFile),
}

impl Unfinished {
    fn in_folder(place: &Place) -> io::Result<Self> {
        let nameless = OpenOptions::new()
            .append(true)
            .mode(0o600)
            .custom_flags(libc::O_TMPFILE)
            .open(place.folder());
        match nameless {
            // Older kernels take it for a folder.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR)) => {
                temporary(place, exclusive).map(Self::Named)
            }
            nameless => nameless.map(Self::Nameless),
        }
    }

    fn file(&mut self) -> &mut File {
        match self {
            Self::Nameless(file) => file,
            Self::Named(file) => file.as_file_mut(),
        }
    }

    fn finish(self, place: &Place, force: ForceArgs) -> io::Result<()> {
        let end = place.path();
        let named = match (self, force.force) {
            (Self::Nameless(file), false) => return name(&file, &end),
            (Self::Nameless(file), true) => {
                let named = temporary(place, |path| name(&file, path))?;
                return Ok(named.persist(end)?);
            }
            (Self::Named(file), true) => file.persist(end),
            (Self::Named(file), false) => file.persist_noclobber(end),
        };
        Ok(named.map(drop)?)
    }
}

/// Gives a name to a file that has none.
fn name(file: &File, path: &Path) -> io::Result<()> {
    let here = nix::fcntl::AT_FDCWD;
    let flags = AtFlags::AT_SYMLINK_FOLLOW;
    Ok(linkat(here, &path_of(file), here, path, flags)?)
}

/// Creates a trace: a file that grows, and is locked while it does.
pub(crate) fn create(path: &Path, force: ForceArgs) -> Result<NewTrace, Failure> {
    let context = || format!("failed to create `{}`", path.display());
    let place = Place::find(path).with_context(context)?;
    let file = match place.found {
        Found::Nothing => {
            let created = create_new(&place).with_context(context)?;
            created.ok_or_else(|| exists(path))?
        }
        Found::File(_) => {
            may_replace(path, &place, force)?;
            let file = temporary(&place, exclusive).with_context(context)?;
            let named = file.persist(place.path()).map_err(|e| e.error);
            named.with_context(context)?
        }
        Found::Device(_) => return Err(no_trace(path)),
    };
    // A file system without locks is no reason to fail, and nobody else knows the file yet.
    let _ = file.try_lock();
    Ok((path.to_owned(), file))
}

/// Creates a trace under the first name that is not taken.
pub(crate) fn create_first_free(
    names: impl IntoIterator<Item = PathBuf>,
) -> Result<NewTrace, Failure> {
    for path in names {
        let context = || format!("failed to create `{}`", path.display());
        let place = Place::find(&path).with_context(context)?;
        if !matches!(place.found, Found::Nothing) {
            continue;
        }
        if let Some(file) = create_new(&place).with_context(context)? {
            let _ = file.try_lock();
            return Ok((path, file));
        }
    }
    Err(anyhow!("all numbers of files are taken").into())
}

/// Creates a file where nothing was found; `None` when something is there meanwhile.
fn create_new(place: &Place) -> io::Result<Option<File>> {
    match exclusive(&place.path()) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
        created => created.map(Some),
    }
}

/// Refuses to replace a file without `--force`, and one that a recording writes to.
fn may_replace(path: &Path, place: &Place, force: ForceArgs) -> Result<(), Failure> {
    let Found::File(file) = &place.found else {
        return Ok(());
    };
    if file.as_ref().is_some_and(is_locked) {
        let path = path.display();
        let error = anyhow!("failed to write to `{path}`: another wcprof is writing to it");
        return Err(Failure::from(error).hint("choose another file with -o"));
    }
    match force.force {
        true => Ok(()),
        false => Err(exists(path)),
    }
}

/// Whether another process holds the lock of a file, as far as this one may know.
fn is_locked(file: &place::Handle) -> bool {
    let mut options = OpenOptions::new();
    let opened = options.read(true).open(file.path());
    opened.is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
}

fn exists(path: &Path) -> Failure {
    Failure::usage(anyhow!(
        "`{}` exists: it is not overwritten",
        path.display()
    ))
    .hint("choose another file, or replace it with --force")
}

fn no_trace(path: &Path) -> Failure {
    let context = format!("failed to create `{}`", path.display());
    let error = anyhow!("it is not a regular file").context(context);
    Failure::from(error).hint("choose another file with -o")
}

fn failed(path: &Path) -> String {
    format!("failed to write `{}`", path.display())
}

/// What `make` makes in the folder of the output, which is removed unless it gets another name.
fn temporary<F>(
    place: &Place,
    make: impl FnMut(&Path) -> io::Result<F>,
) -> io::Result<NamedTempFile<F>> {
    let mut builder = tempfile::Builder::new();
    let builder = builder.prefix(".wcprof-").suffix(".tmp");
    builder.make_in(place.folder(), make)
}

/// Creates a private file where nothing is. Appending: after a failed write, its file is cut to a length.
fn exclusive(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
}

#[cfg(test)]
mod tests;
