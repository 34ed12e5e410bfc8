//! A comparison as text: a table a kind, significant lines first.

use std::io::{self, Write};

use wcprof_profile::diff::{
    Line, LineName, ProfileDiff, Side, Table, TableKind, Unit, Value, Warning,
};
use wcprof_text::{and_more, count, cut, duration, terminal_name};

use crate::headline::recorded_by;
use crate::per_operation::counted_text;

/// Frames of a stack that its line names, leaf first.
const MAX_FRAMES: usize = 6;
/// Names that a warning lists.
const MAX_NAMES: usize = 4;

/// How to print a comparison.
#[derive(Clone, Debug)]
pub struct DiffTextOptions {
    /// Cut lines to so many characters; `None` does not cut.
    pub width: Option<usize>,
    /// Use ANSI colors.
    pub color: bool,
    /// Most lines a table; significant ones come first.
    pub max_lines: usize,
    /// Which tables.
    pub tables: Vec<TableKind>,
}

/// Writes the comparison as text.
pub fn diff_text(
    diff: &ProfileDiff,
    options: &DiffTextOptions,
    out: &mut impl Write,
) -> io::Result<()> {
    for line in summary(diff) {
        writeln!(
            out,
            "{}",
            cut(
                &line,
                options.width.filter(|_| !line.starts_with("warning"))
            )
        )?;
    }
    for table in &diff.tables {
        if options.tables.contains(&table.kind) {
            write_table(diff, table, options, out)?;
        }
    }
    Ok(())
}

/// What was compared, warnings, and how much changed; escaped for a terminal.
pub(crate) fn summary(diff: &ProfileDiff) -> Vec<String> {
    let sides = ["before", "after "].into_iter().zip(&diff.sides);
    let sides = sides.flat_map(|(label, side)| {
        let processes = match side.processes.as_slice() {
            [] => "no process".to_owned(),
            processes => list(processes),
        };
        let ops = match side.n_ops {
            None => String::new(),
            Some(1.0) => ", 1 operation".to_owned(),
            Some(n) => format!(", {n} operations"),
        };
        let (length, shown) = match side.n_snapshots {
            0 => (duration(side.duration_ns), duration(side.shown_ns)),
            n => {
                let threads = side.shown_ns as f64 / side.duration_ns.max(1) as f64;
                (count(n as usize, "snapshot"), format!("{threads:.2}"))
            }
        };
        let recorded = format!(
            "{label}: {processes}: {length}, {}, {shown} shown{ops}, {}",
            count(side.n_threads, "thread"),
            terminal_name(&recorded_by(&side.engine)),
        );
        let counted = side.counted.iter().map(move |(class, counted)| {
            format!(
                "{label}: {}: {}",
                terminal_name(class),
                counted_text(counted)
            )
        });
        std::iter::once(recorded).chain(counted)
    });
    let warnings = diff.warnings.iter();
    let warnings = warnings.map(|warning| format!("warning: {}", diff_warning(warning)));
    let changed = format!(
        "{} of {} changed significantly (*): family-wise error rate {} %",
        diff.n_significant(),
        count(diff.n_tested(), "tested line"),
        100.0 * diff.level,
    );
    let verdict = verdict(diff).into_iter();
    verdict
        .chain(sides)
        .chain(warnings)
        .chain([changed])
        .collect()
}

