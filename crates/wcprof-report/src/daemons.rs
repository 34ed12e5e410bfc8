//! Fleets to tables: a column for each of many like processes, a row for each state, kind of work and lock; as text
//! and as JSON.

use serde_json::{Value, json};
use wcprof_findings::{Comparison, Outlier, comparison_text};
use wcprof_profile::short;
use wcprof_profile::{Estimate, Figure, Fleet, Spread};
use wcprof_text::{columns, cut, printable_json, terminal_name};

use crate::figures::{MIN_SHOWN, threads_text};

/// Version of the schema. It grows when a field changes its meaning or goes.
const JSON_VERSION: u32 = 1;
/// Columns of the name of a row.
const NAME: usize = 24;
/// Columns of a figure.
const CELL: usize = 9;
/// Columns of a member's name at most.
const MAX_MEMBER: usize = 16;
/// Rows of each kind.
const MAX_ROWS: usize = 12;

/// The tables, in lines of at most `width` characters: where not all members have room, those that are unlike the
/// others come first. Names are escaped.
pub fn daemons_text(fleets: &[Fleet], outliers: &[Outlier], width: Option<usize>) -> String {
    let tables = fleets.iter().enumerate().map(|(at, fleet)| {
        let outliers: Vec<&Outlier> = outliers.iter().filter(|one| one.fleet == at).collect();
        table(fleet, &outliers, width)
    });
    tables.collect::<Vec<_>>().join("\n")
}

fn table(fleet: &Fleet, outliers: &[&Outlier], width: Option<usize>) -> String {
    let of = fleet
        .members
        .iter()
        .map(|m| columns(&terminal_name(&m.name)));
    let cell = of.max().unwrap_or_default().clamp(CELL, MAX_MEMBER);
    let has_median = fleet.members.len() > 2;
    let taken = NAME + if has_median { 2 * (CELL + 1) } else { 0 };
    let room = width.map_or(usize::MAX, |width| width.saturating_sub(taken) / (cell + 2));
    let shown = shown(fleet, outliers, room.max(1));
    let noun = if fleet.of_threads {
        "threads"
    } else {
        "processes"
    };
    let mut lines = vec![format!(
        "{}: {} {noun}, threads on average",
        terminal_name(&fleet.class),
        fleet.members.len()
    )];
    let mut head = format!("{:NAME$}", "");
    if has_median {
        head += &format!(" {:>CELL$} {:>CELL$}", "median", "MAD");
    }
    for &member in &shown {
        let name = terminal_name(&fleet.members[member].name).into_owned();
        head += &format!(" {:>cell$} ", cut(&name, Some(cell)));
    }
    lines.push(head.trim_end().to_owned());
    for kind in HEADINGS {
        let figures = fleet.figures.iter().enumerate();
        let figures = figures.filter(|(_, (figure, _))| heading(figure) == kind);
        let rows = figures.filter(|(_, (_, values))| values.iter().any(|v| v.value >= MIN_SHOWN));
        let mut rows = rows.take(MAX_ROWS).peekable();
        if rows.peek().is_some() {
            lines.push(kind.to_owned());
        }
        for (place, (figure, values)) in rows {
            let name = name(figure);
            let name = terminal_name(&name);
            let mut line = format!("  {:<1$}", cut(&name, Some(NAME - 2)), NAME - 2);
            if has_median {
                line += &match Spread::new(values) {
                    Some(spread) => format!(" {:>CELL$.2} {:>CELL$.3}", spread.median, spread.mad),
                    None => format!(" {:>CELL$} {:>CELL$}", "?", "?"),
                };
            }
            for &member in &shown {
                let mut own = outliers.iter().filter(|one| one.member == member);
                let is_unlike = own.any(|one| one.figures.iter().any(|(at, _)| *at == place));
                let mark = if is_unlike { '*' } else { ' ' };
                line += &format!(" {:>cell$}{mark}", threads_text(values[member].value));
            }
            lines.push(line.trim_end().to_owned());
        }
    }
    let n_hidden = fleet.members.len() - shown.len();
    if n_hidden > 0 {
        lines.push(format!(
            "{n_hidden} more have no room here: -o FILE has all, --processes chooses"
        ));
    }
    lines.extend(outliers.iter().map(|one| sentences(fleet, one)));
    lines.join("\n") + "\n"
}

