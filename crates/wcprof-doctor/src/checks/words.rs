//! Choices of the kernel as words.

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
