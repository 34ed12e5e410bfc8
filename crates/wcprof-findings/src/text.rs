//! Findings as text for people.

use indexmap::IndexMap;
use wcprof_profile::model::{Profile, State};
use wcprof_text::{columns, count, cut, one_line, percent, wrap};

use crate::finding::{Basis, Evidence, ExpectedGain, Finding, Hotspots, TimeShare, Undecided};
use crate::groups::{many_of_one, sum_text};
use crate::rule::{GroupLimit, Kind, Scope, Source};
use crate::rule_set::RuleSet;
use crate::unlike::comparison_text;

/// Pool names printed before the rest is counted.
const MAX_POOL_NAMES: usize = 4;

/// Share of on-CPU time without a stack, percent, above which the text says what that means.
const MUCH_WITHOUT_STACK: f64 = 50.0;

/// How much is said of each finding.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Detail {
    /// What, how much, and what to do.
    Brief,
    /// Also evidence, advice and sources.
    Full,
}

/// Findings that have lines of their own in a brief text.
const MAX_BRIEF: usize = 8;
/// Shares that are undecided, in a brief text.
const MAX_UNDECIDED: usize = 3;

/// Prints findings, and what is undecided, in lines of at most `width` characters, at least 40; names are escaped. Without
/// findings it says so. What a rule finds in many processes of one program is one finding.
pub fn render_text(profile: &Profile, hotspots: &Hotspots, width: usize, detail: Detail) -> String {
    let width = width.max(40);
    let groups = of_programs(profile, &hotspots.findings);
    let has_others = profile.processes.len() > 1;
    let texts = groups.iter().map(|group| match detail {
        Detail::Brief => brief(profile, group, has_others, width),
        Detail::Full => full(profile, group, width),
    });
    let mut out = match detail {
        Detail::Brief => texts.take(MAX_BRIEF).collect::<String>(),
        Detail::Full => texts.collect::<Vec<_>>().join("\n"),
    };
    if groups.is_empty() {
        out.push_str("no hotspots found\n");
    }
    let (n_groups, n_open) = match detail {
        Detail::Brief => (MAX_BRIEF, MAX_UNDECIDED),
        Detail::Full => (usize::MAX, usize::MAX),
    };
    if let Some(more) = groups.get(n_groups..).filter(|more| !more.is_empty()) {
        let ids: Vec<&str> = more.iter().map(|group| group[0].rule.as_str()).collect();
        out += &wrapped(
            "",
            &format!("{} more: {}", ids.len(), ids.join(", ")),
            2,
            width,
        );
    }
    if !hotspots.undecided.is_empty() {
        out.push_str("\nundecided: the 95 % interval spans the threshold\n");
    }
    for open in hotspots.undecided.iter().take(n_open) {
        let text = undecided(open);
        out += &wrapped("  ", &text, 4, width);
    }
    let n_more = hotspots.undecided.len().saturating_sub(n_open);
    if n_more > 0 {
        out += &format!("  {n_more} more\n");
    }
    let on_cpu = || profile.rows.iter().filter(|r| r.state == State::OnCpu);
    let without = on_cpu().filter(|r| r.stack.is_none());
    let share = percent(
        without.map(|r| r.weight).fold(0, u64::saturating_add),
        on_cpu().map(|r| r.weight).fold(0, u64::saturating_add),
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

/// Findings in their order; those of one rule in many processes of one program are one, the first of them first.
fn of_programs<'f>(profile: &Profile, findings: &'f [Finding]) -> Vec<Vec<&'f Finding>> {
    let mut groups: IndexMap<_, Vec<&Finding>> = IndexMap::new();
    for finding in findings {
        let class = finding.program(profile).map(|process| &process.class);
        let key = (&finding.rule, &finding.action, &finding.host, class);
        groups.entry(key).or_default().push(finding);
    }
    let many = |group: &Vec<&Finding>| many_of_one(profile, group).is_some();
    let groups = groups.into_values();
    let groups = groups.flat_map(|group| match many(&group) {
        true => vec![group],
        false => group.into_iter().map(|finding| vec![finding]).collect(),
    });
    let mut groups: Vec<Vec<&Finding>> = groups.collect();
    let place = |group: &Vec<&Finding>| findings.iter().position(|f| std::ptr::eq(f, group[0]));
    groups.sort_by_key(place);
    groups
}

/// A finding of many processes, or of one, in full: of many, with the evidence of the first.
fn full(profile: &Profile, group: &[&Finding], width: usize) -> String {
    let text = render_labeled(group[0], &label(group), width);
    match many_of_one(profile, group) {
        None => text,
        Some(many) => {
            let head = render_paragraph("found in", &format!("{many}: {}", sum_text(group)), width);
            let (title, rest) = text.split_once('\n').unwrap_or((&text, ""));
            format!("{title}\n{head}{rest}")
        }
    }
}

