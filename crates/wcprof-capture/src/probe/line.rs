//! One line of `wcprof check`: what was tried, how well it works, and what to do about it.

/// What a line of the check is about.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Subject {
    /// A way to observe a process.
    Engine,
    /// A capability of wcprof itself.
    Privilege,
    /// What the kernel offers and what restricts it.
    Kernel,
    /// What can be read of the process.
    Process,
    /// A resource limit, against what the process needs.
    Limit,
}

/// How well something works.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It works, or is not in the way.
    Ok,
    /// It works in part, or is in the way of some processes.
    Limited,
    /// It does not work.
    Missing,
}

/// One thing that was tried.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProbeLine {
    /// What kind of thing.
    pub subject: Subject,
    /// Stable name for programs, unique in its subject.
    pub id: &'static str,
    /// Name for people.
    pub name: &'static str,
    /// How well it works.
    pub verdict: Verdict,
    /// What was found.
    pub detail: String,
    /// What is lost and what to do about it; empty when it works.
    pub advice: String,
}

impl ProbeLine {
    pub(super) fn ok(
        subject: Subject,
        id: &'static str,
        name: &'static str,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            subject,
            id,
            name,
            verdict: Verdict::Ok,
            detail: detail.into(),
            advice: String::new(),
        }
    }

    pub(super) fn limited(self, advice: impl Into<String>) -> Self {
        self.with(Verdict::Limited, advice)
    }

    pub(super) fn missing(self, advice: impl Into<String>) -> Self {
        self.with(Verdict::Missing, advice)
    }

    fn with(mut self, verdict: Verdict, advice: impl Into<String>) -> Self {
        self.verdict = verdict;
        self.advice = advice.into();
        self
    }
}
