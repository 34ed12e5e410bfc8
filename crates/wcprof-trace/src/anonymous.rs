//! Tables of traces to ones that do not name their hosts.

use indexmap::IndexSet;
use wcprof_types::anonymous_args;
use wcprof_types::snapshot::Snapshot;

use crate::model::Tables;

/// Calls hosts `host1`, `host2` ..., cuts kernel releases to their version and forgets the boots of processes, their
/// arguments and environment, in traces that are merged. The id of a Ceph daemon stays.
pub fn anonymize(sources: &mut [Tables]) {
    let mut hosts = Hosts::default();
    for tables in sources {
        let header = &mut tables.header;
        for note in &mut header.notes {
            *note = hosts.without(note, &header.host);
        }
        header.host = hosts.alias(&header.host);
        header.kernel = version(&header.kernel).to_owned();
        for process in &mut tables.processes {
            process.birth.clear();
            process.cmdline = anonymous_args(&process.comm, &process.cmdline);
        }
        for source in &mut tables.origins.sources {
            source.host = hosts.alias(&source.host);
            source.kernel = version(&source.kernel).to_owned();
        }
        for setup in &mut tables.origins.setups {
            *setup = anonymous_setup(setup, &mut hosts);
        }
    }
}

/// Hosts by what they are called instead.
#[derive(Debug, Default)]
struct Hosts {
    known: IndexSet<String>,
}

impl Hosts {
    fn alias(&mut self, host: &str) -> String {
        format!("host{}", self.known.insert_full(host.to_owned()).0 + 1)
    }

    /// A text in which `host` may be named.
    fn without(&mut self, text: &str, host: &str) -> String {
        if host.is_empty() {
            return text.to_owned();
        }
        let alias = self.alias(host);
        let is_word = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
        // Only whole words: a host may be called `a`.
        let (mut out, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once(host) {
            let is_part = before.ends_with(is_word) || after.starts_with(is_word);
            out += before;
            out += if is_part { host } else { &alias };
            rest = after;
        }
        out + rest
    }
}

/// `6.18` of `6.18.3-41.el9.x86_64`.
fn version(kernel: &str) -> &str {
    let is_version = |c: char| c.is_ascii_digit() || c == '.';
    let rest = kernel.trim_start_matches(is_version);
    let digits = &kernel[..kernel.len() - rest.len()];
    let second_dot = digits.match_indices('.').nth(1);
    digits[..second_dot.map_or(digits.len(), |(at, _)| at)].trim_end_matches('.')
}

/// One that is no such document is left out: who knows what it holds.
fn anonymous_setup(setup: &str, hosts: &mut Hosts) -> String {
    let Ok(mut snapshot) = serde_json::from_str::<Snapshot>(setup) else {
        return "{}".to_owned();
    };
    let host = &mut snapshot.host;
    host.name = hosts.alias(&host.name);
    host.kernel = version(&host.kernel).to_owned();
    let process = &mut snapshot.process;
    process.cmdline = anonymous_args(&process.comm, &process.cmdline);
    process.environ = None;
    serde_json::to_string(&snapshot).unwrap_or_else(|_| "{}".to_owned())
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
        let setup = r#"{"schema": "s", "host": {"name": "web", "kernel": "6.1.0-9"},
            "process": {"cmdline": ["/usr/bin/qemu-kvm", "-name", "customer"], "environ": {"CEPH_ARGS": "--id customer"}}}"#;
        let setup = anonymous_setup(setup, &mut hosts);
        let snapshot: Snapshot = serde_json::from_str(&setup).unwrap();
        assert_eq!(
            (snapshot.host.name.as_str(), snapshot.host.kernel.as_str()),
            ("host2", "6.1")
        );
        assert_eq!(snapshot.process.cmdline, ["qemu-kvm"]);
        assert_eq!(snapshot.process.environ, None);
        assert_eq!(anonymous_setup("?", &mut hosts), "{}");
    }
}
