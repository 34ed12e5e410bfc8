//! `wcprof agent --check`: what would be done, and what an interval of the processes that are there makes, beside the limits that
//! stores have by default.

use std::thread;
use std::time::Duration;

use wcprof_text::terminal_name;

use super::control::Control;
use super::figures::ProfileSize;
use super::finder::Finder;
use super::plan::Plan;
use super::recording::{self, Shared};
use crate::failure::Failure;
use crate::output::print;

/// A longer interval is not waited for.
const LONGEST: Duration = Duration::from_secs(30);
/// A recording with an interval of this length has one alone.
const ONE_INTERVAL: Duration = Duration::from_secs(3600);

/// Prints what would be done; then records the processes that are there, which are sent nowhere.
pub(super) fn run(mut plan: Plan) -> Result<(), Failure> {
    let mut finder = Finder::new(
        plan.selectors.clone(),
        plan.room(),
        plan.args.sampling.max_cpu,
    );
    finder.search();
    print(plan.described(finder.targets()).as_bytes())?;
    if finder.targets().is_empty() {
        return Ok(());
    }
    let interval = plan.args.interval;
    let length = interval.min(LONGEST);
    print(
        format!(
            "recording them for {} s to see what they make\n",
            length.as_secs_f64()
        )
        .as_bytes(),
    )?;
    let folder = tempfile::tempdir()?;
    plan.state_dir = folder.path().to_owned();
    plan.args.interval = ONE_INTERVAL;
    plan.keep.trigger.clear();
    let control = Control::new();
    let _signals = control.at_signals()?;
    let shared = Shared::default();
    thread::scope(|scope| {
        scope.spawn(|| {
            control.wait(length);
            control.stop();
        });
        let ended = recording::run(&plan, &control, &mut finder, None, &shared);
        control.stop();
        ended
    })?;
    let measured = std::mem::take(&mut shared.figures.lock().measured);
    print(text(&measured, length, interval).as_bytes())
}

fn text(measured: &[(String, ProfileSize)], length: Duration, interval: Duration) -> String {
    let mut rows = String::new();
    let mut sum = ProfileSize::default();
    let (mut most_bytes, mut most_samples) = (0, 0);
    for (title, of) in measured {
        rows += &row(&terminal_name(title), *of);
        sum.n_series += of.n_series;
        sum.n_samples += of.n_samples;
        sum.n_bytes += of.n_bytes;
        most_bytes = most_bytes.max(of.n_bytes);
        most_samples = most_samples.max(of.n_samples);
    }
    rows += &row("all", sum);
    let a_second = sum.n_bytes as f64 / interval.as_secs_f64();
    format!(
        "in {} s they made\n  series samples       kB  process\n{rows}\
         a profile: at most {:.0} kB and {most_samples} samples (Pyroscope: 4194 kB, 16000; beyond 1000 kB and 15000 some become [other])\n\
         a second, with intervals of {} s: {:.1} kB (Pyroscope: 4000 kB for all hosts of a tenant, which is {:.0} times as much)\n\
         series: {} (Pyroscope with the old storage: 5000 for all hosts of a tenant; with the new one no limit; Parca: no limit)\n\
         a request: at most {:.0} kB before it is compressed (nginx in front of a store: 1000 kB after that)\n",
        length.as_secs_f64(),
        most_bytes as f64 / 1e3,
        interval.as_secs_f64(),
        a_second / 1e3,
        4e6 / a_second.max(1.0),
        sum.n_series,
        most_bytes as f64 / 1e3,
    )
}

fn row(title: &str, of: ProfileSize) -> String {
    format!(
        "{:>8} {:>7} {:>8.1}  {title}\n",
        of.n_series,
        of.n_samples,
        of.n_bytes as f64 / 1e3
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the sums, and how often all of it fits into a tenant's rate.
    #[test]
    fn limits() {
        let osd = ProfileSize {
            n_series: 60,
            n_samples: 700,
            n_bytes: 100_000,
        };
        let all = [("osd.1".to_owned(), osd), ("osd.\x1b2".to_owned(), osd)];
        let text = text(&all, Duration::from_secs(30), Duration::from_secs(50));
        for line in [
            "      60     700    100.0  osd.1",
            "     120    1400    200.0  all",
            "a second, with intervals of 50 s: 4.0 kB (Pyroscope: 4000 kB for all hosts of a tenant, which is 1000 times",
            "series: 120 (",
        ] {
            assert!(text.contains(line), "{text}");
        }
        assert!(!text.contains('\x1b'));
    }
}
