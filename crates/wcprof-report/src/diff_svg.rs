//! A comparison as a differential flame graph, drawn by inferno: widths are of the second
//! recording, frames that grew are red, those that shrank are blue.

use std::io::{self, Write};

use inferno::flamegraph::from_lines;
use wcprof_profile::diff::{ProfileDiff, StackPair, Unit};
use wcprof_text::{duration, folded_name};

use crate::folded::Room;
use crate::svg::{options, plain};

/// Writes a differential flame graph, grouped by pool. Widths are in microseconds of thread time
/// per second, or in nanoseconds per operation. An error of kind [`io::ErrorKind::InvalidInput`]
/// says that there is nothing to draw.
pub fn diff_svg(diff: &ProfileDiff, title: &str, out: &mut impl Write) -> io::Result<()> {
    let (scale, unit, words) = match diff.unit {
        Unit::Second => (1e-3, "us/s", "microseconds of thread time per second"),
        Unit::Operation => (1.0, "ns/op", "nanoseconds per operation"),
    };
    let (mut lines, mut room) = (Vec::new(), Room::default());
    for stack in &diff.stacks {
        let [before, after] = stack.per_unit.map(|v| (v * scale).round() as u64);
        if before + after > 0 {
            let line = format!("{} {before} {after}", plain(&folded(stack)));
            room.take(line.len())?;
            lines.push(line);
        }
    }
    if diff.stacks.iter().all(|s| s.per_unit[1] * scale < 0.5) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "nothing to draw: no time of the second recording passes the filters",
        ));
    }
    let [before, after] = &diff.sides;
    let subtitle = format!(
        "{words}: widths of the second recording ({}), red grew and blue shrank since the first \
         ({}); what is gone has no width",
        duration(after.duration_ns),
        duration(before.duration_ns),
    );
    let mut options = options(title, &subtitle, unit);
    from_lines(&mut options, lines.iter().map(String::as_str), out)
}

fn folded(stack: &StackPair) -> String {
    let names = [&stack.pool].into_iter().chain(&stack.root_first);
    let names: Vec<_> = names.map(|name| folded_name(name)).collect();
    names.join(";")
}
