//! The flags that choose processes to the processes themselves.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use wcprof_host::select::{Selector, descendants, processes};
use wcprof_host::{Target, TargetError};
use wcprof_types::Pid;

use crate::args::TargetArgs;
use crate::failure::{Exit, Failure};
use crate::filters;

/// More than a host runs of what is tuned; each costs wcprof memory and time at each tick.
pub(crate) const MAX_TARGETS: usize = wcprof_capture::MAX_TARGETS;

/// Processes to record, and remarks on those that were chosen and cannot be recorded.
type Chosen = (Vec<Arc<Target>>, Vec<String>);

/// Opens what the flags choose, in the order of the command line, then by pid. A pid that is given must be
/// there; of processes that are found, one that exits meanwhile is nothing to speak of.
pub(crate) fn targets(args: &TargetArgs, children: bool) -> Result<Chosen, Failure> {
    let mut targets = Vec::new();
    let mut known = BTreeSet::new();
    for &pid in &args.pids {
        if known.insert(Pid(pid)) {
            targets.push(Arc::new(Target::open(Pid(pid))?));
        }
    }
    let selectors = selectors(args)?;
    let mut found = BTreeSet::new();
    if !selectors.is_empty() || children {
        let all = processes();
        for (flag, selector) in &selectors {
            let matching = all.iter().filter(|process| selector.matches(process));
            let of_flag: Vec<Pid> = matching.map(|process| process.pid).collect();
            if of_flag.is_empty() {
                return Err(nothing(flag));
            }
            found.extend(of_flag);
        }
        if children {
            let parents = found.union(&known).copied().collect();
            found.extend(descendants(&all, &parents));
        }
    }
    let mut remarks = Vec::new();
    let mut refused = None;
    for pid in found {
        if !known.insert(pid) {
            continue;
        }
        match Target::open(pid) {
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
        (0, None) => return Err(nothing("the flags")),
        (MAX_TARGETS.., _) if targets.len() > MAX_TARGETS => {
            let error = anyhow::anyhow!("{} processes are chosen", targets.len());
            let hint = format!("at most {MAX_TARGETS} can be recorded at once: choose fewer");
            return Err(Failure::usage(error).hint(hint));
        }
        _ => {}
    }
    Ok((targets, remarks))
}

fn nothing(flag: &str) -> Failure {
    let error = anyhow::anyhow!("no process matches {flag}");
    Failure::new(Exit::NoTarget, error)
        .hint("`ps -eo pid,comm,cgroup,args` shows what there is; names are globs (`ceph-*`)")
}

/// Each with its flag, for messages.
fn selectors(args: &TargetArgs) -> Result<Vec<(String, Selector)>, Failure> {
    let mut all = Vec::new();
    for glob in &args.name {
        let matcher = filters::glob(glob)?.compile_matcher();
        all.push((format!("--name {glob}"), Selector::Name(matcher)));
    }
    for path in &args.cgroup {
        all.push((format!("--cgroup {path}"), Selector::cgroup(path)));
    }
    for name in &args.vm {
        all.push((format!("--vm {name}"), Selector::Vm(name.clone())));
    }
    for id in &args.osd {
        all.push((format!("--osd {id}"), Selector::Osd(id.clone())));
    }
    Ok(all)
}

/// The pid that a subject is; `None` for a file. A number that is also the name of a file is the file.
pub(crate) fn pid_of(subject: &Path) -> Option<Pid> {
    let pid = subject.to_str()?.parse().ok()?;
    (!subject.exists()).then_some(Pid(pid))
}
