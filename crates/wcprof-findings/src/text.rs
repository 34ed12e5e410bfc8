//! Findings as text for people.

use indexmap::{IndexMap, IndexSet};
use wcprof_profile::model::{Profile, State};
use wcprof_text::{columns, count, cut, one_line, percent, wrap};

use crate::finding::{Basis, Evidence, EvidenceLine, FILES, Finding, HELD_BY, TimeShare};
use crate::rule::{Base, Scope, Source};
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
    let is_brief = options.detail == Detail::Brief;
    // In the brief form of one rule in pools of one process, else single ones; no group is empty.
    let mut groups: IndexMap<_, Vec<&Finding>> = IndexMap::new();
    for (at, finding) in findings.iter().enumerate() {
        let place = (&finding.rule, finding.pid, &finding.host);
        let key = (place, if is_brief { 0 } else { at });
        groups.entry(key).or_default().push(finding);
    }
    let groups: Vec<Vec<&Finding>> = groups.into_values().collect();
    let (shown, rest) = groups.split_at(options.max_findings.min(groups.len()));
    let texts = shown.iter().map(|group| match is_brief {
        true => brief(profile, group, width),
        false => full(group[0], process_name(profile, group[0]), width),
    });
    let texts: Vec<String> = texts.collect();
    let mut out = texts.join(if is_brief { "" } else { "\n" });
    out += &titles(&rest.concat(), width);
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
        let engine = one_line(&profile.header.engine);
        out += &format!(
            "note: {share:.0} % of the on-CPU time has no stack (engine {engine}): rules on running \
             code cannot see it\n"
        );
    }
    out
}

/// Lists rules with severity, threshold and sources. Lines are of at most `width` characters, at least 40.
pub fn render_rules(rules: &RuleSet, width: usize) -> String {
    let mut out = String::new();
    for rule in rules.rules() {
        let (severity, title) = (rule.severity.name(), one_line(&rule.title));
        let (percent, of) = (rule.threshold.percent, rule.threshold.of.name());
        out += &format!(
            "{} [{severity}] {title}\n  from {percent} % of the {of}\n",
            rule.id
        );
        out += &render_paragraph("threshold", &rule.threshold.why, width);
        out += &sources(&rule.sources, width);
    }
    out
}

/// One finding with all there is to say about it.
pub fn render_finding(finding: &Finding, width: usize) -> String {
    full(finding, &finding.process, width.max(40))
}

/// `  label: text`, escaped and wrapped as in a finding; the lines that follow are indented under the text.
pub fn render_paragraph(label: &str, text: &str, width: usize) -> String {
    wrapped(&format!("  {label:<8}: "), text, 12, width.max(40))
}

fn full(finding: &Finding, process: &str, width: usize) -> String {
    let title = one_line(&finding.title);
    let mut out = format!("[{}] {title} ({})\n", finding.severity.name(), finding.rule);
    let mut place = place(finding, process);
    if !finding.pools.is_empty() {
        place = format!("{place}: {}", pools(finding));
    }
    out += &render_paragraph("where", &place, width);
    out += &basis(finding, process, width);
    for evidence in &finding.evidence {
        out += &tree(evidence, width);
    }
    out += &render_paragraph("why", &finding.explanation, width);
    out += &render_paragraph("advice", &finding.advice, width);
    let gain = format!("{} ({})", finding.gain.text.trim(), finding.gain.source);
    out += &render_paragraph("gain", &gain, width);
    out += &sources(&finding.sources, width);
    out + &render_paragraph("verify", &finding.verify, width)
}

fn sources(sources: &[Source], width: usize) -> String {
    let sources = sources.iter().map(|source| {
        let text = format!("\"{}\": {}", source.report, source.figure.trim());
        render_paragraph("source", &text, width)
    });
    sources.collect()
}

/// What a finding rests on: the share of time, or the settings found.
fn basis(finding: &Finding, process: &str, width: usize) -> String {
    match &finding.basis {
        Basis::Time(share) => {
            let text = share_text(share, finding, process);
            render_paragraph("share", &text, width)
        }
        Basis::Setting(found) => {
            let settings = found.settings.iter().map(|setting| {
                let mut text = format!("{}: {}", setting.name, setting.value);
                if !setting.origin.is_empty() {
                    text = format!("{text} [{}]", setting.origin);
                }
                render_paragraph("found", &text, width)
            });
            settings.collect()
        }
    }
}

