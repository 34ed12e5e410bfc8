//! Data to a page: one file that loads nothing, and in which nothing but its own script can run.
//!
//! Names in the data come from the target and are hostile. Four things keep them text: the data is
//! a block that no browser executes and that cannot end early ([`data_block`]); what is in the page
//! besides is escaped ([`xml_escaped`]); the script makes elements and text nodes, never markup; and a
//! content security policy admits the script and the style by their hashes and nothing else, forbids
//! every request, and makes the browser refuse to parse markup from text.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use wcprof_text::xml_escaped;

const PAGE: &str = include_str!("assets/page.html");
pub(super) const STYLE: &str = include_str!("assets/style.css");
/// The parts are one script: they share its scope.
const SCRIPT: &str = concat!(
    "'use strict';\n",
    include_str!("assets/base.js"),
    include_str!("assets/data.js"),
    include_str!("assets/first.js"),
    include_str!("assets/summary.js"),
    include_str!("assets/findings.js"),
    include_str!("assets/pools.js"),
    include_str!("assets/flame.js"),
    include_str!("assets/tree.js"),
    include_str!("assets/map.js"),
    include_str!("assets/main.js"),
);

/// Bytes of a page without data, title and text for readers without scripts.
pub(super) const fn empty_len() -> usize {
    PAGE.len() + STYLE.len() + SCRIPT.len()
}

/// The page. `json` is the data, `title` and `plain` are text, not yet escaped; `plain` is what
/// readers see who run no scripts.
pub(super) fn page(title: &str, plain: &str, json: &str) -> String {
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; base-uri 'none'; \
         form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
        hash(SCRIPT),
        hash(STYLE),
    );
    // Each marker is replaced where the template has it: a marker in a name is text.
    let mut page = String::with_capacity(empty_len() + json.len() + plain.len() + 1024);
    let mut rest = PAGE;
    for (marker, text) in [
        ("{{policy}}", policy.as_str()),
        ("{{title}}", &xml_escaped(title)),
        ("{{style}}", STYLE),
        ("{{plain}}", &xml_escaped(plain)),
        ("{{data}}", &data_block(json)),
        ("{{script}}", SCRIPT),
    ] {
        if let Some((before, after)) = rest.split_once(marker) {
            page.push_str(before);
            page.push_str(text);
            rest = after;
        }
    }
    page + rest
}

pub(super) fn hash(text: &str) -> String {
    STANDARD.encode(Sha256::digest(text.as_bytes()))
}

/// JSON that can stand in a `<script>` element: the characters that end it, begin a comment there, or
/// end a line in old engines are escaped. They occur within strings only, where JSON permits that.
fn data_block(json: &str) -> String {
    json.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that data stays in its block and reads back as what it was.
    #[test]
    fn block() {
        let nasty = "</script><!--<script>&amp;\u{2028}\u{2029}\"\\";
        let json = serde_json::to_string(nasty).expect("text is JSON");
        let block = data_block(&json);
        assert!(!block.contains(['<', '>', '&', '\u{2028}', '\u{2029}']));
        let back: String = serde_json::from_str(&block).expect("still JSON");
        assert_eq!(back, nasty);
    }

    /// Check that markers in names are not replaced and that the policy names the hashes of what the
    /// page holds.
    #[test]
    fn markers() {
        let page = page("{{data}}<b>", "{{script}}</noscript>", "\"{{style}}\"");
        assert!(page.contains("<title>{{data}}&lt;b&gt;</title>"));
        assert!(page.contains("{{script}}&lt;/noscript&gt;"));
        assert!(page.contains("\"{{style}}\""));
        for text in [SCRIPT, STYLE] {
            assert!(page.contains(&format!("'sha256-{}'", hash(text))));
            assert!(page.contains(text));
        }
        // An element's hash is of what is between its tags, to the byte.
        assert!(page.contains(&format!("<style>{STYLE}</style>")));
        assert!(page.contains(&format!("<script>{SCRIPT}</script>")));
    }

    /// Check that the script makes no markup, asks for nothing, and that no part can end its element.
    #[test]
    fn script() {
        for word in [
            "innerHTML",
            "outerHTML",
            "insertAdjacent",
            "document.write",
            "eval(",
            "Function(",
            "fetch(",
            "XMLHttpRequest",
            "import(",
            "</script",
            "<!--",
            "setAttribute('style",
            "javascript:",
            ".href",
            "createElementNS",
            "srcdoc",
        ] {
            assert!(!SCRIPT.contains(word), "{word}");
        }
        assert!(
            !STYLE.contains("url(") && !STYLE.contains("@import") && !STYLE.contains("</style")
        );
    }
}
