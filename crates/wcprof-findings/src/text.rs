//! Findings as text for people.

use std::fmt::Write;

use wcprof_profile::model::{Profile, State};

use crate::columns::{columns, cut};
use crate::files::FILES;
use crate::finding::{Basis, Evidence, Finding, Setting, TimeShare};
use crate::hotspots::{base_name, plural};
use crate::locks::HELD_BY;
use crate::printable::is_invisible;
use crate::rule::{Base, Scope};
use crate::rule_set::RuleSet;
use crate::totals::percent;

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

/// Prints findings with evidence and advice; names are escaped. Without findings it says so,
/// and what that rests on.
pub fn render_text(profile: &Profile, findings: &[Finding], options: TextOptions) -> String {
    let width = options.width.max(40);
    let mut out = String::new();
    let more = match options.detail {
        Detail::Full => {
            for (i, finding) in findings.iter().take(options.max_findings).enumerate() {
                if i > 0 {
                    out.push('\n');
                }
                let process = process_name(profile, finding);
                one(&mut out, finding, process, width);
            }
            findings.iter().skip(options.max_findings).collect()
        }
        Detail::Brief => {
            let groups = by_rule(findings);
            let (shown, rest) = groups.split_at(options.max_findings.min(groups.len()));
            for group in shown {
                brief(&mut out, profile, group, width);
            }
            rest.iter().flatten().copied().collect::<Vec<_>>()
        }
    };
    not_shown(&mut out, &more, width);
    if findings.is_empty() {
        out.push_str("no hotspots found\n");
    }
    let (on_cpu, without) = without_stack(profile);
    let share = percent(without, on_cpu);
    if share >= MUCH_WITHOUT_STACK {
        let _ = writeln!(
            out,
            "note: {share:.0} % of the on-CPU time has no stack (engine {}): rules on running \
             code cannot see it",
            escape(&profile.header.engine)
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
            escape(&rule.title),
            t.percent,
            base_name(t.of),
        );
        prose(&mut out, "threshold", &t.why, width);
        for source in &rule.sources {
            let text = format!("\"{}\": {}", source.report, source.figure);
            prose(&mut out, "source", &text, width);
        }
    }
    out
}

fn without_stack(profile: &Profile) -> (u64, u64) {
    let on_cpu = profile.rows.iter().filter(|r| r.state == State::OnCpu);
    on_cpu.fold((0_u64, 0_u64), |(all, without), row| {
        let missing = if row.stack.is_none() { row.weight } else { 0 };
        (
            all.saturating_add(row.weight),
            without.saturating_add(missing),
        )
    })
}

/// One finding with all there is to say about it.
pub fn render_finding(finding: &Finding, width: usize) -> String {
    let mut out = String::new();
    one(&mut out, finding, &finding.process, width.max(40));
    out
}

/// `  label: text`, escaped and wrapped as in a finding.
pub fn render_paragraph(label: &str, text: &str, width: usize) -> String {
    let mut out = String::new();
    prose(&mut out, label, text, width.max(40));
    out
}

fn one(out: &mut String, finding: &Finding, process: &str, width: usize) {
    let _ = writeln!(
        out,
        "[{}] {} ({})",
        finding.severity.name(),
        escape(&finding.title),
        finding.rule
    );
    let mut place = format!("{}/{}", escape(process), finding.pid);
    if !finding.host.is_empty() {
        let _ = write!(place, " on {}", escape(&finding.host));
    }
    if !finding.pools.is_empty() {
        let _ = write!(place, ": {}", pools(finding));
    }
    prose(out, "where", &place, width);
    match &finding.basis {
        Basis::Time(share) => {
            let subject = subject(finding, process);
            prose(out, "share", &share_text(share, &subject), width);
        }
        Basis::Setting(found) => {
            for setting in &found.settings {
                prose(out, "found", &setting_text(setting), width);
            }
        }
    }
    for evidence in &finding.evidence {
        tree(out, evidence, width);
    }
    prose(out, "why", &finding.explanation, width);
    prose(out, "advice", &finding.advice, width);
    let gain = format!("{} ({})", finding.gain.text.trim(), finding.gain.source);
    prose(out, "gain", &gain, width);
    for source in &finding.sources {
        let text = format!("\"{}\": {}", source.report, source.figure.trim());
        prose(out, "source", &text, width);
    }
    prose(out, "verify", &finding.verify, width);
}

/// Findings of one rule in pools of one process, as one group each, in the order of their
/// first ones. No group is empty.
fn by_rule(findings: &[Finding]) -> Vec<Vec<&Finding>> {
    let mut groups: Vec<Vec<&Finding>> = Vec::new();
    for finding in findings {
        let like = |g: &&mut Vec<&Finding>| {
            let first = g.first();
            first.is_some_and(|f| {
                f.rule == finding.rule && f.pid == finding.pid && f.host == finding.host
            })
        };
        match groups.iter_mut().find(like) {
            Some(group) => group.push(finding),
            None => groups.push(vec![finding]),
        }
    }
    groups
}