/// What was found, how much, and what to do.
fn brief(profile: &Profile, group: &[&Finding], has_others: bool, width: usize) -> String {
    let first = group[0];
    let many = many_of_one(profile, group);
    let subject = match (&many, has_others) {
        (Some(many), _) => format!("{many}: "),
        (None, true) => format!("{}: ", place(first)),
        (None, false) => String::new(),
    };
    let mut out = brief_head(first, &label(group), &subject, width);
    out += &match (&first.basis, &many) {
        (Basis::Time(_), Some(_)) => render_paragraph("share", &sum_text(group), width),
        _ => basis(first, width),
    };
    out + &render_paragraph("do", &first.action, width)
}

fn brief_head(finding: &Finding, label: &str, subject: &str, width: usize) -> String {
    let (title, rule) = (&finding.title, &finding.rule);
    let text = format!("[{label}] {subject}{title} ({rule})");
    wrapped("", &text, 2, width)
}

/// What findings of one rule are ordered by: what their remedy gives back together, or how much they matter where that is not
/// known.
fn label(group: &[&Finding]) -> String {
    let gains: Option<Vec<ExpectedGain>> = group.iter().map(|finding| finding.gain).collect();
    match gains {
        Some(gains) => ExpectedGain::sum(gains).text(),
        None => group[0].severity.name().to_owned(),
    }
}

/// A finding of settings, which may be that of several processes, in a few lines.
pub fn render_brief(finding: &Finding, subject: &str, width: usize) -> String {
    let width = width.max(40);
    let mut out = brief_head(finding, &label(&[finding]), subject, width);
    out += &basis(finding, width);
    out + &render_paragraph("do", &finding.action, width)
}

/// Lists rules with severity, threshold and sources. Lines are of at most `width` characters, at least 40.
pub fn render_rules(rules: &RuleSet, width: usize) -> String {
    let mut out = String::new();
    for rule in rules.rules() {
        let (severity, title) = (rule.severity.name(), one_line(&rule.title));
        let (percent, of) = (rule.threshold.percent, rule.threshold.of.name());
        let from = match rule.matches.kind {
            Kind::LikeProcesses => format!("{percent} % from the median"),
            Kind::Limit => limit_threshold(rule.matches.limit, percent),
            Kind::Stopped => format!("{percent} % of a thread's time at the end"),
            Kind::Deadlock => "the first circle of threads".to_owned(),
            _ => format!("{percent} % of the {of}"),
        };
        out += &format!("{} [{severity}] {title}\n  from {from}\n", rule.id);
        out += &render_paragraph("threshold", &rule.threshold.why, width);
        out += &sources(&rule.sources, width);
    }
    out
}

/// What the threshold of a rule on limits is.
fn limit_threshold(limit: Option<GroupLimit>, percent: f64) -> String {
    match limit {
        Some(GroupLimit::CpuQuota) => format!("{percent} % of the periods throttled"),
        Some(GroupLimit::BlockIo) => format!("{percent} % of the limit used"),
        Some(GroupLimit::MemoryHigh | GroupLimit::MemoryMax) | None => {
            format!("{} times a second", percent / 100.0)
        }
    }
}

/// One finding with all there is to say about it.
/// Lines are of at most `width` characters, at least 40; names are escaped.
pub fn render_finding(finding: &Finding, width: usize) -> String {
    render_labeled(finding, &label(&[finding]), width)
}

fn render_labeled(finding: &Finding, label: &str, width: usize) -> String {
    let width = width.max(40);
    let title = one_line(&finding.title);
    let mut out = format!("[{label}] {title} ({})\n", finding.rule);
    let mut place = place(finding);
    if !finding.pools.is_empty() {
        place = format!("{place}: {}", pools(finding));
    }
    out += &render_paragraph("where", &place, width);
    out += &basis(finding, width);
    for evidence in &finding.evidence {
        out += &tree(evidence, width);
    }
    out += &render_paragraph("why", &finding.explanation, width);
    out += &render_paragraph("advice", &finding.advice, width);
    if let Some(gain) = gain_sentence(finding) {
        out += &render_paragraph("gain", &gain, width);
    }
    out += &sources(&finding.sources, width);
    out + &render_paragraph("verify", &finding.verify, width)
}

/// `  label: text`, both escaped, and wrapped as in a finding; the lines that follow are indented under the text.
pub fn render_paragraph(label: &str, text: &str, width: usize) -> String {
    let label = one_line(label);
    wrapped(&format!("  {label:<8}: "), text, 12, width.max(40))
}

fn sources(sources: &[Source], width: usize) -> String {
    let sources = sources.iter().map(|source| {
        let text = format!("\"{}\": {}", source.report, source.figure.trim());
        render_paragraph("source", &text, width)
    });
    sources.collect()
}

