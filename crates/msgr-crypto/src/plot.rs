//! A calibration to an SVG chart: throughput against the size of a chunk, with break-even marked.

use std::fmt::Write;

use crate::calibration::Calibration;
use crate::model::SideReport;
use crate::shapes::Side;
use crate::text::format_bytes;
use wcprof_text::terminal_name;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 460.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 56.0;
/// 16 B to 1 MiB, as powers of two.
const FIRST: u32 = 4;
const LAST: u32 = 20;
/// Points between two powers of two.
const STEPS: u32 = 4;

const UPDATE: &str = "#1f77b4";
const MESSAGE: &str = "#2ca02c";
const BREAK_EVEN: &str = "#d62728";
const HALF_PEAK: &str = "#7f7f7f";

/// Draws one side. `report` has the fit and the break-even size of that side.
pub fn throughput_svg(calibration: &Calibration, report: &SideReport) -> String {
    let chart = Chart::new(calibration, report.side);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    let what = match report.side {
        Side::Rx => "decrypting",
        Side::Tx => "encrypting",
    };
    let title = format!("AES-128-GCM, {what}: throughput by bytes in a call");
    text(&mut svg, (LEFT, 22.0), "start", "black", &title);
    let (library, host) = (&calibration.library, &calibration.host);
    let subtitle = format!("{} on {}", library.version, host.cpu);
    text(&mut svg, (LEFT, 40.0), "start", "#555", &subtitle);
    chart.axes(&mut svg);
    chart.curve(&mut svg, UPDATE, &chart.updates);
    chart.curve(&mut svg, MESSAGE, &chart.messages);
    let half_peak = report.fit.bulk().map(|regime| regime.half_peak_bytes());
    let mut row = 0.0;
    for (color, label, bytes) in [
        (
            BREAK_EVEN,
            "copying pays below",
            report.break_even_bytes.map(|bytes| bytes as f64),
        ),
        (HALF_PEAK, "half of the peak", half_peak),
    ] {
        if let Some(bytes) = bytes.filter(|bytes| *bytes >= 1.0) {
            chart.mark(
                &mut svg,
                color,
                &format!("{label} {bytes:.0} B"),
                bytes,
                row,
            );
            row += 1.0;
        }
    }
    legend(&mut svg);
    svg.push_str("</svg>\n");
    svg
}

struct Chart {
    /// Bytes and GB/s.
    updates: Vec<(f64, f64)>,
    messages: Vec<(f64, f64)>,
    top: f64,
}

impl Chart {
    fn new(calibration: &Calibration, side: Side) -> Self {
        let costs = calibration.direction(side);
        let sizes = (FIRST * STEPS..=LAST * STEPS)
            .map(|step| 2_f64.powf(f64::from(step) / f64::from(STEPS)))
            .map(|bytes| (bytes as u64).next_multiple_of(16));
        let rate = |extra_ns: f64| {
            sizes
                .clone()
                .map(|bytes| {
                    let ns = costs.update_ns(0, bytes) + extra_ns;
                    (bytes as f64, if ns > 0.0 { bytes as f64 / ns } else { 0.0 })
                })
                .collect::<Vec<_>>()
        };
        let updates = rate(0.0);
        let messages = rate(costs.unit_ns);
        let peak = updates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
        Self {
            updates,
            messages,
            top: (peak * 1.1).max(1e-3),
        }
    }