/// Names the findings that did not fit.
fn not_shown(out: &mut String, more: &[&Finding], width: usize) {
    if more.is_empty() {
        return;
    }
    let mut titles: Vec<&str> = Vec::new();
    for finding in more {
        if !titles.contains(&finding.title.as_str()) {
            titles.push(&finding.title);
        }
    }
    let n_titles = titles.len();
    titles.truncate(MAX_TITLES);
    let mut text = format!(
        "{} not shown: {}",
        plural(more.len(), "more finding"),
        titles.join("; ")
    );
    if n_titles > MAX_TITLES {
        text.push_str("; ...");
    }
    wrapped(out, "", &text, 0, width);
}

fn brief(out: &mut String, profile: &Profile, group: &[&Finding], width: usize) {
    let Some((finding, others)) = group.split_first() else {
        return;
    };
    let title = format!(
        "[{}] {}{}: {}",
        finding.severity.name(),
        process_prefix(profile, finding),
        pools(finding),
        escape(&finding.title)
    );
    let _ = writeln!(out, "{}", cut(&title, Some(width)));
    match &finding.basis {
        Basis::Time(share) => {
            let subject = subject(finding, process_name(profile, finding));
            prose(out, "share", &share_text(share, &subject), width);
        }
        Basis::Setting(found) => {
            let first = found.settings.first().map(setting_text);
            prose(out, "found", &first.unwrap_or_default(), width);
        }
    }
    if !others.is_empty() {
        let places: Vec<String> = others.iter().map(|f| also_in(f)).collect();
        prose(out, "also in", &places.join(", "), width);
    }
    if let Some(evidence) = finding.evidence.last() {
        let mut depth = 0;
        let chain = evidence.lines.iter().take_while(|line| {
            depth += 1;
            line.depth + 1 == depth
        });
        let names: Vec<String> = chain.map(|line| escape(&line.name)).collect();
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
            let name = escape(&line.name);
            let text = format!("  {label:<8}: {:.1} %{unit}: {name}", line.percent);
            let _ = writeln!(out, "{}", cut(&text, Some(width)));
        }
    }
    prose(out, "advice", first_sentence(&finding.advice), width);
}

/// What a user calls the process of a finding: `osd.3`; not escaped.
pub fn process_name<'p>(profile: &'p Profile, finding: &'p Finding) -> &'p str {
    let is_on = |host: &str| finding.host.is_empty() || host == finding.host;
    let mut processes = profile.processes.iter();
    let known = processes.find(|p| p.pid == finding.pid && is_on(&p.host));
    known.map_or(&finding.process, |p| &p.title)
}

/// `osd.3/4711 `, where there are several processes to tell apart, and with its host, where there are
/// several hosts; else nothing.
fn process_prefix(profile: &Profile, finding: &Finding) -> String {
    if profile.processes.len() < 2 {
        return String::new();
    }
    let name = process_name(profile, finding);
    let place = match finding.host.as_str() {
        "" => String::new(),
        host => format!(" on {}", escape(host)),
    };
    format!("{}/{}{place} ", escape(name), finding.pid)
}

