//! The flags of `wcprof agent`, which a file may hold, too.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use wcprof_export::is_label_name;
use wcprof_findings::Condition;
use wcprof_net::StoreKind;
use wcprof_text::time_in;

use crate::args::{RuleArgs, SamplingArgs, SelectorArgs, SymbolArgs, parse_keep};

#[derive(Args, Debug)]
pub(crate) struct AgentArgs {
    /// TOML file with these flags, as in `osd = ["*"]` and `interval = "30s"`; SIGHUP reads it again
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print what it would do, and end
    #[arg(long)]
    pub(crate) check: bool,
    /// Length of a profile; intervals begin at whole multiples of it since 1970 (UTC)
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = |text: &str| time_in(text, "200ms", "1h"))]
    pub(crate) interval: Duration,
    /// Where Prometheus asks for /metrics; `none`: nowhere
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:9816",
        hide_short_help = true
    )]
    pub(crate) listen: String,
    /// Folder of traces and of what waits for the store [default: $STATE_DIRECTORY, or /var/lib/wcprof]
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    pub(crate) state_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) found: SelectorArgs,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    pub(crate) recorder: RecorderArgs,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    #[command(flatten)]
    pub(crate) rules: RuleArgs,
    #[command(flatten)]
    pub(crate) symbols: SymbolArgs,
}

/// Where profiles go.
#[derive(Args, Debug)]
#[command(next_help_heading = "Store")]
pub(crate) struct StoreArgs {
    /// Profile store: http:// or https:// with its host; without one nothing is pushed
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// What it takes
    #[arg(long, value_enum, default_value_t = StoreArg::Pyroscope)]
    pub(crate) store_kind: StoreArg,
    /// A label of all profiles, as in cluster=north; can be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = label)]
    pub(crate) label: Vec<(String, String)>,
    /// Also push idle time: one frame for each pool
    #[arg(long)]
    pub(crate) idle: bool,
    /// Tenant of the store (X-Scope-OrgID)
    #[arg(long, value_name = "ID", hide_short_help = true)]
    pub(crate) tenant: Option<String>,
    /// File with the store's token [or $WCPROF_STORE_TOKEN]
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "user",
        hide_short_help = true
    )]
    pub(crate) token_file: Option<PathBuf>,
    /// User of the store; the password is in a file or in $WCPROF_STORE_PASSWORD
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub(crate) user: Option<String>,
    /// File with the user's password
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) password_file: Option<PathBuf>,
    /// Space for what waits for the store; beyond it the oldest is dropped, and that is counted
    #[arg(long, value_name = "MB", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1 << 16), hide_short_help = true)]
    pub(crate) spool_size: u64,
    /// Age of profiles that the store refuses: these are dropped and counted, not sent [default: 1h for pyroscope]
    #[arg(long, value_name = "TIME", value_parser = |text: &str| time_in(text, "1m", "30d"), hide_short_help = true)]
    pub(crate) reject_older_than: Option<Duration>,
}

#[derive(ValueEnum, Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum StoreArg {
    /// Grafana Pyroscope and Alloy
    Pyroscope,
    /// Parca
    Parca,
    /// An OpenTelemetry collector
    Otlp,
}

impl From<StoreArg> for StoreKind {
    fn from(arg: StoreArg) -> Self {
        match arg {
            StoreArg::Pyroscope => Self::Pyroscope,
            StoreArg::Parca => Self::Parca,
            StoreArg::Otlp => Self::Otlp,
        }
    }
}

/// The flight recorder.
#[derive(Args, Debug)]
#[command(next_help_heading = "Flight recorder")]
pub(crate) struct RecorderArgs {
    /// Time that SIGUSR1 and triggers write as a trace
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_keep)]
    pub(crate) keep: Duration,
    /// Write a trace when this holds: `lock of tp_osd_tp > 30% over 5s`; can be given several times
    #[arg(long, value_name = "CONDITION", value_parser = str::parse::<Condition>)]
    pub(crate) trigger: Vec<Condition>,
    /// Files that triggers write at most
    #[arg(long, value_name = "N", default_value_t = 10, hide_short_help = true)]
    pub(crate) trigger_limit: u32,
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if is_label_name(name) => Ok((name.to_owned(), value.to_owned())),
        _ => Err("must be NAME=VALUE, with a name of letters, digits and `_`".to_owned()),
    }
}
