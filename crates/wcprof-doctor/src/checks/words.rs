//! Numbers and choices of the kernel as words.

/// `1.5 GiB`.
pub(super) fn bytes(n: u64) -> String {
    match n {
        0..0x10_0000 => format!("{} KiB", n >> 10),
        0x10_0000..0x4000_0000 => format!("{} MiB", n >> 20),
        _ => format!("{:.1} GiB", n as f64 / f64::from(1 << 30)),
    }
}

/// The choice in force: of `always [madvise] never` it is `madvise`.
pub(super) fn chosen(text: &str) -> Option<&str> {
    match text.split_once('[') {
        Some((_, rest)) => Some(rest.split_once(']')?.0),
        None => Some(text).filter(|s| !s.is_empty() && !s.contains(' ')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the choice in force.
    #[test]
    fn choices() {
        assert_eq!(chosen("mq-deadline kyber [none]"), Some("none"));
        assert_eq!(chosen("none"), Some("none"));
        assert_eq!(chosen("a b"), None);
    }
}
