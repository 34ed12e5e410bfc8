//! Whole blocks to a file: a failed write leaves no part of a block behind.

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use crate::error::TraceError;

/// A file, or what stands in for one, and the blocks that are to be written to it.
pub(crate) struct Output<W> {
    sink: W,
    /// Cuts the sink to a length.
    rewind: fn(&mut W, u64) -> io::Result<()>,
    /// Bytes of whole blocks (and the file header) written.
    pub(crate) written: u64,
    pub(crate) is_broken: bool,
    /// Packed blocks that are to be written next.
    pub(crate) unsent: Vec<u8>,
}

impl<W: Write> Output<W> {
    /// Nothing is written yet.
    pub(crate) fn new(sink: W, rewind: fn(&mut W, u64) -> io::Result<()>) -> Self {
        Self {
            sink,
            rewind,
            written: 0,
            is_broken: false,
            unsent: Vec::new(),
        }
    }

    /// Writes the packed blocks.
    pub(crate) fn send(&mut self) -> Result<(), TraceError> {
        if self.is_broken {
            return Err(TraceError::Broken);
        }
        if self.unsent.is_empty() {
            return Ok(());
        }
        let sink = &mut self.sink;
        let sent = sink.write_all(&self.unsent).and_then(|()| sink.flush());
        if let Err(error) = sent {
            self.is_broken = (self.rewind)(sink, self.written).is_err();
            return Err(TraceError::Write(error));
        }
        self.written += self.unsent.len() as u64;
        self.unsent.clear();
        Ok(())
    }

    pub(crate) fn into_inner(self) -> W {
        self.sink
    }

    #[cfg(test)]
    pub(crate) fn sink_mut(&mut self) -> &mut W {
        &mut self.sink
    }
}

/// Creates a file with mode 0600, or empties an existing regular file and makes it so. It is locked.
pub(crate) fn create(path: &Path) -> Result<File, TraceError> {
    let failed = |source| TraceError::Create {
        path: path.to_owned(),
        source,
    };
    let not_regular = || TraceError::NotRegular(path.to_owned());
    // O_NONBLOCK: opening a FIFO fails or returns, and is refused below.
    let opened = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path);
    let file = match opened {
        Err(e) if e.raw_os_error() == Some(libc::ENXIO) => return Err(not_regular()),
        other => other.map_err(failed)?,
    };
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(not_regular());
    }
    lock(&file, path, failed)?;
    file.set_permissions(Permissions::from_mode(0o600))
        .and_then(|()| file.set_len(0))
        .map_err(failed)?;
    Ok(file)
}

/// Takes the file's lock. A file system without locks is no reason to fail.
fn lock(
    file: &File,
    path: &Path,
    failed: impl Fn(io::Error) -> TraceError,
) -> Result<(), TraceError> {
    const NO_LOCKS: [i32; 3] = [libc::ENOSYS, libc::ENOLCK, libc::EOPNOTSUPP];
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(TraceError::Busy(path.to_owned())),
        Err(TryLockError::Error(e)) if !e.raw_os_error().is_some_and(|e| NO_LOCKS.contains(&e)) => {
            Err(failed(e))
        }
        _ => Ok(()),
    }
}
