//! Cores by class of daemon, as a table and as JSON.

use std::fmt::Write;

use wcprof_profile::{ClassCores, Cores};
use wcprof_text::terminal_name;

/// Processes and pools of a class that are named before the rest is counted.
const MAX_PROCESSES: usize = 12;
const MAX_POOLS: usize = 5;
/// Cores below which a pool is not named.
const MIN_CORES: f64 = 0.005;

/// The table: classes with their processes and busiest pools, ratios below. Names are escaped.
pub fn cores_text(cores: &Cores) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = table(cores, &mut out);
    out
}

fn table(cores: &Cores, out: &mut String) -> std::fmt::Result {
    let with_ops = cores.us_per_op.is_some();
    let line = |out: &mut String, name: &str, n: usize, used: f64, us: Option<f64>| {
        let us = us.map_or(String::new(), |us| format!(" {us:>10.1}"));
        writeln!(out, "{name:<44} {n:>9} {used:>8.2}{us}")
    };
    let heading = if with_ops { "  us CPU/op" } else { "" };
    writeln!(
        out,
        "{:<44} {:>9} {:>8}{heading}",
        "CPU by class of process", "threads", "cores"
    )?;
    for class in &cores.classes {
        let n = class.processes.len();
        let name = match n {
            1 => terminal_name(&class.class).into_owned(),
            _ => format!("{} ({n} processes)", terminal_name(&class.class)),
        };
        line(out, &name, class.n_threads, class.cores, class.us_per_op)?;
        parts(class, out)?;
    }
    if cores.classes.len() > 1 {
        let n: usize = cores.classes.iter().map(|c| c.n_threads).sum();
        line(out, "all", n, cores.cores, cores.us_per_op)?;
    }
    for ratio in &cores.ratios {
        let (class, to) = (terminal_name(&ratio.class), terminal_name(&ratio.to));
        writeln!(out, "cores of {class} for each of {to}: {:.2}", ratio.ratio)?;
    }
    Ok(())
}

fn parts(class: &ClassCores, out: &mut String) -> std::fmt::Result {
    for process in class.processes.iter().take(MAX_PROCESSES) {
        let title = terminal_name(&process.title);
        let host = terminal_name(&process.host);
        let ended = match &process.ended {
            Some(why) => format!(", {}", terminal_name(why)),
            None => String::new(),
        };
        let name = format!("  {title} (pid {} on {host}{ended})", process.pid);
        let n = process.n_threads;
        writeln!(out, "{name:<44} {n:>9} {:>8.2}", process.cores)?;
    }
    let more = class.processes.len().saturating_sub(MAX_PROCESSES);
    if more > 0 {
        let rest = class.processes.iter().skip(MAX_PROCESSES);
        let rest: f64 = rest.map(|p| p.cores).sum();
        let name = format!("  and {more} more");
        writeln!(out, "{name:<44} {:>9} {rest:>8.2}", "")?;
    }
    for pool in class.pools.iter().take(MAX_POOLS) {
        if pool.cores >= MIN_CORES {
            let name = format!("  pool {}", terminal_name(&pool.name));
            writeln!(out, "{name:<44} {:>9} {:>8.2}", pool.n_threads, pool.cores)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use wcprof_profile::{CoresRatio, PoolCores, ProcessCores};

    use super::*;

    /// Check the table with operations and a ratio, and that a name cannot steer the terminal.
    #[test]
    fn whole_table() {
        let class = |name: &str, cores: f64, title: &str| ClassCores {
            class: name.to_owned(),
            cores,
            on_cpu_ns: 0,
            us_per_op: Some(cores * 100.0),
            n_threads: 70,
            processes: vec![ProcessCores {
                title: title.to_owned(),
                pid: 7,
                host: "node1".to_owned(),
                cores,
                n_threads: 70,
                ended: None,
            }],
            pools: vec![PoolCores {
                name: "msgr-worker-N".to_owned(),
                cores: cores / 2.0,
                n_threads: 3,
            }],
        };
        let mut osd = class("ceph-osd", 1.02, "osd.3");
        osd.processes.push(ProcessCores {
            title: "osd.4".to_owned(),
            ended: Some("exited".to_owned()),
            ..osd.processes[0].clone()
        });
        let cores = Cores {
            classes: vec![class("radosgw", 3.02, "rgw\x1b[2J"), osd],
            cores: 4.04,
            us_per_op: Some(404.0),
            ratios: vec![CoresRatio {
                class: "radosgw".to_owned(),
                to: "ceph-osd".to_owned(),
                ratio: 2.96,
            }],
        };
        let expected = "\
CPU by class of process                        threads    cores  us CPU/op
radosgw                                             70     3.02      302.0
  rgw?[2J (pid 7 on node1)                          70     3.02
  pool msgr-worker-N                                 3     1.51
ceph-osd (2 processes)                              70     1.02      102.0
  osd.3 (pid 7 on node1)                            70     1.02
  osd.4 (pid 7 on node1, exited)                    70     1.02
  pool msgr-worker-N                                 3     0.51
all                                                140     4.04      404.0
cores of radosgw for each of ceph-osd: 2.96
";
        assert_eq!(cores_text(&cores), expected);
    }
}
