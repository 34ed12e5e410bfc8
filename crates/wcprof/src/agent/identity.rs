//! Processes that say that they are one daemon or one virtual machine to the one whose profiles have that name.
//!
//! Anybody may name a process `ceph-osd --id 3`. A store would add its time to that of the real osd.3 if both had the
//! same labels, so that one of them must have another one: [`DOUBTFUL`]. Clusters differ by fsid and containers by id,
//! which are labels anyway. Else the name is kept by whoever shows more of the following, in this order.
//!
//! | What it shows | Why |
//! |---|---|
//! | a system unit that has the daemon's or machine's name | only root puts a process into one |
//! | it is the process whose profiles had the name before | |
//! | the user and the unit that the name had before | a restart, an upgrade |
//! | a user of the system (uid below 1000) and no container | |
//!
//! A process that is alone is compared with the one that had the name before. If nothing tells two apart, both are doubtful.

use std::collections::HashMap;

use wcprof_host::procfs::read_status;
use wcprof_trace::model::Process;
use wcprof_types::{Container, Pid, ceph_daemon, vm_name};

use super::owners::system_unit;

/// The label of a process that is perhaps not what it says it is.
pub(super) const DOUBTFUL: &str = "doubtful";
/// Users of the system have smaller numbers (`SYS_UID_MAX` of `/etc/login.defs`).
const FIRST_USER: u32 = 1000;
/// Names whose processes are remembered, and clusters or containers of one name.
const MAX_REMEMBERED: usize = 4096;
const MAX_CLUSTERS: usize = 64;

/// A process that says that it is a certain daemon or virtual machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Claim {
    pid: Pid,
    birth: String,
    /// `osd.3`, or the name of a virtual machine.
    name: String,
    fsid: Option<String>,
    container: Option<String>,
    uid: Option<u32>,
    /// Name of the system unit that the process is in; `None` in no unit or in one of a user.
    unit: Option<String>,
}

impl Claim {
    /// The claim of a live process; `None` of a process that says nothing. `fsid` is the id of its cluster.
    pub(super) fn of(process: &Process, fsid: Option<&str>) -> Option<Self> {
        let (comm, args) = (&process.comm, &process.cmdline);
        let name = ceph_daemon(comm, args).or_else(|| vm_name(comm, args))?;
        let status = read_status(process.pid).ok();
        let container = Container::of_cgroup(&process.cgroup);
        Some(Self {
            pid: process.pid,
            birth: process.birth.clone(),
            name,
            fsid: fsid.filter(|fsid| !fsid.is_empty()).map(str::to_owned),
            container: container.id.or(container.pod),
            uid: status.and_then(|status| status.uids).map(|(_, uid)| uid),
            unit: system_unit(&process.cgroup).map(str::to_owned),
        })
    }

    /// Whether two processes say that they are the same daemon or machine.
    fn rivals(&self, other: &Self) -> bool {
        let differ = |a: &Option<String>, b: &Option<String>| a.is_some() && b.is_some() && a != b;
        self.name == other.name
            && !differ(&self.fsid, &other.fsid)
            && !differ(&self.container, &other.container)
    }

    /// Whether its unit is that of its name: `ceph-osd@3.service`, `ceph-FSID@osd.3.service`,
    /// `machine-qemu\x2d1\x2dNAME.scope`.
    fn has_unit_of_name(&self) -> bool {
        let Some(unit) = &self.unit else {
            return false;
        };
        let (kind, id) = self.name.split_once('.').unwrap_or(("", &self.name));
        let unit = unit.replace("\\x2d", "-");
        let stem = unit
            .rsplit_once('.')
            .map_or(unit.as_str(), |(stem, _)| stem);
        match stem.split_once('@') {
            Some((template, instance)) => {
                instance == self.name
                    || instance == id && template == format!("ceph-{kind}")
                    || instance == id && template.starts_with("ceph-radosgw") && kind == "client"
            }
            None => stem
                .strip_prefix("machine-qemu-")
                .and_then(|rest| rest.split_once('-'))
                .is_some_and(|(_, name)| name == self.name),
        }
    }

    fn is_of_system(&self) -> bool {
        self.uid.is_some_and(|uid| uid < FIRST_USER) && self.container.is_none()
    }

    fn has_user_and_unit_of(&self, other: &Self) -> bool {
        (self.uid, &self.unit) == (other.uid, &other.unit)
    }

    /// Evidence for the claim, the strongest first; `before` is who had the name before.
    fn evidence(&self, before: Option<&Self>) -> [bool; 4] {
        let is_it = |before: &Self| (self.pid, &self.birth) == (before.pid, &before.birth);
        [
            self.has_unit_of_name(),
            before.is_some_and(is_it),
            before.is_some_and(|before| self.has_user_and_unit_of(before)),
            self.is_of_system(),
        ]
    }

    /// Whether a process that is alone may have the name that this one had.
    fn may_be_followed_by(&self, new: &Self) -> bool {
        new.has_unit_of_name()
            || new.has_user_and_unit_of(self)
            || new.is_of_system() && !self.has_unit_of_name()
    }

