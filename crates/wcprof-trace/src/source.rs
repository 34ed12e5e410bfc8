//! The bytes of a file, from its beginning to its end: taken, skipped, or searched for the next block.

use std::io::{self, Read};

/// Bytes that are read at once.
const CHUNK: usize = 1 << 16;

/// A file, or what stands in for one.
pub(crate) struct Source<R> {
    inner: R,
    /// Skips bytes of the file: how many there were.
    skip: fn(&mut R, u64) -> io::Result<u64>,
    /// Bytes that were read and not taken: those from `at` on.
    ahead: Vec<u8>,
    at: usize,
    /// Bytes taken or skipped.
    pub(crate) offset: u64,
}

impl<R: Read> Source<R> {
    pub(crate) fn new(inner: R, skip: fn(&mut R, u64) -> io::Result<u64>) -> Self {
        Self {
            inner,
            skip,
            ahead: Vec::new(),
            at: 0,
            offset: 0,
        }
    }

    /// The next `n` bytes without taking them, or fewer where the file ends.
    pub(crate) fn peek(&mut self, n: usize) -> io::Result<&[u8]> {
        if self.ahead.len() - self.at < n {
            self.ahead.drain(..self.at);
            self.at = 0;
            let missing = n.max(CHUNK) - self.ahead.len();
            let input = self.inner.by_ref().take(missing as u64);
            fill(input, &mut self.ahead, n)?;
        }
        let ahead = &self.ahead[self.at..];
        Ok(&ahead[..n.min(ahead.len())])
    }

    /// Takes the next `n` bytes, or fewer where the file ends.
    pub(crate) fn take(&mut self, n: usize) -> io::Result<Vec<u8>> {
        let ahead = &self.ahead[self.at..];
        let mut bytes = ahead[..n.min(ahead.len())].to_vec();
        self.at += bytes.len();
        let missing = (n - bytes.len()) as u64;
        self.inner.by_ref().take(missing).read_to_end(&mut bytes)?;
        self.offset += bytes.len() as u64;
        Ok(bytes)
    }

    /// Passes over `n` bytes: how many there were.
    pub(crate) fn skip(&mut self, n: u64) -> io::Result<u64> {
        let of_ahead = n.min((self.ahead.len() - self.at) as u64);
        self.at += of_ahead as usize;
        let skipped = match n - of_ahead {
            0 => of_ahead,
            rest => of_ahead + (self.skip)(&mut self.inner, rest)?,
        };
        self.offset += skipped;
        Ok(skipped)
    }

    /// Passes over what is before the next `mark`, at least one byte; or over all there is.
    pub(crate) fn find(&mut self, mark: &[u8]) -> io::Result<()> {
        self.skip(1)?;
        loop {
            let ahead = self.peek(CHUNK)?;
            let found = ahead.windows(mark.len()).position(|bytes| bytes == mark);
            let n = ahead.len();
            let passed = match found {
                Some(at) => at,
                None if n < CHUNK => n,
                // It may begin in the last bytes.
                None => n - mark.len() + 1,
            };
            self.skip(passed as u64)?;
            if found.is_some() || n < CHUNK {
                return Ok(());
            }
        }
    }
}

/// Reads until there are `n` bytes, or the input ends.
fn fill(mut input: impl Read, out: &mut Vec<u8>, n: usize) -> io::Result<()> {
    while out.len() < n {
        let before = out.len();
        out.resize(n.max(CHUNK), 0);
        let read = input.read(&mut out[before..]);
        out.truncate(before + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => return Ok(()),
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Passes over bytes by reading them.
pub(crate) fn read_over(source: &mut impl Read, n: u64) -> io::Result<u64> {
    io::copy(&mut source.take(n), &mut io::sink())
}
