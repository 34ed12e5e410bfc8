//! Flags to what is done: checked, with folders, limits and the store.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use wcprof_capture::raise_open_files;
use wcprof_host::Target;
use wcprof_host::select::Selector;
use wcprof_net::{Credentials, Secret, Store, StoreKind, StoreOptions};
use wcprof_profile::Rules;
use wcprof_text::terminal_name;

use super::args::AgentArgs;
use super::room::ProcessRoom;
use crate::args::{KeepArgs, SymbolArgs};
use crate::failure::Failure;
use crate::keep::check_windows;
use crate::open::state_rules;
use crate::select::MAX_TARGETS;
use crate::{names, select};

const STATE_DIR: &str = "/var/lib/wcprof";
/// The ring keeps an interval and what comes until it is complete.
const BEYOND_INTERVAL: Duration = Duration::from_secs(10);
/// Parts of the memory limit: for the ring, and for finding names. The rest is for profiles, requests and wcprof itself.
const RING_PART: u64 = 4;
const NAMES_PART: u64 = 3;
/// Descriptors that there must be for each process.
const FILES_OF_TARGET: u64 = 8;
/// Pyroscope's `validation.reject-older-than` as it is delivered.
const PYROSCOPE_MAX_AGE: Duration = Duration::from_secs(60 * 60);
/// Pushes of the hosts of a cluster are spread over a third of the interval, but no longer than this.
const MAX_SPREAD: Duration = Duration::from_secs(10);

/// What the agent does.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) args: AgentArgs,
    pub(super) selectors: Vec<Selector>,
    pub(super) rules: Rules,
    pub(super) keep: KeepArgs,
    pub(super) symbols: SymbolArgs,
    /// Idle time is pushed, too.
    pub(super) idle: bool,
    pub(super) store: Option<StorePlan>,
    pub(super) state_dir: PathBuf,
}

/// Where profiles go.
#[derive(Clone, Debug)]
pub(super) struct StorePlan {
    pub(super) store: StoreOptions,
    /// What waits for the store, the folder and its size in bytes.
    pub(super) spool: PathBuf,
    pub(super) spool_bytes: u64,
    /// The store takes no profile that began longer ago.
    pub(super) max_age: Option<Duration>,
    pub(super) spread: Duration,
}

impl Plan {
    /// Checks all that can be checked without a process and without the store.
    pub(super) fn new(args: AgentArgs) -> Result<Self, Failure> {
        if args.found.is_empty() {
            let error = anyhow!("no process is named");
            return Err(Failure::usage(error).hint("--osd '*' takes all OSDs, --vm '*' all virtual machines; --name and --cgroup take others"));
        }
        if args.sampling.ceph {
            let error = anyhow!("the agent does not ask Ceph's admin sockets");
            return Err(
                Failure::usage(error).hint("leave out --ceph; `wcprof attach --ceph` asks them")
            );
        }
        let recorder = &args.recorder;
        if let Some(condition) = recorder.trigger.iter().find(|c| c.counter().is_some()) {
            let error = anyhow!("`{condition}` needs counters, which the agent does not record");
            return Err(Failure::usage(error).hint("`wcprof attach --ceph --keep` records them"));
        }
        check_windows(&recorder.trigger, recorder.keep)?;
        let selectors = select::selectors(&args.found)?;
        let state_dir = args.state_dir.clone();
        let state_dir =
            state_dir.or_else(|| std::env::var_os("STATE_DIRECTORY").map(PathBuf::from));
        let state_dir = state_dir.unwrap_or_else(|| STATE_DIR.into());
        let memory = args.symbols.max_memory;
        let symbols = SymbolArgs {
            max_memory: (memory / NAMES_PART).max(1),
            ..args.symbols.clone()
        };
        names::check(&symbols)?;
        let idle = args.store.idle;
        Ok(Self {
            selectors: selectors
                .into_iter()
                .map(|(_, selector)| selector)
                .collect(),
            rules: state_rules(&args.rules)?,
            keep: KeepArgs {
                keep: Some(recorder.keep.max(args.interval + BEYOND_INTERVAL)),
                keep_memory: (memory / RING_PART).max(8),
                trigger: recorder.trigger.clone(),
                trigger_limit: recorder.trigger_limit,
            },
            symbols,
            idle,
            store: store(&args, &state_dir)?,
            state_dir,
            args,
        })
    }

    /// For processes, by the memory and the descriptors that there are.
    pub(super) fn room(&self) -> ProcessRoom {
        let by_files = usize::try_from(raise_open_files() / FILES_OF_TARGET);
        let most = by_files.unwrap_or(MAX_TARGETS).clamp(1, MAX_TARGETS);
        ProcessRoom::new(most, self.args.symbols.max_memory.saturating_mul(1_000_000))
    }

    /// One line on what is done.
    pub(super) fn summary(&self) -> String {
        let store = match &self.store {
            Some(plan) => format!(
                "to {} ({})",
                terminal_name(&plan.store.url),
                plan.store.kind.name()
            ),
            None => "pushed nowhere (no --store)".to_owned(),
        };
        format!(
            "a profile of each process every {} s at {} Hz, {store}",
            self.args.interval.as_secs_f64(),
            self.args.sampling.rate
        )
    }

