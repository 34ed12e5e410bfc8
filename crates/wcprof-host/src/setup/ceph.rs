//! Ceph's configuration file as a process sees it, and the links of an OSD's data folder.
//!
//! Facts: `ConfFile.cc` of Ceph for the format (sections, `#` and `;` comments, spaces and `_` alike
//! in names, a backslash at the end of a line goes on), `ConfUtils`/`md_config_t` for the order of
//! sections: `[TYPE.ID]`, `[TYPE]`, `[global]`; the file counts more than the monitors' database.

use std::collections::BTreeMap;

use wcprof_types::snapshot::{CephSetup, ProcessSetup};
use wcprof_types::{Pid, daemon_kind, keeps_ceph_option, option_value};

use super::tree::{Absent, Tree};
use crate::deadline::{Awaited, with_deadline};
use crate::open::NoFile;

const MAX_CONF: usize = 1 << 20;
/// Who a Ceph process is: `osd.3`, `client.admin`.
struct Name<'a> {
    kind: &'static str,
    id: &'a str,
    cluster: &'a str,
    conf: Option<&'a str>,
}

pub(super) fn read(
    tree: &Tree,
    pid: Pid,
    args: &[String],
    setup: &ProcessSetup,
) -> Option<CephSetup> {
    let mut libraries = setup.libraries.iter().flatten();
    let program = args.first().and_then(|a| a.rsplit('/').next());
    let kind = match daemon_kind(program.unwrap_or_default()) {
        Some("rgw") => "client",
        Some(kind) => kind,
        None if libraries.any(|l| l.file_name().starts_with("librados.so")) => "client",
        None => return None,
    };
    let environ = setup.environ.as_ref();
    let name = name(kind, args, environ.and_then(|e| e.get("CEPH_CONF")));
    let root = tree.enter(&format!("/proc/{pid}/root"))?;
    let default = format!("/etc/ceph/{}.conf", name.cluster);
    let conf_path = name.conf.unwrap_or(&default).to_owned();
    let data = (kind == "osd").then(|| {
        let default = format!("/var/lib/ceph/osd/{}-{}", name.cluster, name.id);
        option_value(args, &["--osd-data"]).map_or(default, str::to_owned)
    });
    let (conf_there, data_there) = (conf_path.clone(), data.clone());
    // Both paths are the process's choice: they may lead to a server that never answers.
    let read = with_deadline(Awaited::Facts(pid), move || {
        let conf = root.bytes(&conf_there, MAX_CONF, Absent::Noted);
        let link = |name: &str| {
            let target = root.link(&format!("{}/{name}", data_there.as_ref()?))?;
            Some((name.to_owned(), target))
        };
        let links = ["block", "block.db", "block.wal"].into_iter();
        let links: BTreeMap<_, _> = links.filter_map(link).collect();
        (conf, links, root.into_unread())
    });
    let mut ceph = CephSetup::default();
    let Some((conf, links, unread)) = read else {
        for path in [Some(conf_path), data].into_iter().flatten() {
            tree.not_opened(&path, &NoFile::NoAnswer);
        }
        return Some(ceph);
    };
    ceph.links = links;
    if let Some((bytes, _)) = conf {
        ceph.conf = options(&String::from_utf8_lossy(&bytes), &name);
        ceph.conf_path = conf_path;
    }
    for unread in unread {
        tree.left_out(&unread.path, unread.reason);
    }
    Some(ceph)
}

fn name<'a>(kind: &'static str, args: &'a [String], env_conf: Option<&'a String>) -> Name<'a> {
    let full = option_value(args, &["--name", "-n"]).and_then(|full| full.split_once('.'));
    let conf = option_value(args, &["--conf", "-c"]);
    let mut name = Name {
        kind,
        id: full
            .map(|(_, id)| id)
            .or_else(|| option_value(args, &["--id", "-i"]))
            .unwrap_or("admin"),
        cluster: option_value(args, &["--cluster"]).unwrap_or("ceph"),
        conf: conf.or(env_conf.map(String::as_str)),
    };
    // QEMU's rbd images name their own.
    for arg in args.iter().filter(|a| a.contains("rbd")) {
        let (user, before) = match arg.contains("rbd:") {
            true => ("id", ":"),
            false => ("user", ",\""),
        };
        name.id = value(arg, user, before).unwrap_or(name.id);
        name.conf = value(arg, "conf", before).or(name.conf);
    }
    name
}

