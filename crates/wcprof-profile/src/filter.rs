//! Which threads and functions a view shows.

use globset::{Glob, GlobSet, GlobSetBuilder};
use regex::{Regex, RegexBuilder};
use thiserror::Error;

use crate::model::{Profile, ProfileThread};

/// Memory of a compiled pattern, and of its cache while it is matched, bytes.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// A filter that is not valid.
#[derive(Debug, Error)]
pub enum FilterError {
    /// A glob.
    #[error("bad pattern: {0}")]
    Glob(#[from] globset::Error),
    /// A regular expression.
    #[error("bad regular expression: {0}")]
    Regex(#[from] regex::Error),
}

/// Chooses threads that pass all of these globs (see [`globs`]).
#[derive(Clone, Debug, Default)]
pub struct ThreadFilter {
    /// The thread's last name or its pool's name.
    pub threads: Option<GlobSet>,
    /// The pool's name.
    pub pools: Option<GlobSet>,
    /// The process's name or its pid.
    pub processes: Option<GlobSet>,
    /// The path of the process's control group.
    pub cgroups: Option<GlobSet>,
}

impl ThreadFilter {
    /// Whether the filter chooses this thread of `profile`.
    pub fn matches(&self, profile: &Profile, thread: &ProfileThread) -> bool {
        let pool = profile.pools.get(thread.pool).map_or("", |p| &p.name);
        let either = |set: &GlobSet| set.is_match(&thread.comm) || set.is_match(pool);
        let process = |set: &GlobSet| {
            set.is_match(&thread.process_comm)
                || set.is_match(profile.process_title(thread))
                || set.is_match(thread.pid.to_string())
        };
        let cgroup = |set: &GlobSet| {
            let process = profile.process_of(thread);
            set.is_match(process.map_or("", |p| p.cgroup.as_str()))
        };
        self.threads.as_ref().is_none_or(either)
            && self.pools.as_ref().is_none_or(|set| set.is_match(pool))
            && self.processes.as_ref().is_none_or(process)
            && self.cgroups.as_ref().is_none_or(cgroup)
    }
}

/// Takes the threads that `filter` does not choose out of the profile, with their rows.
pub fn keep_threads(profile: &mut Profile, filter: &ThreadFilter) {
    let threads = profile.threads.iter();
    let kept: Vec<bool> = threads.map(|t| filter.matches(profile, t)).collect();
    let mut n_kept = 0;
    // By old index.
    let new_index: Vec<Option<usize>> = (kept.iter())
        .map(|kept| {
            n_kept += usize::from(*kept);
            kept.then(|| n_kept - 1)
        })
        .collect();
    let renumber = |thread: &mut usize| {
        let new = new_index.get(*thread).copied().flatten();
        *thread = new.unwrap_or_default();
        new.is_some()
    };
    profile.rows.retain_mut(|row| renumber(&mut row.thread));
    for rows in [&mut profile.locks.held, &mut profile.locks.joins] {
        rows.retain_mut(|row| renumber(&mut row.thread));
    }
    // A circle with a thread that is left out is none.
    profile.locks.deadlocks.retain_mut(|deadlock| {
        let n = deadlock.threads.len();
        deadlock.threads.retain_mut(|one| renumber(&mut one.thread));
        deadlock.threads.len() == n
    });
    for pool in &mut profile.pools {
        pool.threads.retain_mut(renumber);
    }
    let mut kept = kept.into_iter();
    profile.threads.retain(|_| kept.next() == Some(true));
}

/// Chooses functions by a regular expression over their names.
#[derive(Clone, Debug)]
pub struct FunctionFilter(Regex);

impl FunctionFilter {
    /// The expression may match anywhere in a name.
    pub fn new(pattern: &str) -> Result<Self, FilterError> {
        Ok(Self(
            RegexBuilder::new(pattern)
                .size_limit(MAX_PATTERN_BYTES)
                .dfa_size_limit(MAX_PATTERN_BYTES)
                .build()?,
        ))
    }

    /// Whether it chooses the function of this name.
    pub fn matches(&self, name: &str) -> bool {
        self.0.is_match(name)
    }

    /// The expression.
    pub fn pattern(&self) -> &str {
        self.0.as_str()
    }
}

/// Globs of which one must match; `None` for no globs: all match. `*` also matches `/`, so that
/// `CPU */KVM` and `CPU*` both work.
pub fn globs<S: AsRef<str>>(globs: &[S]) -> Result<Option<GlobSet>, FilterError> {
    let mut set = GlobSetBuilder::new();
    for glob in globs {
        set.add(Glob::new(glob.as_ref())?);
    }
    Ok((!globs.is_empty()).then_some(set.build()?))
}
