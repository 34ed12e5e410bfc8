//! How a cluster is made, to its configuration file.

/// How a cluster is made.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
pub struct Options {
    /// Protection of messages: checksums, or AES-128-GCM
    #[arg(long, value_enum, default_value_t = Mode::Secure)]
    pub mode: Mode,
    /// Run the daemons with tcmalloc, as upstream builds do and Debian's do not
    #[arg(long)]
    pub tcmalloc: bool,
    /// Number of OSDs
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=9))]
    pub osds: u32,
    /// Threads of each of an OSD's eight shards
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=8))]
    pub threads_per_shard: u32,
}

impl Options {
    /// A cluster with one OSD, and Ceph's number of threads.
    pub fn one_osd(mode: Mode, tcmalloc: bool) -> Self {
        Self {
            mode,
            tcmalloc,
            osds: 1,
            threads_per_shard: 2,
        }
    }
}

/// How messages are protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// Checksums.
    Crc,
    /// AES-128-GCM.
    Secure,
}

/// Port of the monitor, protocol version 2.
pub const MONITOR: &str = "[v2:127.0.0.1:16789]";

/// Where an object gateway listens.
pub const GATEWAY: &str = "127.0.0.1:17480";

/// The text of `ceph.conf` for a cluster in `folder`.
pub fn text(folder: &str, cluster_id: &str, options: &Options) -> String {
    let mode = format!("{:?}", options.mode).to_lowercase();
    let modes = ["cluster", "service", "client"]
        .map(|role| format!("ms {role} mode = {mode}\nms mon {role} mode = {mode}"))
        .join("\n");
    let mut text = include_str!("../../../lab/ceph.conf").to_owned();
    for (name, value) in [
        ("@cluster_id@", cluster_id),
        ("@monitor@", MONITOR),
        ("@gateway@", GATEWAY),
        ("@folder@", folder),
        ("@threads@", &options.threads_per_shard.to_string()),
        ("@modes@", &modes),
    ] {
        text = text.replace(name, value);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that all six modes are set and nothing listens beyond loopback.
    #[test]
    fn modes_and_addresses() {
        let text = text("/x", "id", &Options::one_osd(Mode::Secure, false));
        assert_eq!(text.matches("mode = secure\n").count(), 6);
        assert!(text.contains("keyring = /x/mon.keyring\n"));
        for line in text.lines().filter(|line| line.contains(" addr = ")) {
            assert!(line.ends_with("127.0.0.1"), "{line}");
        }
    }
}
