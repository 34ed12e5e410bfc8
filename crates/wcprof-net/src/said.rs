//! What a store, or whoever answers in its place, says, for a line of a log: short, harmless, with what to do.

use std::borrow::Cow;

use serde::Deserialize;
use wcprof_text::terminal_name;

/// Characters that are shown.
const MAX_SHOWN: usize = 400;

/// Errors of Connect, gRPC gateways and many others.
#[derive(Deserialize)]
struct Said {
    #[serde(alias = "error")]
    message: String,
}

/// The message of an answer: what a JSON object says, or the text itself, to the end of a sentence. A page for browsers is
/// called that.
pub(crate) fn said(body: &[u8]) -> String {
    let text = match serde_json::from_slice::<Said>(body) {
        Ok(said) => Cow::Owned(said.message),
        Err(_) => String::from_utf8_lossy(body),
    };
    let text = text.trim();
    if text.starts_with('<') {
        return "it answers with a page for browsers: the URL is that of a login, a user interface or a proxy, not of a store"
            .to_owned();
    }
    terminal_name(&shortened(text)).into_owned()
}

/// At most 400 characters: up to the end of a sentence, else of a word.
fn shortened(text: &str) -> Cow<'_, str> {
    let Some((limit, _)) = text.char_indices().nth(MAX_SHOWN) else {
        return Cow::Borrowed(text);
    };
    let begin = &text[..limit];
    let ends = begin.rmatch_indices(['.', ';']).map(|(at, _)| at + 1);
    let is_end = |end: &usize| begin[*end..].starts_with(char::is_whitespace);
    let sentence = ends.take_while(|end| *end > limit / 2).find(is_end);
    let end = sentence
        .or_else(|| begin.rfind(' ').filter(|at| *at > limit / 2))
        .unwrap_or(limit);
    Cow::Owned(format!("{} ...", begin[..end].trim_end()))
}

/// What to do about an answer; empty where nobody knows.
pub(crate) fn advice(status: u16, text: &str) -> &'static str {
    let has = |words: &str| text.to_lowercase().contains(words);
    match status {
        401 if has("no org id") => "it wants a tenant: --tenant ID",
        401 | 403 => "give a token (--token-file) or a user (--user, --password-file)",
        300..=399 => "it is somewhere else: give that URL in --store",
        404 | 405 => {
            "no store takes profiles there: is --store its URL, and --store-kind its kind?"
        }
        413 => {
            "a limit of the store, or of a proxy in front of it (nginx: client_max_body_size, 1 MB by default)"
        }
        // webpki's name of what other clients take.
        _ if has("causedasendentity") => {
            "its certificate is that of a CA (openssl req -x509 makes such): add -addext basicConstraints=CA:FALSE, or let \
             the CA sign one for the store"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the reason survives, that long ones end with a sentence or a word, and that pages are called that.
    #[test]
    fn texts() {
        let json =
            br#"{"code":"resource_exhausted","message":"push rate limit (4.0 MiB) exceeded"}"#;
        assert_eq!(said(json), "push rate limit (4.0 MiB) exceeded");
        assert_eq!(said(br#"{"error":"no","details":[]}"#), "no");
        assert_eq!(said(b" 404 page not found\n"), "404 page not found");
        assert!(said(b"<!DOCTYPE html><title>Log in</title>").contains("a page for browsers"));
        let sentences = format!(
            "{}Reduce labels. {}",
            "One is too many. ".repeat(20),
            "Ask. ".repeat(40)
        );
        let short = said(sentences.as_bytes());
        assert!(
            short.ends_with("Ask. ...") && short.len() <= MAX_SHOWN + 4,
            "{short}"
        );
        let words = said("word ".repeat(200).as_bytes());
        assert!(
            words.ends_with("word ...") && words.len() <= MAX_SHOWN + 4,
            "{words}"
        );
        assert_eq!(said("x".repeat(1000).as_bytes()).len(), MAX_SHOWN + 4);
        assert!(said("é".repeat(1000).as_bytes()).ends_with("é ..."));
        assert_eq!(said(b""), "");
    }

    /// Check what is said of mistakes that are often made.
    #[test]
    fn mistakes() {
        for (status, text, words) in [
            (401, "no org id", "--tenant"),
            (401, "bad token", "--token-file"),
            (413, "", "client_max_body_size"),
            (308, "", "--store"),
            (404, "404 page not found", "--store-kind"),
            (
                0,
                "invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))",
                "CA:FALSE",
            ),
        ] {
            assert!(advice(status, text).contains(words), "{status} {text}");
        }
        assert_eq!(advice(429, "push rate limit"), "");
    }
}
