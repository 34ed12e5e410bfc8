//! A calibration to an SVG chart: throughput against the size of a chunk, with break-even marked.

use std::fmt::Write;

use wcprof_text::{terminal_name, xml_escaped};

use crate::calibration::Calibration;
use crate::model::SideReport;
use crate::shapes::Side;
use crate::text::format_bytes;

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
    let costs = calibration.direction(report.side);
    let sizes = (FIRST * STEPS..=LAST * STEPS)
        .map(|step| 2_f64.powf(f64::from(step) / f64::from(STEPS)))
        .map(|bytes| (bytes as u64).next_multiple_of(16));
    let rates = |extra_ns: f64| {
        let rate = |bytes| {
            let ns = costs.update_ns(0, bytes) + extra_ns;
            (bytes as f64, if ns > 0.0 { bytes as f64 / ns } else { 0.0 })
        };
        sizes.clone().map(rate).collect::<Vec<_>>()
    };
    let updates = rates(0.0);
    let peak = updates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let mut chart = Chart::new((peak * 1.1).max(1e-3));
    let what = match report.side {
        Side::Rx => "decrypting",
        Side::Tx => "encrypting",
    };
    let title = format!("AES-128-GCM, {what}: throughput by bytes in a call");
    chart.text(LEFT, 22.0, "start", "black", &title);
    let (library, host) = (&calibration.library, &calibration.host);
    let subtitle = format!("{} on {}", library.version, host.cpu);
    chart.text(LEFT, 40.0, "start", "#555", &subtitle);
    chart.axes();
    chart.curve(UPDATE, &updates);
    chart.curve(MESSAGE, &rates(costs.unit_ns));
    let break_even = report.break_even_bytes.map(|bytes| bytes as f64);
    let mut y = TOP + 14.0;
    for (color, label, bytes) in [
        (BREAK_EVEN, "copying pays below", break_even),
        (HALF_PEAK, "half of the peak", report.half_peak_bytes),
    ] {
        if let Some(bytes) = bytes.filter(|bytes| *bytes >= 1.0) {
            let (x, dashes) = (x(bytes), " stroke-dasharray=\"5 4\"");
            chart.line((x, TOP), (x, HEIGHT - BOTTOM), color, dashes);
            let label = format!("{label} {bytes:.0} B");
            chart.text(x + 5.0, y, "start", color, &label);
            y += 16.0;
        }
    }
    let x = WIDTH - RIGHT - 210.0;
    for (y, color, label) in [
        (HEIGHT - BOTTOM - 34.0, UPDATE, "one call, within a message"),
        (
            HEIGHT - BOTTOM - 18.0,
            MESSAGE,
            "one call with nonce and tag",
        ),
    ] {
        let wide = " stroke-width=\"2\"";
        chart.line((x, y - 4.0), (x + 22.0, y - 4.0), color, wide);
        chart.text(x + 28.0, y, "start", "black", label);
    }
    chart.svg + "</svg>\n"
}

fn x(bytes: f64) -> f64 {
    let share = (bytes.log2() - f64::from(FIRST)) / f64::from(LAST - FIRST);
    LEFT + share.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
}

// Writing to a string cannot fail.
struct Chart {
    svg: String,
    /// GB/s at the upper end.
    top: f64,
}

impl Chart {
    fn new(top: f64) -> Self {
        let svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
        );
        Self { svg, top }
    }

    fn y(&self, rate: f64) -> f64 {
        HEIGHT - BOTTOM - (rate / self.top).clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM)
    }

    fn axes(&mut self) {
        for power in (FIRST..=LAST).step_by(2) {
            let x = x(2_f64.powi(power as i32));
            self.line((x, TOP), (x, HEIGHT - BOTTOM), "#ddd", "");
            let label = format_bytes(1 << power);
            self.text(x, HEIGHT - BOTTOM + 18.0, "middle", "black", &label);
        }
        let (step, top) = (nice_step(self.top / 5.0), self.top);
        let rates = (0..=10).map(|i| step * f64::from(i));
        for rate in rates.take_while(|rate| *rate <= top) {
            let y = self.y(rate);
            self.line((LEFT, y), (WIDTH - RIGHT, y), "#ddd", "");
            let digits = usize::from(step < 1.0);
            let label = format!("{rate:.digits$}");
            self.text(LEFT - 8.0, y + 4.0, "end", "black", &label);
        }
        self.text(LEFT - 8.0, TOP - 8.0, "end", "black", "GB/s");
    }

    fn curve(&mut self, color: &str, points: &[(f64, f64)]) {
        let point = |(bytes, rate): &(f64, f64)| format!("{:.1},{:.1}", x(*bytes), self.y(*rate));
        let path: Vec<String> = points.iter().map(point).collect();
        let _ = writeln!(
            self.svg,
            "<polyline fill=\"none\" stroke=\"{color}\" stroke-width=\"2\" points=\"{}\"/>",
            path.join(" ")
        );
    }

    fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), color: &str, more: &str) {
        let _ = writeln!(
            self.svg,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{color}\"{more}/>"
        );
    }

    /// Text of a calibration is hostile: it is cut, and what controls or reorders text is replaced.
    fn text(&mut self, x: f64, y: f64, anchor: &str, color: &str, text: &str) {
        let text: String = terminal_name(text).chars().take(120).collect();
        let _ = writeln!(
            self.svg,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{color}\">{}</text>",
            xml_escaped(&text)
        );
    }
}

/// 1, 2 or 5 times a power of ten, at least `least`.
fn nice_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power);
    steps.into_iter().find(|s| *s >= least).unwrap_or(power)
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
