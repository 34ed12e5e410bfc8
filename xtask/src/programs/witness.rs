//! Stacks of all threads of a process, by eu-stack.

use std::collections::BTreeMap;

use crate::process::{capture, command};

/// Functions of threads by their ids, leaf first; an empty name for a frame that has none. Nothing of a process that
/// eu-stack cannot read to its end.
pub(super) fn stacks(pid: &str) -> BTreeMap<u64, Vec<String>> {
    let said = capture(command(&format!(
        "sh -c 'timeout 30 eu-stack --raw --inlines -p {pid} | c++filt || true'"
    )));
    parse(&said.unwrap_or_default())
}

fn parse(text: &str) -> BTreeMap<u64, Vec<String>> {
    let mut stacks: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let mut thread = None;
    for line in text.lines() {
        if let Some(tid) = line.strip_prefix("TID ") {
            thread = tid.trim_end_matches(':').parse().ok();
        } else if let (Some(tid), Some(frame)) = (thread, line.trim_start().strip_prefix('#')) {
            let words: Vec<&str> = frame.split_whitespace().skip(2).collect();
            stacks.entry(tid).or_default().push(words.join(" "));
        }
    }
    stacks
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that frames with and without a name are counted, and names keep their spaces.
    #[test]
    fn frames_of_threads() {
        let text = "PID 7 - process\nTID 7:\n#0  0x00007f pause\n#1  0x000055\n#2  0x000055 a(int, long)\nTID 8:\n#0  0x1\n";
        let stacks = parse(text);
        assert_eq!(stacks[&7], ["pause", "", "a(int, long)"]);
        assert_eq!(stacks[&8], [""]);
    }
}