/// The value of `key=VALUE` or `"key":"VALUE"` behind one of the characters `before`.
fn value<'t>(text: &'t str, key: &str, before: &str) -> Option<&'t str> {
    let found = text.match_indices(key).find_map(|(at, _)| {
        let behind = text.get(..at)?.chars().next_back()?;
        let rest = text.get(at + key.len()..)?;
        let rest = rest
            .strip_prefix('=')
            .or_else(|| rest.strip_prefix("\":\""))?;
        before.contains(behind).then_some(rest)
    })?;
    let end = found.find([':', ',', '"']).unwrap_or(found.len());
    Some(&found[..end])
}

/// The options that count for this process.
fn options(text: &str, name: &Name<'_>) -> BTreeMap<String, String> {
    let own = format!("{}.{}", name.kind, name.id);
    let sections = ["global", name.kind, own.as_str()];
    let mut found: BTreeMap<String, (usize, String)> = BTreeMap::new();
    let mut rank = None;
    for line in text.replace("\\\n", " ").lines() {
        let line = line.split(['#', ';']).next().unwrap_or_default().trim();
        if let Some(section) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            rank = sections.iter().position(|s| *s == section.trim());
        } else if let (Some(rank), Some((key, value))) = (rank, line.split_once('=')) {
            let words = key.split([' ', '_', '-', '\t']).filter(|w| !w.is_empty());
            let key = words.collect::<Vec<_>>().join("_");
            let value = value.trim().trim_matches('"').to_owned();
            let overrides = found.get(&key).is_none_or(|(other, _)| *other <= rank);
            if overrides && keeps_ceph_option(&key, &value) {
                found.insert(key, (rank, value));
            }
        }
    }
    let values = found.into_iter().map(|(key, (_, value))| (key, value));
    values.collect()
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
        let line = args("ceph-osd -f --cluster c1 --id 3 --setuser ceph");
        let osd = name("osd", &line, None);
        assert_eq!((osd.id, osd.cluster), ("3", "c1"));
        let line = args("radosgw -n client.rgw.a -c /x.conf");
        let rgw = name("client", &line, None);
        assert_eq!((rgw.id, rgw.conf), ("rgw.a", Some("/x.conf")));
        for drive in [
            "qemu -drive file=rbd:p/i:id=vm:key=x:conf=/e/c.conf,if=none,id=drive0",
            "qemu -blockdev driver=rbd,pool=p,image=i,user=vm,conf=/e/c.conf,node-name=n",
            r#"qemu -blockdev {"driver":"rbd","pool":"p","user":"vm","conf":"/e/c.conf"}"#,
        ] {
            let line = args(drive);
            let vm = name("client", &line, None);
            assert_eq!((vm.id, vm.conf), ("vm", Some("/e/c.conf")));
        }
    }

    /// Check sections by rank whatever their order, spellings, comments and options left out.
    #[test]
    fn sections() {
        let line = args("ceph-osd -i 3");
        let osd = name("osd", &line, None);
        let text = "[osd.3]\nms cluster mode = secure ; why\n[global]\nms_cluster_mode = crc\n\
                    ms service mode = crc # x\nkey = secret\nms auth token = secret\nfsid = 1\n[osd.4]\nms_service_mode = secure\n\
                    [osd]\nosd op num \\\nshards = 4\n";
        let found = options(text, &osd);
        let found: Vec<_> = found
            .iter()
            .map(|(k, v)| (k.as_str(), v.as_str()))
            .collect();
        assert_eq!(
            found,
            [
                ("fsid", "1"),
                ("ms_cluster_mode", "secure"),
                ("ms_service_mode", "crc"),
                ("osd_op_num_shards", "4")
            ]
        );
    }
}
