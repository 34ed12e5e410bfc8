//! A look at a record before the parser, which trusts some of its numbers and panics on others
//! (`include/uapi/linux/perf_event.h`).

use linux_perf_data::linux_perf_event_reader::{RawEventRecord, RecordType, SampleFormat};

/// `PERF_RECORD_MISC_MMAP_BUILD_ID`
const MISC_BUILD_ID: u16 = 1 << 14;
/// Where `PERF_RECORD_MMAP2` has the length of a build-id, and the most it may be.
const BUILD_ID_LEN_AT: usize = 32;
const MAX_BUILD_ID: u8 = 20;

/// Whether a record can be parsed. Samples with counters read beside them (`perf record -s`) can not.
pub(super) fn is_sound(record: &RawEventRecord<'_>) -> bool {
    let data = record.data.as_slice();
    match record.record_type {
        RecordType::MMAP2 if record.misc & MISC_BUILD_ID != 0 => data
            .get(BUILD_ID_LEN_AT)
            .is_some_and(|n| *n <= MAX_BUILD_ID),
        RecordType::SAMPLE => is_sound_sample(&data, record.parse_info.sample_format),
        _ => true,
    }
}

fn is_sound_sample(data: &[u8], format: SampleFormat) -> bool {
    if format.contains(SampleFormat::READ) {
        return false;
    }
    if !format.contains(SampleFormat::CALLCHAIN) {
        return true;
    }
    let before = [
        SampleFormat::IDENTIFIER,
        SampleFormat::IP,
        SampleFormat::TID,
        SampleFormat::TIME,
        SampleFormat::ADDR,
        SampleFormat::ID,
        SampleFormat::STREAM_ID,
        SampleFormat::CPU,
        SampleFormat::PERIOD,
    ];
    let at = 8 * before.iter().filter(|f| format.contains(**f)).count();
    let Some(rest) = data.get(at..) else {
        return false;
    };
    let Some((n, chain)) = rest.split_first_chunk() else {
        return false;
    };
    u64::from_le_bytes(*n) <= chain.len() as u64 / 8
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a call chain longer than its record is found before it is multiplied, and a whole one
    /// is not.
    #[test]
    fn chains() {
        let format = SampleFormat::IP | SampleFormat::TID | SampleFormat::CALLCHAIN;
        let mut data = vec![0_u8; 16];
        data.extend(2_u64.to_le_bytes());
        data.extend([0; 16]);
        assert!(is_sound_sample(&data, format));
        data[16] = 3;
        assert!(!is_sound_sample(&data, format));
        data[16..24].fill(0xff);
        assert!(!is_sound_sample(&data, format));
        assert!(!is_sound_sample(&data[..20], format));
        assert!(!is_sound_sample(&data, format | SampleFormat::READ));
    }
}
