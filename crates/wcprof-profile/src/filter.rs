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

/// Globs by what they are matched with. Of each list one must match; an empty list matches all.
#[derive(Clone, Debug, Default)]
pub struct ThreadGlobs<'a> {
    /// The thread's last name or its pool's name.
    pub threads: &'a [String],
    /// The pool's name.
    pub pools: &'a [String],
    /// The process's name or its pid.
    pub processes: &'a [String],
    /// The path of the process's control group.
    pub cgroups: &'a [String],
}

/// Chooses threads by globs.
#[derive(Clone, Debug)]
pub struct ThreadFilter {
    threads: Option<GlobSet>,
    pools: Option<GlobSet>,
    processes: Option<GlobSet>,
    cgroups: Option<GlobSet>,
    exclude: GlobSet,
}

impl ThreadFilter {
    /// Every thread.
    pub fn all() -> Self {
        Self {
            threads: None,
            pools: None,
            processes: None,
            cgroups: None,
            exclude: GlobSet::empty(),
        }
    }

    /// Threads of which the last name or the pool's name matches one of `include` (all, when it is
    /// empty) and none of `exclude`. `*` also matches `/`, so that `CPU */KVM` and `CPU*` both
    /// work.
    pub fn new<S: AsRef<str>>(include: &[S], exclude: &[S]) -> Result<Self, FilterError> {
        Ok(Self {
            threads: some_set(include)?,
            exclude: set(exclude)?,
            ..Self::all()
        })
    }

    /// Threads that pass all of these globs.
    pub fn by_globs(globs: &ThreadGlobs<'_>) -> Result<Self, FilterError> {
        Ok(Self {
            threads: some_set(globs.threads)?,
            pools: some_set(globs.pools)?,
            processes: some_set(globs.processes)?,
            cgroups: some_set(globs.cgroups)?,
            exclude: GlobSet::empty(),
        })
    }

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
            && !either(&self.exclude)
    }
}

impl Default for ThreadFilter {
    fn default() -> Self {
        Self::all()
    }
}

/// Takes the threads that `filter` does not choose out of the profile, with their rows.
pub fn keep_threads(profile: &mut Profile, filter: &ThreadFilter) {
    let mut new_index = Vec::with_capacity(profile.threads.len());
    let mut n_kept = 0;
    for thread in &profile.threads {
        let keep = filter.matches(profile, thread);
        new_index.push(keep.then_some(n_kept));
        n_kept += usize::from(keep);
    }
    let of = |thread: usize| new_index.get(thread).copied().flatten();
    profile.rows.retain_mut(|row| {
        let at = of(row.thread);
        row.thread = at.unwrap_or_default();
        at.is_some()
    });
    profile.locks.retain_mut(|row| {
        let at = of(row.thread);
        row.thread = at.unwrap_or_default();
        at.is_some()
    });
    for pool in &mut profile.pools {
        pool.threads = pool.threads.iter().filter_map(|&t| of(t)).collect();
    }
    let mut at = 0;
    profile.threads.retain(|_| {
        at += 1;
        of(at - 1).is_some()
    });
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

fn some_set<S: AsRef<str>>(globs: &[S]) -> Result<Option<GlobSet>, globset::Error> {
    match globs {
        [] => Ok(None),
        globs => set(globs).map(Some),
    }
}

fn set<S: AsRef<str>>(globs: &[S]) -> Result<GlobSet, globset::Error> {
    let mut set = GlobSetBuilder::new();
    for glob in globs {
        set.add(Glob::new(glob.as_ref())?);
    }
    set.build()
}
