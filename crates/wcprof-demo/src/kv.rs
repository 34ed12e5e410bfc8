//! The thread that makes transactions durable, and the one that completes them.

use std::env;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::DemoError;
use crate::queue::Queue;

/// Length that the log file is used in a circle with.
const LOG_LEN: u64 = 4 << 20;

/// What an operation wants to be made durable.
pub(crate) struct Transaction {
    version: u64,
    data: Vec<u8>,
    records: Vec<Box<[u8]>>,
}

impl Transaction {
    pub(crate) fn new(version: u64, data: &[u8], records: Vec<Box<[u8]>>) -> Self {
        Self {
            version,
            data: data.to_vec(),
            records,
        }
    }

    /// Bytes that it writes.
    pub(crate) fn len(&self) -> usize {
        self.data.len() + self.records.iter().map(|r| r.len()).sum::<usize>()
    }
}

/// `bstore_kv_sync`: write all waiting transactions, sync once, pass them on.
#[inline(never)]
pub(crate) fn kv_sync_thread(
    transactions: &Queue<Transaction>,
    completions: &Queue<u64>,
) -> Result<(), DemoError> {
    let mut log = Log::create()?;
    loop {
        let batch = transactions.drain_wait();
        if batch.is_empty() {
            return Ok(());
        }
        log.submit_batch(&batch)
            .and_then(|()| log.flush())
            .map_err(DemoError::io("write its temporary file"))?;
        for transaction in &batch {
            completions.push(transaction.version);
        }
    }
}

/// `finisher`: wait for completions and count them.
#[inline(never)]
pub(crate) fn finisher_thread(completions: &Queue<u64>, n_completed: &AtomicU64) {
    loop {
        let batch = completions.drain_wait();
        if batch.is_empty() {
            return;
        }
        n_completed.fetch_add(batch.len() as u64, Ordering::Relaxed);
    }
}

struct Log {
    file: File,
    position: u64,
}

impl Log {
    /// A file without a name once this returns, so that nothing is left behind however the
    /// process ends.
    fn create() -> Result<Self, DemoError> {
        // Not the usual temporary folder first: in memory there is nothing to wait for.
        let folders = [PathBuf::from("/var/tmp"), env::temp_dir()];
        let mut result = Err(io::Error::from(io::ErrorKind::NotFound));
        for folder in folders {
            result = create_unlinked(&folder);
            if result.is_ok() {
                break;
            }
        }
        let file = result.map_err(DemoError::io(
            "create a file in `/var/tmp` or the temporary folder",
        ))?;
        Ok(Self { file, position: 0 })
    }

    #[inline(never)]
    fn submit_batch(&mut self, batch: &[Transaction]) -> io::Result<()> {
        let mut buffer = Vec::with_capacity(batch.iter().map(Transaction::len).sum());
        for transaction in batch {
            buffer.extend_from_slice(&transaction.data);
            for record in &transaction.records {
                buffer.extend_from_slice(record);
            }
        }
        buffer.truncate(LOG_LEN as usize);
        if self.position + buffer.len() as u64 > LOG_LEN {
            self.position = 0;
        }
        self.file.write_all_at(&buffer, self.position)?;
        self.position += buffer.len() as u64;
        Ok(())
    }

    #[inline(never)]
    fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

fn create_unlinked(folder: &Path) -> io::Result<File> {
    let path = folder.join(format!("wcprof-demo-{}", process::id()));
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that every batch is completed in order and that no file stays behind.
    #[test]
    fn completes_in_order() {
        let (transactions, completions) = (Queue::new(), Queue::new());
        for version in 0..50 {
            transactions.push(Transaction::new(version, &[1; 100_000], vec![]));
        }
        transactions.close();
        kv_sync_thread(&transactions, &completions).unwrap();
        completions.close();
        assert_eq!(completions.drain_wait(), (0..50).collect::<Vec<_>>());
        for folder in [PathBuf::from("/var/tmp"), env::temp_dir()] {
            assert!(
                !folder
                    .join(format!("wcprof-demo-{}", process::id()))
                    .exists()
            );
        }
    }
}
