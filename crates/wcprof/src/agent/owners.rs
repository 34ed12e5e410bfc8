//! Which of the processes that were found are recorded where there is room for a part of them: as many of each owner, the
//! oldest first. A user who starts a thousand processes thus displaces none of another user.

use std::collections::{BTreeMap, BTreeSet};

use wcprof_host::procfs::read_status;
use wcprof_host::select::Candidate;
use wcprof_text::terminal_name;
use wcprof_types::{Container, Pid};

/// Owners of processes left out that are named.
const MAX_NAMED: usize = 4;

/// Who started a process. A user of a container can take any number of user ids there, so that the container counts first.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Owner {
    /// Pod or container, slice of a user, or system unit; empty for none of these.
    place: String,
    /// Effective user id.
    uid: Option<u32>,
}

impl Owner {
    pub(super) fn of(process: &Candidate) -> Self {
        let cgroup = process.cgroups.iter().max_by_key(|path| path.len());
        let status = read_status(process.pid).ok();
        Self {
            place: cgroup.and_then(|path| place(path)).unwrap_or_default(),
            uid: status.and_then(|status| status.uids).map(|(_, uid)| uid),
        }
    }

    fn described(&self) -> String {
        let uid = self.uid.map_or("unknown".to_owned(), |uid| uid.to_string());
        match self.place.as_str() {
            "" => format!("uid {uid}"),
            place => format!("uid {uid} in {}", terminal_name(place)),
        }
    }
}

/// What a control group belongs to: only root makes containers, and units beside slices of users.
fn place(cgroup: &str) -> Option<String> {
    let mut parts = cgroup.trim_start_matches('/').split('/');
    if parts.next() == Some("user.slice") {
        return parts.next().map(str::to_owned);
    }
    let container = Container::of_cgroup(cgroup);
    let unit = || system_unit(cgroup).map(str::to_owned);
    container.pod.or(container.id).or_else(unit)
}

/// The unit below `system.slice` or `machine.slice` of a control group: only root puts a process into it.
pub(super) fn system_unit(cgroup: &str) -> Option<&str> {
    let mut parts = cgroup.trim_start_matches('/').split('/');
    let is_system = matches!(parts.next()?, "system.slice" | "machine.slice");
    let is_unit = |part: &&str| part.ends_with(".service") || part.ends_with(".scope");
    parts.find(is_unit).filter(|_| is_system)
}

/// A process that is meant, recorded or not.
#[derive(Clone, Debug)]
pub(super) struct FoundProcess {
    /// When it was started, in clock ticks since boot.
    pub(super) started: u64,
    pub(super) owner: Owner,
    /// Its name.
    pub(super) comm: String,
}

/// All that are meant, by pid.
pub(super) type FoundProcesses = BTreeMap<i32, FoundProcess>;

/// The pids of those to record, at most `room`. Where some of an owner are left to choose, those that `is_recorded` stay.
pub(super) fn choose(
    found: &FoundProcesses,
    room: usize,
    is_recorded: impl Fn(i32) -> bool,
) -> BTreeSet<i32> {
    if found.len() <= room {
        return found.keys().copied().collect();
    }
    let mut places: BTreeMap<&str, BTreeMap<Option<u32>, Vec<i32>>> = BTreeMap::new();
    for (&pid, process) in found {
        let owner = &process.owner;
        let of_place = places.entry(&owner.place).or_default();
        of_place.entry(owner.uid).or_default().push(pid);
    }
    let age = |pid: &i32| (found.get(pid).map(|process| process.started), *pid);
    let fill = |chosen: &mut Vec<i32>, mut others: Vec<i32>, room: usize| {
        others.sort_by_key(|pid| (!is_recorded(*pid), age(pid)));
        let n_more = room.saturating_sub(chosen.len()).min(others.len());
        chosen.extend(others.drain(..n_more));
        others
    };
    let n_of = |users: &BTreeMap<_, Vec<i32>>| users.values().map(Vec::len).sum();
    let level = fair_level(places.values().map(n_of).collect(), room);
    let (mut chosen, mut others) = (Vec::new(), Vec::new());
    for users in places.values_mut() {
        let of_user = fair_level(users.values().map(Vec::len).collect(), level);
        let (mut of_place, mut rest) = (Vec::new(), Vec::new());
        for pids in users.values_mut() {
            pids.sort_by_key(age);
            let (first, more) = pids.split_at(of_user.min(pids.len()));
            of_place.extend(first);
            rest.extend(more);
        }
        others.extend(fill(&mut of_place, rest, level));
        chosen.extend(of_place);
    }
    fill(&mut chosen, others, room);
    chosen.into_iter().collect()
}

/// What each may have at most so that all together have no more than `room`, and nobody less than an even share of it but
/// who wants less.
fn fair_level(mut wanted: Vec<usize>, room: usize) -> usize {
    wanted.sort_unstable();
    let (mut left, mut n_left) = (room, wanted.len());
    for n in wanted {
        if n > left / n_left {
            return left / n_left;
        }
        left -= n;
        n_left -= 1;
    }
    room
}