/// Names the findings that did not fit.
fn titles(more: &[&Finding], width: usize) -> String {
    if more.is_empty() {
        return String::new();
    }
    let titles: IndexSet<&str> = more.iter().map(|f| f.title.as_str()).collect();
    let shown: Vec<&str> = titles.iter().copied().take(MAX_TITLES).collect();
    let dots = if titles.len() > shown.len() {
        "; ..."
    } else {
        ""
    };
    let (n, shown) = (count(more.len(), "more finding"), shown.join("; "));
    wrapped("", &format!("{n} not shown: {shown}{dots}"), 0, width)
}

/// Findings of one rule in pools of one process: the first, and where the others are.
fn brief(profile: &Profile, group: &[&Finding], width: usize) -> String {
    let finding = group[0];
    let process = process_name(profile, finding);
    let prefix = match profile.processes.len() {
        0 | 1 => String::new(),
        _ => place(finding, process) + " ",
    };
    let (severity, pools) = (finding.severity.name(), pools(finding));
    let title = format!("[{severity}] {prefix}{pools}: {}", finding.title);
    let mut out = line(&title, width) + &basis(finding, process, width);
    if group.len() > 1 {
        let places: Vec<String> = group[1..].iter().map(|f| also_in(f)).collect();
        out += &render_paragraph("also in", &places.join(", "), width);
    }
    // The last one is the tree.
    if let Some((tree, others)) = finding.evidence.split_last() {
        let lines = (0..).zip(&tree.lines);
        let chain = lines.take_while(|(depth, line)| line.depth == *depth);
        let names: Vec<&str> = chain.map(|(_, line)| line.name.as_str()).collect();
        let percent = tree.lines.first().map_or(0.0, |line| line.percent);
        let text = format!("  evidence: {percent:.1} % {}", names.join(" < "));
        out += &line(&text, width);
        for evidence in others {
            let (label, unit) = match evidence.heading.as_str() {
                heading if heading.starts_with(HELD_BY) => ("held by", " of the time lost"),
                heading if heading.starts_with(FILES) => ("on", ""),
                _ => continue,
            };
            if let Some(EvidenceLine { percent, name, .. }) = evidence.lines.first() {
                let text = format!("  {label:<8}: {percent:.1} %{unit}: {name}");
                out += &line(&text, width);
            }
        }
    }
    out + &render_paragraph("advice", first_sentence(&finding.advice), width)
}

/// What a user calls the process of a finding: `osd.3`; not escaped.
pub fn process_name<'p>(profile: &'p Profile, finding: &'p Finding) -> &'p str {
    let is_on = |host: &str| finding.host.is_empty() || host == finding.host;
    let mut processes = profile.processes.iter();
    let known = processes.find(|p| p.pid == finding.pid && is_on(&p.host));
    known.map_or(&finding.process, |p| &p.title)
}

/// `osd.3/4711`, with the host in a profile of several hosts.
fn place(finding: &Finding, process: &str) -> String {
    match finding.host.as_str() {
        "" => format!("{process}/{}", finding.pid),
        host => format!("{process}/{} on {host}", finding.pid),
    }
}

/// `tp_osd_tp (21.7 %, 7.0 s)`: pool, share of its wall-clock time, the time.
fn also_in(finding: &Finding) -> String {
    let pools = pools(finding);
    match &finding.basis {
        Basis::Time(share) => {
            let part = percent(share.matched_ns, share.wall_ns);
            format!(
                "{pools} ({part:.1} %, {})",
                short_duration(share.matched_ns)
            )
        }
        Basis::Setting(_) => pools,
    }
}

/// Up to the first full stop that a space follows.
fn first_sentence(text: &str) -> &str {
    let text = text.trim();
    let end = text.find(". ").or_else(|| text.find(".\n"));
    end.map_or(text, |at| &text[..=at])
}

