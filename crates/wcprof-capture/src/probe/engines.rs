//! Each engine as `attach --engine` would open it, and which one `attach` would choose.

use wcprof_types::Pid;

use super::{ProbeLine, Subject};
use crate::engine::EngineKind;
use crate::sampler::{Sampler, SamplerOptions, StartError};
use wcprof_host::{Target, TargetError};

/// Every engine, the first that works, and why.
pub(super) fn lines(
    pid: Pid,
    target: Result<Target, TargetError>,
) -> (Vec<ProbeLine>, Option<EngineKind>, String) {
    if let Err(error) = target {
        let reason = error.to_string();
        let lines = EngineKind::ALL.map(|engine| {
            line(engine, "not tried: the process cannot be read".into())
                .missing("see its address space below")
        });
        return (lines.into(), None, reason);
    }
    let tried: Vec<(EngineKind, Result<Vec<String>, String>)> = EngineKind::ALL
        .into_iter()
        .map(|engine| (engine, open(pid, engine)))
        .collect();
    let (choice, reason) = choose(&tried);
    let lines = tried.into_iter().map(|(engine, result)| match result {
        Ok(notes) if engine == EngineKind::ProcfsOnly || notes.is_empty() => {
            line(engine, what_it_shows(engine).to_owned())
        }
        Ok(notes) => line(engine, what_it_shows(engine).to_owned()).limited(notes.join("; ")),
        Err(reason) => line(engine, reason).missing(without(engine)),
    });
    (lines.collect(), choice, reason)
}

/// Opens the engine and closes it again; its remarks, or why it does not open.
fn open(pid: Pid, engine: EngineKind) -> Result<Vec<String>, String> {
    let target = Target::open(pid).map_err(|e| e.to_string())?;
    let options = SamplerOptions {
        engine: Some(engine),
        kernel: Some(false),
        ..SamplerOptions::default()
    };
    match Sampler::new(&[target.into()], options) {
        Ok(sampler) => Ok(sampler.notes().to_vec()),
        // Their own text also names the engine, which the line does here.
        Err(StartError::Bpf(error)) => Err(error.to_string()),
        Err(StartError::Perf { source, .. }) => Err(source.to_string()),
        Err(StartError::ThreadFiles { file, cause, .. }) => Err(format!(
            "failed to read `{file}`: {cause}; another user's process needs CAP_SYS_PTRACE and \
             CAP_DAC_READ_SEARCH"
        )),
        Err(error) => Err(error.to_string()),
    }
}

/// The first that works, in the order that `attach` tries them.
fn choose(tried: &[(EngineKind, Result<Vec<String>, String>)]) -> (Option<EngineKind>, String) {
    let found = tried.iter().position(|(_, result)| result.is_ok());
    match found.and_then(|at| tried.get(at).map(|(engine, _)| (at, *engine))) {
        Some((0, engine)) => (Some(engine), "it is the best one and it works".into()),
        Some((at, engine)) => {
            let refused: Vec<&str> = tried
                .iter()
                .take(at)
                .map(|(engine, _)| engine.name())
                .collect();
            let reason = format!(
                "it is the best one that works; {} {} not",
                refused.join(" and "),
                if at == 1 { "does" } else { "do" }
            );
            (Some(engine), reason)
        }
        None => (None, reasons(tried)),
    }
}

/// Each distinct reason once, with its engines.
fn reasons(tried: &[(EngineKind, Result<Vec<String>, String>)]) -> String {
    let mut groups: Vec<(String, &str)> = Vec::new();
    for (engine, result) in tried {
        let Err(reason) = result else { continue };
        match groups.iter_mut().find(|group| group.1 == reason) {
            Some((engines, _)) => {
                engines.push_str(" and ");
                engines.push_str(engine.name());
            }
            None => groups.push((engine.name().to_owned(), reason)),
        }
    }
    match groups.as_slice() {
        [(_, reason)] => (*reason).to_owned(),
        _ => {
            let each: Vec<String> = groups
                .iter()
                .map(|(engines, reason)| format!("{engines}: {reason}"))
                .collect();
            each.join("; ")
        }
    }
}

fn line(engine: EngineKind, detail: String) -> ProbeLine {
    ProbeLine::ok(Subject::Engine, engine.name(), engine.name(), detail)
}

fn what_it_shows(engine: EngineKind) -> &'static str {
    match engine {
        EngineKind::Bpf => "stacks of blocked and running threads, exact switch counts",
        EngineKind::Procfs => "stacks of blocked and running threads",
        EngineKind::ProcfsOnly => "stacks of blocked threads; running threads have none",
    }
}

/// What its absence costs.
fn without(engine: EngineKind) -> &'static str {
    match engine {
        EngineKind::Bpf => {
            "the engine procfs shows the same states and stacks, at a higher cost for wcprof and \
             the process; it has no rbp of blocked threads"
        }
        EngineKind::Procfs => "the engine procfs-only shows no stacks of running threads",
        EngineKind::ProcfsOnly => "there is no engine that needs less",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the best engine that works is chosen and the ones before it are named.
    #[test]
    fn choices() {
        let tried = |works: [bool; 3]| -> Vec<_> {
            let result = |ok: bool| {
                if ok {
                    Ok(Vec::new())
                } else {
                    Err("refused".to_owned())
                }
            };
            EngineKind::ALL.into_iter().zip(works.map(result)).collect()
        };
        let choice = |works| choose(&tried(works));
        assert_eq!(choice([true; 3]).0, Some(EngineKind::Bpf));
        let (engine, why) = choice([false, true, true]);
        assert_eq!(engine, Some(EngineKind::Procfs));
        assert!(why.ends_with("bpf does not"), "{why}");
        let (engine, why) = choice([false, false, true]);
        assert_eq!(engine, Some(EngineKind::ProcfsOnly));
        assert!(why.ends_with("bpf and procfs do not"), "{why}");
        assert_eq!(choice([false; 3]), (None, "refused".to_owned()));
        let mut different = tried([false; 3]);
        different[0].1 = Err("no BTF".to_owned());
        assert_eq!(
            choose(&different).1,
            "bpf: no BTF; procfs and procfs-only: refused"
        );
    }
}