/// Those that are not in `recorded`, by their owners; `None` if all are.
pub(super) fn left_out(found: &FoundProcesses, recorded: &BTreeSet<i32>) -> Option<String> {
    let mut by_owner: BTreeMap<&Owner, Vec<Pid>> = BTreeMap::new();
    for (&pid, process) in found {
        if !recorded.contains(&pid) {
            by_owner.entry(&process.owner).or_default().push(Pid(pid));
        }
    }
    let mut owners: Vec<_> = by_owner.into_iter().collect();
    owners.sort_by_key(|(_, pids)| std::cmp::Reverse(pids.len()));
    let n: usize = owners.iter().map(|(_, pids)| pids.len()).sum();
    let named = owners.iter().take(MAX_NAMED).map(|(owner, pids)| {
        let first = pids.first().copied().unwrap_or_default();
        let comm = found.get(&first.0).map_or("", |process| &process.comm);
        format!(
            "{} of {}, such as pid {first} ({})",
            pids.len(),
            owner.described(),
            terminal_name(comm)
        )
    });
    let named = named.collect::<Vec<_>>().join("; ");
    let more = wcprof_text::and_more(owners.len().saturating_sub(MAX_NAMED));
    let recorded = recorded.len();
    (n > 0).then(|| {
        format!("{n} processes are not recorded beside {recorded} that are: {named}{more}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(found: &mut FoundProcesses, n: usize, place: &str, uid: u32) -> Vec<i32> {
        let first = i32::try_from(found.len()).unwrap() + 1;
        let pids: Vec<i32> = (first..).take(n).collect();
        for &pid in &pids {
            let owner = Owner {
                place: place.to_owned(),
                uid: Some(uid),
            };
            let process = FoundProcess {
                started: pid.unsigned_abs().into(),
                owner,
                comm: "ceph-osd".to_owned(),
            };
            found.insert(pid, process);
        }
        pids
    }

    /// Check that the processes of a user, in however many groups of theirs, displace none of others that have few, and that the
    /// oldest of each stay.
    #[test]
    fn even_shares() {
        let mut found = FoundProcesses::new();
        let many = add(&mut found, 1030, "", 65534);
        let real = add(&mut found, 12, "", 64045);
        let unit = add(&mut found, 1, "ceph-osd@3.service", 64045);
        let users: Vec<_> = (0..900)
            .flat_map(|uid| add(&mut found, 1, "libpod", 100_000 + uid))
            .collect();
        let chosen = choose(&found, 1024, |_| false);
        assert_eq!(chosen.len(), 1024);
        assert!(real.iter().chain(&unit).all(|pid| chosen.contains(pid)));
        let n_of = |pids: &[i32]| pids.iter().filter(|pid| chosen.contains(pid)).count();
        assert_eq!((n_of(&many), n_of(&users)), (500, 511));
        assert!(many[..499].iter().all(|pid| chosen.contains(pid)));
        let text = left_out(&found, &chosen).unwrap();
        let expected = "919 processes are not recorded beside 1024 that are: 530 of uid 65534, such as pid 501 (ceph-osd); 1 of uid";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.ends_with(" and 386 more"), "{text}");
    }

    /// Check that those that are recorded stay where nobody else has a right to their place.
    #[test]
    fn recorded_stay() {
        let mut found = FoundProcesses::new();
        let all = add(&mut found, 7, "", 1);
        add(&mut found, 7, "", 2);
        let chosen = choose(&found, 9, |pid| pid == all[6]);
        assert_eq!(chosen.len(), 9);
        assert!(chosen.contains(&all[6]) && !chosen.contains(&all[5]));
        assert_eq!(choose(&found, 14, |_| false).len(), 14);
    }

    /// Check who an owner is, of control groups that root and others make.
    #[test]
    fn places() {
        let id = "4f".repeat(32);
        let pod = "11111111-2222-3333-4444-555555555555";
        for (cgroup, expected) in [
            ("/", None),
            ("/system.slice/ssh.service", Some("ssh.service")),
            (
                "/user.slice/user-7.slice/user@7.service/app.slice/x.scope",
                Some("user-7.slice"),
            ),
            (
                &format!("/user.slice/user-7.slice/libpod-{id}.scope"),
                Some("user-7.slice"),
            ),
            (
                &format!("/machine.slice/libpod-{id}.scope/container"),
                Some(&*id),
            ),
            (&format!("/kubepods/besteffort/pod{pod}/{id}"), Some(pod)),
        ] {
            assert_eq!(place(cgroup).as_deref(), expected, "{cgroup}");
        }
    }

    /// Check levels: exact fits, less than one each, nobody.
    #[test]
    fn levels() {
        assert_eq!(fair_level(vec![9, 1, 9], 11), 5);
        assert_eq!(fair_level(vec![1, 2], 3), 3);
        assert_eq!(fair_level(vec![4, 4, 4], 2), 0);
        assert_eq!(fair_level(vec![], 2), 2);
    }
}