    /// What would be done, with the processes that are there.
    pub(super) fn described(&self, targets: &[Arc<Target>]) -> String {
        let mut text = format!("{}\n", self.summary());
        let seconds = self.args.recorder.keep.as_secs_f64();
        let folder = self.state_dir.display();
        text += &format!("SIGUSR1 writes the last {seconds} s to {folder}\n");
        for condition in &self.keep.trigger {
            text += &format!("so does: {condition}\n");
        }
        text += &format!(
            "limits: {} % of a core for sampling, recording and pushing; {} MB of memory; {} MB of what waits for the store\n",
            self.args.sampling.max_cpu, self.args.symbols.max_memory, self.args.store.spool_size
        );
        text += &format!("/metrics: {}\n", self.args.listen);
        text += &format!("processes now: {}\n", targets.len());
        for target in targets {
            text += &format!(
                "  pid {}  {}\n",
                target.pid(),
                terminal_name(target.title())
            );
        }
        text
    }
}

/// The store of the flags.
fn store(args: &AgentArgs, state_dir: &std::path::Path) -> Result<Option<StorePlan>, Failure> {
    let flags = &args.store;
    let Some(url) = &flags.store else {
        return Ok(None);
    };
    let kind = StoreKind::from(flags.store_kind);
    let secret = |file: &Option<PathBuf>, variable: &str| {
        let text = std::env::var(variable).ok().map(Secret::Text);
        file.clone().map(Secret::File).or(text)
    };
    let token = secret(&flags.token_file, "WCPROF_STORE_TOKEN");
    let password = secret(&flags.password_file, "WCPROF_STORE_PASSWORD");
    let credentials = match (&flags.user, password, token) {
        (Some(user), Some(password), _) => Credentials::Basic(user.clone(), password),
        (Some(_), None, _) => {
            let error = anyhow!("--user needs a password");
            return Err(Failure::usage(error)
                .hint("give it in --password-file FILE or in $WCPROF_STORE_PASSWORD"));
        }
        (None, ..) if flags.password_file.is_some() => {
            let error = anyhow!("--password-file needs a user");
            return Err(Failure::usage(error).hint("give it in --user NAME"));
        }
        (None, _, Some(token)) => Credentials::Bearer(token),
        (None, _, None) => Credentials::None,
    };
    let options = StoreOptions {
        credentials,
        tenant: flags.tenant.clone(),
        ..StoreOptions::new(url, kind)
    };
    // Refuses a URL that is none.
    Store::new(options.clone()).map_err(Failure::usage)?;
    Ok(Some(StorePlan {
        store: options,
        spool: state_dir.join("spool"),
        spool_bytes: flags.spool_size << 20,
        max_age: flags
            .reject_older_than
            .or((kind == StoreKind::Pyroscope).then_some(PYROSCOPE_MAX_AGE)),
        spread: (args.interval / 3).min(MAX_SPREAD),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Command;
    use crate::help;

    fn plan(flags: &str) -> Result<Plan, String> {
        let words = format!("wcprof agent {flags}");
        let words = shlex::split(&words).unwrap();
        match help::parse(words.into_iter().map(Into::into))
            .unwrap()
            .command
        {
            Command::Agent(args) => Plan::new(*args).map_err(|failure| failure.to_string()),
            other => panic!("{other:?}"),
        }
    }

    /// Check the parts of the memory limit, the time that is kept, and where requests wait.
    #[test]
    fn parts() {
        let plan = plan("--osd '*' --store http://host:4040 --interval 2m --state-dir /x --user me --password-file p").unwrap();
        assert_eq!(plan.keep.keep, Some(Duration::from_secs(130)));
        assert_eq!((plan.keep.keep_memory, plan.symbols.max_memory), (62, 83));
        let store = plan.store.unwrap();
        assert_eq!(store.spool, std::path::Path::new("/x/spool"));
        assert_eq!((store.spool_bytes, store.spread), (64 << 20, MAX_SPREAD));
        let password = Secret::File("p".into());
        assert_eq!(
            store.store.credentials,
            Credentials::Basic("me".into(), password)
        );
    }

    /// Check that what cannot work is refused, with what to do.
    #[test]
    fn refused() {
        for (flags, words) in [
            ("", "no process is named"),
            ("--osd 1 --ceph", "admin sockets"),
            (
                "--osd 1 --trigger 'op_latency > 20ms over 5s'",
                "needs counters",
            ),
            (
                "--osd 1 --trigger 'lock of all > 20% over 90s'",
                "longer time",
            ),
            ("--osd 1 --store host:4040", "no URL"),
            ("--osd 1 --store http://me:hush@host", "holds a user"),
            ("--osd 1 --store http://host --user me", "needs a password"),
            (
                "--osd 1 --store http://host --password-file p",
                "needs a user",
            ),
            ("--osd '['", "glob"),
        ] {
            let error = plan(flags).unwrap_err();
            assert!(error.contains(words), "{flags}: {error}");
            assert!(!error.contains("hush"), "{error}");
        }
    }

    /// Check that the unit for systemd starts what there is.
    #[test]
    fn unit() {
        let unit = include_str!("../../packaging/wcprof-agent.service");
        let start = unit
            .lines()
            .find_map(|line| line.strip_prefix("ExecStart=/usr/bin/"));
        let words = start.unwrap().split(' ').map(Into::into);
        let command = help::parse(words).unwrap().command;
        assert!(matches!(command, Command::Agent(args) if args.config.is_some()));
    }
}
