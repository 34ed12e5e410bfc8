//! Copies of the target's memory: `process_vm_readv(2)`, which neither stops nor writes.

use std::io::IoSliceMut;

use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use wcprof_types::{Avma, Pid};

/// Ranges in one call (`IOV_MAX`).
const MAX_RANGES: usize = 1024;

/// A range to copy: `len` bytes from `address`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ReadRange {
    /// First address.
    pub address: Avma,
    /// Bytes wanted.
    pub len: usize,
}

/// Copies every range of `pid` into `arena` (grown as needed), one after the other, and reports for
/// each how many bytes could be read: fewer than wanted when it meets a page that is not mapped.
/// Fails when the process is gone or reading is not permitted.
pub fn read_ranges(
    pid: Pid,
    ranges: &[ReadRange],
    arena: &mut Vec<u8>,
    lengths: &mut Vec<usize>,
) -> Result<(), Errno> {
    read_with(ranges, arena, lengths, &mut |local, remote| {
        process_vm_readv(nix::unistd::Pid::from_raw(pid.0), local, remote)
    })
}

/// Copies up to `out.len()` bytes from `address`; the number read is a prefix.
pub fn read_memory(pid: Pid, address: Avma, out: &mut [u8]) -> Result<usize, Errno> {
    let range = ReadRange {
        address,
        len: out.len(),
    };
    let (mut arena, mut lengths) = (Vec::new(), Vec::new());
    read_ranges(pid, &[range], &mut arena, &mut lengths)?;
    let n = lengths.first().copied().unwrap_or(0);
    out[..n].copy_from_slice(&arena[..n]);
    Ok(n)
}

type ReadCall<'a> = dyn FnMut(&mut [IoSliceMut<'_>], &[RemoteIoVec]) -> Result<usize, Errno> + 'a;

/// A read that meets a bad page returns a short count that ends at a page inside a range, and the
/// ranges after it are passed over without a word; -1 comes only when the very first byte fails
/// (process_vm_readv(2); measured). So the count is mapped to ranges and reading resumes after
/// the bad one.
fn read_with(
    ranges: &[ReadRange],
    arena: &mut Vec<u8>,
    lengths: &mut Vec<usize>,
    call: &mut ReadCall<'_>,
) -> Result<(), Errno> {
    lengths.clear();
    let total = ranges.iter().map(|r| r.len).sum();
    if arena.len() < total {
        arena.resize(total, 0);
    }
    let mut rest: &mut [u8] = arena;
    let mut next = 0;
    while next < ranges.len() {
        let batch = &ranges[next..ranges.len().min(next + MAX_RANGES)];
        let remote: Vec<RemoteIoVec> = batch
            .iter()
            .map(|r| RemoteIoVec {
                base: r.address.0 as usize,
                len: r.len,
            })
            .collect();
        let mut got = {
            let mut local = Vec::with_capacity(batch.len());
            let mut tail = &mut *rest;
            for range in batch {
                let (head, after) = tail.split_at_mut(range.len);
                local.push(IoSliceMut::new(head));
                tail = after;
            }
            match call(&mut local, &remote) {
                Ok(n) => n,
                Err(Errno::EFAULT) => 0,
                Err(error) => return Err(error),
            }
        };
        for range in batch {
            let read = got.min(range.len);
            got -= read;
            lengths.push(read);
            rest = &mut std::mem::take(&mut rest)[range.len..];
            next += 1;
            if read < range.len {
                break;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    /// A fake target: bytes equal the low byte of their address, pages in `bad` are not mapped.
    fn fake(
        bad: &[u64],
    ) -> impl FnMut(&mut [IoSliceMut<'_>], &[RemoteIoVec]) -> Result<usize, Errno> {
        move |local, remote| {
            let mut n = 0;
            for (l, r) in local.iter_mut().zip(remote) {
                for (i, byte) in l.iter_mut().enumerate() {
                    let address = (r.base + i) as u64;
                    if bad.contains(&(address / PAGE)) {
                        return if n == 0 { Err(Errno::EFAULT) } else { Ok(n) };
                    }
                    *byte = address as u8;
                    n += 1;
                }
            }
            Ok(n)
        }
    }

    /// Check that ranges after a bad page are still read, and each count is its own range's.
    #[test]
    fn resumes_after_bad_pages() {
        let range = |address, len| ReadRange {
            address: Avma(address),
            len,
        };
        let ranges = [
            range(0x1010, 8),
            range(0x1ffc, 8), // runs into the bad page 2
            range(0x2000, 8), // is bad from its first byte
            range(0x3001, 4),
        ];
        let (mut arena, mut lengths) = (Vec::new(), Vec::new());
        read_with(&ranges, &mut arena, &mut lengths, &mut fake(&[2])).unwrap();
        assert_eq!(lengths, [8, 4, 0, 4]);
        assert_eq!(
            &arena[..8],
            &[0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17]
        );
        assert_eq!(&arena[8..12], &[0xfc, 0xfd, 0xfe, 0xff]);
        assert_eq!(&arena[24..28], &[1, 2, 3, 4]);
    }

    /// Check that more ranges than one call takes are all read.
    #[test]
    fn many_ranges() {
        let ranges: Vec<ReadRange> = (0..2500)
            .map(|i| ReadRange {
                address: Avma(0x10_000 + i * 16),
                len: 8,
            })
            .collect();
        let (mut arena, mut lengths) = (Vec::new(), Vec::new());
        read_with(&ranges, &mut arena, &mut lengths, &mut fake(&[])).unwrap();
        assert_eq!(lengths, vec![8; 2500]);
        assert_eq!(arena[2499 * 8], (2499 * 16) as u8);
    }

    /// Check reading this process, across nothing bad.
    #[test]
    fn own_memory() {
        let data = [1_u8, 2, 3, 4];
        let mut out = [0; 4];
        let n = read_memory(
            Pid(std::process::id() as i32),
            Avma(data.as_ptr() as u64),
            &mut out,
        );
        assert_eq!((n, out), (Ok(4), data));
    }
}
