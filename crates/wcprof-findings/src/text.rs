//! Findings as text for people.

use std::fmt::Write;

use indexmap::{IndexMap, IndexSet};
use wcprof_profile::model::{Profile, State};
use wcprof_text::{columns, count, cut, one_line, percent, wrap};

use crate::finding::{Basis, Evidence, FILES, Finding, HELD_BY, Setting, TimeShare};
use crate::rule::{Base, Scope};
use crate::rule_set::RuleSet;

/// How findings are printed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct TextOptions {
    /// Longest line, characters; lines of trees are cut there, prose is wrapped. At least 40
    /// is used.
    pub width: usize,
    /// Findings to print, or groups of one rule's findings in the brief form; the titles of the
    /// rest are named.
    pub max_findings: usize,
    /// How much of each.
    pub detail: Detail,
}

/// How much of a finding is printed.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Detail {
    /// All of it.
    #[default]
    Full,
    /// A few lines: share, the heaviest line of evidence, the first sentence of the advice; a
    /// rule's findings in other pools of the process are added to its first one.
    Brief,
}

impl Default for TextOptions {
    fn default() -> Self {
        Self {
            width: 120,
            max_findings: usize::MAX,
            detail: Detail::Full,
        }
    }
}

/// Pool names printed before the rest is counted.
const MAX_POOL_NAMES: usize = 4;

/// Titles of findings that are not shown before the rest is left out.
const MAX_TITLES: usize = 5;

/// Share of on-CPU time without a stack, percent, above which the text says what that means.
const MUCH_WITHOUT_STACK: f64 = 50.0;

/// Prints findings with evidence and advice; names are escaped. Without findings it says so.
pub fn render_text(profile: &Profile, findings: &[Finding], options: TextOptions) -> String {
    let width = options.width.max(40);
    let mut out = String::new();
    let more = match options.detail {
        Detail::Full => {
            for (i, finding) in findings.iter().take(options.max_findings).enumerate() {
                if i > 0 {
                    out.push('\n');
                }
                write_finding(&mut out, finding, process_name(profile, finding), width);
            }
            findings.iter().skip(options.max_findings).collect()
        }
        Detail::Brief => {
            let groups = by_rule(findings);
            let (shown, rest) = groups.split_at(options.max_findings.min(groups.len()));
            for group in shown {
                write_brief(&mut out, profile, group, width);
            }
            rest.iter().flatten().copied().collect::<Vec<_>>()
        }
    };
    write_titles(&mut out, &more, width);
    if findings.is_empty() {
        out.push_str("no hotspots found\n");
    }
    let on_cpu = || profile.rows.iter().filter(|r| r.state == State::OnCpu);
    let without = on_cpu().filter(|r| r.stack.is_none());
    let share = percent(
        without.map(|r| r.weight).sum(),
        on_cpu().map(|r| r.weight).sum(),
    );
    if share >= MUCH_WITHOUT_STACK {
        let _ = writeln!(
            out,
            "note: {share:.0} % of the on-CPU time has no stack (engine {}): rules on running \
             code cannot see it",
            one_line(&profile.header.engine)
        );
    }
    out
}

/// Lists rules with severity, threshold and sources.
pub fn render_rules(rules: &RuleSet, options: TextOptions) -> String {
    let width = options.width.max(40);
    let mut out = String::new();
    for rule in rules.rules() {
        let t = &rule.threshold;
        let _ = writeln!(
            out,
            "{} [{}] {}\n  from {} % of the {}",
            rule.id,
            rule.severity.name(),
            one_line(&rule.title),
            t.percent,
            t.of.name(),
        );
        labeled(&mut out, "threshold", &t.why, width);
        for source in &rule.sources {
            let text = format!("\"{}\": {}", source.report, source.figure);
            labeled(&mut out, "source", &text, width);
        }
    }
    out
}

/// One finding with all there is to say about it.
pub fn render_finding(finding: &Finding, width: usize) -> String {
    let mut out = String::new();
    write_finding(&mut out, finding, &finding.process, width.max(40));
    out
}