/// What changed most, in a sentence: operations a second, CPU time, and the pool, state and function with the largest
/// significant change; escaped for a terminal. `None` where nothing is tested.
fn verdict(diff: &ProfileDiff) -> Option<String> {
    if diff.n_tested() == 0 {
        return None;
    }
    let lines = |kind: TableKind| {
        let tables = diff.tables.iter().filter(move |table| table.kind == kind);
        tables.flat_map(|table| &table.lines)
    };
    let [before, after] = &diff.sides;
    let rate = |side: &Side| Some(side.n_ops? / (side.duration_ns.max(1) as f64 / 1e9));
    let rates = rate(before).zip(rate(after));
    let rates = rates.map(|(before, after)| {
        let ratio = after / before.max(f64::MIN_POSITIVE);
        format!("{ratio:.2} times as many operations a second")
    });
    let cpu = [0, 1].map(|side| {
        let of_side = lines(TableKind::Class).map(|line| line.values[side].per_unit);
        of_side.sum::<f64>()
    });
    let cpu = match diff.unit {
        Unit::Operation => {
            let [before, after] = cpu.map(|ns| duration(ns.round() as u64));
            format!("CPU time an operation {before} -> {after}{}", percents(cpu))
        }
        Unit::Second => {
            let [before, after] = cpu.map(|ns| ns / 1e9);
            format!("CPU {before:.2} -> {after:.2} cores{}", percents(cpu))
        }
    };
    let largest = |kind: TableKind, is_one: fn(&Line) -> bool| {
        let lines = lines(kind).filter(|line| line.is_significant() && is_one(line));
        let largest = lines.max_by(|a, b| a.difference().abs().total_cmp(&b.difference().abs()))?;
        let [before, after, ..] = figures(diff, kind, largest);
        let name = terminal_name(&line_name(&largest.name)).into_owned();
        let text = match relative(&largest.values[0], &largest.values[1]).as_str() {
            "(new)" => format!("{name} is new ({after})"),
            "(gone)" => format!("{name} is gone ({before})"),
            _ => format!("{name} {before} -> {after}"),
        };
        Some(text)
    };
    let of_state = |line: &Line| matches!(line.name, LineName::Pool { state: Some(_), .. });
    // What came or went as a whole says more than what grew.
    let came_or_went = |line: &Line| {
        let relative = relative(&line.values[0], &line.values[1]);
        ["(new)", "(gone)"].contains(&relative.as_str())
    };
    let function = largest(TableKind::FunctionTotal, came_or_went);
    let changes = [
        largest(TableKind::Pool, of_state),
        function.or_else(|| largest(TableKind::FunctionSelf, |_| true)),
    ];
    let changes: Vec<String> = changes.into_iter().flatten().collect();
    let changes = match changes.as_slice() {
        [] => "no line changed significantly".to_owned(),
        changes => format!("most of all {}", changes.join("; ")),
    };
    let parts: Vec<String> = rates.into_iter().chain([cpu, changes]).collect();
    Some(parts.join("; "))
}

/// ` (-29 %)`, or nothing where there is nothing to compare with.
fn percents([before, after]: [f64; 2]) -> String {
    match before > 0.0 {
        true => format!(" ({:+.0} %)", 100.0 * (after / before - 1.0)),
        false => String::new(),
    }
}

/// What a table is about, and the unit of its figures.
pub(crate) fn table_heading(diff: &ProfileDiff, kind: TableKind) -> String {
    let unit = match (diff.unit, kind) {
        (Unit::Operation, _) => "time per operation",
        (Unit::Second, TableKind::Class) => "cores",
        (Unit::Second, _) => "threads on average",
    };
    let what = match kind {
        TableKind::Class => "CPU by daemon class",
        TableKind::Category => "CPU by kind of work",
        TableKind::Pool => "pools",
        TableKind::FunctionSelf => "functions, self",
        TableKind::FunctionTotal => "functions, total",
        TableKind::Stack => "stacks, leaf first",
    };
    format!("{what}: {unit}")
}

fn write_table(
    diff: &ProfileDiff,
    table: &Table,
    options: &DiffTextOptions,
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(out, "\n{}", table_heading(diff, table.kind))?;
    if table.lines.is_empty() {
        return writeln!(out, "  none above the limit");
    }
    let head = "   before     after    change           95 % interval";
    writeln!(out, "{}", cut(head, options.width))?;
    let n_significant = table.lines.iter().filter(|l| l.is_significant()).count();
    for line in table.lines.iter().take(options.max_lines) {
        write_line(diff, table.kind, line, options, out)?;
    }
    let n_left = table.lines.len().saturating_sub(options.max_lines);
    let n_marked = n_significant.saturating_sub(options.max_lines);
    let left = [
        (n_marked, "with a significant change"),
        (n_left - n_marked, "without"),
        (table.n_below, "too small to be tested"),
    ];
    let left = left.iter().filter(|(n, _)| *n > 0);
    let left: Vec<String> = left.map(|(n, what)| format!("{n} {what}")).collect();
    match left.as_slice() {
        [] => Ok(()),
        left => writeln!(out, "  and {}", left.join(", ")),
    }
}

fn write_line(
    diff: &ProfileDiff,
    kind: TableKind,
    line: &Line,
    options: &DiffTextOptions,
    out: &mut impl Write,
) -> io::Result<()> {
    let [before, after, change, relative, interval] = figures(diff, kind, line);
    let mark = if line.is_significant() { "*" } else { " " };
    let text = format!(
        "{before:>9} {after:>9} {change:>9} {relative:>8}  {interval:<21} {mark} {}",
        terminal_name(&line_name(&line.name)),
    );
    let text = cut(&text, options.width);
    let color = if line.difference() > 0.0 { 31 } else { 32 };
    match options.color && line.is_significant() {
        true => writeln!(out, "\x1b[{color}m{text}\x1b[0m"),
        false => writeln!(out, "{text}"),
    }
}

