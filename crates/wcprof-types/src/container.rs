//! The path of a control group to what made it: a container, a pod, a cluster of Ceph.
//!
//! | Made by | Path, in part |
//! |---|---|
//! | cephadm | `system-ceph\x2d...slice/ceph-FSID@osd.3.service/libpod-payload-ID` |
//! | podman | `libpod-ID.scope` |
//! | Docker | `docker-ID.scope`, `docker/ID` |
//! | Kubernetes | `kubepods-burstable-podUID.slice/cri-containerd-ID.scope`, `kubepods/podUID/ID` |

use crate::command_line::option_value;

/// Digits of a container's id.
const ID_DIGITS: usize = 64;

/// The container that a process is in.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Container {
    /// Its id, as its runtime shows it.
    pub id: Option<String>,
    /// The UID of its Kubernetes pod.
    pub pod: Option<String>,
}

impl Container {
    /// By the path of a control group; empty on a host.
    pub fn of_cgroup(path: &str) -> Self {
        let parts = || path.split('/').rev();
        Self {
            id: parts().find_map(container_id),
            pod: parts().find_map(pod_uid),
        }
    }
}

fn container_id(part: &str) -> Option<String> {
    let part = part.strip_suffix(".scope").unwrap_or(part);
    let id = part.rsplit('-').next()?;
    let is_id = id.len() == ID_DIGITS && id.bytes().all(|b| b.is_ascii_hexdigit());
    is_id.then(|| id.to_owned())
}

fn pod_uid(part: &str) -> Option<String> {
    let part = part.strip_suffix(".slice").unwrap_or(part);
    let (_, uid) = part.rsplit_once("pod")?;
    // A slice's name has other dashes: they stand for folders.
    uuid(&uid.replace('_', "-"))
}

/// The id of the cluster that a Ceph process belongs to: its `--fsid` (Rook), or the unit of cephadm.
pub fn ceph_fsid(args: &[String], cgroup: &str) -> Option<String> {
    let of_unit = || {
        let mut units = cgroup
            .split('/')
            .filter_map(|part| part.strip_prefix("ceph-"));
        units.find_map(|unit| uuid(unit.split('@').next()?))
    };
    let is_ceph = crate::ceph_daemon("", args).is_some();
    let of_args = option_value(args, &["--fsid"]).filter(|_| is_ceph);
    of_args.and_then(uuid).or_else(of_unit)
}

/// The text, if it is a UUID.
fn uuid(text: &str) -> Option<String> {
    let mut groups = text.split('-');
    let is_hex = |group: &str| group.bytes().all(|b| b.is_ascii_hexdigit());
    let is_uuid = [8, 4, 4, 4, 12].into_iter().all(|n| {
        groups
            .next()
            .is_some_and(|group| group.len() == n && is_hex(group))
    });
    (is_uuid && groups.next().is_none()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    const FSID: &str = "6d9cf4e2-1f0a-11ee-be56-0242ac120002";

    /// Check the paths of runtimes and of plain services.
    #[test]
    fn containers() {
        let of = |path: &str| {
            let found = Container::of_cgroup(&path.replace("ID", ID));
            (found.id.is_some_and(|id| id == ID), found.pod)
        };
        for path in [
            "/system.slice/docker-ID.scope",
            "/docker/ID",
            "/machine.slice/libpod-ID.scope/container",
            "/system.slice/ceph-6d9cf4e2-1f0a-11ee-be56-0242ac120002@osd.3.service/libpod-payload-ID",
        ] {
            assert_eq!(of(path), (true, None), "{path}");
        }
        for path in [
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod6d9cf4e2_1f0a_11ee_be56_0242ac120002.slice/cri-containerd-ID.scope",
            "/kubepods/besteffort/pod6d9cf4e2-1f0a-11ee-be56-0242ac120002/ID",
        ] {
            assert_eq!(of(path), (true, Some(FSID.to_owned())), "{path}");
        }
        for path in [
            "",
            "/",
            "/system.slice/ceph-osd@3.service",
            "/user.slice/podium",
        ] {
            assert_eq!(of(path), (false, None), "{path}");
        }
    }

    /// Check the cluster of Rook's and cephadm's daemons, and that others have none.
    #[test]
    fn clusters() {
        let args = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let rook = args(&format!("ceph-osd --foreground --id 3 --fsid {FSID}"));
        assert_eq!(ceph_fsid(&rook, "/kubepods").as_deref(), Some(FSID));
        let cephadm = args("/usr/bin/ceph-osd -n osd.3 -f");
        let group = format!("/system.slice/ceph-{FSID}@osd.3.service/libpod-payload-{ID}");
        assert_eq!(ceph_fsid(&cephadm, &group).as_deref(), Some(FSID));
        assert_eq!(
            ceph_fsid(&cephadm, "/system.slice/ceph-osd@3.service"),
            None
        );
        let other = args(&format!("vim --fsid {FSID}"));
        assert_eq!(ceph_fsid(&other, ""), None);
    }
}
