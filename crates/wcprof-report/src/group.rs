//! Names of groups.

use wcprof_profile::model::Profile;
use wcprof_profile::{Group, GroupKey};

/// Characters of a container's id that are shown, as container tools do.
const ID_CHARS: usize = 12;

/// A path with the ids of containers (64 hexadecimal digits) cut.
fn short_ids(path: &str) -> String {
    let parts = path.split_inclusive(|c: char| !c.is_ascii_hexdigit());
    let parts = parts.map(|part| match part.find(|c: char| !c.is_ascii_hexdigit()) {
        Some(64) => part[..ID_CHARS].to_owned() + &part[64..],
        None if part.len() == 64 => part[..ID_CHARS].to_owned(),
        _ => part.to_owned(),
    });
    parts.collect()
}

/// `comm/tid` of a thread (the tid follows the last `/`), a pool's name, `osd.3 (pid 4711)` of a process,
/// the path of a control group with the ids of containers cut, or `None` for everything. Not escaped.
pub fn group_name(profile: &Profile, group: &Group) -> Option<String> {
    key_name(profile, &group.key, &group.threads)
}

pub(crate) fn key_name(profile: &Profile, key: &GroupKey, threads: &[usize]) -> Option<String> {
    match key {
        GroupKey::Thread(at) => {
            let thread = profile.threads.get(*at)?;
            Some(format!("{}/{}", thread.comm, thread.tid))
        }
        GroupKey::Pool(name) => Some(name.clone()),
        GroupKey::Process(at) => {
            if let Some(process) = profile.processes.get(*at) {
                return Some(format!("{} (pid {})", process.title, process.pid));
            }
            // A profile made by hand may have threads alone.
            let thread = profile.threads.get(*threads.first()?)?;
            Some(format!("{} (pid {})", thread.process_comm, thread.pid))
        }
        GroupKey::Host(host) if host.is_empty() => Some("(no host recorded)".to_owned()),
        GroupKey::Host(host) => Some(host.clone()),
        GroupKey::Cgroup(path) if path.is_empty() => Some("(no control group recorded)".to_owned()),
        GroupKey::Cgroup(path) => Some(short_ids(path)),
        GroupKey::All => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that only whole ids of containers are cut.
    #[test]
    fn ids() {
        let id = "0123456789abcdef".repeat(4);
        let path = format!("/docker/{id}/libpod-{id}.scope");
        let short = "/docker/0123456789ab/libpod-0123456789ab.scope";
        assert_eq!(short_ids(&path), short);
        assert_eq!(
            short_ids("/system.slice/ceph-osd@3.service"),
            "/system.slice/ceph-osd@3.service"
        );
        assert_eq!(short_ids("/é"), "/é");
    }
}
