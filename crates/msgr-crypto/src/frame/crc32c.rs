//! Bytes to CRC-32C as Ceph computes it for a preamble: initial value 0, not inverted
//! (`ceph_crc32c(0, ...)`).

/// The Castagnoli polynomial, reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;

pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (POLYNOMIAL & (crc & 1).wrapping_neg())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check against the values of RFC 3720, B.4, which begin with all ones and end inverted: that
    /// differs by a known word for a given length.
    #[test]
    fn known_values() {
        // The CRC is linear: inverting begin and end adds the CRC of the all-ones begin.
        let zeros = crc32c(&[0xff, 0xff, 0xff, 0xff]);
        let rfc = |bytes: &[u8]| {
            let mut first = bytes.to_vec();
            first[..4].iter_mut().for_each(|byte| *byte ^= 0xff);
            !crc32c(&first)
        };
        assert_ne!(zeros, 0);
        assert_eq!(rfc(&[0; 32]), 0x8a91_36aa);
        assert_eq!(rfc(&[0xff; 32]), 0x62a8_ab43);
        let ascending: Vec<u8> = (0..32).collect();
        assert_eq!(rfc(&ascending), 0x46dd_794e);
        assert_eq!(crc32c(&[]), 0);
    }
}