/// The members with a column, in their order: those that are unlike the others first of all.
fn shown(fleet: &Fleet, outliers: &[&Outlier], room: usize) -> Vec<usize> {
    let is_unlike = |member: &usize| outliers.iter().any(|one| one.member == *member);
    let (mut first, others): (Vec<usize>, Vec<usize>) =
        (0..fleet.members.len()).partition(is_unlike);
    first.extend(others);
    first.truncate(room);
    first.sort_by(|a, b| natural(&fleet.members[*a].name).cmp(&natural(&fleet.members[*b].name)));
    first
}

/// A key by which `osd.9` comes before `osd.10`.
fn natural(name: &str) -> (&str, usize, &str) {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = &name[stem.len()..];
    (stem, number.len(), number)
}

const HEADINGS: [&str; 3] = ["states", "kinds of work, on CPU", "locks, by function"];

fn heading(figure: &Figure) -> &'static str {
    match figure {
        Figure::State(_) => HEADINGS[0],
        Figure::Category(_) => HEADINGS[1],
        Figure::Lock(_) => HEADINGS[2],
    }
}

fn name(figure: &Figure) -> String {
    match figure {
        Figure::State(state) => state.name().to_owned(),
        Figure::Category(name) => name.clone(),
        Figure::Lock(function) => short(function),
    }
}

/// `* osd.17: lock: 0.62 threads on average, ...`, a line for each figure, the largest difference first.
fn sentences(fleet: &Fleet, outlier: &Outlier) -> String {
    let member = fleet.members.get(outlier.member);
    let member = member.map_or("", |member| &member.name);
    let figures = outlier.figures.iter().map(|(_, one)| {
        let name = name(&one.figure);
        format!("* {member}: {name}: {}", comparison_text(one))
    });
    let figures: Vec<String> = figures
        .map(|text| terminal_name(&text).into_owned())
        .collect();
    figures.join("\n")
}

/// The same as one JSON document that ends with a newline; `docs/json-schema.md` has the schema.
///
/// # Errors
/// A figure is not finite.
pub fn daemons_json(fleets: &[Fleet], outliers: &[Outlier]) -> serde_json::Result<String> {
    let fleets = fleets.iter().enumerate().map(|(at, fleet)| {
        let names: Vec<&str> = fleet.members.iter().map(|m| m.name.as_str()).collect();
        let outliers = outliers.iter().filter(|one| one.fleet == at).map(|one| {
            let figures: Vec<&Comparison> = one.figures.iter().map(|(_, one)| one).collect();
            json!({"member": names.get(one.member), "figures": figures})
        });
        json!({
            "class": fleet.class,
            "of_threads": fleet.of_threads,
            "outliers": outliers.collect::<Vec<_>>(),
            "figures": fleet.figures.iter().map(figure_json).collect::<Vec<_>>(),
            "members": names,
        })
    });
    printable_json(&json!({
        "schema": "wcprof-daemons",
        "version": JSON_VERSION,
        "fleets": fleets.collect::<Vec<_>>(),
    }))
}

