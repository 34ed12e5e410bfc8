//! TOML text to [`Rules`], with the line of what is wrong.

use globset::{Glob, GlobSet, GlobSetBuilder};
use regex::bytes::{Regex, RegexBuilder};
use serde::Deserialize;
use toml::Spanned;
use wcprof_types::FdKind;

use super::patterns::{MAX_REGEX_BYTES, Mark, PatternTexts};
use super::{Category, ClassRule, OfStack, PoolRule, Rules, RulesError, StateRule, too_large};
use crate::NameSet;
use crate::model::State;
use crate::syscalls::syscall_number;

type Texts = Vec<Spanned<String>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    #[serde(default)]
    state: Vec<RawState>,
    #[serde(default)]
    default: Vec<RawState>,
    #[serde(default)]
    pool: Vec<RawPool>,
    #[serde(default)]
    class: Vec<RawClass>,
    #[serde(default)]
    category: Vec<RawCategory>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawState {
    state: Spanned<String>,
    why: Option<String>,
    when: Option<Texts>,
    stack: Option<Texts>,
    module: Option<Texts>,
    leaf: Option<Spanned<usize>>,
    caller: Option<Texts>,
    without: Option<Texts>,
    #[serde(default)]
    named: bool,
    syscall: Option<Texts>,
    op: Option<Vec<u32>>,
    fd: Option<Texts>,
    kernel: Option<Texts>,
    pool: Option<Texts>,
    process: Option<Texts>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPool {
    name: String,
    comm: Spanned<String>,
    process: Option<Texts>,
    #[serde(rename = "why")]
    _why: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawClass {
    name: String,
    process: Texts,
    ratio_to: Option<String>,
    like_threads: Option<Texts>,
    #[serde(rename = "why")]
    _why: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCategory {
    name: Spanned<String>,
    stack: Option<Texts>,
    module: Option<Texts>,
    #[serde(rename = "why")]
    _why: Option<String>,
}

/// The built-in rules, in order of precedence.
const BUILTIN: [(&str, &str); 7] = [
    ("ceph.toml", include_str!("../../data/rules/ceph.toml")),
    ("qemu.toml", include_str!("../../data/rules/qemu.toml")),
    (
        "programs.toml",
        include_str!("../../data/rules/programs.toml"),
    ),
    (
        "classes.toml",
        include_str!("../../data/rules/classes.toml"),
    ),
    (
        "categories.toml",
        include_str!("../../data/rules/categories.toml"),
    ),
    ("pools.toml", include_str!("../../data/rules/pools.toml")),
    (
        "defaults.toml",
        include_str!("../../data/rules/defaults.toml"),
    ),
];

impl Rules {
    /// The built-in rules alone.
    pub fn builtin() -> Result<Self, RulesError> {
        Self::with_user_files::<&str>(&[])
    }

    /// The user's rules, each a file's name (for errors) and its text, before the built-in ones.
    pub fn with_user_files<S: AsRef<str>>(files: &[(S, S)]) -> Result<Self, RulesError> {
        let builtin = BUILTIN.iter().map(|&(name, text)| Source {
            name,
            text,
            is_builtin: true,
        });
        Self::from_sources(sources(files).chain(builtin))
    }

    /// The user's rules alone.
    pub fn without_builtin<S: AsRef<str>>(files: &[(S, S)]) -> Result<Self, RulesError> {
        Self::from_sources(sources(files))
    }

    /// Reads sources in order of precedence.
    fn from_sources<'a>(sources: impl Iterator<Item = Source<'a>>) -> Result<Self, RulesError> {
        let mut collected = Collected::default();
        for source in sources {
            let raw: RawFile = toml::from_str(source.text)
                .map_err(|e| source.error(e.span().map_or(0, |s| s.start), e.message()))?;
            for rule in &raw.state {
                let rule = collected.state(rule, &source)?;
                collected.states.push(rule);
            }
            for rule in &raw.default {
                if let Some(first) = rule.when.as_ref().and_then(|when| when.first()) {
                    return Err(source.error(
                        first.span().start,
                        "`when` is for [[state]]: a [[default]] is what it looks at",
                    ));
                }
                let rule = collected.state(rule, &source)?;
                collected.defaults.push(rule);
            }
            for rule in &raw.class {
                collected.classes.push(ClassRule {
                    process: source.glob_set(&rule.process)?,
                    name: rule.name.clone(),
                    ratio_to: rule.ratio_to.clone(),
                    like_threads: source.globs(&rule.like_threads)?,
                });
            }
            for rule in &raw.category {
                if rule.stack.is_none() && rule.module.is_none() {
                    let start = rule.name.span().start;
                    return Err(source.error(start, "a [[category]] needs `stack` or `module`"));
                }
                let texts = &mut collected.category_texts;
                let mark = source.pattern(&rule.stack, &rule.module, texts)?;
                collected.categories.push(Category {
                    mark,
                    of_kernel: rule.module.is_some(),
                    name: rule.name.get_ref().clone(),
                });
            }
            for rule in &raw.pool {
                collected.pools.push(PoolRule {
                    comm: source.regex(&rule.comm)?,
                    process: source.globs(&rule.process)?,
                    name: rule.name.clone(),
                });
            }
        }
        Ok(Self {
            states: collected.states,
            defaults: collected.defaults,
            pools: collected.pools,
            classes: collected.classes,
            patterns: collected.patterns.compile().map_err(too_large)?,
            categories: collected.categories,
            category_texts: collected.category_texts,
        })
    }
}

/// The user's files.
fn sources<S: AsRef<str>>(files: &[(S, S)]) -> impl Iterator<Item = Source<'_>> {
    files.iter().map(|(name, text)| Source {
        name: name.as_ref(),
        text: text.as_ref(),
        is_builtin: false,
    })
}

#[derive(Default)]
struct Collected {
    states: Vec<StateRule>,
    defaults: Vec<StateRule>,
    pools: Vec<PoolRule>,
    classes: Vec<ClassRule>,
    patterns: PatternTexts,
    categories: Vec<Category>,
    category_texts: PatternTexts,
}

impl Collected {
    fn state(&mut self, raw: &RawState, source: &Source<'_>) -> Result<StateRule, RulesError> {
        let when = raw.when.iter().flatten();
        let when = when
            .map(|name| source.state(name))
            .collect::<Result<_, _>>()?;
        let leaf = raw.leaf.as_ref().map_or(usize::MAX, |leaf| *leaf.get_ref());
        let stack = match (&raw.stack, &raw.module) {
            (None, None) => None,
            (names, modules) => Some((source.pattern(names, modules, &mut self.patterns)?, leaf)),
        };
        if let (Some(leaf), None) = (&raw.leaf, stack) {
            return Err(source.error(leaf.span().start, "`leaf` needs `stack` or `module`"));
        }
        let caller = match &raw.caller {
            None => None,
            modules => Some(source.pattern(&None, modules, &mut self.patterns)?),
        };
        let without = match &raw.without {
            None => None,
            names => Some(source.pattern(names, &None, &mut self.patterns)?),
        };
        let syscall = |name: &Spanned<String>| match name.get_ref().as_str() {
            "none" => Ok(None),
            known => syscall_number(known).map(Some).ok_or_else(|| {
                source.error(name.span().start, &format!("unknown system call {known:?}"))
            }),
        };
        let kernel = |regexes: &Texts| {
            regexes
                .iter()
                .try_for_each(|regex| source.check_regex(regex))?;
            let at = regexes.first().map_or(0, |r| r.span().start);
            let texts: Vec<&str> = regexes.iter().map(|r| r.get_ref().as_str()).collect();
            NameSet::new(&texts, MAX_REGEX_BYTES).map_err(|e| source.error(at, &e.to_string()))
        };
        Ok(StateRule {
            when,
            stack: OfStack {
                with: stack,
                caller,
                without,
                named: raw.named,
            },
            syscalls: each(&raw.syscall, syscall)?,
            ops: raw.op.as_ref().map(|ops| ops.iter().copied().collect()),
            fds: each(&raw.fd, |kind| source.fd_kind(kind))?,
            kernel: raw.kernel.as_ref().map(kernel).transpose()?,
            pool: source.globs(&raw.pool)?,
            process: source.globs(&raw.process)?,
            state: source.state(&raw.state)?,
            origin: source.origin(raw).into(),
        })
    }
}

/// What each of some texts means; `None` for no texts.
fn each<T, L: FromIterator<T>>(
    texts: &Option<Texts>,
    meaning: impl Fn(&Spanned<String>) -> Result<T, RulesError>,
) -> Result<Option<L>, RulesError> {
    let texts = texts.as_ref();
    texts
        .map(|texts| texts.iter().map(meaning).collect())
        .transpose()
}

/// A rules file.
struct Source<'a> {
    /// For errors.
    name: &'a str,
    text: &'a str,
    is_builtin: bool,
}

