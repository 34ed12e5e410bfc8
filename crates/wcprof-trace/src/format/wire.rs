//! Numbers and strings as bytes, and back with every bound checked.

use wcprof_types::TimeNs;

use crate::error::Malformed;
use crate::limits::{MAX_STRING_BYTES, MAX_TIME_NS};

/// Appends an unsigned LEB128 number.
pub(crate) fn put(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Appends `a - b` (modulo 2^64) as a zigzag number: small in both directions.
pub(crate) fn put_delta(out: &mut Vec<u8>, a: u64, b: u64) {
    let d = a.wrapping_sub(b) as i64;
    put(out, ((d << 1) ^ (d >> 63)) as u64);
}

/// Appends a string, cut to [`MAX_STRING_BYTES`].
pub(crate) fn put_str(out: &mut Vec<u8>, s: &str) {
    let s = cut(s);
    put(out, s.len() as u64);
    out.extend_from_slice(s.as_bytes());
}

/// The beginning of `s` that a trace can hold.
pub(crate) fn cut(s: &str) -> &str {
    &s[..s.floor_char_boundary(MAX_STRING_BYTES)]
}

/// The rest of a section.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        let (&first, rest) = self.0.split_first().ok_or(Malformed::UnexpectedEnd)?;
        self.0 = rest;
        Ok(first)
    }

    pub(crate) fn bytes(&mut self, n: u64) -> Result<&'a [u8], Malformed> {
        let n = usize::try_from(n).map_err(|_| Malformed::UnexpectedEnd)?;
        let (head, rest) = self.0.split_at_checked(n).ok_or(Malformed::UnexpectedEnd)?;
        self.0 = rest;
        Ok(head)
    }

    #[inline]
    pub(crate) fn number(&mut self) -> Result<u64, Malformed> {
        // Nearly all numbers of a span are differences of one byte.
        if let Some((&byte, rest)) = self.0.split_first()
            && byte < 0x80
        {
            self.0 = rest;
            return Ok(byte.into());
        }
        self.long_number()
    }

    fn long_number(&mut self) -> Result<u64, Malformed> {
        let mut n = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            if shift == 63 && byte > 1 {
                return Err(Malformed::NumberTooLarge);
            }
            n |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(n);
            }
        }
        Err(Malformed::NumberTooLarge)
    }

    pub(crate) fn number32(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.number()?).map_err(|_| Malformed::NumberTooLarge)
    }

    /// The inverse of [`put_delta`].
    pub(crate) fn delta(&mut self, b: u64) -> Result<u64, Malformed> {
        let z = self.number()?;
        Ok(b.wrapping_add((z >> 1) ^ (z & 1).wrapping_neg()))
    }

    pub(crate) fn delta32(&mut self, b: u32) -> Result<u32, Malformed> {
        u32::try_from(self.delta(b.into())?).map_err(|_| Malformed::NumberTooLarge)
    }

    pub(crate) fn str(&mut self) -> Result<&'a str, Malformed> {
        let len = self.number()?;
        within("bytes in a string", len, MAX_STRING_BYTES)?;
        std::str::from_utf8(self.bytes(len)?).map_err(|_| Malformed::NotUtf8)
    }

    /// A count of entries of at least one byte each.
    pub(crate) fn count(&mut self) -> Result<usize, Malformed> {
        let n = self.number()?;
        match usize::try_from(n) {
            Ok(n) if n <= self.0.len() => Ok(n),
            _ => Err(Malformed::UnexpectedEnd),
        }
    }

    /// A time within the limit.
    pub(crate) fn time(&mut self) -> Result<TimeNs, Malformed> {
        checked_time(self.number()?)
    }

    /// An id of a table of so many entries.
    pub(crate) fn id(&mut self, what: &'static str, len: usize) -> Result<u32, Malformed> {
        let id = self.number32()?;
        known(what, id, len)?;
        Ok(id)
    }

    /// All that is left.
    pub(crate) fn take_rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    pub(crate) fn end(&self) -> Result<(), Malformed> {
        match self.0.len() {
            0 => Ok(()),
            n => Err(Malformed::Trailing(n)),
        }
    }
}

/// Refuses a count above its limit.
pub(crate) fn within(what: &'static str, count: u64, limit: usize) -> Result<(), Malformed> {
    let limit = limit as u64;
    if count > limit {
        return Err(Malformed::TooMany { what, count, limit });
    }
    Ok(())
}

/// Refuses a time beyond the limit.
pub(crate) fn checked_time(ns: u64) -> Result<TimeNs, Malformed> {
    check_interval(ns, ns)?;
    Ok(TimeNs(ns))
}

/// Refuses an interval (ns) that ends before it begins, or beyond the limit.
pub(crate) fn check_interval(start: u64, end: u64) -> Result<(), Malformed> {
    if start > end || end > MAX_TIME_NS {
        return Err(Malformed::Interval { start, end });
    }
    Ok(())
}

/// The error for a code without a meaning.
pub(crate) fn unknown(what: &'static str, code: impl Into<u64>) -> Malformed {
    Malformed::UnknownCode {
        what,
        code: code.into(),
    }
}

/// Refuses an id that is not in its table.
pub(crate) fn known(what: &'static str, id: u32, len: usize) -> Result<(), Malformed> {
    match (id as usize) < len {
        true => Ok(()),
        false => Err(unknown_id(what, id, len)),
    }
}

/// The error for an id that is not in its table of so many entries.
pub(crate) fn unknown_id(what: &'static str, id: u32, len: usize) -> Malformed {
    Malformed::UnknownId {
        what,
        id: id.into(),
        len: len as u64,
    }
}

/// The number at this place, which the caller has checked.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..]
        .first_chunk()
        .map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// The same of 64 bits.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..]
        .first_chunk()
        .map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that numbers at the edges of their length survive.
    #[test]
    fn numbers() {
        for n in [0, 1, 127, 128, 16383, 16384, u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            put(&mut out, n);
            put_delta(&mut out, n, 5);
            put_delta(&mut out, 5, n);
            let mut input = Input(&out);
            assert_eq!(input.number(), Ok(n));
            assert_eq!(input.delta(5), Ok(n));
            assert_eq!(input.delta(n), Ok(5));
            assert_eq!(input.end(), Ok(()));
        }
    }

    /// Check that numbers that are too long or cut are errors.
    #[test]
    fn bad_numbers() {
        let mut long = [0x80; 11];
        long[10] = 0;
        assert_eq!(Input(&long).number(), Err(Malformed::NumberTooLarge));
        let mut large = [0xff; 10];
        large[9] = 2;
        assert_eq!(Input(&large).number(), Err(Malformed::NumberTooLarge));
        assert_eq!(Input(&[0x80]).number(), Err(Malformed::UnexpectedEnd));
    }

    /// Check that a string is cut between characters and that a longer one is refused.
    #[test]
    fn long_string() {
        let s = "ä".repeat(MAX_STRING_BYTES);
        let mut out = Vec::new();
        put_str(&mut out, &s[..s.len() - 2]);
        assert_eq!(Input(&out).str().unwrap().len(), MAX_STRING_BYTES);
        out.clear();
        put(&mut out, MAX_STRING_BYTES as u64 + 1);
        assert!(matches!(Input(&out).str(), Err(Malformed::TooMany { .. })));
    }
}
