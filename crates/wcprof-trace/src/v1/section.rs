//! Sections of a block: their tags, and how they are written.

pub(crate) const HEADER: u8 = 1;
pub(crate) const PROCESSES: u8 = 2;
pub(crate) const MODULES: u8 = 3;
pub(crate) const THREADS: u8 = 4;
pub(crate) const THREAD_NAMES: u8 = 5;
pub(crate) const THREAD_FACTS: u8 = 6;
pub(crate) const FRAMES: u8 = 7;
pub(crate) const NODES: u8 = 8;
pub(crate) const STACKS: u8 = 9;
pub(crate) const WAITS: u8 = 10;
pub(crate) const SPANS: u8 = 11;
pub(crate) const STATS: u8 = 12;
pub(crate) const SYMBOLS: u8 = 13;
pub(crate) const CGROUPS: u8 = 128;
pub(crate) const SETUP: u8 = 129;
pub(crate) const LOCAL_NAMES: u8 = 130;
pub(crate) const LATER_NAMES: u8 = 131;
pub(crate) const LOCKS: u8 = 132;
pub(crate) const PROCESS_ENDS: u8 = 136;
pub(crate) const SOURCES: u8 = 137;
pub(crate) const BIRTHS: u8 = 138;
pub(crate) const RECORDED_AGAIN: u8 = 139;
pub(crate) const FOLDED: u8 = 140;
pub(crate) const COUNTERS: u8 = 141;

/// First tag of the sections that a reader skips when it does not know them.
pub(crate) const OPTIONAL_SECTIONS: u8 = 128;

/// Appends a section: tag, length, content. An empty content is no section.
pub(crate) fn put_section(out: &mut Vec<u8>, tag: u8, content: &[u8]) {
    if !content.is_empty() {
        out.push(tag);
        super::wire::put(out, content.len() as u64);
        out.extend_from_slice(content);
    }
}
