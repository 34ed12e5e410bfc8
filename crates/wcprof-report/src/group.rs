//! Names of groups.

use wcprof_profile::model::Profile;
use wcprof_profile::{Group, GroupKey};

/// `comm/tid` of a thread (the tid follows the last `/`), a pool's name, `comm/pid` of a process,
/// or `None` for everything. Not escaped.
pub fn group_name(profile: &Profile, group: &Group) -> Option<String> {
    match &group.key {
        GroupKey::Thread(at) => profile
            .threads
            .get(*at)
            .map(|thread| format!("{}/{}", thread.comm, thread.tid)),
        GroupKey::Pool(name) => Some(name.clone()),
        GroupKey::Process(pid) => {
            let comm = group
                .threads
                .first()
                .and_then(|&t| profile.threads.get(t))
                .map_or("", |t| &t.process_comm);
            Some(format!("{comm}/{pid}"))
        }
        GroupKey::All => None,
    }
}