/// What a finding rests on: the share of time, or the settings found.
fn basis(finding: &Finding, width: usize) -> String {
    match &finding.basis {
        Basis::Time(share) => {
            let text = share_text(share, finding);
            render_paragraph("share", &text, width)
        }
        Basis::Unlike(one) => render_paragraph("compared", &comparison_text(one), width),
        Basis::Setting(found) | Basis::Limit(found) => {
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

/// `osd.3 (pid 4711)`, with the host in a profile of several hosts.
fn place(finding: &Finding) -> String {
    format!(
        "{} (pid {}){}",
        finding.process,
        finding.pid,
        on_host(&finding.host)
    )
}

/// ` on ceph-2`, or nothing.
pub(crate) fn on_host(host: &str) -> String {
    match host {
        "" => String::new(),
        host => format!(" on {host}"),
    }
}

fn pools(finding: &Finding) -> String {
    let (shown, more) = (finding.pools).split_at(finding.pools.len().min(MAX_POOL_NAMES));
    match more.len() {
        0 => shown.join(", "),
        n => format!("{} and {}", shown.join(", "), count(n, "other pool")),
    }
}

/// `14.0 % (95 % interval 12.1 to 16.2) of msgr-worker-N's on-CPU time, 1.4 of 10.0 s`.
fn share_text(share: &TimeShare, finding: &Finding) -> String {
    let base_ns = share.base_ns();
    let part = |ns| percent(ns, base_ns);
    let text = format!(
        "{} of {}, {} of {}",
        with_interval(
            part(share.matched_ns),
            (part(share.low_ns), part(share.high_ns))
        ),
        whose(share, finding),
        short_duration(share.matched_ns),
        short_duration(base_ns),
    );
    if share.states == [State::OnCpu] {
        return text;
    }
    let at_once = share.matched_ns as f64 / share.duration_ns.max(1) as f64;
    let states: Vec<_> = share.states.iter().map(|s| s.name()).collect();
    let states = states.join(", ");
    format!("{text}; {at_once:.2} threads on average in {states}")
}

/// A share in percent with its 95 % interval: `14.0 % (95 % interval 12.1 to 16.2)`.
fn with_interval(share: f64, (low, high): (f64, f64)) -> String {
    format!("{share:.1} % (95 % interval {low:.1} to {high:.1})")
}

/// Whose time a share is of: `msgr-worker-N's on-CPU time`.
pub(crate) fn whose(share: &TimeShare, finding: &Finding) -> String {
    let subject = match (share.scope, finding.pools.as_slice()) {
        (Scope::Pool, [pool]) => format!("{pool}'s"),
        (Scope::Pool, pools) => format!("{} pools'", pools.len()),
        (Scope::Process, _) => format!("{}'s", finding.process),
    };
    let base = share.base.name();
    match share.tids.len() {
        0 => format!("{subject} {base}"),
        n if n == share.n_threads => format!("{subject} {base}"),
        n => format!(
            "the {base} of {n} of {subject} {}",
            count(share.n_threads, "thread")
        ),
    }
}

/// What may be a finding, and how long a recording would decide it.
fn undecided(open: &Undecided) -> String {
    let finding = &open.finding;
    let title = &finding.title;
    let id = &finding.rule;
    // The share that is compared with the threshold which is open.
    let (share, threshold) = match &finding.basis {
        Basis::Time(share) if percent(share.low_ns, share.base_ns()) >= open.threshold_percent => {
            let part = percent(share.matched_ns, share.duration_ns);
            let text = format!("{part:.1} % of one thread's time in {}", pools(finding));
            (text, open.min_wall_percent)
        }
        _ => (
            share_sentence(finding).unwrap_or_default(),
            open.threshold_percent,
        ),
    };
    let next = match open.needed_s {
        Some(seconds) => format!("a recording of {seconds} s would decide it"),
        None => "a longer recording may decide it".to_owned(),
    };
    format!("{title} ({id}): {share}; the threshold is {threshold} %; {next}")
}

/// The share of time that a finding rests on, as a sentence without a full stop; not escaped. `None` for
/// settings.
pub fn share_sentence(finding: &Finding) -> Option<String> {
    match &finding.basis {
        Basis::Time(share) => Some(share_text(share, finding)),
        Basis::Unlike(one) => Some(comparison_text(one)),
        Basis::Setting(_) | Basis::Limit(_) => None,
    }
}

/// The bound of what an advice can bring (Amdahl's law): the time that it is about. `None` for single threads,
/// whose other work goes on, and for settings.
pub fn gain_sentence(finding: &Finding) -> Option<String> {
    match &finding.basis {
        Basis::Time(share) if share.tids.is_empty() => {
            let most = percent(share.matched_ns, share.base_ns());
            let whose = whose(share, finding);
            // Measured: with the source that the rule names.
            let is_measured = (finding.returns - 1.0).abs() > f64::EPSILON;
            Some(match is_measured {
                true => format!(
                    "{most:.1} % of {whose} is counted here; the change gave back {:.1} times as much where it was measured",
                    finding.returns
                ),
                false => format!("at most {most:.1} % of {whose}, which is what is counted here"),
            })
        }
        _ => None,
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
        let share = node.percent.map(|percent| format!("{percent:.2}% "));
        let text = format!("    {prefix}+ {}{}", share.unwrap_or_default(), node.name);
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
