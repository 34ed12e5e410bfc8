//! The cluster's configuration file.

use std::path::Path;

use super::ceph::{Mode, Options, Store};

/// Port of the monitor, protocol version 2.
pub const MONITOR: &str = "[v2:127.0.0.1:16789]";

/// Where an object gateway listens.
pub const GATEWAY: &str = "127.0.0.1:17480";

/// The text of `ceph.conf` for a cluster in `folder`.
pub fn text(folder: &Path, cluster_id: &str, options: &Options) -> String {
    let folder = folder.display();
    let mode = match options.mode {
        Mode::Crc => "crc",
        Mode::Secure => "secure",
    };
    let modes: String = ["cluster", "service", "client"]
        .iter()
        .flat_map(|role| [format!("ms {role} mode"), format!("ms mon {role} mode")])
        .map(|option| format!("{option} = {mode}\n"))
        .collect();
    let threads = options.threads_per_shard;
    let store = match options.store {
        Store::Bluestore => "bluestore",
        Store::Memstore => "memstore",
    };
    format!(
        "[global]
fsid = {cluster_id}
mon host = {MONITOR}
mon initial members = a
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
auth allow insecure global id reclaim = false
# loopback only, protocol version 2 only
public addr = 127.0.0.1
cluster addr = 127.0.0.1
ms bind ipv4 = true
ms bind ipv6 = false
ms bind msgr1 = false
ms bind msgr2 = true
ms bind port min = 16800
ms bind port max = 16990
{modes}# one host, one copy
osd pool default size = 1
osd pool default min size = 1
osd pool default pg autoscale mode = off
osd pool default pg num = 8
osd pool default pgp num = 8
osd crush chooseleaf type = 0
mon allow pool size one = true
mon warn on pool no redundancy = false
# nothing to wait for: there is one monitor
paxos propose interval = 0.1
paxos min wait = 0.01
run dir = {folder}
crash dir = {folder}/crash
keyring = {folder}/admin.keyring
log file = {folder}/log/$name.log
log to stderr = false
err to stderr = true
admin socket = {folder}/$name.asok

[client]
# tools that live for a second need neither
admin socket =
log file =

[client.rgw.a]
rgw frontends = beast endpoint={GATEWAY}
rgw data = {folder}/rgw.a
keyring = {folder}/rgw.keyring
log file = {folder}/log/rgw.a.log

[mon]
mon data = {folder}/mon.a
mon data avail crit = 1
mon data avail warn = 1
keyring = {folder}/mon.keyring

[osd]
osd data = {folder}/osd.$id
keyring = {folder}/osd.$id/keyring
osd objectstore = {store}
# as on flash: virtual disks claim to rotate, and would get fewer threads
osd op num shards = 8
osd op num threads per shard = {threads}
bluestore debug enforce settings = ssd
bluestore block create = true
bluestore block size = 8589934592
bluestore fsck on mount = false
# Without tcmalloc the cache is not sized by itself. The image must fit, or the disk is measured.
bluestore cache size = 2147483648
bluestore cache meta ratio = 0.2
bluestore cache kv ratio = 0.2
memstore device bytes = 4294967296
debug rocksdb = 1/1
debug bluefs = 0/0
debug bdev = 0/0
osd max object name len = 256
osd max object namespace len = 64
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that all six modes are set and nothing listens beyond loopback.
    #[test]
    fn modes_and_addresses() {
        let options = Options {
            store: Store::Memstore,
            ..Options::default()
        };
        let text = text(Path::new("/x"), "id", &options);
        assert_eq!(text.matches("mode = secure\n").count(), 6);
        assert!(text.contains("osd objectstore = memstore\n"));
        assert!(text.contains("keyring = /x/mon.keyring\n"));
        for line in text.lines().filter(|line| line.contains(" addr = ")) {
            assert!(line.ends_with("127.0.0.1"), "{line}");
        }
    }
}
