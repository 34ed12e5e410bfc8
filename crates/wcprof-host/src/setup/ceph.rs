//! Ceph's configuration file as a process sees it, and the links of an OSD's data folder.
//!
//! Facts: `ConfFile.cc` of Ceph for the format (sections, `#` and `;` comments, spaces and `_` alike
//! in names, a backslash at the end of a line goes on), `ConfUtils`/`md_config_t` for the order of
//! sections: `[TYPE.ID]`, `[TYPE]`, `[global]`; the file counts more than the monitors' database.

use std::collections::BTreeMap;

use wcprof_types::redact_value;
use wcprof_types::snapshot::{CephSetup, ProcessSetup};

use super::tree::{Absent, Tree};

const MAX_CONF: usize = 1 << 20;
/// Options that checks use, by name or beginning.
const OPTIONS: [&str; 13] = [
    "ms_",
    "rbd_cache",
    "osd_op_num_",
    "osd_memory_target",
    "rgw_thread_pool_size",
    "rgw_frontends",
    "bluestore_cache_size",
    "bdev_aio",
    "bdev_ioring",
    "bluestore_prefer_deferred_size",
    "osd_objectstore",
    "librados_thread_count",
    "auth_client_required",
];

/// Who a Ceph process is: `osd.3`, `client.admin`.
struct Name {
    kind: &'static str,
    id: String,
    cluster: String,
    conf: Option<String>,
}

pub(super) fn read(
    tree: &Tree,
    dir: &str,
    args: &[String],
    setup: &ProcessSetup,
) -> Option<CephSetup> {
    let maps_librados = setup
        .libraries
        .iter()
        .flatten()
        .any(|l| l.file_name().starts_with("librados.so"));
    let program = args.first().and_then(|a| a.rsplit('/').next());
    let kind = match program.unwrap_or_default() {
        "ceph-osd" => "osd",
        "ceph-mon" => "mon",
        "ceph-mds" => "mds",
        "ceph-mgr" => "mgr",
        _ if program == Some("radosgw") || maps_librados => "client",
        _ => return None,
    };
    let environ = setup.environ.as_ref();
    let env_conf = environ.and_then(|e| e.get("CEPH_CONF")).cloned();
    let name = name(kind, args, env_conf);
    let root = tree.below(&format!("{dir}/root"))?;
    let default = format!("/etc/ceph/{}.conf", name.cluster);
    let conf_path = name.conf.clone().unwrap_or(default);
    let mut ceph = CephSetup::default();
    match root.bytes(&conf_path, MAX_CONF, Absent::Noted) {
        Some((bytes, _)) => {
            ceph.conf = options(&String::from_utf8_lossy(&bytes), &name);
            ceph.conf_path = conf_path;
        }
        None => tree.left_out(&conf_path, reason(root)),
    }
    if kind == "osd" {
        let root = tree.below(&format!("{dir}/root"))?;
        let data = format!("/var/lib/ceph/osd/{}-{}", name.cluster, name.id);
        let data = option(args, "osd-data").unwrap_or(data);
        for link in ["block", "block.db", "block.wal"] {
            let target = root.link(&format!("{data}/{link}"));
            ceph.links.extend(target.map(|t| (link.to_owned(), t)));
        }
    }
    Some(ceph)
}

fn reason(root: Tree) -> String {
    let notes = root.into_unread();
    notes
        .first()
        .map_or("not there".into(), |n| n.reason.clone())
}

/// The value of `--name VALUE`, `--name=VALUE` or `-x VALUE`; spelled with `-` or `_`.
fn option(args: &[String], wanted: &str) -> Option<String> {
    let short = wanted.len() == 1;
    let mut args = args.iter().peekable();
    while let Some(arg) = args.next() {
        let (key, value) = match arg.split_once('=') {
            Some((key, value)) => (key, Some(value.to_owned())),
            None => (arg.as_str(), None),
        };
        let dashes = if short { "-" } else { "--" };
        let Some(key) = key.strip_prefix(dashes) else {
            continue;
        };
        if key.replace('_', "-") == wanted {
            return value.or_else(|| args.peek().map(|v| (*v).clone()));
        }
    }
    None
}

