//! What one operation costs, by pool and by kind of work, as text.

use wcprof_profile::{Cost, Counted, OperationKind, PerOperation};
use wcprof_text::{count, duration, terminal_name};

/// Pools and kinds of work with a line of their own.
const MAX_LINES: usize = 8;
/// Columns of a name.
const NAME: usize = 24;

/// How many operations there were, and how long they took: `2803 operations a second, 5.67 ms each`.
pub fn rate_text(counted: &Counted) -> String {
    let rate = format!("{:.0} operations a second", counted.per_second);
    let latency = latency_text(&counted.all);
    format!(
        "{rate}{}",
        latency.map_or_else(String::new, |text| format!(", {text}"))
    )
}

/// The same with the kinds of operations: `... (75 % write 3.00 ms each, 25 % read)`.
pub fn counted_text(counted: &Counted) -> String {
    let share = |kind: &OperationKind| 100.0 * kind.n / counted.all.n;
    let kinds = counted.kinds.iter().filter(|kind| share(kind) >= 0.5);
    let kinds = kinds.map(|kind| {
        let text = latency_text(kind).map_or_else(String::new, |text| format!(" {text}"));
        format!("{:.0} % {}{text}", share(kind), kind.name)
    });
    let kinds: Vec<String> = kinds.collect();
    format!("{} ({})", rate_text(counted), kinds.join(", "))
}

fn latency_text(kind: &OperationKind) -> Option<String> {
    let ns = kind.latency_us? * 1e3;
    Some(format!("{} each", duration(ns as u64)))
}

/// The table of a class of processes. Names are escaped.
pub fn per_operation_text(
    class: &str,
    counted: Option<&Counted>,
    PerOperation { total, pools, work }: &PerOperation,
) -> String {
    let class = terminal_name(class);
    let mut out = format!("PER OPERATION of {class}");
    if let Some(counted) = counted {
        out += &format!(": {:.0} operations by its own count", counted.all.n);
    }
    out.push('\n');
    let columns = ["CPU", "cpu-wait", "lock", "disk", "other"];
    out += &format!("{:<NAME$}", "pool");
    out.extend(columns.map(|name| format!(" {name:>9}")));
    out += "   (us of threads' time, which is no latency)\n";
    let (shown, others) = pools.split_at(pools.len().min(MAX_LINES));
    for pool in shown {
        out += &line(&pool.name, &pool.cost);
    }
    if !others.is_empty() {
        let rest = others
            .iter()
            .map(|pool| pool.cost)
            .fold(Cost::default(), Cost::plus);
        out += &line(&count(others.len(), "other"), &rest);
    }
    out += &line("all", total);
    out += &format!("\n{:<NAME$} {:>9}\n", "kind of work", "CPU");
    let (shown, others) = work.split_at(work.len().min(MAX_LINES));
    let mut lines: Vec<(&str, f64)> = shown
        .iter()
        .map(|work| (work.name.as_deref().unwrap_or("other code"), work.cpu_us))
        .collect();
    if !others.is_empty() {
        lines.push(("others", others.iter().map(|work| work.cpu_us).sum()));
    }
    for (name, us) in lines {
        out += &format!("{:<NAME$} {us:>9.1}\n", terminal_name(name));
    }
    out
}

fn line(name: &str, cost: &Cost) -> String {
    let name: String = terminal_name(name).chars().take(NAME).collect();
    let figures = [
        cost.cpu_us,
        cost.cpu_wait_us,
        cost.lock_us,
        cost.disk_us,
        cost.other_us,
    ];
    let figures = figures.map(|us| match us < 0.05 {
        true => format!(" {:>9}", "-"),
        false => format!(" {us:>9.1}"),
    });
    format!("{name:<NAME$}{}\n", figures.concat())
}

#[cfg(test)]
mod tests {
    use wcprof_profile::{PoolCost, WorkCost};

    use super::*;

    /// Check the table, that what has no line of its own is in one, and that a name cannot steer the terminal.
    #[test]
    fn table() {
        let cost = |us: f64| Cost {
            cpu_us: us,
            cpu_wait_us: us / 2.0,
            ..Cost::default()
        };
        let pools = (0..10).map(|n| PoolCost {
            name: format!("p{n}\x1b[2J"),
            cost: cost(10.0),
        });
        let work = vec![
            WorkCost {
                name: Some("malloc, free".into()),
                cpu_us: 60.0,
            },
            WorkCost {
                name: None,
                cpu_us: 40.0,
            },
        ];
        let costs = PerOperation {
            total: cost(100.0),
            pools: pools.collect(),
            work,
        };
        let text = per_operation_text("ceph-osd", None, &costs);
        let expected = "\
PER OPERATION of ceph-osd
pool                           CPU  cpu-wait      lock      disk     other   (us of threads' time, which is no latency)
p0?[2J                        10.0       5.0         -         -         -
p1?[2J                        10.0       5.0         -         -         -
p2?[2J                        10.0       5.0         -         -         -
p3?[2J                        10.0       5.0         -         -         -
p4?[2J                        10.0       5.0         -         -         -
p5?[2J                        10.0       5.0         -         -         -
p6?[2J                        10.0       5.0         -         -         -
p7?[2J                        10.0       5.0         -         -         -
2 others                      20.0      10.0         -         -         -
all                          100.0      50.0         -         -         -

kind of work                   CPU
malloc, free                  60.0
other code                    40.0
";
        assert_eq!(text, expected);
    }

    /// Check the line with kinds, and without latencies.
    #[test]
    fn counts() {
        let kind = |name: &str, n, latency_us| OperationKind {
            name: name.into(),
            n,
            latency_us,
        };
        let counted = Counted {
            all: kind("all", 1000.0, Some(2500.0)),
            per_second: 100.4,
            kinds: vec![
                kind("write", 750.0, Some(3000.0)),
                kind("read", 250.0, None),
            ],
            ..Counted::default()
        };
        let text = counted_text(&counted);
        assert_eq!(
            text,
            "100 operations a second, 2.50 ms each (75 % write 3.00 ms each, 25 % read)"
        );
    }
}
