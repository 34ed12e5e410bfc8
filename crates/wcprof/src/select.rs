//! The flags that choose processes to the processes themselves, or to traces in their place.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use wcprof_host::select::{Candidate, Selector, descendants, processes, services};
use wcprof_host::{Target, TargetError};
use wcprof_text::{and_more, terminal_name};
use wcprof_types::Pid;

use crate::args::{SelectorArgs, TargetArgs};
use crate::demo::Workload;
use crate::failure::{Exit, Failure};
use crate::filters;

/// More than a host runs of what is tuned; each costs wcprof memory and time at each tick.
pub(crate) const MAX_TARGETS: usize = wcprof_capture::MAX_TARGETS;

/// What the flags choose: processes in the order of the command line, then by pid.
#[derive(Debug, Default)]
pub struct Subjects {
    /// Pids that were given: they must be there.
    pub(crate) given: Vec<Pid>,
    /// Pids that were found.
    pub(crate) found: Vec<Pid>,
    pub(crate) files: Vec<PathBuf>,
    /// On what was found.
    remarks: Vec<String>,
    /// Ends with this.
    demo: Option<Workload>,
}

impl Subjects {
    /// All pids.
    pub(crate) fn pids(&self) -> impl Iterator<Item = Pid> {
        self.given.iter().chain(&self.found).copied()
    }
}

/// What the flags choose, with `children` also the descendants.
pub(crate) fn subjects(args: &TargetArgs, children: bool) -> Result<Subjects, Failure> {
    let mut chosen = Subjects::default();
    for subject in &args.subjects {
        match pid_of(subject) {
            Some(pid) if chosen.given.contains(&pid) => {}
            Some(pid) => chosen.given.push(pid),
            None if subject.exists() => chosen.files.push(subject.clone()),
            None => return Err(neither(subject)),
        }
    }
    if args.demo {
        let workload = Workload::start()?;
        chosen.given.push(workload.pid());
        chosen.demo = Some(workload);
    }
    let selectors = selectors(&args.found)?;
    if selectors.is_empty() && !children {
        return Ok(chosen);
    }
    let all = processes();
    let mut found = BTreeSet::new();
    for (flag, selector) in &selectors {
        let matching = all.iter().filter(|process| selector.matches(process));
        let of_flag: BTreeSet<Pid> = matching.map(|process| process.pid).collect();
        if of_flag.is_empty() {
            return Err(nothing(flag));
        }
        if matches!(selector, Selector::Name(_)) {
            chosen
                .remarks
                .extend(several_services(flag, &all, &of_flag));
        }
        found.extend(of_flag);
    }
    if children {
        let parents = chosen.given.iter().chain(&found).copied().collect();
        found.extend(descendants(&all, &parents));
    }
    let is_new = |pid: &Pid| !chosen.given.contains(pid);
    chosen.found = found.into_iter().filter(is_new).collect();
    Ok(chosen)
}

/// Services that are named.
const MAX_SERVICES: usize = 4;

/// What is said where a name chooses the processes of several servers, each of which has more than one.
fn several_services(flag: &str, all: &[Candidate], chosen: &BTreeSet<Pid>) -> Option<String> {
    let services = services(all, chosen);
    if services.len() < 2 || services.len() == chosen.len() {
        return None;
    }
    let shown = services.iter().take(MAX_SERVICES).map(|(root, pids)| {
        let root_process = all.iter().find(|process| process.pid == *root);
        let groups = root_process.map_or(&[][..], |process| &process.cgroups);
        let group = groups.iter().max_by_key(|group| group.len());
        let group = group.filter(|group| group.len() > 1);
        let group = group.map_or_else(String::new, |group| format!(" in {}", terminal_name(group)));
        format!("{} of pid {root}{group}", pids.len())
    });
    Some(format!(
        "{flag} takes {} processes of {} services: {}{}; a pid with --children, or --cgroup PATH, chooses one",
        chosen.len(),
        services.len(),
        shown.collect::<Vec<_>>().join(", "),
        and_more(services.len().saturating_sub(MAX_SERVICES)),
    ))
}

/// Processes to record.
#[derive(Default)]
pub(crate) struct Chosen {
    pub(crate) targets: Vec<Arc<Target>>,
    /// On those that were found: services that share a name, and what cannot be recorded.
    pub(crate) remarks: Vec<String>,
    /// Ends with this.
    _demo: Option<Workload>,
}

impl Chosen {
    /// The number of the first process; 0 where there is none.
    pub(crate) fn first_pid(&self) -> Pid {
        self.targets.first().map_or(Pid(0), |target| target.pid())
    }
}

