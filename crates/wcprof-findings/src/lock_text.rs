//! Lock blame as text for people.

use std::fmt::Write;

use wcprof_profile::model::LockKind;
use wcprof_text::{count, cut, one_line, percent};

use crate::locks::{Hold, LockReport, LockSite};
use crate::text::{labeled, short_duration};

/// Pools of waiters printed for a site.
const MAX_WAITERS: usize = 4;
/// Holders printed for a site.
const MAX_HOLDS: usize = 5;
/// Frames of a holder printed after the function that says most.
const MAX_FRAMES: usize = 6;
/// Below this share of a site's lost time a line says little.
const MIN_PERCENT: f64 = 0.5;

/// Prints the `max_sites` heaviest sites; names are escaped. Lines are cut to `width` characters,
/// at least 40.
pub fn render_locks(report: &LockReport, max_sites: usize, width: usize) -> String {
    let width = width.max(40);
    let mut out = String::new();
    if report.sites.is_empty() {
        out.push_str("no thread was seen waiting for a lock\n");
        return out;
    }
    let known = percent(report.known_ns, report.lost_ns);
    let _ = writeln!(
        out,
        "{} of thread time lost to locks in {}: {:.1} % of the non-idle time, {:.2} threads at a time",
        short_duration(report.lost_ns),
        short_duration(report.duration_ns),
        percent(report.lost_ns, report.non_idle_ns),
        report.lost_ns as f64 / report.duration_ns.max(1) as f64,
    );
    let _ = write!(out, "the holder is known for {known:.1} % of it");
    let uncertain = percent(report.uncertain_ns, report.lost_ns);
    if uncertain >= 0.05 {
        let _ = write!(out, ", {uncertain:.1} % of it uncertain (marked ~)");
    }
    out.push('\n');
    let has_processes = report.sites.iter().any(|s| s.pid != report.sites[0].pid);
    for site in report.sites.iter().take(max_sites) {
        out.push('\n');
        write_site(&mut out, site, has_processes, width);
    }
    let n_more = report.sites.len().saturating_sub(max_sites);
    if n_more > 0 {
        let _ = writeln!(out, "\n{} not shown", count(n_more, "more site"));
    }
    out
}

fn write_site(out: &mut String, site: &LockSite, has_processes: bool, width: usize) {
    let process = match has_processes {
        true => format!("{}/{}: ", one_line(&site.process), site.pid),
        false => String::new(),
    };
    let title = format!(
        "{:5.1} % {:>8}  {process}{}",
        site.percent,
        short_duration(site.lost_ns),
        one_line(&site.function)
    );
    let _ = writeln!(out, "{}", cut(&title, Some(width)));
    labeled(out, "lock", &kinds(site), width);
    if !site.callers.is_empty() {
        let text = format!("  called  : {}", one_line(&site.callers.join(" < ")));
        let _ = writeln!(out, "{}", cut(&text, Some(width)));
    }
    let waiters: Vec<String> = site
        .waiters
        .iter()
        .take(MAX_WAITERS)
        .map(|w| {
            let threads = count(w.n_threads, "thread");
            format!("{} {} ({threads})", w.pool, short_duration(w.lost_ns))
        })
        .collect();
    let more = match site.waiters.len().saturating_sub(MAX_WAITERS) {
        0 => String::new(),
        n => format!(", {} more", count(n, "pool")),
    };
    let at_once = site.waiting_at_once;
    let text = format!("{}{more}; {at_once:.2} at a time", waiters.join(", "));
    labeled(out, "waiters", &text, width);
    let shown: Vec<&Hold> = site
        .held_by
        .iter()
        .filter(|hold| hold.percent >= MIN_PERCENT)
        .take(MAX_HOLDS)
        .collect();
    let n_more = site.held_by.len() - shown.len() + site.n_more_holds;
    if !shown.is_empty() {
        out.push_str("  held by :\n");
    }
    for hold in shown {
        let text = format!("    {:5.1} %{} {}", hold.percent, mark(hold), held(hold));
        let _ = writeln!(out, "{}", cut(&text, Some(width)));
    }
    if n_more > 0 {
        let _ = writeln!(out, "    and {}", count(n_more, "lighter stack"));
    }
    for unknown in &site.unknown {
        let text = format!("{:.1} % {}", unknown.percent, unknown.text);
        labeled(out, "unknown", &text, width);
    }
}

fn mark(hold: &Hold) -> char {
    match hold.uncertain_ns * 2 > hold.weight_ns {
        true => '~',
        false => ' ',
    }
}

/// `tp_osd_tp [disk] in fdatasync: fdatasync < f < g`
fn held(hold: &Hold) -> String {
    let pool = one_line(&hold.pool);
    let state = hold.state.frame();
    if hold.frames.is_empty() {
        return format!("{pool} {state} (no stack of that tick)");
    }
    let own = hold.frames.iter().position(|f| *f == hold.function);
    let first = own.unwrap_or(0);
    let chain: Vec<String> = hold
        .frames
        .iter()
        .skip(first)
        .take(MAX_FRAMES)
        .map(|f| one_line(f))
        .collect();
    let leaf = match first {
        0 => String::new(),
        _ => format!(" ({})", one_line(&hold.frames[0])),
    };
    format!("{pool} {state}{leaf} in {}", chain.join(" < "))
}

fn kinds(site: &LockSite) -> String {
    let kinds: Vec<&str> = site
        .kinds
        .iter()
        .map(|kind| match (kind, site.recursive) {
            (LockKind::Mutex, true) => "recursive mutex",
            (LockKind::Mutex, false) => "mutex",
            (LockKind::RwlockRead, _) => "rwlock (to read)",
            (LockKind::RwlockWrite, _) => "rwlock (to write)",
            (LockKind::Other, _) => "other kind",
        })
        .collect();
    let n = match site.n_locks {
        0 => String::new(),
        1 => ", always the same one".to_owned(),
        n => format!(", {n} different ones"),
    };
    format!("{}{n}", kinds.join(", "))
}
