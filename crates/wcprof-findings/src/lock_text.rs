//! Lock blame as text for people.

use wcprof_profile::model::LockKind;
use wcprof_text::{count, percent};

use crate::locks::{DeadlockReport, Hold, LockReport, LockSite};
use crate::text::{line, on_host, render_paragraph, short_duration};

/// Pools of waiters printed for a site.
const MAX_WAITERS: usize = 4;
/// Holders printed for a site.
const MAX_HOLDS: usize = 5;
/// Frames of a holder printed after the function that says most.
const MAX_FRAMES: usize = 6;
/// Below this share of a site's lost time a line says little.
const MIN_PERCENT: f64 = 0.5;

impl LockReport {
    /// Thread time as text; of snapshots, which have none, threads in each.
    pub fn amount(&self, ns: u64) -> String {
        match self.n_snapshots {
            0 => short_duration(ns),
            _ => format!("{:.2} thr", self.at_a_time(ns)),
        }
    }

    /// Threads at a time, on average, of a sum of thread time.
    pub fn at_a_time(&self, ns: u64) -> f64 {
        ns as f64 / self.duration_ns.max(1) as f64
    }
}

/// How much time locks took, and of how much of it the holder is known.
pub fn lock_summary(report: &LockReport) -> [String; 2] {
    let share = percent(report.lost_ns, report.non_idle_ns);
    let threads = report.at_a_time(report.lost_ns);
    let (lost, whole) = match report.n_snapshots {
        0 => {
            let [lost, time] = [report.lost_ns, report.duration_ns].map(short_duration);
            let of_time =
                format!("{share:.1} % of the non-idle time, {threads:.2} threads on average");
            (
                format!("{lost} of thread time lost to locks in {time}: {of_time}"),
                "it",
            )
        }
        _ => {
            let text = format!(
                "{threads:.2} threads wait for locks: {share:.1} % of those that are not idle"
            );
            (text, "them")
        }
    };
    let known = percent(report.known_ns, report.lost_ns);
    let mut known = format!("the holder is known for {known:.1} % of {whole}");
    let uncertain = percent(report.uncertain_ns, report.lost_ns);
    if uncertain >= 0.05 {
        known += &format!(", {uncertain:.1} % of {whole} uncertain (marked ~)");
    }
    [lost, known]
}

/// Prints the `max_sites` heaviest sites; names are escaped. Lines are cut to `width` characters,
/// at least 40.
pub fn render_locks(report: &LockReport, max_sites: usize, width: usize) -> String {
    let mut out: String = report
        .deadlocks
        .iter()
        .map(|one| deadlock_text(one, width.max(40)))
        .collect();
    if report.sites.is_empty() {
        return out + "no thread was seen waiting for a lock\n";
    }
    out += &lock_summary(report).join("\n");
    out.push('\n');
    let first = &report.sites[0];
    let is_other = |site: &LockSite| (&site.pids, &site.host) != (&first.pids, &first.host);
    let has_processes = first.pids.len() > 1 || report.sites.iter().any(is_other);
    for site in report.sites.iter().take(max_sites) {
        let text = site_text(report, site, has_processes, width.max(40));
        out += &format!("\n{text}");
    }
    let n_more = report.sites.len().saturating_sub(max_sites);
    if n_more > 0 {
        out += &format!("\n{} not shown\n", count(n_more, "more site"));
    }
    out
}

/// A circle, a thread a line with its stack below.
fn deadlock_text(deadlock: &DeadlockReport, width: usize) -> String {
    let (process, pid) = (&deadlock.process, deadlock.pid);
    let title = format!("DEADLOCK in {process} (pid {pid}): {}", deadlock.title());
    let mut out = line(&title, width);
    for (one, holder) in deadlock.links() {
        let kind = lock_kind(one.kind);
        let text = format!(
            "  {} (tid {}) waits for the {kind} at {:#x}, which {} (tid {}) holds",
            one.name, one.tid, one.lock, holder.name, holder.tid
        );
        out += &line(&text, width);
        out += &line(&format!("    in {}", one.frames.join(" < ")), width);
    }
    out.push('\n');
    out
}

/// A kind of lock in a word.
pub(crate) fn lock_kind(kind: LockKind) -> &'static str {
    match kind {
        LockKind::Mutex => "mutex",
        LockKind::RwlockRead | LockKind::RwlockWrite => "rwlock",
        LockKind::Join => "end of the thread",
        LockKind::Other => "lock",
    }
}

