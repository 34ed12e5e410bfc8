//! Counts to Prometheus's text format, served to whoever connects.

use std::fmt::Write as _;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use wcprof_host::clock::unix_ns;
use wcprof_host::clock::{children_cpu_ns, own_cpu_ns};
use wcprof_host::procfs::own_rss;
use wcprof_host::sys::keep_capabilities;

use super::figures::{Counted, Figures};
use super::log::{self, Level};
use crate::failure::Failure;

/// Serves the counts at an address, on a thread of its own.
pub(super) fn serve(address: &str, figures: &Arc<Figures>) -> Result<(), Failure> {
    if address == "none" {
        return Ok(());
    }
    let listener = TcpListener::bind(address).map_err(|error| {
        let text = format!("failed to listen at `{address}`");
        Failure::from(anyhow::Error::from(error).context(text))
            .hint("--listen takes another address, as in 127.0.0.1:9817, or `none`")
    })?;
    let address = listener.local_addr()?;
    log::line(
        Level::Info,
        &format!("its figures are at http://{address}/metrics"),
    );
    if let Some(text) = exposed(address) {
        log::line(Level::Warning, &text);
    }
    Ok(serve_at(listener, Arc::clone(figures))?)
}

/// What an address beyond this host shows.
fn exposed(address: SocketAddr) -> Option<String> {
    let is_local = address.ip().to_canonical().is_loopback();
    (!is_local).then(|| {
        format!(
            "/metrics at {address} shows the names of recorded processes, daemons and virtual machines to whoever reaches this host, without a password; 127.0.0.1 or a firewall keeps them here"
        )
    })
}

fn serve_at(listener: TcpListener, figures: Arc<Figures>) -> io::Result<()> {
    let begin = || drop(keep_capabilities(0));
    wcprof_net::serve(listener, begin, move |path| match path {
        "/metrics" => Some(text(&figures.lock())),
        "/" | "/-/healthy" => Some("wcprof agent; see /metrics\n".to_owned()),
        _ => None,
    })
}

/// Name, help and value.
type Row = (&'static str, &'static str, f64);

fn text(counted: &Counted) -> String {
    let mut out = String::new();
    for (name, help, value) in [sampling(counted), pushing(counted)].concat() {
        head(&mut out, name, help);
        // Writing to a string cannot fail.
        let _ = writeln!(out, "wcprof_{name} {value}");
    }
    let name = "last_profile_age_seconds";
    head(
        &mut out,
        name,
        "Time since the end of the last profile of a process.",
    );
    let now = unix_ns() as f64;
    for (title, target) in &counted.targets {
        if target.last_ns > 0 {
            let age = (now - target.last_ns as f64).max(0.0) / 1e9;
            of_target(&mut out, name, title, age);
        }
    }
    let name = "observations_total";
    let help = "Threads seen at ticks, of intervals that are complete.";
    head(&mut out, name, help);
    for (title, target) in &counted.targets {
        of_target(&mut out, name, title, target.n_observations as f64);
    }
    out
}

fn of_target(out: &mut String, name: &str, title: &str, value: f64) {
    let title = title.replace('\\', "\\\\").replace('"', "\\\"");
    // Writing to a string cannot fail.
    let _ = writeln!(out, "wcprof_{name}{{target=\"{title}\"}} {value}");
}

fn head(out: &mut String, name: &str, help: &str) {
    let kind = match name.ends_with("_total") {
        true => "counter",
        false => "gauge",
    };
    let _ = writeln!(
        out,
        "# HELP wcprof_{name} {help}\n# TYPE wcprof_{name} {kind}"
    );
}

#[rustfmt::skip]
fn sampling(counted: &Counted) -> Vec<Row> {
    let mut samples = counted.samples_before.clone();
    samples.add_counts(&counted.samples);
    let losses = &samples.losses;
    let cpu = (own_cpu_ns() + children_cpu_ns()) as f64 / 1e9;
    vec![
        ("targets", "Processes that are recorded.", counted.processes.n_live as f64),
        ("targets_left_out", "Processes that are meant, and not recorded for want of room.", counted.processes.n_left_out as f64),
        ("timer_samples_total", "Stacks of running threads.", samples.n_timer_samples as f64),
        ("torn_total", "Stack copies dropped because the thread ran meanwhile.", losses.n_torn as f64),
        ("lost_total", "Stacks of running threads that the kernel dropped.", losses.n_lost as f64),
        ("missed_ticks_total", "Ticks left out because the one before took too long.", losses.n_missed as f64),
        ("dropped_batches_total", "Batches of ticks dropped because unwinding fell behind.", losses.n_dropped_batches as f64),
        ("profiles_total", "Profiles made.", counted.n_profiles as f64),
        ("folded_stacks_total", "Stacks that are [other] in profiles.", counted.n_folded as f64),
        ("joined_intervals_total", "Intervals that share a profile with the next one: those before were still being made.", counted.n_joined as f64),
        ("lost_seconds_total", "Time that is in no profile: the flight recorder held it no longer.", counted.lost.as_secs_f64()),
        ("ring_bytes", "Memory of what the flight recorder keeps.", counted.ring_bytes as f64),
        ("cpu_seconds_total", "CPU time of wcprof, with the processes that read symbols.", cpu),
        ("names_cpu_seconds_total", "CPU time of looking up names, a part of the above that --max-cpu does not limit.", counted.names.as_secs_f64()),
        ("resident_bytes", "Resident memory of wcprof.", own_rss().0 as f64),
    ]
}

