//! Cores by class of daemon, as a table and as JSON.

use wcprof_profile::{ClassCores, Cores, ProcessCores};
use wcprof_text::terminal_name;

use crate::per_operation::per_operation_text;

/// Processes and pools of a class that are named before the rest is counted.
const MAX_PROCESSES: usize = 12;
/// Of no more processes each is named, also one that used next to nothing.
const FEW_PROCESSES: usize = 3;
const MAX_POOLS: usize = 5;
/// Cores below which a pool, or one of many processes, is not named.
const MIN_CORES: f64 = 0.005;
/// Columns of names, as wide as the longest within these.
const MIN_NAME: usize = 44;
const MAX_NAME: usize = 72;

/// The table: classes with their processes and busiest pools, ratios below; then what an operation costs. One process
/// that counts its operations has no classes to be compared. Names are escaped.
pub fn cores_text(cores: &Cores) -> String {
    let parts = match cores.classes.as_slice() {
        [only] if only.processes.len() == 1 && only.operations.is_some() => None,
        _ => Some(classes_text(cores)),
    };
    let operations = cores.classes.iter().filter_map(|class| {
        let costs = class.per_operation.as_ref()?;
        Some(per_operation_text(
            &class.class,
            class.operations.as_ref(),
            costs,
        ))
    });
    let parts: Vec<String> = parts.into_iter().chain(operations).collect();
    parts.join("\n")
}

/// A line of the table, not escaped.
struct CoresLine {
    name: String,
    n_threads: String,
    cores: f64,
    us_per_op: Option<f64>,
}

fn classes_text(cores: &Cores) -> String {
    let mut rows = Vec::new();
    for class in &cores.classes {
        rows.push(CoresLine {
            name: match class.processes.len() {
                1 => class.class.clone(),
                n => format!("{} ({n} processes)", class.class),
            },
            n_threads: class.n_threads.to_string(),
            cores: class.cores,
            us_per_op: class.us_per_op,
        });
        parts(class, &mut rows);
    }
    if cores.classes.len() > 1 {
        let n: usize = cores.classes.iter().map(|c| c.n_threads).sum();
        rows.push(CoresLine {
            name: "all".to_owned(),
            n_threads: n.to_string(),
            cores: cores.cores,
            us_per_op: cores.us_per_op,
        });
    }
    let heading = if rows.iter().any(|row| row.us_per_op.is_some()) {
        "  us CPU/op"
    } else {
        ""
    };
    let longest = rows.iter().map(|row| row.name.chars().count()).max();
    let width = longest.unwrap_or(0).clamp(MIN_NAME, MAX_NAME);
    let name = "CPU by class of process";
    let mut out = format!("{name:<width$} {:>9} {:>8}{heading}\n", "threads", "cores");
    for row in rows {
        let name = terminal_name(&row.name);
        let us = row.us_per_op.map(|us| format!(" {us:>10.1}"));
        out += &format!(
            "{name:<width$} {:>9} {:>8.2}{}\n",
            row.n_threads,
            row.cores,
            us.unwrap_or_default()
        );
    }
    for ratio in &cores.ratios {
        let (class, to) = (terminal_name(&ratio.class), terminal_name(&ratio.to));
        out += &format!("cores of {class} for each of {to}: {:.2}\n", ratio.ratio);
    }
    out
}

/// The processes and pools of a class.
fn parts(class: &ClassCores, rows: &mut Vec<CoresLine>) {
    let row = |name, n_threads, cores| CoresLine {
        name,
        n_threads,
        cores,
        us_per_op: None,
    };
    // Of many processes those alone that used something.
    let is_shown = |process: &&ProcessCores| process.cores >= MIN_CORES || process.ended.is_some();
    let n_shown = match class.processes.len() {
        n if n > FEW_PROCESSES => class.processes.iter().take_while(is_shown).count(),
        n => n,
    };
    let (shown, rest) = class.processes.split_at(n_shown.min(MAX_PROCESSES));
    rows.extend(shown.iter().map(|p| {
        let ended = p
            .ended
            .as_ref()
            .map_or(String::new(), |why| format!(", {why}"));
        let name = format!("  {} (pid {} on {}{ended})", p.title, p.pid, p.host);
        row(name, p.n_threads.to_string(), p.cores)
    }));
    if !rest.is_empty() && !shown.is_empty() {
        let cores = rest.iter().map(|p| p.cores).sum();
        rows.push(row(
            format!("  and {} more", rest.len()),
            String::new(),
            cores,
        ));
    }
    let pools = class.pools.iter().take(MAX_POOLS);
    for pool in pools.filter(|pool| pool.cores >= MIN_CORES) {
        let name = format!("  pool {}", pool.name);
        rows.push(row(name, pool.n_threads.to_string(), pool.cores));
    }
}

#[cfg(test)]
mod tests {
    use wcprof_profile::{CoresRatio, PoolCores};

    use super::*;

    /// Check the table with operations and a ratio, and that a name cannot steer the terminal.
    #[test]
    fn whole_table() {
        let class = |name: &str, cores: f64, title: &str| ClassCores {
            class: name.to_owned(),
            cores,
            on_cpu_ns: 0,
            us_per_op: Some(cores * 100.0),
            operations: None,
            per_operation: None,
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
            title: "osd.4 with a name as long as that of a session of a database".to_owned(),
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
        let expected = [
            ("CPU by class of process", "  threads    cores  us CPU/op"),
            ("radosgw", "       70     3.02      302.0"),
            ("  rgw?[2J (pid 7 on node1)", "       70     3.02"),
            ("  pool msgr-worker-N", "        3     1.51"),
            ("ceph-osd (2 processes)", "       70     1.02      102.0"),
            ("  osd.3 (pid 7 on node1)", "       70     1.02"),
            (
                "  osd.4 with a name as long as that of a session of a database (pid 7 on node1, exited)",
                "       70     1.02",
            ),
            ("  pool msgr-worker-N", "        3     0.51"),
            ("all", "      140     4.04      404.0"),
        ];
        let expected = expected.map(|(name, figures)| format!("{name:<72} {figures}\n"));
        let expected = expected.concat() + "cores of radosgw for each of ceph-osd: 2.96\n";
        assert_eq!(cores_text(&cores), expected);
    }
}