fn site_text(report: &LockReport, site: &LockSite, has_processes: bool, width: usize) -> String {
    let process = match (site.group.as_str(), has_processes) {
        ("", true) => format!("{}: ", subject(site)),
        ("", false) => String::new(),
        (group, _) => format!("{group}: "),
    };
    let (lost, function) = (report.amount(site.lost_ns), &site.function);
    let title = format!("{:5.1} % {lost:>8}  {process}{function}", site.percent);
    let mut out = line(&title, width) + &render_paragraph("lock", &kinds(site), width);
    if !site.callers.is_empty() {
        let text = format!("  called  : {}", site.callers.join(" < "));
        out += &line(&text, width);
    }
    out += &render_paragraph("waiters", &waiters(report, site), width);
    let shown = site.held_by.iter().filter(|h| h.percent >= MIN_PERCENT);
    let shown: Vec<&Hold> = shown.take(MAX_HOLDS).collect();
    let n_more = site.held_by.len() - shown.len() + site.n_more_holds;
    if !shown.is_empty() {
        out.push_str("  held by :\n");
    }
    for hold in shown {
        let is_uncertain = hold.uncertain_ns * 2 > hold.weight_ns;
        let mark = if is_uncertain { '~' } else { ' ' };
        let text = format!("    {:5.1} %{mark} {}", hold.percent, held_text(hold));
        out += &line(&text, width);
    }
    if n_more > 0 {
        out += &format!("    and {}\n", count(n_more, "lighter stack"));
    }
    for unknown in &site.unknown {
        let text = format!("{:.1} % {}", unknown.percent, unknown.text);
        out += &render_paragraph("unknown", &text, width);
    }
    out
}

/// `osd.3 (pid 4711)`, or `postgres, 8 processes`, with the host in a trace of several; not escaped.
fn subject(site: &LockSite) -> String {
    let of = match site.pids.as_slice() {
        [pid] => format!("{} (pid {pid})", site.process),
        pids => format!("{}, {} processes", site.process, pids.len()),
    };
    of + &on_host(&site.host)
}

fn waiters(report: &LockReport, site: &LockSite) -> String {
    let waiters = site.waiters.iter().take(MAX_WAITERS).map(|w| {
        let threads = count(w.n_threads, "thread");
        match report.n_snapshots {
            0 => format!("{} {} ({threads})", w.pool, short_duration(w.lost_ns)),
            _ => format!("{} ({threads})", w.pool),
        }
    });
    let mut waiters: Vec<String> = waiters.collect();
    let n_more = site.waiters.len() - waiters.len();
    if n_more > 0 {
        waiters.push(format!("{} more", count(n_more, "pool")));
    }
    let at_once = site.waiting_at_once;
    format!("{}; {at_once:.2} at a time", waiters.join(", "))
}

/// What is said of a site besides its holders: process, kind of lock, callers, waiters; not escaped.
pub fn site_notes(report: &LockReport, site: &LockSite) -> Vec<String> {
    let mut notes = vec![
        format!("{}, {}", subject(site), kinds(site)),
        format!("waiters: {}", waiters(report, site)),
    ];
    if !site.callers.is_empty() {
        notes.push(format!("called by {}", site.callers.join(" < ")));
    }
    notes
}

/// `tp_osd_tp [disk] in fdatasync: fdatasync < f < g`; not escaped.
pub fn held_text(hold: &Hold) -> String {
    let place = format!("{} {}", hold.pool, hold.state.frame());
    if hold.frames.is_empty() {
        return format!("{place} (no stack of that tick)");
    }
    let own = hold.frames.iter().position(|f| *f == hold.function);
    let first = own.unwrap_or(0);
    let chain = hold.frames[first..].iter().take(MAX_FRAMES);
    let chain: Vec<&str> = chain.map(String::as_str).collect();
    let chain = chain.join(" < ");
    match first {
        0 => format!("{place} in {chain}"),
        _ => format!("{place} ({}) in {chain}", hold.frames[0]),
    }
}

fn kinds(site: &LockSite) -> String {
    let kinds = site.kinds.iter().map(|kind| match (kind, site.recursive) {
        (LockKind::Mutex, true) => "recursive mutex",
        (LockKind::Mutex, false) => "mutex",
        (LockKind::RwlockRead, _) => "rwlock (to read)",
        (LockKind::RwlockWrite, _) => "rwlock (to write)",
        (LockKind::Join, _) => "end of a thread",
        (LockKind::Other, _) => "other kind",
    });
    let kinds = kinds.collect::<Vec<_>>().join(", ");
    match site.n_locks {
        0 => kinds,
        1 => format!("{kinds}, always the same one"),
        n => format!("{kinds}, {n} different ones"),
    }
}
