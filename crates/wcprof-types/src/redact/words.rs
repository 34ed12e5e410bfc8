//! Single arguments to what is kept of them.

/// What stands in place of a value that is not kept.
pub const REDACTED: &str = "***";

/// The longest name of an option that is kept, bytes.
const MAX_NAME: usize = 64;

/// The name of an option without a value; nothing of an argument that is none. Of `-xVALUE` only the letter is a name.
pub(super) fn option_name(arg: &str) -> String {
    if let Some(long) = arg.strip_prefix("--") {
        return match long.split_once('=') {
            None if long.is_empty() || is_name(long) => arg.to_owned(),
            Some((name, _)) if is_name(name) => format!("--{name}={REDACTED}"),
            _ => format!("--{REDACTED}"),
        };
    }
    let mut letters = arg.chars();
    match (letters.next(), letters.next(), letters.as_str()) {
        (Some('-'), Some(letter), "") if letter.is_ascii_alphanumeric() => arg.to_owned(),
        (Some('-'), Some(letter), _) if letter.is_ascii_alphabetic() => {
            format!("-{letter}{REDACTED}")
        }
        (Some('-'), None, _) => arg.to_owned(),
        _ => REDACTED.to_owned(),
    }
}

/// Whether a text looks like the name of an option.
pub(super) fn is_name(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    text.len() <= MAX_NAME
        && text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().all(is_part)
}