    /// `pid 4711 (uid 64045, ceph-osd@3.service)`.
    fn described(&self) -> String {
        let uid = self.uid.map_or("unknown".to_owned(), |uid| uid.to_string());
        let unit = self.unit.as_deref().map(|unit| format!(", {unit}"));
        format!("pid {} (uid {uid}{})", self.pid, unit.unwrap_or_default())
    }
}

/// The processes that had each name last.
#[derive(Debug, Default)]
pub(super) struct NameHolders {
    /// By the name: those that kept it last, of each cluster and container.
    had: HashMap<String, Vec<Claim>>,
}

impl NameHolders {
    /// Which of these are doubtful, by their place, and what is to be said of it.
    pub(super) fn doubtful(&mut self, claims: &[Claim]) -> (Vec<bool>, Vec<String>) {
        let claims: Vec<Claim> = claims.iter().map(|claim| self.with_user(claim)).collect();
        let mut by_name: HashMap<&str, Vec<&Claim>> = HashMap::new();
        for claim in &claims {
            by_name.entry(&claim.name).or_default().push(claim);
        }
        let mut remarks = Vec::new();
        let doubtful = claims.iter().map(|claim| {
            let had = self.had.get(&claim.name).map(Vec::as_slice);
            let before = had.unwrap_or_default().iter().find(|had| had.rivals(claim));
            let same = by_name.get(claim.name.as_str());
            let others = same.into_iter().flatten();
            let mut rivals = others.filter(|other| other.pid != claim.pid && other.rivals(claim));
            let is_doubtful = match (rivals.next(), before) {
                (None, None) => None,
                (None, Some(before)) => {
                    let text = || format!("{} had it", before.described());
                    (!before.may_be_followed_by(claim)).then(text)
                }
                (Some(first), before) => {
                    let own = claim.evidence(before);
                    let all = std::iter::once(first).chain(rivals);
                    let best = all.max_by_key(|other| other.evidence(before));
                    let best = best.filter(|other| other.evidence(before) >= own);
                    best.map(|best| format!("{} says so, too", best.described()))
                }
            };
            if let Some(why) = &is_doubtful {
                remarks.push(format!(
                    "{} says that it is {}, and {why}: its profiles have the label {DOUBTFUL}",
                    claim.described(),
                    claim.name
                ));
            }
            is_doubtful.is_some()
        });
        let doubtful: Vec<bool> = doubtful.collect();
        for (claim, _) in claims
            .iter()
            .zip(&doubtful)
            .filter(|(_, doubtful)| !**doubtful)
        {
            self.keep(claim);
        }
        (doubtful, remarks)
    }

    /// The claim with the user that its process had before: one that has just ended tells none.
    fn with_user(&self, claim: &Claim) -> Claim {
        let mut had = self.had.get(&claim.name).into_iter().flatten();
        let same = had.find(|had| (had.pid, &had.birth) == (claim.pid, &claim.birth));
        Claim {
            uid: claim.uid.or_else(|| same?.uid),
            ..claim.clone()
        }
    }

    fn keep(&mut self, claim: &Claim) {
        if self.had.len() >= MAX_REMEMBERED && !self.had.contains_key(&claim.name) {
            return;
        }
        let had = self.had.entry(claim.name.clone()).or_default();
        match had.iter().position(|had| had.rivals(claim)) {
            Some(at) => had[at] = claim.clone(),
            None if had.len() < MAX_CLUSTERS => had.push(claim.clone()),
            None => {}
        }
    }
}

