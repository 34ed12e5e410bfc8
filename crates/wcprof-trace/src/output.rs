//! Whole blocks to a file: a failed write leaves no part of a block behind.

use std::io::{self, Write};

use zstd::bulk::Compressor;

use crate::error::TraceError;
use crate::format::block;
use crate::format::index::{Index, Placed};

/// A file, or what stands in for one, and the blocks that are to be written to it.
pub(crate) struct Output<W> {
    sink: W,
    /// Cuts the sink to a length.
    rewind: fn(&mut W, u64) -> io::Result<()>,
    /// Bytes of whole blocks (and the file header) written.
    pub(crate) written: u64,
    pub(crate) is_broken: bool,
    /// What is to be written next: packed blocks.
    unsent: Vec<u8>,
    unsent_blocks: Vec<Placed>,
    /// The blocks that were written.
    index: Index,
}

impl<W: Write> Output<W> {
    /// Nothing is written yet but the file header, which is the first that will be.
    pub(crate) fn new(
        sink: W,
        rewind: fn(&mut W, u64) -> io::Result<()>,
        file_header: Vec<u8>,
    ) -> Self {
        Self {
            sink,
            rewind,
            written: 0,
            is_broken: false,
            unsent: file_header,
            unsent_blocks: Vec::new(),
            index: Index::default(),
        }
    }

    /// Packs a block of these sections, a kind, and the time of its spans. No sections are no block.
    pub(crate) fn pack(
        &mut self,
        compressor: &mut Compressor<'_>,
        (kind, times): (u8, (u64, u64)),
        sections: &[u8],
    ) -> Result<(), TraceError> {
        if sections.is_empty() {
            return Ok(());
        }
        let offset = self.written + self.unsent.len() as u64;
        block::pack(compressor, (kind, times), sections, &mut self.unsent)?;
        self.unsent_blocks.push(Placed {
            offset,
            kind,
            times,
        });
        Ok(())
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
        let mut sent = self.unsent_blocks.drain(..);
        Ok(sent.try_for_each(|placed| self.index.add(placed))?)
    }

    /// Writes the packed blocks and where all blocks are.
    pub(crate) fn send_with_index(&mut self) -> Result<(), TraceError> {
        self.send()?;
        self.index.pack(self.written, &mut self.unsent)?;
        // A reader can do without it, and blocks that come later bring another one.
        self.send().inspect_err(|_| self.forget())
    }

    /// Gives up what could not be written.
    pub(crate) fn forget(&mut self) {
        self.unsent.clear();
        self.unsent_blocks.clear();
    }

    pub(crate) fn into_inner(self) -> W {
        self.sink
    }

    #[cfg(test)]
    pub(crate) fn sink_mut(&mut self) -> &mut W {
        &mut self.sink
    }
}