#[rustfmt::skip]
fn pushing(counted: &Counted) -> Vec<Row> {
    let Some((pushes, spool)) = &counted.pushing else {
        return Vec::new();
    };
    let load = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64;
    let spool = spool.figures();
    vec![
        ("pushes_total", "Requests that the store has taken.", load(&pushes.n_taken)),
        ("pushed_bytes_total", "Bytes of these.", load(&pushes.bytes)),
        ("push_retries_total", "Tries that failed and are repeated.", load(&pushes.n_retries)),
        ("push_refused_total", "Requests that the store refused, which are dropped.", load(&pushes.n_refused)),
        ("push_unsure_total", "Requests that the store may have, which are not sent again.", load(&pushes.n_unsure) + spool.n_unsure as f64),
        ("push_rejected_profiles_total", "Profiles that the store rejected of requests that it has taken.", load(&pushes.n_rejected)),
        ("last_push_timestamp_seconds", "When the store took a request last.", load(&pushes.last_taken)),
        ("spool_requests", "Requests that wait for the store.", spool.n_waiting as f64),
        ("spool_bytes", "Bytes of these.", spool.bytes as f64),
        ("spool_dropped_total", "Requests dropped because too many waited.", spool.n_dropped as f64),
        ("spool_expired_total", "Requests dropped because the store takes no profiles of their age.", spool.n_expired as f64),
        ("spool_unwritten_total", "Requests that the spool's folder did not take.", spool.n_unwritten as f64),
    ]
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use wcprof_net::{Spool, SpoolOptions};

    use super::super::figures::TargetFigures;
    use super::*;

    /// The value of a line.
    fn value(text: &str, name: &str) -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let value = line.unwrap_or_else(|| panic!("no {name} in {text}"));
        value.trim().parse().unwrap()
    }

    /// Check that counts go on over recordings, that hostile names stay in their quotes, and that each line is of the
    /// format.
    #[test]
    fn counts() {
        let figures = Figures::default();
        let mut counted = figures.lock();
        counted.samples.losses.n_torn = 3;
        counted.end_recording();
        counted.samples.losses.n_torn = 4;
        counted.set_targets(["osd.3", "a\"} 1\nb\\"].into_iter());
        let gone = TargetFigures {
            last_ns: 1_000_000_000,
            is_live: true,
            n_observations: 9,
        };
        counted.targets.insert("osd.4".to_owned(), gone);
        counted.set_targets(["osd.3", "osd.3"].into_iter());
        for figures in counted.targets.values_mut() {
            figures.last_ns = 1_000_000_000;
        }
        let text = text(&counted);
        assert_eq!(value(&text, "wcprof_torn_total"), 7.0);
        assert_eq!(value(&text, "wcprof_targets"), 2.0);
        assert!(value(&text, "wcprof_last_profile_age_seconds{target=\"osd.4\"}") > 1e9);
        let of_gone = "wcprof_observations_total{target=\"osd.4\"}";
        assert_eq!(value(&text, of_gone), 9.0);
        assert!(value(&text, "wcprof_resident_bytes") > 1e6);
        for line in text.lines() {
            let is_comment =
                line.starts_with("# HELP wcprof_") || line.starts_with("# TYPE wcprof_");
            let number = line.rsplit(' ').next().unwrap();
            let is_value = line.starts_with("wcprof_") && number.parse::<f64>().is_ok();
            assert!(is_comment || is_value, "{line}");
        }
        assert!(text.contains("{target=\"a\\\"} 1?b\\\\\"} "), "{text}");
    }

    /// Check that alert rules and the dashboard ask for what is served.
    #[test]
    fn asked_for() {
        let mut counted = Counted::default();
        let spool = Spool::open(SpoolOptions {
            folder: None,
            kind: "pyroscope",
            max_bytes: 1,
            max_age: None,
        });
        counted.pushing = Some((Arc::default(), Arc::new(spool.unwrap())));
        let served = text(&counted);
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        for asking in [
            include_str!("../../../../docs/agent/alerts.yml"),
            include_str!("../../../../docs/agent/dashboard.json"),
        ] {
            let names = asking.split(|c: char| !is_part(c));
            let names: Vec<_> = names.filter(|name| name.starts_with("wcprof_")).collect();
            assert!(names.len() > 5);
            for name in names {
                assert!(served.contains(&format!("# TYPE {name} ")), "{name}");
            }
        }
        let dashboard = include_str!("../../../../docs/agent/dashboard.json");
        serde_json::from_str::<serde_json::Value>(dashboard).unwrap();
    }

    /// Check that what an address shows is said of all but those of this host.
    #[test]
    fn beyond_this_host() {
        for (address, is_said) in [
            ("127.0.0.1:1", false),
            ("127.1.2.3:1", false),
            ("[::1]:1", false),
            ("[::ffff:127.0.0.1]:1", false),
            ("0.0.0.0:1", true),
            ("[::]:1", true),
            ("192.0.2.1:1", true),
        ] {
            let said = exposed(address.parse().unwrap());
            assert_eq!(said.is_some(), is_said, "{address}");
        }
    }

    /// Check that the counts are served, and that an address that is in use is refused.
    #[test]
    fn served() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        serve_at(listener, Arc::default()).unwrap();
        let mut stream = TcpStream::connect(&address).unwrap();
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("\nwcprof_targets 0\n"), "{answer}");
        assert!(serve(&address, &Arc::default()).is_err());
        serve("none", &Arc::default()).unwrap();
    }
}
