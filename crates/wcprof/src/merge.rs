//! `wcprof merge`: several traces to one.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use wcprof_trace::model::Tables;
use wcprof_trace::{Align, Ending, TraceReader, TraceWriter, merge, merged_header};
use wcprof_types::snapshot::Snapshot;

use crate::cli::{AlignArg, MergeArgs};
use crate::failure::{Exit, Failure};
use crate::same_file::{identity, refuse_input};

pub(crate) fn run(args: &MergeArgs) -> Result<(), Failure> {
    refuse_twice(&args.traces)?;
    for path in &args.traces {
        refuse_input(path, &args.output)?;
    }
    let mut sources: Vec<Tables> = Vec::new();
    for path in &args.traces {
        let read = TraceReader::open(path).and_then(|reader| reader.read(|_, _| {}));
        let (tables, ending) = read.map_err(|error| of_file(path, error.into()))?;
        if ending != Ending::Clean {
            tell!("wcprof: `{}`: {ending}", path.display());
        }
        if tables.symbols.is_none() {
            tell!(
                "wcprof: `{}` holds no function names (recorded with --raw, or cut): give --debug-dir or --sysroot to \
                 the commands that read the merged trace",
                path.display()
            );
        }
        sources.push(tables);
    }
    if args.anonymous {
        anonymize(&mut sources);
    }
    let align = match args.align {
        AlignArg::Auto => Align::fitting(&sources),
        AlignArg::Clock => Align::Clock,
        AlignArg::Start => Align::Start,
    };
    let header = merged_header(&sources, env!("CARGO_PKG_VERSION"));
    let mut writer = TraceWriter::create(&args.output, &header)?;
    let spans = |i: usize| TraceReader::open(args.traces.get(i).map_or(Path::new(""), |p| p));
    let n_processes: usize = sources.iter().map(|t| t.processes.len()).sum();
    let losses = merge(sources, align, spans, &mut writer)?;
    if losses.n_unnamed > 0 {
        tell!(
            "wcprof: {} frames of JIT code lost their names: the traces have other code at the same \
             addresses",
            losses.n_unnamed
        );
    }
    tell!(
        "wcprof: {} of {n_processes} {} on {}, {}",
        args.output.display(),
        if n_processes == 1 {
            "process"
        } else {
            "processes"
        },
        wcprof_report::terminal_name(&header.host),
        match align {
            Align::Clock => "by the hosts' clocks",
            Align::Start => "beginning at the same moment",
        }
    );
    Ok(())
}

/// Takes the names of hosts and the vendors' parts of kernel releases out of what is to be merged.
fn anonymize(sources: &mut [Tables]) {
    let mut hosts = Hosts::default();
    for tables in sources {
        let header = &mut tables.header;
        for note in &mut header.notes {
            *note = hosts.without(note, &header.host);
        }
        header.host = hosts.alias(&header.host);
        header.kernel = version(&header.kernel).to_owned();
        for source in &mut tables.sources {
            source.host = hosts.alias(&source.host);
            source.kernel = version(&source.kernel).to_owned();
        }
        for setup in &mut tables.setups {
            *setup = anonymous_setup(setup, &mut hosts);
        }
    }
}

/// Hosts by what they are called instead.
#[derive(Debug, Default)]
struct Hosts {
    known: Vec<String>,
}

impl Hosts {
    fn alias(&mut self, host: &str) -> String {
        let known = self.known.iter().position(|name| name == host);
        let at = known.unwrap_or_else(|| {
            self.known.push(host.to_owned());
            self.known.len() - 1
        });
        format!("host{}", at + 1)
    }

    /// A text in which `host` may be named.
    fn without(&mut self, text: &str, host: &str) -> String {
        match host.is_empty() {
            true => text.to_owned(),
            false => {
                let alias = self.alias(host);
                let is_word = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
                // Only whole words: a host may be called `a`.
                let mut out = String::new();
                let mut rest = text;
                while let Some(at) = rest.find(host) {
                    let (before, from) = rest.split_at(at);
                    let after = from.get(host.len()..).unwrap_or("");
                    let is_part = before.ends_with(is_word) || after.starts_with(is_word);
                    out.push_str(before);
                    out.push_str(if is_part { host } else { &alias });
                    rest = after;
                }
                out + rest
            }
        }
    }
}

/// `6.18` of `6.18.3-41.el9.x86_64`.
fn version(kernel: &str) -> &str {
    let ends = kernel.match_indices(|c: char| !c.is_ascii_digit());
    let mut n_dots = 0;
    for (at, separator) in ends {
        n_dots += 1;
        if separator != "." || n_dots == 2 {
            return kernel.get(..at).unwrap_or("");
        }
    }
    kernel
}

/// One that is no such document is left out: who knows what it holds.
fn anonymous_setup(setup: &str, hosts: &mut Hosts) -> String {
    let Ok(mut snapshot) = serde_json::from_str::<Snapshot>(setup) else {
        return "{}".to_owned();
    };
    let host = &mut snapshot.host;
    host.name = hosts.alias(&host.name);
    host.kernel = version(&host.kernel).to_owned();
    serde_json::to_string(&snapshot).unwrap_or_else(|_| "{}".to_owned())
}

/// A trace that counts twice would double its processes and their cores.
fn refuse_twice(traces: &[PathBuf]) -> Result<(), Failure> {
    let mut known = HashMap::new();
    for path in traces {
        if let Ok(file) = fs::metadata(path)
            && let Some(first) = known.insert(identity(&file), path)
        {
            let (first, path) = (first.display(), path.display());
            let error = anyhow::anyhow!("`{first}` and `{path}` are the same trace");
            return Err(Failure::new(Exit::Usage, error).hint("give each trace once"));
        }
    }
    Ok(())
}

fn of_file(path: &Path, mut failure: Failure) -> Failure {
    let context = format!("failed to read `{}`", path.display());
    failure.error = failure.error.context(context);
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that hosts keep apart under other names, as whole words alone, and of a release only the version is left.
    #[test]
    fn anonymous() {
        let mut hosts = Hosts::default();
        assert_eq!(hosts.alias("db"), "host1");
        assert_eq!(hosts.alias("web"), "host2");
        assert_eq!(hosts.alias("db"), "host1");
        assert_eq!(
            hosts.without("db: rdb on (db)", "db"),
            "host1: rdb on (host1)"
        );
        assert_eq!(hosts.without("no host", ""), "no host");
        for (kernel, expected) in [
            ("6.18.3-41.el9.x86_64", "6.18"),
            ("6.1-rc2", "6.1"),
            ("6-x", "6"),
            ("6.1", "6.1"),
            ("secret", ""),
            ("", ""),
        ] {
            assert_eq!(version(kernel), expected, "{kernel}");
        }
        let setup = r#"{"schema": "s", "host": {"name": "web", "kernel": "6.1.0-9"}}"#;
        let setup = anonymous_setup(setup, &mut hosts);
        let snapshot: Snapshot = serde_json::from_str(&setup).unwrap();
        assert_eq!(
            (snapshot.host.name.as_str(), snapshot.host.kernel.as_str()),
            ("host2", "6.1")
        );
        assert_eq!(anonymous_setup("?", &mut hosts), "{}");
    }
}
