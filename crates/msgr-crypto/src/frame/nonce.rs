//! The initial nonce of a connection's direction to the nonces of its units.

use super::{NONCE_BYTES, Revision};

/// Every nonce of a key was used: another one would betray plaintext (CVE-2020-1759).
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("out of nonces: every one was used with this key")]
pub struct OutOfNonces;

/// Nonces in order. In msgr v2.0 the first four bytes count, in v2.1 the last eight, little-endian.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NonceSequence {
    revision: Revision,
    initial: [u8; NONCE_BYTES],
    /// How many were taken; the initial one is taken first.
    n_taken: u128,
}

impl NonceSequence {
    /// Begins with the nonce that both ends derived from the connection's secret.
    pub fn new(revision: Revision, initial: [u8; NONCE_BYTES]) -> Self {
        Self {
            revision,
            initial,
            n_taken: 0,
        }
    }

    /// The same sequence, after so many nonces were taken.
    pub fn after(revision: Revision, initial: [u8; NONCE_BYTES], n_taken: u128) -> Self {
        Self {
            n_taken,
            ..Self::new(revision, initial)
        }
    }

    /// Nonces that were taken.
    pub fn n_taken(&self) -> u128 {
        self.n_taken
    }

    /// The next nonce, which is used up thereby.
    ///
    /// # Errors
    /// When the counter would come back to where it began.
    pub fn take(&mut self) -> Result<[u8; NONCE_BYTES], OutOfNonces> {
        let nonce = self.peek(0).ok_or(OutOfNonces)?;
        self.n_taken += 1;
        Ok(nonce)
    }

    /// The nonce `ahead` of the next one, or behind it; `None` before the first and after the last.
    pub(super) fn peek(&self, ahead: i128) -> Option<[u8; NONCE_BYTES]> {
        let at = self.n_taken.checked_add_signed(ahead)?;
        let all = match self.revision {
            Revision::V20 => 1_u128 << 32,
            Revision::V21 => 1_u128 << 64,
        };
        if at >= all {
            return None;
        }
        let mut nonce = self.initial;
        match self.revision {
            Revision::V20 => add(&mut nonce[..4], at),
            Revision::V21 => add(&mut nonce[4..], at),
        }
        Some(nonce)
    }
}

/// Adds to a little-endian number, modulo its size.
fn add(bytes: &mut [u8], mut n: u128) {
    for byte in bytes {
        let sum = u128::from(*byte) + (n & 0xff);
        *byte = (sum & 0xff) as u8;
        n = (n >> 8) + (sum >> 8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the bytes that count, with a carry and around the end, in both revisions.
    #[test]
    fn increments() {
        let initial = [
            0xff, 0xff, 0, 1, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        ];
        let mut v20 = NonceSequence::new(Revision::V20, initial);
        assert_eq!(v20.take().unwrap(), initial);
        let next = v20.take().unwrap();
        assert_eq!(next[..4], [0, 0, 1, 1]);
        assert_eq!(next[4..], initial[4..]);
        let mut v21 = NonceSequence::new(Revision::V21, initial);
        v21.take().unwrap();
        assert_eq!(v21.take().unwrap()[4..], [0xff; 8]);
        let wrapped = v21.take().unwrap();
        assert_eq!(wrapped[4..], [0; 8]);
        assert_eq!(wrapped[..4], initial[..4]);
    }

    /// Check that the last nonce is the one before the first, and none comes after it.
    #[test]
    fn no_wrap() {
        for (revision, all) in [(Revision::V20, 1_u128 << 32), (Revision::V21, 1 << 64)] {
            let mut nonces = NonceSequence::after(revision, [7; 12], all - 1);
            let last = nonces.take().unwrap();
            assert_ne!(last, [7; 12]);
            assert_eq!(nonces.take(), Err(OutOfNonces));
            assert_eq!(nonces.take(), Err(OutOfNonces));
        }
    }
}
