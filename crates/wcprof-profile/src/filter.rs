//! Which threads a view shows.

use globset::{Glob, GlobSet, GlobSetBuilder};
use thiserror::Error;

use crate::model::{Profile, ProfileThread};

/// A thread filter that is not a valid glob.
#[derive(Debug, Error)]
#[error("bad thread pattern: {0}")]
pub struct FilterError(#[from] globset::Error);

/// Chooses threads by globs over the thread's last name and its pool's name.
#[derive(Clone, Debug)]
pub struct ThreadFilter {
    include: Option<GlobSet>,
    exclude: GlobSet,
}

impl ThreadFilter {
    /// Every thread.
    pub fn all() -> Self {
        Self {
            include: None,
            exclude: GlobSet::empty(),
        }
    }

    /// Threads that match one of `include` (all, when it is empty) and none of `exclude`.
    /// `*` also matches `/`, so that `CPU */KVM` and `CPU*` both work.
    pub fn new<S: AsRef<str>>(include: &[S], exclude: &[S]) -> Result<Self, FilterError> {
        Ok(Self {
            include: match include {
                [] => None,
                globs => Some(set(globs)?),
            },
            exclude: set(exclude)?,
        })
    }

    /// Whether the filter chooses this thread of `profile`.
    pub fn matches(&self, profile: &Profile, thread: &ProfileThread) -> bool {
        let pool = profile.pools.get(thread.pool).map_or("", |p| &p.name);
        let either = |set: &GlobSet| set.is_match(&thread.comm) || set.is_match(pool);
        self.include.as_ref().is_none_or(either) && !either(&self.exclude)
    }
}

impl Default for ThreadFilter {
    fn default() -> Self {
        Self::all()
    }
}

fn set<S: AsRef<str>>(globs: &[S]) -> Result<GlobSet, globset::Error> {
    let mut set = GlobSetBuilder::new();
    for glob in globs {
        set.add(Glob::new(glob.as_ref())?);
    }
    set.build()
}