fn figure_json((figure, values): &(Figure, Vec<Estimate>)) -> Value {
    let spread = Spread::new(values);
    let deviations = values.iter().map(|one| one.variance.map(f64::sqrt));
    json!({
        "figure": figure,
        "median": spread.map(|spread| spread.median),
        "mad": spread.map(|spread| spread.mad),
        "values": values.iter().map(|one| one.value).collect::<Vec<_>>(),
        "standard_errors": deviations.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use wcprof_profile::Member;
    use wcprof_profile::model::State;

    use super::*;

    fn fleet(locks: &[f64]) -> Fleet {
        let member = |(at, _): (usize, &f64)| Member {
            name: format!("osd.{}", at * 3),
            process: at,
            non_idle_ns: 1,
            recorded_ns: 1,
        };
        let estimates = |value: &dyn Fn(f64) -> f64| {
            let estimate = |&lock: &f64| Estimate {
                value: value(lock),
                variance: Some(1e-6),
                degrees_of_freedom: 12.0,
            };
            locks.iter().map(estimate).collect()
        };
        Fleet {
            class: "ceph-osd".to_owned(),
            of_threads: false,
            members: locks.iter().enumerate().map(member).collect(),
            figures: vec![
                (Figure::State(State::OnCpu), estimates(&|_| 1.5)),
                (Figure::State(State::Lock), estimates(&|lock| lock)),
                (Figure::State(State::Disk), estimates(&|_| 0.001)),
                (
                    Figure::Lock("PG::lock(\x1b)".to_owned()),
                    estimates(&|lock| lock),
                ),
            ],
        }
    }

    fn outlier(fleet: &Fleet) -> Outlier {
        let (figure, _) = fleet.figures[1].clone();
        let comparison = Comparison {
            class: fleet.class.clone(),
            n_like: fleet.members.len(),
            figure,
            at_a_time: 0.62,
            median: 0.2,
            mad: 0.01,
            ratio: Some(3.1),
            interval: Some((2.8, 3.4)),
            p: 1e-6,
            difference_ns: 1,
            non_idle_ns: 1,
        };
        Outlier {
            fleet: 0,
            member: 4,
            figures: vec![(1, comparison)],
        }
    }

    /// Check the whole table: what is next to nothing has no row, the one that is unlike the others a mark and a
    /// line.
    #[test]
    fn whole_table() {
        let fleet = fleet(&[0.19, 0.2, 0.2, 0.21, 0.62]);
        let outliers = [outlier(&fleet)];
        let expected = "\
ceph-osd: 5 processes, threads on average
                            median       MAD     osd.0      osd.3      osd.6      osd.9     osd.12
states
  on-cpu                      1.50     0.000      1.50       1.50       1.50       1.50       1.50
  lock                        0.20     0.010      0.19       0.20       0.20       0.21       0.62*
locks, by function
  PG::lock                    0.20     0.010      0.19       0.20       0.20       0.21       0.62
* osd.12: lock: 0.62 threads on average, median 0.20, MAD 0.010; 3.1 times the median (2.8 to 3.4)
";
        assert_eq!(daemons_text(&[fleet], &outliers, None), expected);
    }

    /// Check that in a narrow terminal the one that is unlike the others has room, in its place, and that two
    /// processes have no median.
    #[test]
    fn narrow() {
        let five = fleet(&[0.19, 0.2, 0.2, 0.21, 0.62]);
        let outliers = [outlier(&five)];
        let text = daemons_text(&[five], &outliers, Some(70));
        let head = text.lines().nth(1).unwrap();
        assert!(
            head.contains("osd.0 ") && head.ends_with("osd.12"),
            "{text}"
        );
        assert!(text.contains("\n3 more have no room here"), "{text}");
        let two = daemons_text(&[fleet(&[0.1, 0.2])], &[], Some(100));
        assert!(!two.contains("median") && two.contains("osd.3"), "{two}");
    }

    /// Check the JSON of a figure and of an outlier.
    #[test]
    fn document() {
        let fleet = fleet(&[0.19, 0.2, 0.2, 0.21, 0.62]);
        let outliers = [outlier(&fleet)];
        let text = daemons_json(&[fleet], &outliers).unwrap();
        let found: Value = serde_json::from_str(&text).unwrap();
        let fleet = &found["fleets"][0];
        assert_eq!(
            fleet["figures"][1]["figure"],
            json!({"kind": "state", "name": "lock"})
        );
        assert_eq!(fleet["figures"][1]["values"][4], 0.62);
        assert_eq!(fleet["outliers"][0]["member"], "osd.12");
        assert_eq!(fleet["outliers"][0]["figures"][0]["ratio"], 3.1);
    }
}
