//! Whole blocks to a file: a failed write leaves no part of a block behind.

use std::io::{self, Write};

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
