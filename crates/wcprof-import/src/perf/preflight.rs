//! A look at the sizes that a `perf.data` states, before anything is allocated for them
//! (`tools/perf/Documentation/perf.data-file-format.txt` and `tools/perf/util/header.c` of Linux).

use std::io::{self, BufReader, Read, Seek, SeekFrom};

use crate::error::{ImportError, Result, within};

/// Bytes of the file's header.
const HEADER_BYTES: u64 = 104;
/// Largest file: its records are sorted in memory.
const MAX_FILE_BYTES: u64 = 1 << 30;
/// Largest section beside the records.
const MAX_SECTION_BYTES: u64 = 64 << 20;
/// Most events, and most ids of one.
const MAX_EVENTS: u32 = 4096;
const HEADER_CMDLINE: u32 = 11;
const HEADER_EVENT_DESC: u32 = 12;
/// What simpleperf says of its events, in place of the above.
const SIMPLEPERF_META_INFO: u32 = 128;
const RECORD_AUXTRACE: u32 = 71;
const RECORD_COMPRESSED: u32 = 81;
const RECORD_COMPRESSED2: u32 = 83;

fn bad(what: &str) -> ImportError {
    ImportError::Perf(what.to_owned())
}

fn ensure(is_sound: bool, what: &str) -> Result<()> {
    if is_sound { Ok(()) } else { Err(bad(what)) }
}

fn read<const N: usize>(source: &mut impl Read) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let cut_short = |error: io::Error| match error.kind() {
        io::ErrorKind::UnexpectedEof => bad("the file is cut short"),
        _ => ImportError::Read(error),
    };
    source.read_exact(&mut bytes).map_err(cut_short)?;
    Ok(bytes)
}

fn read_u64(source: &mut impl Read) -> Result<u64> {
    read(source).map(u64::from_le_bytes)
}

fn read_u32(source: &mut impl Read) -> Result<u32> {
    read(source).map(u32::from_le_bytes)
}

fn seek(source: &mut impl Seek, at: u64) -> Result<()> {
    let result = source.seek(SeekFrom::Start(at));
    result.map(drop).map_err(ImportError::Read)
}

/// A part of the file.
#[derive(Copy, Clone, Debug)]
struct Section {
    offset: u64,
    size: u64,
}

impl Section {
    fn read(source: &mut impl Read, file: u64) -> Result<Self> {
        let section = Self {
            offset: read_u64(source)?,
            size: read_u64(source)?,
        };
        let end = section.offset.checked_add(section.size);
        let is_inside = end.is_some_and(|end| end <= file);
        ensure(
            is_inside,
            "a section passes the end of the file; was it cut?",
        )?;
        Ok(section)
    }
}

/// Checks every size that the parser trusts.
pub(super) fn check<R: Read + Seek>(source: R) -> Result<()> {
    let mut source = BufReader::new(source);
    let file = source.seek(SeekFrom::End(0)).map_err(ImportError::Read)?;
    let (size, limit) = (file as usize, MAX_FILE_BYTES as usize);
    within(size, limit, "the size of perf.data")?;
    seek(&mut source, 0)?;
    let is_little_endian = &read::<8>(&mut source)? == b"PERFILE2";
    let big_endian = "it comes from a big-endian machine, which is not supported";
    ensure(is_little_endian, big_endian)?;
    let is_file = read_u64(&mut source)? == HEADER_BYTES;
    let pipe = "it was written to a pipe: record with `perf record -o FILE`, or import the text that `perf script -i FILE` prints (time on \
                CPU alone)";
    ensure(is_file, pipe)?;
    let attr_size = read_u64(&mut source)?;
    let attrs = Section::read(&mut source, file)?;
    let data = Section::read(&mut source, file).map_err(|_| {
        bad("the records pass the end of the file; was perf killed, or the file cut?")
    })?;
    let types = Section::read(&mut source, file)?;
    ensure(
        types.size == 0,
        "it has a list of event types, as perf wrote it before 2014, which is not supported",
    )?;
    let is_valid = attrs.size <= MAX_SECTION_BYTES && attr_size >= 16;
    ensure(is_valid, "the list of events has no valid size")?;
    let mut features = [0_u64; 4];
    for word in &mut features {
        *word = read_u64(&mut source)?;
    }
    attributes(&mut source, attrs, attr_size, file)?;
    let has = |bit: u32| features[bit as usize / 64] >> (bit % 64) & 1 == 1;
    // Otherwise every sample would be read as if it were of the first.
    let is_told =
        attrs.size / attr_size == 1 || has(HEADER_EVENT_DESC) || has(SIMPLEPERF_META_INFO);
    ensure(
        is_told,
        "it does not say which samples are of which of its events, which `perf inject` leaves out when it reads a pipe: record with \
         `perf record -o FILE`, or import the text that `perf script -i FILE` prints (time on CPU alone)",
    )?;
    let bits = (0..256_u32).filter(|bit| has(*bit));
    for (n, bit) in bits.enumerate() {
        let at = data.offset + data.size + n as u64 * 16;
        seek(&mut source, at)?;
        let section = Section::read(&mut source, file)?;
        let fits = section.size <= MAX_SECTION_BYTES;
        ensure(fits, "a section beside the records is too large")?;
        match bit {
            HEADER_EVENT_DESC => event_desc(&mut source, section)?,
            HEADER_CMDLINE => command_line(&mut source, section)?,
            _ => {}
        }
    }
    records(&mut source, data)
}