/// Before, after, the change, the change in percent, and its 95 % interval.
pub(crate) fn figures(diff: &ProfileDiff, kind: TableKind, line: &Line) -> [String; 5] {
    let number = |ns: f64| match (diff.unit, kind) {
        (Unit::Operation, _) => duration(ns.round() as u64),
        (Unit::Second, _) => format!("{:.3}", ns / 1e9),
    };
    let signed = |value: f64| {
        let sign = if value < 0.0 { "-" } else { "+" };
        format!("{sign}{}", number(value.abs()))
    };
    let [before, after] = &line.values;
    // Why nothing is tested.
    let is_why = |w: &Warning| matches!(w, Warning::NoTime(_) | Warning::TooShort(_));
    let interval = match line.change {
        Some(change) => format!("{} .. {}", signed(change.low), signed(change.high)),
        None if diff.n_tested() == 0 && diff.warnings.iter().any(is_why) => "not tested".to_owned(),
        None => "too few samples".to_owned(),
    };
    [
        number(before.per_unit),
        number(after.per_unit),
        signed(line.difference()),
        relative(before, after),
        interval,
    ]
}

/// A value of which less than this part was there on the other side is new or gone: a ratio of so little says nothing.
const NEXT_TO_NOTHING: f64 = 0.01;

/// The change in percent of the value before.
fn relative(before: &Value, after: &Value) -> String {
    match after.per_unit / before.per_unit {
        _ if before.per_unit <= NEXT_TO_NOTHING * after.per_unit => "(new)".to_owned(),
        ratio if ratio <= NEXT_TO_NOTHING => "(gone)".to_owned(),
        ratio if ratio >= 10.0 => format!("(x{ratio:.0})"),
        ratio => format!("({:+.0} %)", 100.0 * (ratio - 1.0)),
    }
}

/// Not escaped.
pub(crate) fn line_name(name: &LineName) -> String {
    match name {
        LineName::Class { name, n_processes } => match n_processes {
            [1, 1] => format!("{name} (1 process)"),
            [before, after] if before == after => format!("{name} ({after} processes)"),
            [before, after] => format!("{name} ({before} -> {after} processes)"),
        },
        LineName::Pool { name, state: None }
        | LineName::Category { name }
        | LineName::Function { name } => name.clone(),
        LineName::Pool {
            name,
            state: Some(state),
        } => format!("{name} {}", state.frame()),
        LineName::Stack { pool, root_first } => {
            let leaf_first = root_first.iter().rev().map(String::as_str);
            let mut frames: Vec<&str> = leaf_first.take(MAX_FRAMES).collect();
            if root_first.len() > MAX_FRAMES {
                frames.push("...");
            }
            format!("{pool}: {}", frames.join(" < "))
        }
    }
}

/// Names, escaped for a terminal; the first few.
fn list(names: &[String]) -> String {
    let (shown, more) = names.split_at(names.len().min(MAX_NAMES));
    terminal_name(&shown.join(", ")).into_owned() + &and_more(more.len())
}

/// A warning as a sentence, escaped for a terminal.
pub fn diff_warning(warning: &Warning) -> String {
    let which = |sides: &[bool; 2]| match sides {
        [true, true] => "both recordings",
        [true, false] => "the first recording",
        _ => "the second recording",
    };
    match warning {
        Warning::Programs { before, after } => {
            let (before, after) = (list(before), list(after));
            format!(
                "different programs: {before} before, {after} after; only what has the same name is \
                 compared"
            )
        }
        Warning::Rebuilt { modules, first } => {
            let [before, after] = first.each_ref().map(|id| match id {
                Some(id) => id.to_string().chars().take(12).collect(),
                None => "?".to_owned(),
            });
            format!(
                "other builds of {} (build-id {before}.. before, {after}.. after): functions are \
                 matched by name, and those without a name are merged",
                list(modules),
            )
        }
        Warning::Engines(engines) => {
            let [before, after] = engines.each_ref().map(|engine| terminal_name(engine));
            format!(
                "different engines, {before} and {after}: they see short waits and running threads \
                 differently"
            )
        }
        Warning::NoTime(sides) => format!(
            "without times (imported from text, or one moment of a process): {}; the weights have no \
             confidence intervals, and nothing is tested",
            which(sides)
        ),
        Warning::TooShort(sides) => {
            let which = which(sides);
            format!("too short for confidence intervals: {which}; nothing is tested")
        }
        Warning::Cut(sides) => format!("cut short, did not end cleanly: {}", which(sides)),
        Warning::Nothing(sides) => {
            let which = which(sides);
            format!("no time passes the filters: {which}; idle time is hidden unless shown")
        }
    }
}