/// `  label: text`, escaped and wrapped as in a finding.
pub fn render_paragraph(label: &str, text: &str, width: usize) -> String {
    let mut out = String::new();
    labeled(&mut out, label, text, width.max(40));
    out
}

fn write_finding(out: &mut String, finding: &Finding, process: &str, width: usize) {
    let _ = writeln!(
        out,
        "[{}] {} ({})",
        finding.severity.name(),
        one_line(&finding.title),
        finding.rule
    );
    let mut place = format!("{}/{}", one_line(process), finding.pid);
    if !finding.host.is_empty() {
        let _ = write!(place, " on {}", one_line(&finding.host));
    }
    if !finding.pools.is_empty() {
        let _ = write!(place, ": {}", pools(finding));
    }
    labeled(out, "where", &place, width);
    match &finding.basis {
        Basis::Time(share) => {
            let subject = subject(finding, process);
            labeled(out, "share", &share_text(share, &subject), width);
        }
        Basis::Setting(found) => {
            for setting in &found.settings {
                labeled(out, "found", &setting_text(setting), width);
            }
        }
    }
    for evidence in &finding.evidence {
        tree(out, evidence, width);
    }
    labeled(out, "why", &finding.explanation, width);
    labeled(out, "advice", &finding.advice, width);
    let gain = format!("{} ({})", finding.gain.text.trim(), finding.gain.source);
    labeled(out, "gain", &gain, width);
    for source in &finding.sources {
        let text = format!("\"{}\": {}", source.report, source.figure.trim());
        labeled(out, "source", &text, width);
    }
    labeled(out, "verify", &finding.verify, width);
}

/// Findings of one rule in pools of one process, as one group each, in the order of their
/// first ones. No group is empty.
fn by_rule(findings: &[Finding]) -> Vec<Vec<&Finding>> {
    let mut groups: IndexMap<_, Vec<&Finding>> = IndexMap::new();
    for finding in findings {
        let key = (&finding.rule, finding.pid, &finding.host);
        groups.entry(key).or_default().push(finding);
    }
    groups.into_values().collect()
}

/// Names the findings that did not fit.
fn write_titles(out: &mut String, more: &[&Finding], width: usize) {
    if more.is_empty() {
        return;
    }
    let titles: IndexSet<&str> = more.iter().map(|f| f.title.as_str()).collect();
    let shown: Vec<&str> = titles.iter().copied().take(MAX_TITLES).collect();
    let dots = if titles.len() > MAX_TITLES {
        "; ..."
    } else {
        ""
    };
    let (n, shown) = (count(more.len(), "more finding"), shown.join("; "));
    write_wrapped(out, "", &format!("{n} not shown: {shown}{dots}"), 0, width);
}

fn write_brief(out: &mut String, profile: &Profile, group: &[&Finding], width: usize) {
    let Some((finding, others)) = group.split_first() else {
        return;
    };
    let title = format!(
        "[{}] {}{}: {}",
        finding.severity.name(),
        process_prefix(profile, finding),
        pools(finding),
        one_line(&finding.title)
    );
    let _ = writeln!(out, "{}", cut(&title, Some(width)));
    match &finding.basis {
        Basis::Time(share) => {
            let subject = subject(finding, process_name(profile, finding));
            labeled(out, "share", &share_text(share, &subject), width);
        }
        Basis::Setting(found) => {
            let first = found.settings.first().map(setting_text);
            labeled(out, "found", &first.unwrap_or_default(), width);
        }
    }
    if !others.is_empty() {
        let places: Vec<String> = others.iter().map(|f| also_in(f)).collect();
        labeled(out, "also in", &places.join(", "), width);
    }
    if let Some(evidence) = finding.evidence.last() {
        let mut depth = 0;
        let chain = evidence.lines.iter().take_while(|line| {
            depth += 1;
            line.depth + 1 == depth
        });
        let names: Vec<String> = chain.map(|line| one_line(&line.name)).collect();
        let percent = evidence.lines.first().map_or(0.0, |line| line.percent);
        let text = format!("  evidence: {percent:.1} % {}", names.join(" < "));
        let _ = writeln!(out, "{}", cut(&text, Some(width)));
    }
    // The last one is the tree, which is above.
    let n_special = finding.evidence.len().saturating_sub(1);
    for evidence in finding.evidence.iter().take(n_special) {
        let (label, unit) = match evidence.heading.as_str() {
            heading if heading.starts_with(HELD_BY) => ("held by", " of the time lost"),
            heading if heading.starts_with(FILES) => ("on", ""),
            _ => continue,
        };
        if let Some(line) = evidence.lines.first() {
            let name = one_line(&line.name);
            let text = format!("  {label:<8}: {:.1} %{unit}: {name}", line.percent);
            let _ = writeln!(out, "{}", cut(&text, Some(width)));
        }
    }
    labeled(out, "advice", first_sentence(&finding.advice), width);
}