/// The attributes of the header, each followed by where its ids are.
fn attributes<R: Read + Seek>(
    source: &mut R,
    attrs: Section,
    attr_size: u64,
    file: u64,
) -> Result<()> {
    let n = attrs.size / attr_size;
    let is_valid = (1..=u64::from(MAX_EVENTS)).contains(&n);
    ensure(is_valid, "the list of events has no valid size")?;
    for at in 0..n {
        let begin = attrs.offset + at * attr_size;
        attribute(source, begin)?;
        // perf's attr_size includes the section of ids at the end of each entry.
        seek(source, begin + attr_size - 16)?;
        let fits = Section::read(source, file)?.size <= MAX_SECTION_BYTES;
        ensure(fits, "an event has too many ids")?;
    }
    Ok(())
}

/// A `struct perf_event_attr`, which states its own size. The parser reads on at another place than its end where
/// this is not the size of a version (`PERF_ATTR_SIZE_VER0` to 7 of `include/uapi/linux/perf_event.h`), or larger.
fn attribute<R: Read + Seek>(source: &mut R, at: u64) -> Result<()> {
    seek(source, at.saturating_add(4))?;
    let size = read_u32(source)?;
    let is_known = matches!(size, 64 | 72 | 80 | 96 | 104 | 112 | 120 | 128..);
    ensure(is_known, "the attributes of an event have no valid size")
}

/// The number of arguments, each of which has at least its length.
fn command_line<R: Read + Seek>(source: &mut R, section: Section) -> Result<()> {
    seek(source, section.offset)?;
    let n = u64::from(read_u32(source)?);
    ensure(n <= section.size / 4, "the command line passes its end")
}

/// Descriptions of events: attributes of one size, names and lists of ids.
fn event_desc<R: Read + Seek>(source: &mut R, section: Section) -> Result<()> {
    let end = section.offset + section.size;
    let mut at = section.offset;
    let seek = |source: &mut R, at: u64| {
        ensure(at <= end, "the descriptions of events pass their end")?;
        seek(source, at)
    };
    seek(source, at)?;
    let n = read_u32(source)?;
    let attr_size = u64::from(read_u32(source)?);
    ensure(n <= MAX_EVENTS, "there are too many events")?;
    at += 8;
    for _ in 0..n {
        attribute(source, at)?;
        at += attr_size;
        seek(source, at)?;
        let n_ids = u64::from(read_u32(source)?);
        let n_name = u64::from(read_u32(source)?);
        at += 8 + n_name + n_ids * 8;
        seek(source, at)?;
    }
    Ok(())
}

/// The heads of all records.
fn records<R: Read + Seek>(source: &mut BufReader<R>, data: Section) -> Result<()> {
    seek(source, data.offset)?;
    let mut left = data.size;
    while left >= 8 {
        let kind = read_u32(source)?;
        let size = read_u32(source)? >> 16;
        let is_trace = kind == RECORD_AUXTRACE;
        ensure(
            !is_trace,
            "it holds a processor trace, which is not supported",
        )?;
        let is_compressed = [RECORD_COMPRESSED, RECORD_COMPRESSED2].contains(&kind);
        // `perf inject` keeps the compression (6.1 to 7.2).
        let compressed = "it is compressed: record without `perf record -z`, or import the text that `perf script -i FILE` prints (time on \
                          CPU alone)";
        ensure(!is_compressed, compressed)?;
        ensure(size >= 8, "a record has no valid size")?;
        source
            .seek_relative(i64::from(size) - 8)
            .map_err(ImportError::Read)?;
        left = left.saturating_sub(u64::from(size));
    }
    Ok(())
}
