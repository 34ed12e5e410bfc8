//! Predictions and measurements to the tables of `wcprof crypto calibrate --verify`.

use super::table::{Table, format_ns, percent, signed_percent};
use crate::shapes::Shape;
use crate::verify::Checked;

/// An error beyond this is more than the model promises.
const TOLERANCE: f64 = 0.05;

/// Each frame by each strategy, and how many predictions are right; `shapes` as they were verified.
pub fn verify_text(checked: &[Checked], shapes: &[Shape]) -> String {
    let mut table = Table::new(
        2,
        "frame | strategy | measured ns | predicted ns | error | spread",
    );
    for row in checked {
        let Some(shape) = shapes.get(row.shape) else {
            continue;
        };
        let error = signed_percent(row.error());
        table.row(&[
            &format!("{} {}", shape.side, shape.name),
            &row.strategy.id(),
            &format_ns(row.measured_ns),
            &format_ns(row.predicted_ns),
            &match row.is_disturbed {
                true => format!("({error})"),
                false => error,
            },
            &percent(row.spread),
        ]);
    }
    format!("{}\n{}\n", table.render(), summary(checked))
}

fn summary(checked: &[Checked]) -> String {
    let calm = checked.iter().filter(|row| !row.is_disturbed);
    let mut errors: Vec<f64> = calm.map(|row| row.error().abs()).collect();
    errors.sort_by(f64::total_cmp);
    let disturbed = match checked.len() - errors.len() {
        0 => String::new(),
        n => format!("; {n} in brackets were disturbed by other work and do not count"),
    };
    match (errors.get(errors.len() / 2), errors.last()) {
        (Some(median), Some(largest)) => format!(
            "median error {}, largest {}; {} of {} predictions within {:.0} %{disturbed}",
            percent(*median),
            percent(*largest),
            errors.iter().filter(|error| **error <= TOLERANCE).count(),
            errors.len(),
            100.0 * TOLERANCE
        ),
        _ => format!("nothing to compare{disturbed}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shapes::Side;
    use crate::strategy::Strategy;

    fn checked(predicted_ns: f64, is_disturbed: bool) -> Checked {
        Checked {
            shape: 0,
            strategy: Strategy::ceph(Side::Rx),
            predicted_ns,
            measured_ns: 1000.0,
            spread: 0.002,
            is_disturbed,
        }
    }

    /// Check rows, brackets around disturbed ones, and that these do not count.
    #[test]
    fn rows() {
        let shapes = [Shape::new("reply", Side::Rx, "16").unwrap()];
        let all = [
            checked(1010.0, false),
            checked(940.0, false),
            checked(2000.0, true),
        ];
        let expected = "\
frame     strategy             measured ns  predicted ns       error  spread
RX reply  per-buffer-in-place         1000          1010      +1.0 %   0.2 %
RX reply  per-buffer-in-place         1000           940      -6.0 %   0.2 %
RX reply  per-buffer-in-place         1000          2000  (+100.0 %)   0.2 %

median error 6.0 %, largest 6.0 %; 1 of 2 predictions within 5 %; 1 in brackets were disturbed by other \
work and do not count
";
        assert_eq!(verify_text(&all, &shapes), expected);
        assert_eq!(summary(&[]), "nothing to compare");
    }
}
