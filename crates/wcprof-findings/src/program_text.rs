//! A rule's text to what is said of one program: parts in braces are for programs of some names alone.

use crate::matching::glob;

/// `split its work{ceph-osd:: more shards}` is `split its work: more shards` of a ceph-osd, and `split its work` of another
/// process. The names are globs between commas; other braces, such as `{pid}`, stay as they are.
pub(crate) fn for_program(text: &str, comm: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        out.push_str(&rest[..at]);
        let part = rest[at + 1..].split_once('}');
        let part = part.and_then(|(part, after)| Some((part.split_once(':')?, after)));
        let Some(((names, words), after)) = part else {
            out.push('{');
            rest = &rest[at + 1..];
            continue;
        };
        if names.split(',').any(|name| glob(name.trim(), comm)) {
            // A sentence stands where it is; a part of one begins with its own mark.
            let words = match out.ends_with([' ', '\n']) || out.is_empty() {
                true => words.trim_start(),
                false => words,
            };
            out.push_str(words);
            rest = after;
        } else {
            // Nor does the blank stay that stands before the next sentence.
            rest = match out.is_empty() || out.ends_with([' ', '\n']) {
                true => after.trim_start_matches([' ', '\n']),
                false => after,
            };
        }
    }
    out.push_str(rest);
    out.truncate(out.trim_end().len());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check parts for the program, for others, at the start, in the middle, and braces that are none.
    #[test]
    fn parts() {
        for (text, expected) in [
            (
                "split{ceph-osd:: shards}{qemu*,kvm:: iothreads}",
                "split: iothreads",
            ),
            (
                "See. {ceph-osd: More OSDs.} {kvm, qemu*: Pin it.} End.",
                "See. Pin it. End.",
            ),
            ("See. {ceph-osd: More OSDs.}", "See."),
            ("{ceph-*: Ask.} Attach.", "Attach."),
            ("{qemu*: Ask.} Attach.", "Ask. Attach."),
            ("a call{ceph-osd:, or BlueFS}. No", "a call. No"),
            ("of {pid} and {figures}: {", "of {pid} and {figures}: {"),
        ] {
            assert_eq!(for_program(text, "qemu-system-x86"), expected, "{text}");
        }
    }
}