/// `tp_osd_tp (21.7 %, 7.0 s)`: pool, share of its wall-clock time, the time.
fn also_in(finding: &Finding) -> String {
    match &finding.basis {
        Basis::Time(share) => format!(
            "{} ({:.1} %, {})",
            pools(finding),
            percent(share.matched_ns, share.wall_ns),
            duration(share.matched_ns)
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
    let shown: Vec<String> = finding
        .pools
        .iter()
        .take(MAX_POOL_NAMES)
        .map(|p| escape(p))
        .collect();
    match finding.pools.len().saturating_sub(MAX_POOL_NAMES) {
        0 => shown.join(", "),
        n => format!("{} and {}", shown.join(", "), plural(n, "other pool")),
    }
}

/// Whose time the share is of.
fn subject(finding: &Finding, process: &str) -> String {
    match (&finding.basis, finding.pools.as_slice()) {
        (Basis::Time(share), [pool]) if share.scope == Scope::Pool => escape(pool),
        (Basis::Time(share), pools) if share.scope == Scope::Pool => {
            format!("{} pools", pools.len())
        }
        _ => escape(process),
    }
}

/// `cache = writeback (-drive of disk)`
fn setting_text(setting: &Setting) -> String {
    let Setting {
        name,
        value,
        origin,
    } = setting;
    match origin.is_empty() {
        true => format!("{name}: {value}"),
        false => format!("{name}: {value} [{origin}]"),
    }
}

/// `14.0 % of msgr-worker-N's 3 x 10.0 s of wall-clock time (4.2 s), 38.0 % of its on-CPU
/// time, ...`
fn share_text(share: &TimeShare, subject: &str) -> String {
    let matched = share.matched_ns;
    let mut text = String::new();
    if share.tids.is_empty() {
        let _ = write!(
            text,
            "{:.1} % of {subject}'s {} of wall-clock time ({})",
            percent(matched, share.wall_ns),
            spans(share.n_threads, share.wall_ns),
            duration(matched),
        );
        if share.base == Base::OnCpu {
            let _ = write!(
                text,
                ", {:.1} % of its on-CPU time",
                percent(matched, share.on_cpu_ns)
            );
        }
        let non_idle = percent(matched, share.non_idle_ns);
        let _ = write!(text, ", {non_idle:.1} % of its non-idle time");
    } else {
        let _ = write!(
            text,
            "{:.1} % of the {} of wall-clock time of {} of the {} of {subject} ({})",
            percent(matched, share.wall_ns),
            spans(share.tids.len(), share.wall_ns),
            share.tids.len(),
            plural(share.n_threads, "thread"),
            duration(matched),
        );
    }
    let at_once = matched as f64 / share.duration_ns.max(1) as f64;
    if share.states == [State::OnCpu] {
        let _ = write!(text, "; {:.0} % of one core", at_once * 100.0);
    } else {
        let names: Vec<_> = share.states.iter().map(|s| s.name()).collect();
        let _ = write!(
            text,
            "; {at_once:.2} threads at a time on average; states: {}",
            names.join(", ")
        );
    }
    let samples = usize::try_from(share.n_samples).unwrap_or(usize::MAX);
    let _ = write!(text, "; {}", plural(samples, "sample"));
    text
}

/// The share of time that a finding rests on, as a sentence without a full stop; names are escaped.
/// `None` for settings.
pub fn share_sentence(profile: &Profile, finding: &Finding) -> Option<String> {
    match &finding.basis {
        Basis::Time(share) => {
            let subject = subject(finding, process_name(profile, finding));
            Some(share_text(share, &subject))
        }
        Basis::Setting(_) => None,
    }
}

/// `3 x 10.0 s`: threads and their mean observed time.
fn spans(n_threads: usize, wall_ns: u64) -> String {
    let mean = wall_ns / (n_threads.max(1) as u64);
    match n_threads {
        0 | 1 => duration(wall_ns),
        n => format!("{n} x {}", duration(mean)),
    }
}

pub(crate) fn duration(ns: u64) -> String {
    match ns {
        0..1_000_000 => format!("{:.0} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.0} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}

/// A tree in the form of the text report: one more column for each level, `|` while a sibling
/// follows below.
fn tree(out: &mut String, evidence: &Evidence, width: usize) {
    prose(out, "evidence", &evidence.heading, width);
    let mut open = Vec::new();
    for (i, line) in evidence.lines.iter().enumerate() {
        let rest = evidence.lines.iter().skip(i + 1);
        let has_sibling = rest
            .take_while(|l| l.depth >= line.depth)
            .any(|l| l.depth == line.depth);
        open.resize(line.depth, ' ');
        let prefix: String = open.iter().collect();
        let name = escape(&line.name);
        let text = format!("    {prefix}+ {:.2}% {name}", line.percent);
        let _ = writeln!(out, "{}", cut(&text, Some(width)));
        open.push(if has_sibling { '|' } else { ' ' });
    }
    if evidence.n_cut > 0 {
        let _ = writeln!(out, "    ({} cut)", plural(evidence.n_cut, "line"));
    }
}

/// `  label: text`, wrapped; the lines that follow are indented under the text.
pub(crate) fn prose(out: &mut String, label: &str, text: &str, width: usize) {
    wrapped(out, &format!("  {label:<8}: "), text, 12, width);
}

/// The text, escaped and wrapped; `indent` spaces begin the lines after the first.
fn wrapped(out: &mut String, head: &str, text: &str, indent: usize, width: usize) {
    let mut line = head.to_owned();
    let mut at_start = true;
    for word in escape(text.trim()).split_whitespace() {
        let length = columns(&line) + 1 + columns(word);
        if !at_start && length > width {
            let _ = writeln!(out, "{}", line.trim_end());
            line = " ".repeat(indent);
            at_start = true;
        }
        if !at_start {
            line.push(' ');
        }
        line.push_str(word);
        at_start = false;
    }
    let _ = writeln!(out, "{}", line.trim_end());
}

/// The text with `?` for every character that could drive a terminal, or reorder or hide text;
/// newlines and tabs become spaces.
pub fn escape(text: &str) -> String {
    let safe = |c: char| match c {
        '\n' | '\t' => ' ',
        c if c.is_control() || is_invisible(c) => '?',
        c => c,
    };
    text.chars().map(safe).collect()
}