fn pools(finding: &Finding) -> String {
    let (shown, more) = (finding.pools).split_at(finding.pools.len().min(MAX_POOL_NAMES));
    match more.len() {
        0 => shown.join(", "),
        n => format!("{} and {}", shown.join(", "), count(n, "other pool")),
    }
}

/// `14.0 % of msgr-worker-N's 3 x 10.0 s of wall-clock time (4.2 s), 38.0 % of its on-CPU
/// time, ...`
fn share_text(share: &TimeShare, finding: &Finding, process: &str) -> String {
    // Whose time it is.
    let subject = match (share.scope, finding.pools.as_slice()) {
        (Scope::Pool, [pool]) => pool.clone(),
        (Scope::Pool, pools) => format!("{} pools", pools.len()),
        (Scope::Process, _) => process.to_owned(),
    };
    let matched = share.matched_ns;
    let (part, time) = (percent(matched, share.wall_ns), short_duration(matched));
    let mut text = if share.tids.is_empty() {
        let spans = spans(share.n_threads, share.wall_ns);
        let mut text = format!("{part:.1} % of {subject}'s {spans} of wall-clock time ({time})");
        if share.base == Base::OnCpu {
            let on_cpu = percent(matched, share.on_cpu_ns);
            text += &format!(", {on_cpu:.1} % of its on-CPU time");
        }
        let non_idle = percent(matched, share.non_idle_ns);
        text + &format!(", {non_idle:.1} % of its non-idle time")
    } else {
        let n = share.tids.len();
        let (spans, threads) = (spans(n, share.wall_ns), count(share.n_threads, "thread"));
        format!(
            "{part:.1} % of the {spans} of wall-clock time of {n} of the {threads} of {subject} ({time})"
        )
    };
    let at_once = matched as f64 / share.duration_ns.max(1) as f64;
    if share.states == [State::OnCpu] {
        text += &format!("; {:.0} % of one core", at_once * 100.0);
    } else {
        let states: Vec<_> = share.states.iter().map(|s| s.name()).collect();
        let states = states.join(", ");
        text += &format!("; {at_once:.2} threads at a time on average; states: {states}");
    }
    text + "; " + &count(share.n_samples as usize, "sample")
}

/// The share of time that a finding rests on, as a sentence without a full stop; not escaped. `None` for
/// settings.
pub fn share_sentence(profile: &Profile, finding: &Finding) -> Option<String> {
    match &finding.basis {
        Basis::Time(share) => Some(share_text(share, finding, process_name(profile, finding))),
        Basis::Setting(_) => None,
    }
}

/// `3 x 10.0 s`: threads and their mean observed time.
fn spans(n_threads: usize, wall_ns: u64) -> String {
    match n_threads {
        0 | 1 => short_duration(wall_ns),
        n => format!("{n} x {}", short_duration(wall_ns / n as u64)),
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
fn tree(evidence: &Evidence, width: usize) -> String {
    let mut out = render_paragraph("evidence", &evidence.heading, width);
    let mut open = Vec::new();
    for (i, node) in evidence.lines.iter().enumerate() {
        let mut rest = evidence.lines[i + 1..].iter();
        let next = rest.find(|other| other.depth <= node.depth);
        let has_sibling = next.is_some_and(|next| next.depth == node.depth);
        open.resize(node.depth, ' ');
        let prefix: String = open.iter().collect();
        let text = format!("    {prefix}+ {:.2}% {}", node.percent, node.name);
        out += &line(&text, width);
        open.push(if has_sibling { '|' } else { ' ' });
    }
    if evidence.n_cut > 0 {
        out += &format!("    ({} cut)\n", count(evidence.n_cut, "line"));
    }
    out
}

/// The text as one line, escaped and cut.
pub(crate) fn line(text: &str, width: usize) -> String {
    cut(&one_line(text), Some(width)).into_owned() + "\n"
}

/// The text, escaped and wrapped; `indent` spaces begin the lines after the first.
fn wrapped(head: &str, text: &str, indent: usize, width: usize) -> String {
    let lines = wrap(&one_line(text.trim()), width, columns(head), indent);
    let text = lines.join(&format!("\n{:indent$}", ""));
    format!("{head}{text}").trim_end().to_owned() + "\n"
}