/// What a user calls the process of a finding: `osd.3`; not escaped.
pub fn process_name<'p>(profile: &'p Profile, finding: &'p Finding) -> &'p str {
    let is_on = |host: &str| finding.host.is_empty() || host == finding.host;
    let mut processes = profile.processes.iter();
    let known = processes.find(|p| p.pid == finding.pid && is_on(&p.host));
    known.map_or(&finding.process, |p| &p.title)
}

/// `osd.3/4711 ` in a profile of several processes, with the host in one of several hosts; else nothing.
fn process_prefix(profile: &Profile, finding: &Finding) -> String {
    if profile.processes.len() < 2 {
        return String::new();
    }
    let name = process_name(profile, finding);
    let place = match finding.host.as_str() {
        "" => String::new(),
        host => format!(" on {}", one_line(host)),
    };
    format!("{}/{}{place} ", one_line(name), finding.pid)
}

/// `tp_osd_tp (21.7 %, 7.0 s)`: pool, share of its wall-clock time, the time.
fn also_in(finding: &Finding) -> String {
    match &finding.basis {
        Basis::Time(share) => format!(
            "{} ({:.1} %, {})",
            pools(finding),
            percent(share.matched_ns, share.wall_ns),
            short_duration(share.matched_ns)
        ),
        Basis::Setting(_) => pools(finding),
    }
}

/// Up to the first full stop that a space follows.
fn first_sentence(text: &str) -> &str {
    let text = text.trim();
    let end = text.find(". ").or_else(|| text.find(".\n"));
    end.map_or(text, |at| &text[..=at])
}

fn pools(finding: &Finding) -> String {
    let shown = finding.pools.iter().take(MAX_POOL_NAMES);
    let shown: Vec<String> = shown.map(|p| one_line(p)).collect();
    match finding.pools.len().saturating_sub(MAX_POOL_NAMES) {
        0 => shown.join(", "),
        n => format!("{} and {}", shown.join(", "), count(n, "other pool")),
    }
}

/// Whose time the share is of.
fn subject(finding: &Finding, process: &str) -> String {
    match (&finding.basis, finding.pools.as_slice()) {
        (Basis::Time(share), [pool]) if share.scope == Scope::Pool => one_line(pool),
        (Basis::Time(share), pools) if share.scope == Scope::Pool => {
            format!("{} pools", pools.len())
        }
        _ => one_line(process),
    }
}

/// `cache = writeback (-drive of disk)`
fn setting_text(setting: &Setting) -> String {
    match setting.origin.as_str() {
        "" => format!("{}: {}", setting.name, setting.value),
        origin => format!("{}: {} [{origin}]", setting.name, setting.value),
    }
}

