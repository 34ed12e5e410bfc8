//! Sections of a block: their tags, and how they are told apart.

use super::wire::Input;
use crate::error::Malformed;

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
/// Sizes of the tables where the block begins.
pub(crate) const SIZES: u8 = 14;
pub(crate) const INDEX: u8 = 15;
pub(crate) const END: u8 = 16;
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
pub(crate) const ACCOUNTS: u8 = 142;

/// Whether a section counts to [`MAX_TABLE_BYTES`](crate::limits::MAX_TABLE_BYTES): not what replaces what came before, nor
/// names, which are counted by what they take in memory.
pub(crate) fn is_of_tables(tag: u8) -> bool {
    let others = [
        THREAD_FACTS,
        SPANS,
        STATS,
        SIZES,
        SYMBOLS,
        LOCAL_NAMES,
        LATER_NAMES,
    ];
    !others.contains(&tag)
}

/// Appends a section: tag, length, content. An empty content is no section.
pub(crate) fn put_section(out: &mut Vec<u8>, tag: u8, content: &[u8]) {
    if !content.is_empty() {
        out.push(tag);
        super::wire::put(out, content.len() as u64);
        out.extend_from_slice(content);
    }
}

/// Takes the next section: its tag and content.
pub(crate) fn next_section<'a>(rest: &mut Input<'a>) -> Result<(u8, Input<'a>), Malformed> {
    let tag = rest.byte()?;
    let len = rest.number()?;
    Ok((tag, Input(rest.bytes(len)?)))
}
