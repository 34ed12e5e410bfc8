//! Names of a module to a message, and back, checked: the process that made them read hostile files.

use serde::{Deserialize, Serialize};
use wcprof_trace::model::SymbolFrame;

use super::wire_path::WirePath;
use crate::demangle::MAX_NAME_CHARS;
use crate::module::{new_report, problem};
use crate::query::{ModuleQuery, ModuleSymbols};
use crate::report::{ModuleReport, SourceKind, SourceUse};

/// Longest name, characters: control characters are escaped by up to ten, and words may stand behind it.
const MAX_CHARS: usize = 10 * MAX_NAME_CHARS + 256;
/// Most functions at an address, and a margin.
const MAX_CHAIN: usize = 256;
/// Most files and problems of a module.
const MAX_NOTES: usize = 1000;

/// The names of a module.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Names {
    /// For each address, innermost first.
    frames: Vec<Vec<Frame>>,
    sources: Vec<Source>,
    problems: Vec<String>,
    missing_symtab: bool,
    missing_dwarf: bool,
    n_pending: usize,
}

/// A function.
#[derive(Debug, Serialize, Deserialize)]
struct Frame {
    #[serde(rename = "n")]
    name: String,
    #[serde(rename = "f", default, skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(rename = "l", default, skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    #[serde(rename = "r")]
    resolved: bool,
}

/// A file that gave names.
#[derive(Debug, Serialize, Deserialize)]
struct Source {
    kind: SourceKind,
    path: WirePath,
    n_symtab: usize,
    n_dynsym: usize,
    dwarf: bool,
}

impl From<ModuleSymbols> for Names {
    fn from(symbols: ModuleSymbols) -> Self {
        let ModuleSymbols { frames, report } = symbols;
        let frame = |frame: SymbolFrame| Frame {
            name: frame.name,
            file: frame.file,
            line: frame.line,
            resolved: frame.resolved,
        };
        let chain = |chain: Vec<SymbolFrame>| chain.into_iter().map(frame).collect();
        let source = |source: SourceUse| Source {
            kind: source.kind,
            path: source.path.as_path().into(),
            n_symtab: source.n_symtab,
            n_dynsym: source.n_dynsym,
            dwarf: source.dwarf,
        };
        let problems = report.problems.into_iter().map(|problem| problem.text);
        Self {
            frames: frames.into_iter().map(chain).collect(),
            sources: report.sources.into_iter().map(source).collect(),
            problems: problems.collect(),
            missing_symtab: report.missing_symtab,
            missing_dwarf: report.missing_dwarf,
            n_pending: report.n_pending,
        }
    }
}

impl Names {
    /// The names of the addresses of `query`; `None` when they are not what wcprof makes.
    pub(super) fn checked(self, query: &ModuleQuery) -> Option<ModuleSymbols> {
        let fits = self.frames.len() == query.addresses.len()
            && self.sources.len().max(self.problems.len()) <= MAX_NOTES;
        fits.then_some(())?;
        let frames: Option<Vec<Vec<SymbolFrame>>> = self.frames.into_iter().map(chain).collect();
        let frames = frames?;
        let is_unresolved = |chain: &&Vec<SymbolFrame>| !chain.last().is_some_and(|f| f.resolved);
        let n_unresolved = frames.iter().filter(is_unresolved).count();
        let source = |source: Source| SourceUse {
            kind: source.kind,
            path: source.path.into(),
            n_symtab: source.n_symtab,
            n_dynsym: source.n_dynsym,
            dwarf: source.dwarf,
        };
        let problems = self.problems.iter().map(|text| problem(query, text));
        Some(ModuleSymbols {
            frames,
            report: ModuleReport {
                sources: self.sources.into_iter().map(source).collect(),
                problems: problems.collect(),
                missing_symtab: self.missing_symtab,
                missing_dwarf: self.missing_dwarf,
                n_pending: self.n_pending.min(query.addresses.len()),
                n_unresolved,
                ..new_report(query)
            },
        })
    }
}

/// The functions of an address: all but the last are inlined.
fn chain(chain: Vec<Frame>) -> Option<Vec<SymbolFrame>> {
    let n_frames = chain.len();
    let frame = |(i, frame): (usize, Frame)| {
        let texts = [Some(&frame.name), frame.file.as_ref()];
        let is_sound = texts.into_iter().flatten().all(|text| is_harmless(text));
        (is_sound && !frame.name.is_empty()).then_some(SymbolFrame {
            name: frame.name,
            file: frame.file,
            line: frame.line,
            inlined: i + 1 < n_frames,
            resolved: frame.resolved,
        })
    };
    let frames = chain.into_iter().enumerate().map(frame);
    (1..=MAX_CHAIN)
        .contains(&n_frames)
        .then(|| frames.collect())?
}

/// Whether a text is printable and not too long.
fn is_harmless(text: &str) -> bool {
    text.chars().count() <= MAX_CHARS && !text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use wcprof_types::Svma;

    use super::*;
    use crate::files::ModuleIdentity;
    use crate::query::AddressQuery;

    fn query() -> ModuleQuery {
        ModuleQuery {
            module: ModuleIdentity {
                path: "/lib/a.so".to_owned(),
                build_id: None,
                pid: None,
                start: None,
            },
            base: Svma(0),
            addresses: vec![AddressQuery::from(Svma(1))],
        }
    }

    fn names(frames: &[&[&str]]) -> Names {
        let frame = |name: &&str| Frame {
            name: (*name).to_owned(),
            file: None,
            line: Some(1),
            resolved: true,
        };
        let chain = |chain: &&[&str]| chain.iter().map(frame).collect();
        Names {
            frames: frames.iter().map(chain).collect(),
            sources: Vec::new(),
            problems: vec!["text".to_owned()],
            missing_symtab: false,
            missing_dwarf: true,
            n_pending: 0,
        }
    }

    /// Check that sound names come through as they were made.
    #[test]
    fn sound() {
        let symbols = names(&[&["inner", "outer"]]).checked(&query()).unwrap();
        let inlined: Vec<bool> = symbols.frames[0].iter().map(|f| f.inlined).collect();
        assert_eq!(inlined, [true, false]);
        assert_eq!(symbols.report.problems[0].to_string(), "a.so: text");
        assert_eq!(
            (symbols.report.n_frames, symbols.report.n_unresolved),
            (1, 0)
        );
        let again = Names::from(symbols.clone()).checked(&query()).unwrap();
        assert_eq!(again, symbols);
    }

    /// Check that others are refused: too few, none at all, empty, too long, or with control characters.
    #[test]
    fn unsound() {
        let long = "x".repeat(MAX_CHARS + 1);
        let deep = vec!["f"; MAX_CHAIN + 1];
        let cases: [&[&[&str]]; 7] = [
            &[],
            &[&[]],
            &[&["a"], &["b"]],
            &[&[""]],
            &[&["a\x1b[31m"]],
            &[&[&long]],
            &[&deep],
        ];
        for frames in cases {
            assert!(names(frames).checked(&query()).is_none(), "{frames:?}");
        }
    }
}