/// Opens what the flags choose. A pid that is given must be there; of processes that are found, one that exits
/// meanwhile is nothing to speak of.
pub(crate) fn targets(args: &TargetArgs, children: bool) -> Result<Chosen, Failure> {
    let subjects = subjects(args, children)?;
    if let Some(file) = subjects.files.first() {
        return Err(not_a_process(file));
    }
    let mut targets = Vec::new();
    for &pid in &subjects.given {
        targets.push(Arc::new(Target::open(pid)?));
    }
    let mut remarks = subjects.remarks;
    let mut refused = None;
    for &pid in &subjects.found {
        match Target::open_found(pid) {
            Ok(target) => targets.push(Arc::new(target)),
            Err(TargetError::NoSuchProcess(_) | TargetError::Zombie(_)) => {}
            Err(error) => {
                remarks.push(format!("pid {pid} is left out: {error}"));
                refused.get_or_insert(error);
            }
        }
    }
    match (targets.len(), refused) {
        (0, Some(error)) => return Err(error.into()),
        (0, None) if subjects.found.is_empty() => return Err(no_process()),
        (0, None) => return Err(nothing("the flags")),
        (MAX_TARGETS.., _) if targets.len() > MAX_TARGETS => {
            let error = anyhow::anyhow!("{} processes are chosen", targets.len());
            let hint = format!("at most {MAX_TARGETS} can be recorded at once: choose fewer");
            return Err(Failure::usage(error).hint(hint));
        }
        _ => {}
    }
    Ok(Chosen {
        targets,
        remarks,
        _demo: subjects.demo,
    })
}

/// What a command takes that looks at one thing.
#[derive(Debug)]
pub enum One {
    /// A process.
    Process(Pid),
    /// A file.
    File(PathBuf),
}

/// The only process that is chosen, or the only file; a workload ends with what is returned, too.
pub fn one(args: &TargetArgs) -> Result<(One, Subjects), Failure> {
    let mut subjects = subjects(args, false)?;
    let pids: Vec<Pid> = subjects.pids().collect();
    let subject = match (pids.as_slice(), subjects.files.as_mut_slice()) {
        ([pid], []) => One::Process(*pid),
        ([], [file]) => One::File(std::mem::take(file)),
        ([], []) => return Err(no_process()),
        (pids, files) => {
            let error = anyhow::anyhow!("{} are chosen", pids.len() + files.len());
            return Err(Failure::usage(error).hint("this command takes one at a time"));
        }
    };
    Ok((subject, subjects))
}

/// The only process that is chosen.
pub fn one_process(args: &TargetArgs) -> Result<(Pid, Subjects), Failure> {
    match one(args)? {
        (One::Process(pid), subjects) => Ok((pid, subjects)),
        (One::File(file), _) => Err(not_a_process(&file)),
    }
}

fn not_a_process(file: &Path) -> Failure {
    let error = anyhow::anyhow!("`{}` is a file, not a process", file.display());
    Failure::usage(error).hint("`wcprof report FILE` shows a saved trace")
}

/// Nothing is chosen.
pub(crate) fn no_process() -> Failure {
    Failure::usage(anyhow::anyhow!("no process is named")).hint(
        "give a pid, --osd 3, --vm NAME, --name 'ceph-*', --cgroup PATH, or --demo to try wcprof out",
    )
}

fn neither(subject: &Path) -> Failure {
    let subject = subject.display();
    let error = anyhow::anyhow!("`{subject}` is neither a pid nor a file");
    Failure::usage(error).hint("--name chooses processes by name, --osd and --vm by what they are")
}

fn nothing(flag: &str) -> Failure {
    let error = anyhow::anyhow!("no process matches {flag}");
    Failure::new(Exit::NoTarget, error)
        .hint("`ps -eo pid,comm,cgroup,args` shows what there is; names are globs (`ceph-*`)")
}

/// Each with its flag, for messages.
pub(crate) fn selectors(args: &SelectorArgs) -> Result<Vec<(String, Selector)>, Failure> {
    let mut all = Vec::new();
    for (flag, globs, selector) in [
        ("--name", &args.name, Selector::Name as fn(_) -> _),
        ("--vm", &args.vm, Selector::Vm),
        ("--osd", &args.osd, Selector::Osd),
    ] {
        for glob in globs {
            let matcher = filters::glob(glob)?.compile_matcher();
            all.push((format!("{flag} {glob}"), selector(matcher)));
        }
    }
    for path in &args.cgroup {
        all.push((format!("--cgroup {path}"), Selector::cgroup(path)));
    }
    Ok(all)
}

/// The pid that a subject is; `None` for a file. A file whose name is a number has `./` in front: somebody else may have
/// made it.
pub(crate) fn pid_of(subject: &Path) -> Option<Pid> {
    subject.to_str()?.parse().ok().map(Pid)
}