/// The value of [`DOUBTFUL`]: what else would tell two of them apart.
pub(super) fn doubtful_label(pid: Pid) -> (String, String) {
    (DOUBTFUL.to_owned(), format!("pid {pid}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(pid: i32, uid: u32, cgroup: &str) -> Claim {
        let container = Container::of_cgroup(cgroup);
        Claim {
            pid: Pid(pid),
            birth: format!("boot {pid}"),
            name: "osd.3".to_owned(),
            fsid: None,
            container: container.id.or(container.pod),
            uid: Some(uid),
            unit: system_unit(cgroup).map(str::to_owned),
        }
    }

    const UNIT: &str = "/system.slice/system-ceph\\x2dosd.slice/ceph-osd@3.service";
    const USER: &str = "/user.slice/user-1000.slice/session-1.scope";

    fn doubtful(names: &mut NameHolders, claims: &[Claim]) -> Vec<bool> {
        let (doubtful, remarks) = names.doubtful(claims);
        let n = doubtful.iter().filter(|doubtful| **doubtful).count();
        assert_eq!(remarks.len(), n, "{remarks:?}");
        doubtful
    }

    /// Check that a process that has just ended, so that its user is unknown, keeps its name, and that the next one of its user
    /// has it then.
    #[test]
    fn just_ended() {
        let mut names = NameHolders::default();
        let living = claim(1, 2000, USER);
        let ended = Claim {
            uid: None,
            ..living.clone()
        };
        for claim in [living, ended, claim(2, 2000, USER)] {
            assert_eq!(doubtful(&mut names, &[claim]), [false]);
        }
    }

    /// Check who keeps the name of two that come at once: the one of the unit, else the one of the system's user, else none.
    #[test]
    fn two_at_once() {
        let of = |claims: &[Claim]| doubtful(&mut NameHolders::default(), claims);
        let (real, tenant) = (claim(1, 64045, UNIT), claim(2, 1000, USER));
        assert_eq!(of(&[tenant.clone(), real.clone()]), [true, false]);
        let other_unit = claim(3, 0, "/system.slice/cron.service");
        assert_eq!(of(&[real, other_unit.clone()]), [false, true]);
        assert_eq!(of(&[tenant.clone(), other_unit]), [true, false]);
        assert_eq!(of(&[tenant.clone(), claim(4, 1001, USER)]), [true, true]);
        assert_eq!(of(&[tenant]), [false]);
    }

    /// Check that the earlier one keeps its name, also over a restart that a tenant gets ahead of, and an upgrade that
    /// changes its user.
    #[test]
    fn earlier_and_restarted() {
        let mut names = NameHolders::default();
        let (first, tenant) = (claim(1, 0, "/"), claim(2, 0, "/"));
        assert_eq!(doubtful(&mut names, std::slice::from_ref(&first)), [false]);
        assert_eq!(doubtful(&mut names, &[tenant, first]), [true, false]);
        let mut names = NameHolders::default();
        assert_eq!(doubtful(&mut names, &[claim(1, 0, UNIT)]), [false]);
        let tenant = claim(2, 1000, USER);
        assert_eq!(doubtful(&mut names, std::slice::from_ref(&tenant)), [true]);
        let mut others = NameHolders::default();
        assert_eq!(doubtful(&mut others, &[claim(1, 64045, UNIT)]), [false]);
        assert_eq!(doubtful(&mut others, std::slice::from_ref(&tenant)), [true]);
        let upgraded = claim(3, 64045, UNIT);
        assert_eq!(doubtful(&mut names, &[tenant, upgraded]), [true, false]);
    }

    /// Check that daemons of two clusters, and of two containers, have one name, and that no id is no excuse.
    #[test]
    fn clusters_and_containers() {
        let in_container =
            |pid, digit: &str| claim(pid, 167, &format!("/docker/{}", digit.repeat(64)));
        let of = |claims: &[Claim]| doubtful(&mut NameHolders::default(), claims);
        assert_eq!(
            of(&[in_container(1, "a"), in_container(2, "b")]),
            [false, false]
        );
        assert_eq!(
            of(&[in_container(1, "a"), in_container(2, "a")]),
            [true, true]
        );
        let with_fsid = |pid, fsid: Option<&str>| Claim {
            fsid: fsid.map(str::to_owned),
            ..claim(pid, 1000, USER)
        };
        assert_eq!(
            of(&[with_fsid(1, Some("a")), with_fsid(2, Some("b"))]),
            [false, false]
        );
        assert_eq!(
            of(&[with_fsid(1, Some("a")), with_fsid(2, None)]),
            [true, true]
        );
    }

    /// Check the units of packages, cephadm and libvirt.
    #[test]
    fn units() {
        let of = |name: &str, cgroup: &str| {
            let claim = Claim {
                name: name.to_owned(),
                ..claim(1, 0, cgroup)
            };
            claim.has_unit_of_name()
        };
        assert!(of("osd.3", UNIT));
        assert!(!of("osd.30", UNIT) && !of("mon.3", UNIT) && !of("osd.3", USER));
        let cephadm = "/system.slice/system-ceph.slice/ceph-6d9cf4e2-1f0a-11ee-be56-0242ac120002@osd.3.service/libpod-payload-x";
        assert!(of("osd.3", cephadm) && !of("osd.4", cephadm));
        let machine = "/machine.slice/machine-qemu\\x2d1\\x2dweb\\x2d1.scope/libvirt/emulator";
        assert!(of("web-1", machine) && !of("web", machine));
        assert!(!of("osd.3", "/user.slice/ceph-osd@3.service"));
        let rgw = "/system.slice/ceph-radosgw@rgw.a.service";
        assert!(of("client.rgw.a", rgw));
    }

    /// Check that this process, which is no daemon, claims nothing.
    #[test]
    fn no_claim() {
        let process = Process {
            pid: Pid(std::process::id().cast_signed()),
            comm: "x".to_owned(),
            ..Process::default()
        };
        assert_eq!(Claim::of(&process, None), None);
        let osd = Process {
            cmdline: ["ceph-osd", "-i", "3"].map(str::to_owned).to_vec(),
            ..process
        };
        let claim = Claim::of(&osd, Some("")).unwrap();
        let me = nix::unistd::geteuid().as_raw();
        assert_eq!((claim.uid, claim.fsid.as_deref()), (Some(me), None));
    }
}