impl Source<'_> {
    fn error(&self, at: usize, what: &str) -> RulesError {
        RulesError {
            file: self.name.to_owned(),
            line: self.line(at),
            what: what.trim_end().to_owned(),
        }
    }

    /// Line of a byte, from 1.
    fn line(&self, at: usize) -> usize {
        let before = self.text.as_bytes().get(..at).unwrap_or_default();
        1 + before.iter().filter(|b| **b == b'\n').count()
    }

    /// `ceph.toml:12: A timer's loop waits for its next event.`
    fn origin(&self, rule: &RawState) -> String {
        let line = self.line(rule.state.span().start);
        let why = rule.why.as_ref().map(|why| format!(": {why}"));
        format!("{}:{line}{}", self.name, why.unwrap_or_default())
    }

    fn regex(&self, text: &Spanned<String>) -> Result<Regex, RulesError> {
        let regex = RegexBuilder::new(text.get_ref()).unicode(false).build();
        regex.map_err(|e| {
            self.error(
                text.span().start,
                &format!("bad regular expression {:?}: {e}", text.get_ref()),
            )
        })
    }

    /// Finds what is wrong with one expression of many that are compiled together. Each costs as
    /// much as in the whole, so that wcprof's own, which tests compile, are left to it.
    fn check_regex(&self, text: &Spanned<String>) -> Result<(), RulesError> {
        if self.is_builtin {
            return Ok(());
        }
        self.regex(text).map(drop)
    }

    /// Adds a condition on functions to `texts`.
    fn pattern(
        &self,
        names: &Option<Texts>,
        modules: &Option<Texts>,
        texts: &mut PatternTexts,
    ) -> Result<Mark, RulesError> {
        let mut regexes = Vec::new();
        for name in names.iter().flatten() {
            self.check_regex(name)?;
            regexes.push(name.get_ref().clone());
        }
        if names.as_ref().is_some_and(Vec::is_empty) {
            // An empty list must match nothing, whereas no list matches everything.
            regexes.push("[^\\s\\S]".to_owned());
        }
        Ok(texts.add(regexes, self.globs(modules)?))
    }

    fn globs(&self, texts: &Option<Texts>) -> Result<Option<GlobSet>, RulesError> {
        texts.as_ref().map(|texts| self.glob_set(texts)).transpose()
    }

    fn glob_set(&self, texts: &Texts) -> Result<GlobSet, RulesError> {
        let mut set = GlobSetBuilder::new();
        let mut at = 0;
        for text in texts {
            at = text.span().start;
            set.add(Glob::new(text.get_ref()).map_err(|e| self.error(at, &e.to_string()))?);
        }
        set.build().map_err(|e| self.error(at, &e.to_string()))
    }

    fn state(&self, name: &Spanned<String>) -> Result<State, RulesError> {
        name.get_ref()
            .parse()
            .map_err(|e: crate::model::UnknownState| self.error(name.span().start, &e.to_string()))
    }

    fn fd_kind(&self, name: &Spanned<String>) -> Result<FdKind, RulesError> {
        const KNOWN: [(&str, FdKind); 8] = [
            ("regular", FdKind::Regular),
            ("block", FdKind::Block),
            ("char", FdKind::Char),
            ("directory", FdKind::Directory),
            ("socket", FdKind::Socket),
            ("pipe", FdKind::Pipe),
            ("anon", FdKind::Anon),
            ("unknown", FdKind::Unknown),
        ];
        let found = KNOWN.iter().find(|(known, _)| known == name.get_ref());
        found.map(|(_, kind)| *kind).ok_or_else(|| {
            let names = KNOWN.map(|(known, _)| known).join(", ");
            let what = format!(
                "unknown kind of descriptor {:?} (known: {names})",
                name.get_ref()
            );
            self.error(name.span().start, &what)
        })
    }
}
