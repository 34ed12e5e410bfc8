//! The thread that makes transactions durable, and the one that completes them.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};

use crate::disk::DiskFile;
use crate::queue::Queue;

/// Data of an operation that is to be made durable.
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

/// `bstore_kv_sync`: write all waiting transactions to the log, flush it, pass them on.
#[inline(never)]
pub(crate) fn kv_sync_thread(
    mut log: DiskFile,
    transactions: &Queue<Transaction>,
    completions: &Queue<u64>,
) -> Result<()> {
    loop {
        let batch = transactions.drain_wait();
        if batch.is_empty() {
            return Ok(());
        }
        submit_batch(&mut log, &batch)
            .and_then(|()| log.flush())
            .context("failed to write the log")?;
        for transaction in &batch {
            completions.push(transaction.version);
        }
    }
}

/// `finisher`: wait for completions and count them.
#[inline(never)]
pub(crate) fn finisher_thread(completions: &Queue<u64>, n_completed: &AtomicU64) -> Result<()> {
    while completions.dequeue_wait().is_some() {
        n_completed.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

#[inline(never)]
fn submit_batch(log: &mut DiskFile, batch: &[Transaction]) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(batch.iter().map(Transaction::len).sum());
    for transaction in batch {
        buffer.extend_from_slice(&transaction.data);
        for record in &transaction.records {
            buffer.extend_from_slice(record);
        }
    }
    log.append(&buffer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use slow_disk::LOG;

    /// Check that every batch is completed in order.
    #[test]
    fn completes_in_order() {
        let (transactions, completions) = (Queue::new(), Queue::new());
        for version in 0..50 {
            transactions.push(Transaction::new(version, &[1; 100_000], vec![]));
        }
        transactions.close();
        let log = DiskFile::open(None, LOG).unwrap();
        kv_sync_thread(log, &transactions, &completions).unwrap();
        completions.close();
        assert_eq!(completions.drain_wait(), (0..50).collect::<Vec<_>>());
    }
}
