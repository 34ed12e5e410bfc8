//! The checks, by subject. What each says when it finds something is in `checks/*.toml`.

mod ceph;
mod disks;
mod kind;
mod libraries;
mod limits;
mod machine;
mod memory;
mod placement;
mod stopped;
mod storage;
mod words;

#[cfg(test)]
mod tests;

use crate::report::Out;
use kind::Kind;

/// Makes every check that applies to the process.
pub(crate) fn all(out: &mut Out<'_>) {
    let kind = Kind::new(&out.snapshot.process);
    if let Kind::Qemu(machine) = &kind {
        machine::check(out, machine);
        disks::check(out, machine);
    }
    libraries::check(out, &kind);
    ceph::check(out, &kind);
    storage::check(out);
    placement::check(out, &kind);
    memory::check(out, &kind);
    limits::check(out);
    stopped::check(out);
}
