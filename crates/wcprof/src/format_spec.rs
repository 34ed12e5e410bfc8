//! What each format of `wcprof report` needs of a trace, shows by default, and has no use for.

use wcprof_profile::GroupBy;
use wcprof_profile::model::Detail;

use crate::args::FormatArg;

/// One format.
#[derive(Copy, Clone, Debug)]
pub(crate) struct FormatSpec {
    /// It shows when things happened: the spans of the trace are needed besides their sums.
    pub(crate) has_time_axis: bool,
    /// How far frames of a function are kept apart, unless `--lines` asks for more.
    detail: Detail,
    /// People read it: names of functions are short unless `--full-names` is given.
    has_short_names: bool,
    /// It says where the cores went, and so takes `--ops`.
    pub(crate) has_answers: bool,
    /// What a tree is made for without `--by`.
    pub(crate) group_by: GroupBy,
    /// Nodes below this percentage are left out without `--min-percent`.
    pub(crate) min_percent: f64,
    /// Idle time is shown without `--idle`.
    pub(crate) shows_idle: bool,
    /// It says itself how much idle time it hides.
    pub(crate) says_hidden_idle: bool,
    /// Which flags about trees and stacks change something.
    flags: Flags,
    /// Why the others change nothing.
    pub(crate) why: &'static str,
}

/// Flags about trees and stacks that a format takes.
#[derive(Copy, Clone, Debug)]
enum Flags {
    All,
    AllBut(&'static [&'static str]),
    Only(&'static str),
}

impl FormatSpec {
    /// How far frames of a function are kept apart, with or without `--lines`.
    pub(crate) fn detail_with(&self, lines: bool) -> Detail {
        match self.detail {
            Detail::Functions if lines => Detail::Lines,
            detail => detail,
        }
    }

    /// Whether names of functions are whole, with or without `--full-names`.
    pub(crate) fn has_full_names(&self, full_names: bool) -> bool {
        full_names || !self.has_short_names
    }

    /// Whether a flag about trees and stacks changes something.
    pub(crate) fn takes(&self, flag: &str) -> bool {
        match self.flags {
            Flags::All => true,
            Flags::AllBut(others) => !others.contains(&flag),
            Flags::Only(only) => flag == only,
        }
    }
}

/// Trees as text for programs, of which the others differ.
const PLAIN: FormatSpec = FormatSpec {
    has_time_axis: false,
    detail: Detail::Functions,
    has_short_names: false,
    has_answers: false,
    group_by: GroupBy::Pool,
    min_percent: 0.0,
    shows_idle: false,
    says_hidden_idle: false,
    flags: Flags::All,
    why: "",
};

/// Files for other viewers, which say the thread of each sample beside its stack.
const SAMPLES: FormatSpec = FormatSpec {
    has_time_axis: true,
    detail: Detail::Frames,
    group_by: GroupBy::All,
    flags: Flags::AllBut(&["--invert"]),
    why: "it has the root first, and what reads it inverts",
    ..PLAIN
};

const PICTURE: FormatSpec = FormatSpec {
    has_short_names: true,
    min_percent: 0.1,
    ..PLAIN
};

/// Text for people, which says what it hides.
const TEXT: FormatSpec = FormatSpec {
    has_short_names: true,
    min_percent: 0.5,
    says_hidden_idle: true,
    ..PLAIN
};

impl FormatArg {
    /// What this format needs and shows.
    pub(crate) fn spec(self) -> FormatSpec {
        match self {
            Self::Overview => FormatSpec {
                has_answers: true,
                says_hidden_idle: true,
                ..PLAIN
            },
            Self::Markdown => FormatSpec {
                says_hidden_idle: true,
                flags: Flags::Only("--lines"),
                why: "the block is about whole threads; --pools, --processes, --from and --to choose a part",
                ..PLAIN
            },
            Self::Text => FormatSpec {
                has_answers: true,
                ..TEXT
            },
            Self::Functions => FormatSpec {
                flags: Flags::AllBut(&["--invert", "--states", "--files"]),
                why: "a table of functions has no trees",
                ..TEXT
            },
            Self::Waits => FormatSpec {
                min_percent: 0.01,
                shows_idle: true,
                flags: Flags::AllBut(&["--by", "--invert", "--states", "--files", "--lines"]),
                why: "a table of waits is by pool and has no trees",
                ..TEXT
            },
            Self::Json => FormatSpec {
                has_answers: true,
                says_hidden_idle: true,
                ..PLAIN
            },
            // Threads and idle time as uwpmp shows them.
            Self::Uwpmp => FormatSpec {
                group_by: GroupBy::Thread,
                min_percent: 0.1,
                shows_idle: true,
                says_hidden_idle: true,
                flags: Flags::AllBut(&["--states", "--lines"]),
                why: "uwpmp shows neither states nor lines",
                ..PLAIN
            },
            Self::Folded => PLAIN,
            Self::Svg | Self::Icicle => PICTURE,
            Self::Html => FormatSpec {
                has_time_axis: true,
                has_short_names: true,
                has_answers: true,
                min_percent: 0.02,
                says_hidden_idle: true,
                flags: Flags::AllBut(&["--invert"]),
                why: "the page has both directions",
                ..PLAIN
            },
            Self::Pprof => FormatSpec {
                has_time_axis: false,
                ..SAMPLES
            },
            // Time lines of threads.
            Self::Speedscope => FormatSpec {
                group_by: GroupBy::Thread,
                ..SAMPLES
            },
            Self::Firefox | Self::Csv => SAMPLES,
            Self::Parquet => FormatSpec {
                detail: Detail::Functions,
                ..SAMPLES
            },
        }
    }
}
