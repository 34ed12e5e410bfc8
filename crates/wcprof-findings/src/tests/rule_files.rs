//! Reading rule files, the user's and the built-in ones.

use std::fs;
use std::path::Path;

use crate::rule_set::{BUILTIN, RuleSet};

const GOOD: &str = r#"
id = "mine"
title = "my function is hot"
severity = "low"
explanation = "it spins"
advice = "do not call it"
verify = "attach again"
action = "call it less"
match = { states = ["on-cpu"], when = [{ function = ["^my_function$"] }] }
threshold = { of = "on-cpu", percent = 5.0, why = "noise ends there" }
sources = [{ report = "a report", figure = "5 %" }]
"#;

/// Check that every file of the rules folder is built in, under its rule's id.
#[test]
fn all_files_are_built_in() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("rules");
    let mut files: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    let mut built_in: Vec<_> = BUILTIN.iter().map(|(f, _)| (*f).to_owned()).collect();
    let set = RuleSet::builtin().unwrap();
    let ids: Vec<_> = set
        .rules()
        .iter()
        .map(|r| format!("{}.toml", r.id))
        .collect();
    assert_eq!(ids, built_in);
    built_in.sort();
    assert_eq!(files, built_in);
}

/// Check that every built-in rule that claims a multiple or a limit names a figure.
#[test]
fn severe_rules_have_figures() {
    let has_digit = |s: &str| s.bytes().any(|b| b.is_ascii_digit());
    for rule in RuleSet::builtin().unwrap().rules() {
        crate::check::check_expressions(rule).unwrap();
        assert!(
            has_digit(&rule.threshold.why) || has_digit(&rule.advice),
            "{}",
            rule.id
        );
        if rule.severity >= crate::Severity::High {
            let mut figures = rule.sources.iter().map(|s| &s.figure);
            assert!(
                figures.any(|f| has_digit(f) || f.contains("bound")),
                "{}",
                rule.id
            );
        }
    }
}

/// Check that a folder's rules are added by file name and that the same id replaces.
#[test]
fn folder() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("b.toml"),
        GOOD.replace("\"low\"", "\"high\""),
    )
    .unwrap();
    fs::write(folder.path().join("a.toml"), GOOD).unwrap();
    fs::write(folder.path().join("note.txt"), "not a rule").unwrap();
    let mut set = RuleSet::builtin().unwrap();
    let n_builtin = set.rules().len();
    set.load_dir(folder.path()).unwrap();
    assert_eq!(set.rules().len(), n_builtin + 1);
    assert_eq!(set.rules()[n_builtin].severity, crate::Severity::High);
}

/// Check that a folder without rules, a missing file and a bad file leave the set unchanged.
#[test]
fn nothing_half_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let mut set = RuleSet::default();
    let empty = set.load_dir(folder.path()).unwrap_err().to_string();
    assert!(empty.contains("holds no `*.toml` file"), "{empty}");
    let missing = set.load_file(&folder.path().join("x.toml")).unwrap_err();
    assert!(missing.to_string().contains("x.toml"), "{missing}");
    fs::write(folder.path().join("a.toml"), GOOD).unwrap();
    fs::write(folder.path().join("b.toml"), "id = 5").unwrap();
    set.load_dir(folder.path()).unwrap_err();
    assert_eq!(set, RuleSet::default());
    fs::write(folder.path().join("b.toml"), " ".repeat(300 << 10)).unwrap();
    let long = set.load_file(&folder.path().join("b.toml")).unwrap_err();
    assert!(long.to_string().contains("longer than"), "{long}");
}

/// Check that a mistake names the file, the key and what is wrong.
#[test]
fn mistakes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    for (from, to, expected) in [
        (
            "severity = \"low\"",
            "severity = \"huge\"",
            "unknown variant `huge`",
        ),
        (
            "severity = \"low\"",
            "severty = \"low\"",
            "unknown field `severty`",
        ),
        (
            "percent = 5.0",
            "percent = 0.0",
            "key `threshold.percent`: expected more than 0",
        ),
        (
            "percent = 5.0",
            "percent = nan",
            "key `threshold.percent`: expected more than 0",
        ),
        ("percent = 5.0, ", "", "missing field `percent`"),
        (
            "^my_function$",
            "(",
            "key `match.when[0].function[0]`: regex parse error",
        ),
        (
            "[\"^my_function$\"]",
            "[]",
            "key `match.when[0]`: tests nothing",
        ),
        (
            "\"], when",
            "\"], evidence = \"asleep\", when",
            "unknown variant `asleep`",
        ),
        (
            "\"], when",
            "\"], skip = [{ module = [\"x\"] }], when",
            "key `match.skip`",
        ),
        (
            "\"], when",
            "\"], kind = \"threads\", when",
            "key `threshold.of`",
        ),
        (
            "[{ report = \"a report\", figure = \"5 %\" }]",
            "[]",
            "key `sources`",
        ),
        ("\"do not call it\"", "\" \"", "key `advice`: is empty"),
        ("\"mine\"", "\"My Rule\"", "key `id`: expected lower-case"),
        (
            "states = [\"on-cpu\"], ",
            "",
            "key `match.states`: `of = \"on-cpu\"` needs",
        ),
        (
            "{ function",
            "{ outside_syscall = true, syscalls = [1], function",
            "key `match.when[0]`: `outside_syscall` and `syscalls`",
        ),
        (
            "{ function = [\"^my_function$\"] }",
            "{ syscalls = [1], leaf_within = 1 }",
            "key `match.when[0]`: `leaf_within` and `below`",
        ),
    ] {
        assert!(GOOD.contains(from), "{from}");
        fs::write(&path, GOOD.replace(from, to)).unwrap();
        let error = RuleSet::default().load_file(&path).unwrap_err().to_string();
        assert!(error.contains(expected), "{to}: {error}");
        assert!(error.contains("mine.toml"), "{error}");
    }
}

/// Check that an expression that would compile to gigabytes is refused.
#[test]
fn huge_expression() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    let text = GOOD.replace("^my_function$", "((a{1000}){1000}){1000}");
    fs::write(&path, text).unwrap();
    let error = RuleSet::default().load_file(&path).unwrap_err().to_string();
    assert!(error.contains("match.when[0].function[0]"), "{error}");
}
