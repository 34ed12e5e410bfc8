//! Facts of a Ceph daemon that neither its arguments nor its control group need say.

use std::path::Path;

use wcprof_types::Pid;
use wcprof_types::snapshot::ProcessSetup;

use super::tree::Tree;
use super::{ceph, libraries, process};

/// What its program and its configuration file say.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CephFacts {
    /// `18.2.4`
    pub version: Option<String>,
    /// Id of the cluster, from the configuration file that it reads.
    pub fsid: Option<String>,
}

/// Reads them of a live process; `None` where something did not answer, and may later.
pub fn ceph_facts(pid: Pid) -> Option<CephFacts> {
    let tree = Tree::new(Path::new("/")).ok()?;
    let mut setup = ProcessSetup {
        environ: process::environ(&tree, pid),
        ..ProcessSetup::default()
    };
    let args = process::cmdline(&tree, pid, &mut setup);
    let conf = ceph::read(&tree, pid, &args, &setup);
    let facts = CephFacts {
        version: libraries::ceph_version(&tree, pid),
        fsid: conf.and_then(|mut ceph| ceph.conf.remove("fsid")),
    };
    (!tree.is_silent()).then_some(facts)
}
