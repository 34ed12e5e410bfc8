//! Reads folded output (`--format folded --states`).

use std::fmt::Write;

/// One line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// `comm/tid`, or what the output is grouped by.
    pub group: String,
    /// Root first, without the state; empty for time without a stack.
    pub frames: Vec<String>,
    /// `[on-cpu]`, `[lock]`, ...
    pub state: String,
    /// Microseconds.
    pub weight: u64,
}

impl Line {
    /// Whether the callers of its outermost function are not known.
    pub fn is_truncated(&self) -> bool {
        let mut frames = self.frames.iter();
        frames.any(|frame| frame.starts_with("[truncated"))
    }
}

/// A folded profile, or a part of one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Folded {
    /// In bytewise order.
    pub lines: Vec<Line>,
}

impl Folded {
    /// Parse, and check what holds for every folded output: a positive whole weight, a state,
    /// sorted and distinct lines.
    #[track_caller]
    pub fn parse(text: &str) -> Self {
        let raw: Vec<&str> = text.lines().collect();
        assert!(
            raw.is_sorted_by(|a, b| a.as_bytes() < b.as_bytes()),
            "lines are not sorted bytewise or not distinct"
        );
        Self {
            lines: raw.into_iter().map(parse_line).collect(),
        }
    }

    fn filter(&self, keep: impl Fn(&Line) -> bool) -> Self {
        Self {
            lines: self.lines.iter().filter(|l| keep(l)).cloned().collect(),
        }
    }

    /// Lines of threads with this name.
    pub fn thread(&self, comm: &str) -> Self {
        self.filter(|l| l.comm() == comm)
    }

    /// Lines in one of these states.
    pub fn states(&self, states: &[&str]) -> Self {
        self.filter(|l| states.contains(&l.state.as_str()))
    }

    /// Lines whose stack holds these functions in this order, root first, maybe with others
    /// between them.
    pub fn chain(&self, functions: &[&str]) -> Self {
        self.filter(|l| {
            let mut frames = l.frames.iter();
            functions
                .iter()
                .all(|function| frames.any(|frame| is_function(frame, function)))
        })
    }

    /// Lines with a stack.
    pub fn with_stack(&self) -> Self {
        self.filter(Line::has_stack)
    }

    /// All but the waits for a CPU and what the hypervisor took: what is done of itself.
    pub fn unhindered(&self) -> Self {
        self.filter(|l| !["[runnable]", "[steal/irq]"].contains(&&*l.state))
    }

    /// Lines off-CPU in a wait of any kind.
    pub fn waits(&self) -> Self {
        self.filter(|l| {
            ![
                "[on-cpu]",
                "[guest]",
                "[vm-exit]",
                "[runnable]",
                "[steal/irq]",
            ]
            .contains(&&*l.state)
        })
    }

    /// Sum of weights, microseconds.
    pub fn total(&self) -> u64 {
        self.lines.iter().map(|l| l.weight).sum()
    }

    /// Share of this part in `whole`.
    #[track_caller]
    pub fn share_of(&self, whole: &Self) -> f64 {
        assert!(whole.total() > 0, "no time to have a share of");
        self.total() as f64 / whole.total() as f64
    }

    /// The heaviest lines, for a message.
    pub fn show(&self) -> String {
        let mut lines: Vec<&Line> = self.lines.iter().collect();
        lines.sort_by_key(|l| std::cmp::Reverse(l.weight));
        lines.iter().take(12).fold(String::new(), |mut text, l| {
            let frames = l.frames.join(";");
            // A stack of 500 frames is as good as its ends.
            let short = if frames.len() > 600 {
                let head: String = frames.chars().take(300).collect();
                let tail: String = frames.chars().rev().take(300).collect();
                format!("{head} ... {}", tail.chars().rev().collect::<String>())
            } else {
                frames
            };
            let _ = writeln!(text, "{} us {} {short} {}", l.weight, l.group, l.state);
            text
        })
    }
}

impl Line {
    /// Name of the thread.
    pub fn comm(&self) -> &str {
        self.group.rsplit_once('/').map_or(&*self.group, |(c, _)| c)
    }

    fn has_stack(&self) -> bool {
        self.frames.iter().any(|f| !f.starts_with('['))
    }
}

#[track_caller]
fn parse_line(line: &str) -> Line {
    let (stack, weight) = line
        .rsplit_once(' ')
        .unwrap_or_else(|| panic!("line without weight: {line:?}"));
    let weight: u64 = weight
        .parse()
        .unwrap_or_else(|_| panic!("weight is not a whole number: {line:?}"));
    assert!(weight > 0, "line of no weight: {line:?}");
    let mut frames = stack.split(';').map(str::to_owned);
    let group = frames.next().unwrap_or_default();
    let mut frames: Vec<String> = frames.collect();
    let state = frames.pop().unwrap_or_default();
    assert!(
        state.starts_with('[') && state.ends_with(']'),
        "line without state: {line:?}"
    );
    Line {
        group,
        frames,
        state,
        weight,
    }
}

/// Whether a frame's demangled name is that of `function`, with or without arguments.
pub fn is_function(frame: &str, function: &str) -> bool {
    frame
        .strip_prefix(function)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['(', '.', '@']))
}

/// Check that lines are taken apart and selected as written.
#[test]
fn folded_lines() {
    let folded = Folded::parse(
        "a b/7;[on-cpu, not sampled];[on-cpu] 5\na b/7;main;f(int);g;[lock] 20\nc/8;main;[idle] 75\n",
    );
    assert_eq!(folded.total(), 100);
    assert_eq!(folded.thread("a b").total(), 25);
    assert_eq!(folded.thread("a b").with_stack().total(), 20);
    assert_eq!(folded.chain(&["main", "g"]).total(), 20);
    assert_eq!(folded.chain(&["f", "g"]).total(), 20);
    assert_eq!(folded.chain(&["g", "main"]).total(), 0);
    assert_eq!(folded.waits().total(), 95);
    let robbed =
        Folded::parse("a/1;[steal/irq];[steal/irq] 4\na/1;f;[lock] 3\na/1;f;[runnable] 2\n");
    assert_eq!(robbed.unhindered().total(), 3);
    assert!((folded.states(&["[idle]"]).share_of(&folded) - 0.75).abs() < 1e-12);
}
