//! A section to its bytes in order, expanded piece by piece if it is stored compressed.
//!
//! Takes a fixed amount of memory whatever the section's size: an input buffer and the decoder's
//! window. Yields exactly as many bytes as the section's header says, or fails.

use flate2::{Decompress, FlushDecompress, Status};
use zstd::stream::raw::{DParameter, Decoder as ZstdDecoder, Operation};

use super::bytes::Source;
use super::error::ElfError;
use super::parse::Section;
use crate::cancel::Cancel;

/// Stored bytes read at a time.
const INPUT: u64 = 256 << 10;
/// Expanded bytes made at a time where they are skipped.
const SCRATCH: usize = 256 << 10;
/// Largest zstd window, as a power of two: 128 MiB is what `zstd -d` takes by default.
const ZSTD_WINDOW_LOG: u32 = 27;

/// How a section is stored.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Format {
    Plain,
    Zlib,
    Zstd,
}

/// How a section is stored, and how large it is.
pub(super) struct Compression {
    pub(super) format: Format,
    /// Bytes before the compressed data.
    pub(super) header: u64,
    /// Bytes when expanded.
    pub(super) expanded: u64,
}

/// A position in a section, which moves forward only.
pub struct SectionStream<'a> {
    source: &'a Source,
    cancel: &'a Cancel,
    name: &'a str,
    decoder: Decoder,
    /// Stored bytes that were not read yet.
    stored: std::ops::Range<u64>,
    input: Vec<u8>,
    input_at: usize,
    position: u64,
    size: u64,
    scratch: Vec<u8>,
}

enum Decoder {
    Plain,
    Zlib(Box<Decompress>),
    Zstd(ZstdDecoder<'static>),
}

impl std::fmt::Debug for SectionStream<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SectionStream")
            .field("name", &self.name)
            .field("position", &self.position)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

impl<'a> SectionStream<'a> {
    pub(super) fn new(
        (source, cancel): (&'a Source, &'a Cancel),
        section: &'a Section,
        compression: Compression,
    ) -> Result<Self, ElfError> {
        let end = section.offset.checked_add(section.size);
        let Some(end) = end.filter(|end| *end <= source.len()) else {
            return Err(ElfError::Truncated {
                what: format!("section {}", section.name),
                offset: section.offset,
                size: section.size,
            });
        };
        let decoder = match compression.format {
            Format::Plain => Decoder::Plain,
            Format::Zlib => Decoder::Zlib(Box::new(Decompress::new(true))),
            Format::Zstd => {
                let mut decoder = ZstdDecoder::new().map_err(|e| failed(&section.name, &e))?;
                decoder
                    .set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG))
                    .map_err(|e| failed(&section.name, &e))?;
                Decoder::Zstd(decoder)
            }
        };
        Ok(Self {
            source,
            cancel,
            name: &section.name,
            decoder,
            stored: section.offset.saturating_add(compression.header).min(end)..end,
            input: Vec::new(),
            input_at: 0,
            position: 0,
            size: compression.expanded,
            scratch: Vec::new(),
        })
    }

    /// Bytes that were read or skipped.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Bytes of the whole section, expanded.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Fills `out`, or as much of it as the section still has.
    pub fn read(&mut self, out: &mut [u8]) -> Result<usize, ElfError> {
        self.cancel.check()?;
        let left = usize::try_from(self.size - self.position).unwrap_or(usize::MAX);
        let wanted = out.len().min(left);
        let out = out.get_mut(..wanted).unwrap_or_default();
        if matches!(self.decoder, Decoder::Plain) {
            self.source.read_into(
                format_args!("section {}", self.name),
                self.stored.start,
                out,
            )?;
            self.stored.start += wanted as u64;
        } else {
            let mut filled = 0;
            while filled < wanted {
                filled += self.expand(out.get_mut(filled..).unwrap_or_default())?;
            }
        }
        self.position += wanted as u64;
        Ok(wanted)
    }

    /// Moves forward, at most to the end.
    pub fn skip(&mut self, count: u64) -> Result<(), ElfError> {
        let mut left = count.min(self.size - self.position);
        if matches!(self.decoder, Decoder::Plain) {
            self.stored.start += left;
            self.position += left;
            return Ok(());
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.resize(SCRATCH, 0);
        while left > 0 {
            let step = usize::try_from(left).unwrap_or(SCRATCH).min(SCRATCH);
            left -= self.read(scratch.get_mut(..step).unwrap_or_default())? as u64;
        }
        self.scratch = scratch;
        Ok(())
    }

    /// Expands at least one byte into `out`.
    fn expand(&mut self, out: &mut [u8]) -> Result<usize, ElfError> {
        loop {
            self.cancel.check()?;
            if self.input_at >= self.input.len() && !self.stored.is_empty() {
                let size = INPUT.min(self.stored.end - self.stored.start);
                self.input.resize(usize::try_from(size).unwrap_or(0), 0);
                let what = format_args!("section {}", self.name);
                self.source
                    .read_into(what, self.stored.start, &mut self.input)?;
                self.stored.start += size;
                self.input_at = 0;
            }
            let input = self.input.get(self.input_at..).unwrap_or_default();
            let (read, written) = match &mut self.decoder {
                Decoder::Plain => (0, 0),
                Decoder::Zlib(zlib) => {
                    let (before_in, before_out) = (zlib.total_in(), zlib.total_out());
                    let status = zlib
                        .decompress(input, out, FlushDecompress::None)
                        .map_err(|e| failed(self.name, &e))?;
                    let moved = (zlib.total_in() - before_in, zlib.total_out() - before_out);
                    if status == Status::StreamEnd {
                        // Linkers may store several streams one after the other.
                        zlib.reset(true);
                    }
                    moved
                }
                Decoder::Zstd(zstd) => {
                    let status = zstd
                        .run_on_buffers(input, out)
                        .map_err(|e| failed(self.name, &e))?;
                    (status.bytes_read as u64, status.bytes_written as u64)
                }
            };
            self.input_at += usize::try_from(read).unwrap_or(0);
            if written > 0 {
                return Ok(usize::try_from(written).unwrap_or(0));
            }
            if read == 0 && (self.stored.is_empty() || self.input_at < self.input.len()) {
                return Err(failed(self.name, &"it ends before its stated size"));
            }
        }
    }
}

fn failed(section: &str, reason: &dyn std::fmt::Display) -> ElfError {
    ElfError::Compression {
        section: section.to_owned(),
        reason: reason.to_string(),
    }
}