/// `14.0 % of msgr-worker-N's 3 x 10.0 s of wall-clock time (4.2 s), 38.0 % of its on-CPU
/// time, ...`
fn share_text(share: &TimeShare, subject: &str) -> String {
    let matched = share.matched_ns;
    let (part, time) = (percent(matched, share.wall_ns), short_duration(matched));
    let mut text = if share.tids.is_empty() {
        let spans = spans(share.n_threads, share.wall_ns);
        let mut text = format!("{part:.1} % of {subject}'s {spans} of wall-clock time ({time})");
        if share.base == Base::OnCpu {
            let on_cpu = percent(matched, share.on_cpu_ns);
            let _ = write!(text, ", {on_cpu:.1} % of its on-CPU time");
        }
        let non_idle = percent(matched, share.non_idle_ns);
        let _ = write!(text, ", {non_idle:.1} % of its non-idle time");
        text
    } else {
        let n = share.tids.len();
        let (spans, threads) = (spans(n, share.wall_ns), count(share.n_threads, "thread"));
        format!(
            "{part:.1} % of the {spans} of wall-clock time of {n} of the {threads} of {subject} ({time})"
        )
    };
    let at_once = matched as f64 / share.duration_ns.max(1) as f64;
    if share.states == [State::OnCpu] {
        let _ = write!(text, "; {:.0} % of one core", at_once * 100.0);
    } else {
        let states: Vec<_> = share.states.iter().map(|s| s.name()).collect();
        let states = states.join(", ");
        let _ = write!(
            text,
            "; {at_once:.2} threads at a time on average; states: {states}"
        );
    }
    text + "; " + &count(share.n_samples as usize, "sample")
}

/// The share of time that a finding rests on, as a sentence without a full stop; names are escaped.
/// `None` for settings.
pub fn share_sentence(profile: &Profile, finding: &Finding) -> Option<String> {
    let Basis::Time(share) = &finding.basis else {
        return None;
    };
    let subject = subject(finding, process_name(profile, finding));
    Some(share_text(share, &subject))
}

/// `3 x 10.0 s`: threads and their mean observed time.
fn spans(n_threads: usize, wall_ns: u64) -> String {
    let mean = wall_ns / (n_threads.max(1) as u64);
    match n_threads {
        0 | 1 => short_duration(wall_ns),
        n => format!("{n} x {}", short_duration(mean)),
    }
}

/// Shorter than [`wcprof_text::duration`]: `5.0 s`.
pub(crate) fn short_duration(ns: u64) -> String {
    match ns {
        0..1_000_000 => format!("{:.0} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.0} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}

/// A tree in the form of the text report: one more column for each level, `|` while a sibling
/// follows below.
fn tree(out: &mut String, evidence: &Evidence, width: usize) {
    labeled(out, "evidence", &evidence.heading, width);
    let mut open = Vec::new();
    for (i, line) in evidence.lines.iter().enumerate() {
        let rest = evidence.lines.iter().skip(i + 1);
        let has_sibling = rest
            .take_while(|l| l.depth >= line.depth)
            .any(|l| l.depth == line.depth);
        open.resize(line.depth, ' ');
        let prefix: String = open.iter().collect();
        let name = one_line(&line.name);
        let text = format!("    {prefix}+ {:.2}% {name}", line.percent);
        let _ = writeln!(out, "{}", cut(&text, Some(width)));
        open.push(if has_sibling { '|' } else { ' ' });
    }
    if evidence.n_cut > 0 {
        let _ = writeln!(out, "    ({} cut)", count(evidence.n_cut, "line"));
    }
}

/// `  label: text`, wrapped; the lines that follow are indented under the text.
pub(crate) fn labeled(out: &mut String, label: &str, text: &str, width: usize) {
    write_wrapped(out, &format!("  {label:<8}: "), text, 12, width);
}

/// The text, escaped and wrapped; `indent` spaces begin the lines after the first.
fn write_wrapped(out: &mut String, head: &str, text: &str, indent: usize, width: usize) {
    let lines = wrap(&one_line(text.trim()), width, columns(head), indent);
    let text = lines.join(&format!("\n{:indent$}", ""));
    let _ = writeln!(out, "{}", format!("{head}{text}").trim_end());
}
