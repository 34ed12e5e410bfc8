//! Puts together what symbol tables, call frame information and DWARF say about an address.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::path::PathBuf;

use wcprof_trace::model::SymbolFrame;
use wcprof_types::Svma;

use super::sources::Sources;
use super::split::Split;
use super::{AddressQuery, ModuleQuery};
use crate::budget::Budget;
use crate::cache;
use crate::demangle::{demangle, printable};
use crate::dwarf::{DwarfFiles, DwarfFrame, DwarfFrames};
use crate::elf::{ElfError, ElfFile};
use crate::files::ModuleFiles;
use crate::function_starts::FunctionStarts;
use crate::options::SymbolOptions;
use crate::plt::{PltStubs, is_plt};
use crate::report::{ModuleReport, Problem, SourceKind, SourceUse};

/// Text of all inline frames of a module, bytes; beyond it they are left out. Real modules stay
/// far below: 20 000 addresses with 5 inline frames of 200 bytes make 20 MB.
const MAX_INLINE_TEXT: usize = 256 << 20;

/// Names all addresses of `query`, in their order.
pub(super) fn name(
    query: &ModuleQuery,
    sources: Sources,
    files: &dyn ModuleFiles,
    options: &SymbolOptions,
    budget: &Budget,
    report: &mut ModuleReport,
) -> Vec<Vec<SymbolFrame>> {
    let mut order: Vec<usize> = (0..query.addresses.len()).collect();
    order.sort_unstable_by_key(|i| query.addresses[*i]);
    let sorted: Vec<Svma> = order.iter().map(|i| query.addresses[*i].address).collect();
    let dwarf = match options.inlines {
        true => {
            let split = Split {
                module: &query.module,
                sources: &sources,
                files,
                options,
            };
            look_up(query, &sources, &split, &sorted, budget, report)
        }
        false => None,
    };
    let (mut chains, dwarf_path) = dwarf.unwrap_or_default();
    let mut naming = Naming {
        query,
        sources: &sources,
        function_starts: OnceCell::new(),
        plt: OnceCell::new(),
        demangled: HashMap::new(),
        inline_text: 0,
        n_unnamed: 0,
        n_cut: 0,
    };
    let mut frames = vec![Vec::new(); query.addresses.len()];
    for (sorted_idx, i) in order.into_iter().enumerate() {
        let chain = chains
            .get_mut(sorted_idx)
            .map(std::mem::take)
            .unwrap_or_default();
        frames[i] = naming.frames(query.addresses[i], chain);
    }
    naming.problems(dwarf_path, report);
    frames
}

/// What DWARF says about the sorted addresses, and the file that says it.
fn look_up(
    query: &ModuleQuery,
    sources: &Sources,
    split: &Split<'_>,
    sorted: &[Svma],
    budget: &Budget,
    report: &mut ModuleReport,
) -> Option<(Vec<Vec<DwarfFrame>>, PathBuf)> {
    let own = sources
        .own
        .as_ref()
        .map(|elf| (elf, SourceKind::Module, PathBuf::from(&query.module.path)));
    let debug = sources
        .debug
        .as_ref()
        .map(|file| (&file.elf, file.kind, file.path.clone()));
    let mut candidates = own.into_iter().chain(debug);
    let Some((elf, kind, path)) = candidates.find(|(elf, ..)| elf.has_dwarf()) else {
        report.missing_dwarf = true;
        return None;
    };
    let module = query.module.file_name().to_owned();
    let mut left_out = |what, reason| {
        report.problems.push(Problem::LeftOut {
            module: module.clone(),
            path: path.clone(),
            what,
            reason,
        });
    };
    let files = DwarfFiles {
        main: elf,
        supplementary: sources.supplementary.as_ref(),
        split: Some(split),
    };
    let build_id = elf.build_id();
    let cache = split.options.cache.as_deref();
    match cache::lookup(cache, build_id.as_ref(), files, sorted, budget) {
        Ok(DwarfFrames {
            frames,
            failed,
            split,
        }) => {
            let has_failed = failed.is_some();
            if let Some((n, error)) = failed {
                left_out(
                    "inline frames and lines",
                    format!("those of {n} addresses: {error}"),
                );
            }
            let has_any = frames.iter().any(|chain| !chain.is_empty());
            if has_failed && !has_any {
                report.missing_dwarf = true;
            } else if let Some(source) = report.sources.iter_mut().find(|s| s.kind == kind) {
                source.dwarf = true;
            }
            report
                .sources
                .extend(split.into_iter().map(|file| SourceUse {
                    kind: match file.is_package {
                        true => SourceKind::SplitPackage,
                        false => SourceKind::SplitObject,
                    },
                    path: file.path,
                    n_symtab: 0,
                    n_dynsym: 0,
                    dwarf: true,
                }));
            Some((frames, path))
        }
        Err(error) => {
            left_out("inline frames and lines", error.to_string());
            report.missing_dwarf = true;
            None
        }
    }
}

/// Names addresses of one module; reads further tables when an address needs them.
struct Naming<'a> {
    query: &'a ModuleQuery,
    sources: &'a Sources,
    function_starts: OnceCell<Result<FunctionStarts, ElfError>>,
    plt: OnceCell<Result<PltStubs, ElfError>>,
    /// By linkage name.
    demangled: HashMap<Vec<u8>, String>,
    /// Bytes of text in inline frames so far.
    inline_text: usize,
    /// Inline frames dropped since they have no name.
    n_unnamed: usize,
    /// Addresses that lost their inline frames to [`MAX_INLINE_TEXT`].
    n_cut: usize,
}