    fn x(bytes: f64) -> f64 {
        let share = (bytes.log2() - f64::from(FIRST)) / f64::from(LAST - FIRST);
        LEFT + share.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, rate: f64) -> f64 {
        HEIGHT - BOTTOM - (rate / self.top).clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM)
    }

    fn axes(&self, svg: &mut String) {
        for power in (FIRST..=LAST).step_by(2) {
            let x = Self::x(2_f64.powi(power as i32));
            line(svg, (x, TOP), (x, HEIGHT - BOTTOM), "#ddd", "");
            let bytes = 1_u64 << power;
            let label = (x, HEIGHT - BOTTOM + 18.0);
            text(svg, label, "middle", "black", &format_bytes(bytes));
        }
        let step = nice_step(self.top / 5.0);
        for i in 0..=10 {
            let rate = step * f64::from(i);
            if rate > self.top {
                break;
            }
            let y = self.y(rate);
            line(svg, (LEFT, y), (WIDTH - RIGHT, y), "#ddd", "");
            let digits = if step < 1.0 { 1 } else { 0 };
            let label = format!("{rate:.digits$}");
            text(svg, (LEFT - 8.0, y + 4.0), "end", "black", &label);
        }
        text(svg, (LEFT - 8.0, TOP - 8.0), "end", "black", "GB/s");
    }

    fn curve(&self, svg: &mut String, color: &str, points: &[(f64, f64)]) {
        let path: Vec<String> = points
            .iter()
            .map(|(bytes, rate)| format!("{:.1},{:.1}", Self::x(*bytes), self.y(*rate)))
            .collect();
        // Writing to a string cannot fail.
        let _ = writeln!(
            svg,
            "<polyline fill=\"none\" stroke=\"{color}\" stroke-width=\"2\" points=\"{}\"/>",
            path.join(" ")
        );
    }

    fn mark(&self, svg: &mut String, color: &str, label: &str, bytes: f64, row: f64) {
        let x = Self::x(bytes);
        let dashes = " stroke-dasharray=\"5 4\"";
        line(svg, (x, TOP), (x, HEIGHT - BOTTOM), color, dashes);
        let at = (x + 5.0, TOP + 14.0 + 16.0 * row);
        text(svg, at, "start", color, label);
    }
}

fn legend(svg: &mut String) {
    let x = WIDTH - RIGHT - 210.0;
    for (row, color, label) in [
        (0.0, UPDATE, "one call, within a message"),
        (16.0, MESSAGE, "one call with nonce and tag"),
    ] {
        let y = HEIGHT - BOTTOM - 34.0 + row;
        let wide = " stroke-width=\"2\"";
        line(svg, (x, y - 4.0), (x + 22.0, y - 4.0), color, wide);
        text(svg, (x + 28.0, y), "start", "black", label);
    }
}

/// 1, 2 or 5 times a power of ten, at least `least`.
fn nice_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|digit| digit * power)
        .find(|step| *step >= least)
        .unwrap_or(power)
}

fn line(svg: &mut String, from: (f64, f64), to: (f64, f64), color: &str, more: &str) {
    let _ = writeln!(
        svg,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{color}\"{more}/>",
        from.0, from.1, to.0, to.1
    );
}

fn text(svg: &mut String, at: (f64, f64), anchor: &str, color: &str, text: &str) {
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" fill=\"{color}\">{}</text>",
        at.0,
        at.1,
        escaped(text)
    );
}

/// Text of a calibration is hostile: it is cut, characters that no document may hold or that reorder text are
/// replaced, and characters with a meaning in XML are escaped.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in terminal_name(text).chars().take(120) {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\u{fffe}' | '\u{ffff}' => out.push('?'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibration::tests::example;
    use crate::model::Report;
    use crate::shapes::Shape;

    fn svg(calibration: &Calibration) -> String {
        let shapes = [Shape::new("x", Side::Rx, "16").unwrap()];
        let report = Report::new(&shapes, calibration, None);
        throughput_svg(calibration, &report.sides[0])
    }

    /// Check that both lines and both marks are there, and all numbers are finite.
    #[test]
    fn chart() {
        let svg = svg(&example());
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert!(svg.contains("copying pays below"), "{svg}");
        assert!(svg.contains("half of the peak"));
        assert!(!svg.contains("NaN") && !svg.contains("inf\""));
    }

    /// Check that text of a calibration file can not add elements, entities or control characters.
    #[test]
    fn hostile_text() {
        let mut calibration = example();
        calibration.host.cpu = "</text><script>&'\"\u{1b}\u{202e}".repeat(100);
        let svg = svg(&calibration);
        assert!(!svg.contains("<script") && !svg.contains('\u{1b}') && !svg.contains('\u{202e}'));
        assert!(svg.contains("&lt;/text&gt;&lt;script&gt;&amp;&#39;&quot;??"));
        assert!(svg.len() < 20_000);
    }

    /// Check steps of the axis.
    #[test]
    fn steps() {
        for (least, step) in [
            (0.9, 1.0),
            (1.1, 2.0),
            (4.6, 5.0),
            (6.0, 10.0),
            (0.03, 0.05),
        ] {
            assert!((nice_step(least) / step - 1.0).abs() < 1e-9, "{least}");
        }
    }
}
