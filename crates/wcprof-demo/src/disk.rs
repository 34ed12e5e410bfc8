//! Files whose flushes take a known time: those of a [`SlowDisk`](slow_disk::SlowDisk), or real files
//! that are flushed again and again for as long.

use std::env;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::time::Instant;

use anyhow::{Context, Result};
use slow_disk::FLUSH_TIME;

/// Size of a file, which is written in a circle. Only the wait for the flush matters, not the data.
const FILE_LEN: u64 = 64 << 10;
/// Most flushes of a real file within [`FLUSH_TIME`]: such a file is in memory, and there is nothing to wait for.
const MAX_FLUSHES: usize = 1000;
/// Written before each further flush of a real file, so that there is something to flush.
const BLOCK: [u8; 4096] = [0; 4096];

/// One file of the disk.
#[derive(Debug)]
pub(crate) struct DiskFile {
    file: File,
    position: u64,
}

impl DiskFile {
    /// A file of a slow disk's folder, or a real one.
    pub(crate) fn open(folder: Option<&Path>, name: &'static str) -> Result<Self> {
        let file = match folder {
            Some(folder) => File::options().write(true).open(folder.join(name)),
            None => create_unlinked(name),
        };
        let file = file.with_context(|| {
            let folder = folder.unwrap_or(Path::new("/var/tmp"));
            format!("failed to create or open a file in `{}`", folder.display())
        })?;
        Ok(Self { file, position: 0 })
    }

    /// Write behind the data written before, from the start again at 64 KiB; longer data is cut.
    pub(crate) fn append(&mut self, data: &[u8]) -> io::Result<()> {
        let data = &data[..data.len().min(FILE_LEN as usize)];
        if self.position + data.len() as u64 > FILE_LEN {
            self.position = 0;
        }
        self.file.write_all_at(data, self.position)?;
        self.position += data.len() as u64;
        Ok(())
    }

    /// Wait until the data is on the disk, for [`FLUSH_TIME`] at least. A slow disk takes that long for one
    /// flush.
    ///
    /// Returns the number of flushes.
    #[inline(never)]
    pub(crate) fn flush(&self) -> io::Result<usize> {
        let begin = Instant::now();
        let mut n = 0;
        loop {
            self.file.sync_data()?;
            n += 1;
            if n == MAX_FLUSHES || begin.elapsed() >= FLUSH_TIME {
                return Ok(n);
            }
            self.file.write_all_at(&BLOCK, self.position)?;
        }
    }
}

/// A file without a name once this returns, so that nothing is left behind however the process ends.
fn create_unlinked(name: &str) -> io::Result<File> {
    // Not the usual temporary folder first: in memory there is nothing to wait for.
    let create = |folder: PathBuf| {
        let path = folder.join(format!("wcprof-demo-{}-{name}", process::id()));
        let mut options = File::options();
        let file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        fs::remove_file(&path).map(|()| file)
    };
    create("/var/tmp".into()).or_else(|_| create(env::temp_dir()))
}

#[cfg(test)]
mod tests {
    use slow_disk::{LOG, OBJECTS};

    use super::*;

    /// Check that a real file is flushed until the time is over, and that it has no name.
    #[test]
    fn real_file_takes_its_time() {
        let mut file = DiskFile::open(None, LOG).unwrap();
        for _ in 0..3 {
            file.append(&[7; 100_000]).unwrap();
            let begin = Instant::now();
            let n = file.flush().unwrap();
            assert!(n == MAX_FLUSHES || begin.elapsed() >= FLUSH_TIME);
        }
        for folder in [PathBuf::from("/var/tmp"), env::temp_dir()] {
            let path = folder.join(format!("wcprof-demo-{}-{LOG}", process::id()));
            assert!(!path.exists());
        }
    }

    /// Check that a file does not grow beyond its length, whatever is written.
    #[test]
    fn used_in_a_circle() {
        let mut file = DiskFile::open(None, OBJECTS).unwrap();
        for len in [100, 48 << 10, 32 << 10, 9 << 20, 1] {
            file.append(&vec![1; len]).unwrap();
            assert!(file.file.metadata().unwrap().len() <= FILE_LEN);
        }
    }
}
