//! Checks that the values of a rule make sense.

use regex::bytes::RegexBuilder;
use wcprof_profile::model::State;
use wcprof_types::StopCause;

use crate::rule::{Base, FrameTest, Kind, Match, Pattern, Rule, Scope, Show};

/// Bounds the compiled size of one expression, bytes, so that a file cannot exhaust memory.
const MAX_REGEX_BYTES: usize = 4 << 20;

/// Most of the counted time that a remedy can give back, as a part of it.
const MAX_RETURNS: f64 = 10.0;

/// A key, as in `match.when[2].function[0]`, and what is wrong with its value.
pub(crate) type Problem = (String, String);

/// Checks everything but whether expressions compile.
pub(crate) fn check(rule: &Rule) -> Result<(), Problem> {
    check_texts(rule)?;
    check_threshold(rule)?;
    check_stops(rule)?;
    check_match(rule)
}

fn check_stops(rule: &Rule) -> Result<(), Problem> {
    if !rule.stops.is_empty() && rule.matches.kind != Kind::Stopped {
        return problem("stops", "need `kind = \"stopped\"`");
    }
    let is_known = |name: &str| StopCause::ALL.iter().any(|cause| cause.name() == name);
    match rule.stops.iter().find(|stop| !is_known(&stop.cause)) {
        Some(stop) => problem("stops.cause", format!("unknown cause {:?}", stop.cause)),
        None => Ok(()),
    }
}

/// Compiles each expression, to say which one is wrong.
pub(crate) fn check_expressions(rule: &Rule) -> Result<(), Problem> {
    for (key, test) in frame_tests(rule) {
        for (i, expression) in test.function.iter().enumerate() {
            let compiled = RegexBuilder::new(expression)
                .unicode(false)
                .size_limit(MAX_REGEX_BYTES)
                .dfa_size_limit(MAX_REGEX_BYTES)
                .build();
            compiled.map_err(|e| (format!("{key}.function[{i}]"), e.to_string()))?;
        }
    }
    Ok(())
}

fn problem(key: impl Into<String>, what: impl Into<String>) -> Result<(), Problem> {
    Err((key.into(), what.into()))
}

/// The first of these whose condition holds is a problem.
fn none_of(problems: &[(bool, &str, &str)]) -> Result<(), Problem> {
    match problems.iter().find(|(is_wrong, ..)| *is_wrong) {
        Some((_, key, what)) => problem(*key, *what),
        None => Ok(()),
    }
}

fn check_texts(rule: &Rule) -> Result<(), Problem> {
    for (key, text) in [
        ("title", &rule.title),
        ("explanation", &rule.explanation),
        ("advice", &rule.advice),
        ("verify", &rule.verify),
        ("action", &rule.action),
        ("threshold.why", &rule.threshold.why),
    ] {
        if text.trim().is_empty() {
            return problem(key, "is empty");
        }
    }
    for (i, source) in rule.sources.iter().enumerate() {
        if source.report.trim().is_empty() || source.figure.trim().is_empty() {
            return problem(format!("sources[{i}]"), "`report` or `figure` is empty");
        }
    }
    for (glob, part) in &rule.returns {
        if !(*part > 0.0 && *part <= MAX_RETURNS) {
            let what = format!("expected more than 0 and at most {MAX_RETURNS}, found {part}");
            return problem(format!("returns.{glob}"), what);
        }
    }
    let is_id_char = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_bad_id = rule.id.is_empty() || !rule.id.chars().all(is_id_char);
    let no_source = "a rule without a source is an opinion; name one";
    none_of(&[
        (is_bad_id, "id", "expected lower-case words joined by `-`"),
        (rule.title.contains('\n'), "title", "expected one line"),
        (rule.sources.is_empty(), "sources", no_source),
    ])
}

fn check_threshold(rule: &Rule) -> Result<(), Problem> {
    let t = &rule.threshold;
    for (key, value, least, most) in [
        ("percent", t.percent, 0, 100),
        ("min_wall_percent", t.min_wall_percent, 0, 100),
        ("max_over_mean", t.max_over_mean, 1, 1000),
    ] {
        if !(value > f64::from(least) && value <= f64::from(most)) {
            let what = format!("expected more than {least} and at most {most}, found {value}");
            return problem(format!("threshold.{key}"), what);
        }
    }
    let is_of_time = matches!(rule.matches.kind, Kind::Stacks | Kind::Imbalance);
    none_of(&[(
        !is_of_time && (t.of != Base::Wall || t.scope != Scope::Pool),
        "threshold.of",
        "`match.kind = \"threads\"`, `\"like-processes\"`, `\"limit\"`, `\"stopped\"` and `\"deadlock\"` need `of = \"wall\"` and no `scope`",
    )])
}

