//! The op pool: many small allocations, part of them under one lock, which is held across flushes of
//! the disk now and then.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

use crate::disk::DiskFile;
use crate::kv::Transaction;
use crate::queue::Queue;

/// Attributes that one operation decodes.
const N_ATTRS: usize = 96;
/// Objects that the placement group remembers.
const N_CACHED: usize = 256;
/// Bytes of data that one operation writes.
const WRITE_LEN: usize = 4096;
/// One of so many operations waits for the disk while it holds the lock. The others hold the lock for less than
/// a tenth of a millisecond: on one CPU they would hardly ever contend.
const OPS_PER_FLUSH: u64 = 128;

/// One operation of a client.
pub(crate) struct Op {
    object: u64,
    data: Vec<u8>,
}

impl Op {
    /// The operation in the data of a message.
    pub(crate) fn new(object: u64, message: &[u8]) -> Self {
        Self {
            object,
            data: message.iter().copied().take(WRITE_LEN).collect(),
        }
    }
}

type Attrs = BTreeMap<String, Vec<u8>>;

/// Shared by the pool's threads: one placement group, to which all operations go.
pub(crate) struct OpPool {
    pg: Mutex<PlacementGroup>,
}

struct PlacementGroup {
    objects: BTreeMap<u64, Attrs>,
    version: u64,
    /// Where their data is.
    disk: DiskFile,
}

impl OpPool {
    pub(crate) fn new(disk: DiskFile) -> Self {
        Self {
            pg: Mutex::new(PlacementGroup {
                objects: BTreeMap::new(),
                version: 0,
                disk,
            }),
        }
    }
}

/// A thread of the pool, until the queue is closed.
#[inline(never)]
pub(crate) fn entry(pool: &OpPool, ops: &Queue<Op>, out: &Queue<Transaction>) -> Result<()> {
    while let Some(op) = ops.dequeue_wait() {
        let attrs = decode_op(&op);
        out.push(with_pg_lock(pool, &op, attrs).context("failed to write objects")?);
    }
    Ok(())
}

/// Split the operation into many small owned objects.
#[inline(never)]
fn decode_op(op: &Op) -> Attrs {
    op.data
        .chunks(WRITE_LEN / N_ATTRS)
        .enumerate()
        .map(|(i, chunk)| (format!("_attr.{:x}.{i}", op.object), chunk.to_vec()))
        .collect()
}

/// Everything that the placement group's lock covers.
#[inline(never)]
fn with_pg_lock(pool: &OpPool, op: &Op, attrs: Attrs) -> io::Result<Transaction> {
    let mut pg = pool.pg.lock().unwrap_or_else(PoisonError::into_inner);
    let transaction = pg.do_osd_op(op, attrs);
    if pg.version.is_multiple_of(OPS_PER_FLUSH) {
        pg.write_object(op)?;
    }
    Ok(transaction)
}

impl PlacementGroup {
    #[inline(never)]
    fn do_osd_op(&mut self, op: &Op, attrs: Attrs) -> Transaction {
        self.version += 1;
        let encoded = encode_attrs(&attrs);
        self.objects.insert(self.version, attrs);
        while self.objects.len() > N_CACHED {
            self.objects.pop_first();
        }
        Transaction::new(self.version, &op.data, encoded)
    }

    #[inline(never)]
    fn write_object(&mut self, op: &Op) -> io::Result<()> {
        self.disk.append(&op.data)?;
        self.disk.flush().map(drop)
    }
}

/// Copy every attribute into records of their own, as an encoder without an arena does.
#[inline(never)]
fn encode_attrs(attrs: &Attrs) -> Vec<Box<[u8]>> {
    let mut records: Vec<Box<[u8]>> = Vec::new();
    for _ in 0..3 {
        records = attrs
            .iter()
            .map(|(name, value)| {
                let mut record = name.clone().into_bytes();
                record.extend_from_slice(value);
                record.into_boxed_slice()
            })
            .collect();
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;
    use slow_disk::OBJECTS;

    /// Check that an operation's data arrives in its transaction and that the cache is bounded.
    #[test]
    fn op_to_transaction() {
        let pool = OpPool::new(DiskFile::open(None, OBJECTS).unwrap());
        let op = Op::new(5, &[7; 20_000]);
        assert_eq!(op.data.len(), WRITE_LEN);
        for _ in 0..N_CACHED + 10 {
            let attrs = decode_op(&op);
            let transaction = with_pg_lock(&pool, &op, attrs).unwrap();
            assert!(transaction.len() > WRITE_LEN);
        }
        let pg = pool.pg.lock().unwrap();
        assert_eq!(pg.version, (N_CACHED + 10) as u64);
        assert_eq!(pg.objects.len(), N_CACHED);
    }
}