impl Naming<'_> {
    /// The functions at an address, given those that DWARF knows.
    fn frames(&mut self, at: AddressQuery, mut chain: Vec<DwarfFrame>) -> Vec<SymbolFrame> {
        let outer = chain.pop().unwrap_or_default();
        let mut frames = Vec::with_capacity(chain.len() + 1);
        if self.inline_text > MAX_INLINE_TEXT {
            self.n_cut += usize::from(!chain.is_empty());
            chain.clear();
        }
        for inline in chain {
            // A name may be there and be empty.
            let Some(name) = inline.name.as_ref().filter(|name| !name.is_empty()) else {
                self.n_unnamed += 1;
                continue;
            };
            let frame = SymbolFrame {
                name: self.demangled(name.as_bytes()),
                file: inline.file.as_deref().map(printable),
                line: inline.line,
                inlined: true,
                resolved: true,
            };
            self.inline_text += frame.name.len() + frame.file.as_ref().map_or(0, String::len);
            frames.push(frame);
        }
        let name = self.function(at, outer.name.as_deref());
        let resolved = name.is_some();
        frames.push(SymbolFrame {
            name: name.unwrap_or_else(|| self.unnamed(at)),
            file: outer.file.as_deref().map(printable),
            line: outer.line,
            inlined: false,
            resolved,
        });
        frames
    }

    /// The name of the function itself. Symbol tables come before DWARF: both hold the same
    /// linkage name, but only they tell `foo.cold` from `foo` and know which alias is exported.
    fn function(&mut self, at: AddressQuery, dwarf_name: Option<&str>) -> Option<String> {
        let sources = self.sources;
        if let Some(name) = sources.symbols.at(at.address) {
            return Some(self.demangled(name));
        }
        if let Some(name) = dwarf_name.filter(|name| !name.is_empty()) {
            return Some(self.demangled(name.as_bytes()));
        }
        if let Some(start) = self.function_start(at)
            && let Some(name) = sources.symbols.sizeless_at(start)
        {
            return Some(self.demangled(name));
        }
        if let Some(name) = self.plt_stub(at.address).map(<[u8]>::to_vec) {
            return Some(format!("{}@plt", self.demangled(&name)));
        }
        // Where there is call frame information, it tells how far a function goes.
        if self.function_start(at).is_some() {
            return None;
        }
        let (start, name) = sources.symbols.sizeless_around(at.address)?;
        let start = AddressQuery {
            address: start,
            function: None,
        };
        match self.function_start(start) {
            Some(_) => None,
            None => Some(self.demangled(name)),
        }
    }

    /// Start of the function by its FDE: the unwinder's, else this file's.
    fn function_start(&self, at: AddressQuery) -> Option<Svma> {
        at.function.or_else(|| {
            let starts = self.function_starts.get_or_init(|| {
                let own = self.sources.own.as_ref();
                own.map_or_else(|| Ok(FunctionStarts::default()), FunctionStarts::read)
            });
            let (start, _) = starts.as_ref().ok()?.function_at(at.address)?;
            Some(start)
        })
    }

    fn plt_stub(&self, address: Svma) -> Option<&[u8]> {
        let own: &ElfFile = self.sources.own.as_ref()?;
        let mut plt = own.sections.iter().filter(|s| is_plt(s));
        plt.find(|s| (s.address..s.end()).contains(&address))?;
        let stubs = self
            .plt
            .get_or_init(|| PltStubs::read(own, &self.sources.symbols));
        stubs.as_ref().ok()?.at(address)
    }

    /// `module+0xoffset` of the function's start, or of the address where no FDE tells it.
    fn unnamed(&self, at: AddressQuery) -> String {
        self.query
            .unnamed(self.function_start(at).unwrap_or(at.address))
    }

    fn demangled(&mut self, linkage_name: &[u8]) -> String {
        if let Some(name) = self.demangled.get(linkage_name) {
            return name.clone();
        }
        let name = demangle(linkage_name);
        self.demangled.insert(linkage_name.to_vec(), name.clone());
        name
    }

    fn problems(self, dwarf_path: PathBuf, report: &mut ModuleReport) {
        let module = || self.query.module.file_name().to_owned();
        let failed = [
            (
                ".eh_frame",
                self.function_starts.get().and_then(|r| r.as_ref().err()),
            ),
            ("PLT stubs", self.plt.get().and_then(|r| r.as_ref().err())),
        ];
        for (what, error) in failed {
            if let Some(error) = error {
                report.problems.push(Problem::LeftOut {
                    module: module(),
                    path: PathBuf::from(&self.query.module.path),
                    what,
                    reason: error.to_string(),
                });
            }
        }
        if self.n_cut > 0 {
            report.problems.push(Problem::LeftOut {
                module: module(),
                path: dwarf_path.clone(),
                what: "inline frames",
                reason: format!(
                    "those of {} addresses, since the others take {MAX_INLINE_TEXT} bytes of text",
                    self.n_cut
                ),
            });
        }
        if self.n_unnamed > 0 {
            report.problems.push(Problem::UnnamedInlines {
                module: module(),
                path: dwarf_path,
                n: self.n_unnamed,
            });
        }
    }
}