fn name(kind: &'static str, args: &[String], env_conf: Option<String>) -> Name {
    let full = option(args, "name").or_else(|| option(args, "n"));
    let id = option(args, "id").or_else(|| option(args, "i"));
    let mut name = Name {
        kind,
        id: full
            .and_then(|full| Some(full.split_once('.')?.1.to_owned()))
            .or(id)
            .unwrap_or_else(|| "admin".into()),
        cluster: option(args, "cluster").unwrap_or_else(|| "ceph".into()),
        conf: option(args, "conf")
            .or_else(|| option(args, "c"))
            .or(env_conf),
    };
    // QEMU's rbd images name their own.
    for arg in args.iter().filter(|a| a.contains("rbd")) {
        let is_url = arg.contains("rbd:");
        let id = if is_url {
            value(arg, "id", ":")
        } else {
            value(arg, "user", ",\"")
        };
        let conf = value(arg, "conf", if is_url { ":" } else { ",\"" });
        name.id = id.unwrap_or(name.id);
        name.conf = conf.or(name.conf);
    }
    name
}

/// The value of `key=VALUE` or `"key":"VALUE"` behind one of the characters `before`.
fn value(text: &str, key: &str, before: &str) -> Option<String> {
    let found = text.match_indices(key).find_map(|(at, _)| {
        let behind = text.get(..at)?.chars().next_back()?;
        let rest = text.get(at + key.len()..)?;
        let rest = rest
            .strip_prefix('=')
            .or_else(|| rest.strip_prefix("\":\""))?;
        before.contains(behind).then_some(rest)
    })?;
    let end = found.find([':', ',', '"']).unwrap_or(found.len());
    Some(found[..end].to_owned())
}

/// The options that count for this process.
fn options(text: &str, name: &Name) -> BTreeMap<String, String> {
    let own = format!("{}.{}", name.kind, name.id);
    let sections = ["global", name.kind, own.as_str()];
    let mut found: BTreeMap<String, (usize, String)> = BTreeMap::new();
    let mut rank = None;
    let joined = text.replace("\\\n", " ");
    for line in joined.lines() {
        let line = line.split(['#', ';']).next().unwrap_or_default().trim();
        if let Some(section) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            rank = sections.iter().position(|s| *s == section.trim());
        } else if let (Some(rank), Some((key, value))) = (rank, line.split_once('=')) {
            let words: Vec<&str> = key
                .split([' ', '_', '-', '\t'])
                .filter(|w| !w.is_empty())
                .collect();
            let key = words.join("_");
            let value = redact_value(value.trim().trim_matches('"'));
            let better = found.get(&key).is_none_or(|(other, _)| *other <= rank);
            if better && OPTIONS.iter().any(|o| key.starts_with(o)) {
                found.insert(key, (rank, value));
            }
        }
    }
    found
        .into_iter()
        .map(|(key, (_, value))| (key, value))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    /// Check who a process is, for daemons and for QEMU in each of its ways to name an image.
    #[test]
    fn names() {
        let osd = name(
            "osd",
            &args("ceph-osd -f --cluster c1 --id 3 --setuser ceph"),
            None,
        );
        assert_eq!((osd.id.as_str(), osd.cluster.as_str()), ("3", "c1"));
        let rgw = name("client", &args("radosgw -n client.rgw.a -c /x.conf"), None);
        assert_eq!(
            (rgw.id.as_str(), rgw.conf.as_deref()),
            ("rgw.a", Some("/x.conf"))
        );
        for drive in [
            "qemu -drive file=rbd:p/i:id=vm:key=x:conf=/e/c.conf,if=none,id=drive0",
            "qemu -blockdev driver=rbd,pool=p,image=i,user=vm,conf=/e/c.conf,node-name=n",
            r#"qemu -blockdev {"driver":"rbd","pool":"p","user":"vm","conf":"/e/c.conf"}"#,
        ] {
            let vm = name("client", &args(drive), None);
            assert_eq!(
                (vm.id.as_str(), vm.conf.as_deref()),
                ("vm", Some("/e/c.conf"))
            );
        }
    }

    /// Check sections by rank whatever their order, spellings, comments and options left out.
    #[test]
    fn sections() {
        let osd = name("osd", &args("ceph-osd -i 3"), None);
        let text = "[osd.3]\nms cluster mode = secure ; why\n[global]\nms_cluster_mode = crc\n\
                    ms service mode = crc # x\nkey = secret\nfsid = 1\n[osd.4]\nms_service_mode = secure\n\
                    [osd]\nosd op num \\\nshards = 4\n";
        let found = options(text, &osd);
        let found: Vec<_> = found
            .iter()
            .map(|(k, v)| (k.as_str(), v.as_str()))
            .collect();
        assert_eq!(
            found,
            [
                ("ms_cluster_mode", "secure"),
                ("ms_service_mode", "crc"),
                ("osd_op_num_shards", "4")
            ]
        );
    }
}
