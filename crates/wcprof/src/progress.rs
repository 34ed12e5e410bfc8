//! Downloads of debug files, and how far other long work is, to a line on standard error, if that is a
//! terminal.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use terminal_size::{Width, terminal_size_of};
use wcprof_symbols::{Download, Naming, OnProgress};
use wcprof_text::cut;
use wcprof_text::terminal_name;

/// How often it is said how far naming is.
const EVERY: Duration = Duration::from_millis(300);
/// How often it is said for how long something is measured: seldom, so as not to disturb it.
const SECOND: Duration = Duration::from_secs(1);
/// Cells of the bar.
const BAR: u64 = 20;

/// Whether the line shows something.
static SHOWN: Mutex<bool> = Mutex::new(false);

/// What shows downloads; `None` where nobody would see them.
pub(crate) fn on_terminal() -> Option<OnProgress> {
    has_terminal().then(|| Arc::new(show) as OnProgress)
}

/// Whether somebody may see the line.
pub(crate) fn has_terminal() -> bool {
    std::io::stderr().is_terminal()
}

/// Does `work`; once it takes long, a line on the terminal says how far it is.
pub(crate) fn while_naming<T>(naming: &Naming, work: impl FnOnce() -> T) -> T {
    let line = || {
        let n = |of: &AtomicUsize| of.load(Ordering::Relaxed);
        let (done, all) = (n(&naming.n_done), n(&naming.n_modules));
        format!("naming functions: {done} of {all} modules")
    };
    while_shown(EVERY, line, work)
}

/// Does `work`; on a terminal a line says for how many seconds already, every second.
pub fn while_measuring<T>(line: impl Fn(u64) -> String + Send, work: impl FnOnce() -> T) -> T {
    if !has_terminal() {
        return work();
    }
    let begin = Instant::now();
    while_shown(SECOND, move || line(begin.elapsed().as_secs()), work)
}

/// Does `work`, and shows the line `every` so often until it is done.
fn while_shown<T>(
    every: Duration,
    line: impl Fn() -> String + Send,
    work: impl FnOnce() -> T,
) -> T {
    let (done_tx, done) = mpsc::channel::<()>();
    let result = thread::scope(|scope| {
        scope.spawn(move || {
            // Ends when the sender is gone.
            while done.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                put(&line());
            }
        });
        let result = work();
        drop(done_tx);
        result
    });
    clear();
    result
}

/// How wide the terminal of messages is.
fn columns_of_stderr() -> usize {
    terminal_size_of(std::io::stderr()).map_or(80, |(Width(w), _)| usize::from(w))
}

fn show(download: &Download) {
    put(&line(download));
}

/// Shows a line in place of the last one.
pub(crate) fn put(line: &str) {
    // One that wraps cannot be written over.
    let line = cut(line, Some(columns_of_stderr().saturating_sub(1)));
    let mut shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
    // A terminal that has gone is no reason to stop.
    let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
    let _ = std::io::stderr().flush();
    *shown = true;
}

/// Takes the line away.
pub(crate) fn clear() {
    let mut shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if std::mem::take(&mut *shown) {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
}

fn line(download: &Download) -> String {
    let mb = |bytes: u64| bytes as f64 / 1e6;
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = match (download.received, download.size) {
        (0, _) => write!(text, "asking {} for ", download.server),
        (received, Some(size)) if size > 0 => {
            let full = received.min(size).saturating_mul(BAR) / size;
            let cell = |i| if i < full { '#' } else { '.' };
            let bar: String = (0..BAR).map(cell).collect();
            let (received, size) = (mb(received), mb(size));
            write!(text, "[{bar}] {received:.1} of {size:.1} MB for ")
        }
        (received, _) => write!(text, "{:.1} MB for ", mb(received)),
    };
    text.push_str(&terminal_name(&download.module));
    if download.received > 0 {
        let _ = write!(text, " from {}", download.server);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the line before, at the half, and without a size, and that a name cannot steer the terminal.
    #[test]
    fn lines() {
        let at = |received, size| Download {
            module: "libx\x1b[2J.so".to_owned(),
            server: "host:1".to_owned(),
            received,
            size,
        };
        let text = line(&at(0, None));
        assert!(text.starts_with("asking host:1 for libx") && !text.contains('\x1b'));
        let text = line(&at(5_000_000, Some(10_000_000)));
        assert!(
            text.starts_with("[##########..........] 5.0 of 10.0 MB for libx")
                && text.ends_with(" from host:1"),
            "{text}"
        );
        assert!(line(&at(1_500_000, None)).starts_with("1.5 MB for libx"));
    }
}