/// A rule that looks at no stacks.
fn check_special(m: &Match) -> Result<(), Problem> {
    if matches!(m.kind, Kind::LikeProcesses | Kind::Stopped | Kind::Deadlock) {
        let only_processes = Match {
            kind: m.kind,
            processes: m.processes.clone(),
            ..Match::default()
        };
        let what = "`match.kind = \"like-processes\"`, `\"stopped\"` and `\"deadlock\"` take `processes` alone";
        return none_of(&[(*m != only_processes, "match", what)]);
    }
    let only_limit = Match {
        kind: m.kind,
        limit: m.limit,
        processes: m.processes.clone(),
        ..Match::default()
    };
    let what = "`match.kind = \"limit\"` takes `limit`, and beside it `processes` alone";
    let is_wrong = *m != only_limit || m.limit.is_none();
    none_of(&[(is_wrong, "match", what)])
}

fn check_match(rule: &Rule) -> Result<(), Problem> {
    let (m, of) = (&rule.matches, rule.threshold.of);
    if !matches!(m.kind, Kind::Stacks | Kind::Threads | Kind::Imbalance) {
        return check_special(m);
    }
    let has_patterns = !(m.when.is_empty() && m.unless.is_empty());
    let from_frame = matches!(m.evidence, Show::Callers | Show::Callees);
    let of_delay = m.states == [State::Runnable];
    none_of(&[
        (
            m.limit.is_some(),
            "match.limit",
            "goes with `kind = \"limit\"`, and only with it",
        ),
        (
            !rule.causes.is_empty() && !of_delay,
            "causes",
            "need `states = [\"runnable\"]`",
        ),
        (
            m.kind == Kind::Threads && has_patterns,
            "match.when",
            "`match.kind = \"threads\"` takes no `when` and no `unless`",
        ),
        (
            of == Base::OnCpu && m.states != [State::OnCpu],
            "match.states",
            "`of = \"on-cpu\"` needs `states = [\"on-cpu\"]`",
        ),
        (
            of == Base::NonIdle && m.states.iter().any(|state| state.is_idle()),
            "match.states",
            "idle time is no part of `of = \"non-idle\"`",
        ),
        (
            m.when.is_empty() && m.states.is_empty(),
            "match.states",
            "without `when` a rule must name its states",
        ),
        (
            m.when.is_empty() && from_frame,
            "match.evidence",
            "needs a frame in `match.when`",
        ),
        (
            (m.evidence == Show::Sites) == m.skip.is_empty(),
            "match.skip",
            "goes with `evidence = \"sites\"`, and only with it",
        ),
    ])?;
    for (key, p) in patterns(rule) {
        let uses_frame = p.leaf_within > 0 || p.below.is_some();
        none_of(&[
            (
                !p.tests_frame() && uses_frame,
                &key,
                "`leaf_within` and `below` need `function` or `module` beside them",
            ),
            (
                p.below.is_none() && p.below_within > 0,
                &key,
                "`below_within` needs `below` beside it",
            ),
            (
                p.outside_syscall && !p.syscalls.is_empty(),
                &key,
                "`outside_syscall` and `syscalls` exclude each other",
            ),
        ])?;
    }
    for (key, test) in frame_tests(rule) {
        if test.function.is_empty() && test.module.is_empty() {
            return problem(key, "tests nothing; give `function` or `module`");
        }
        if let Some(i) = test.function.iter().position(String::is_empty) {
            return problem(format!("{key}.function[{i}]"), "is empty");
        }
    }
    Ok(())
}

/// The patterns of a rule, with their keys.
fn patterns(rule: &Rule) -> impl Iterator<Item = (String, &Pattern)> {
    let m = &rule.matches;
    let lists = [("when", &m.when), ("unless", &m.unless)];
    lists.into_iter().flat_map(|(name, list)| {
        let with_key = move |(i, pattern)| (format!("match.{name}[{i}]"), pattern);
        list.iter().enumerate().map(with_key)
    })
}

/// The tests of frames, wherever in the rule they are, with their keys.
fn frame_tests(rule: &Rule) -> Vec<(String, FrameTest)> {
    let mut tests = Vec::new();
    for (key, pattern) in patterns(rule) {
        let below = pattern.below.iter().cloned();
        tests.extend(below.map(|below| (format!("{key}.below"), below)));
        let tests_wait = pattern.outside_syscall || !pattern.syscalls.is_empty();
        if pattern.tests_frame() || !tests_wait {
            let (function, module) = (pattern.function.clone(), pattern.module.clone());
            tests.push((key, FrameTest { function, module }));
        }
    }
    let skip = rule.matches.skip.iter().cloned().enumerate();
    tests.extend(skip.map(|(i, test)| (format!("match.skip[{i}]"), test)));
    tests
}
