//! Who holds the lock of a database that its sessions wait for, as far as the waits tell: the only session that does not
//! wait. The locks themselves are in tables that only the database reads.

use std::collections::{BTreeSet, HashSet};

use wcprof_profile::model::{FunctionId, Profile, ProfileStackId, State};
use wcprof_text::count;

/// A database: the functions in which its sessions wait for table and row locks, the function that a session is in, and
/// what names the holder for sure.
struct Database {
    waits: &'static [&'static str],
    session: &'static str,
    asked: &'static str,
}

const DATABASES: [Database; 2] = [
    Database {
        waits: &["ProcSleep", "LockAcquireExtended"],
        session: "PostgresMain",
        asked: "PostgreSQL knows who holds it: pg_blocking_pids(PID)",
    },
    Database {
        waits: &[
            "MDL_wait::timed_wait",
            "lock_wait_suspend_thread",
            "lock_wait",
        ],
        session: "do_command",
        asked: "the database knows who holds it: sys.innodb_lock_waits, sys.schema_table_lock_waits",
    },
];

/// Part of its time in such waits from which a session is one that waits.
const WAITS: f64 = 0.5;

/// What is known of who holds database locks.
pub(crate) struct DatabaseLocks {
    /// The stacks that wait for one.
    pub(crate) stacks: HashSet<Option<ProfileStackId>>,
    /// The only session that does not wait, where that is one.
    pub(crate) only: Option<String>,
    /// What the database says of them, and how it is asked.
    pub(crate) asked: &'static str,
}

impl DatabaseLocks {
    /// Of the locks that these stacks wait for; `None` where none of them is a database's.
    pub(crate) fn new(
        profile: &Profile,
        stacks: impl Iterator<Item = Option<ProfileStackId>>,
    ) -> Option<Self> {
        let stacks: HashSet<Option<ProfileStackId>> = stacks.collect();
        let mut found = None;
        let stacks = stacks.into_iter().filter(|stack| {
            let database = DATABASES
                .iter()
                .find(|d| has_function(profile, *stack, d.waits));
            found = found.or(database);
            database.is_some()
        });
        let stacks: HashSet<_> = stacks.collect();
        let database: &Database = found?;
        Some(Self {
            stacks,
            only: only_other(profile, database),
            asked: database.asked,
        })
    }

    /// Both as one sentence; not escaped.
    pub(crate) fn text(&self) -> String {
        match &self.only {
            Some(only) => format!("{only}; {}", self.asked),
            None => self.asked.to_owned(),
        }
    }
}

fn has_function(profile: &Profile, stack: Option<ProfileStackId>, names: &[&str]) -> bool {
    let stack = stack.and_then(|id| profile.stacks.get(id.0 as usize));
    let frames = stack.map_or(&[][..], |stack| &stack.frames);
    frames.iter().any(|f: &FunctionId| {
        let function = profile.functions.get(f.0 as usize);
        let name = function.map_or("", |function| function.name.as_str());
        names.contains(&name.split('(').next().unwrap_or(name))
    })
}

/// `of 9 sessions only pid 4711 (postgres: bench app [local]) does not wait`, where others do and one does not.
fn only_other(profile: &Profile, database: &Database) -> Option<String> {
    let n = profile.threads.len();
    let (mut is_session, mut waited, mut observed) =
        (vec![false; n], vec![0_u64; n], vec![0_u64; n]);
    // Many rows have one stack.
    let of_stack: Vec<(bool, bool)> = (0..profile.stacks.len())
        .map(|at| {
            let id = u32::try_from(at).ok().map(ProfileStackId);
            let has = |names: &[&str]| has_function(profile, id, names);
            (has(&[database.session]), has(database.waits))
        })
        .collect();
    for row in &profile.rows {
        let (session, waits) = row
            .stack
            .map_or((false, false), |id| of_stack[id.0 as usize]);
        is_session[row.thread] |= session;
        observed[row.thread] = observed[row.thread].saturating_add(row.weight);
        if waits && row.state == State::Lock {
            waited[row.thread] = waited[row.thread].saturating_add(row.weight);
        }
    }
    let sessions: Vec<usize> = (0..n).filter(|&at| is_session[at]).collect();
    let waits = |at: &usize| waited[*at] as f64 >= WAITS * observed[*at] as f64;
    let (waiting, others): (Vec<usize>, Vec<usize>) = sessions.iter().copied().partition(waits);
    let [only] = others.as_slice() else {
        return None;
    };
    // Several servers may be recorded: then it is not known whose sessions wait for whom.
    let classes: BTreeSet<_> = sessions
        .iter()
        .map(|&at| {
            let process = profile.processes.get(profile.threads[at].process);
            process.map(|process| (&process.class, &process.host))
        })
        .collect();
    if waiting.is_empty() || classes.len() > 1 {
        return None;
    }
    let thread = &profile.threads[*only];
    Some(format!(
        "of {} only pid {} ({}) does not wait",
        count(sessions.len(), "session"),
        thread.pid,
        profile.process_title(thread),
    ))
}
