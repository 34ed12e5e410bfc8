//! The OSDs of the lab that the agent records.

/// How many there are.
pub(super) const OSDS: u32 = 3;

/// Their names.
pub(super) fn osds() -> impl Iterator<Item = String> {
    (0..OSDS).map(|id| format!("osd.{id}"))
}

/// Flags of the agent that choose them. Others may run OSDs, too.
pub(super) fn osd_flags() -> String {
    let flags = (0..OSDS).map(|id| format!("--osd {id}"));
    flags.collect::<Vec<_>>().join(" ")
}
