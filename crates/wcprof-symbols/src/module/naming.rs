//! Puts together what symbol tables, call frame information and DWARF say about an address.

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap};

use dwarf_stream::elf::{ElfError, ElfFile};
use dwarf_stream::{Budget, DwarfFiles, DwarfFrame};
use wcprof_trace::model::SymbolFrame;
use wcprof_types::Svma;

use super::sources::Sources;
use super::split::Split;
use crate::build_id::build_id_of;
use crate::cache::Cache;
use crate::clones::without_clone_suffix;
use crate::context::Context;
use crate::continued::Continued;
use crate::demangle::{demangle, printable};
use crate::function_starts::FunctionStarts;
use crate::options::Inlines;
use crate::plt::{PltStubs, is_plt};
use crate::query::{AddressQuery, ModuleQuery};
use crate::report::{ModuleReport, SourceKind, SourceUse};

/// The part of the memory limit that the inline frames of a module may take; beyond it they are left out.
/// 20 000 addresses with 5 inline frames of 200 bytes make 26 MB.
const INLINE_SHARE: u64 = 8;

/// `mov $15,%rax; syscall`: a signal trampoline, as GDB knows it (`amd64-linux-tdep.c`).
const SIGRETURN: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];

/// Names all addresses of `query`, in their order.
pub(super) fn name(
    query: &ModuleQuery,
    context: Context<'_>,
    sources: &Sources,
    budget: &Budget,
    report: &mut ModuleReport,
) -> Vec<Vec<SymbolFrame>> {
    let mut order: Vec<usize> = (0..query.addresses.len()).collect();
    order.sort_unstable_by_key(|i| query.addresses[*i]);
    let sorted: Vec<u64> = order
        .iter()
        .map(|i| query.addresses[*i].address.0)
        .collect();
    let mut chains = match context.options.inlines {
        Inlines::No => Vec::new(),
        Inlines::Quick | Inlines::All => look_up(context, sources, &sorted, budget, report),
    };
    chains.resize_with(sorted.len(), Vec::new);
    let mut naming = Naming {
        query,
        context,
        sources,
        function_starts: OnceCell::new(),
        plt: OnceCell::new(),
        continued: OnceCell::new(),
        demangled: HashMap::new(),
        inline_size: 0,
        n_unnamed: 0,
        n_cut: 0,
    };
    let mut frames = vec![Vec::new(); query.addresses.len()];
    for (i, chain) in order.into_iter().zip(chains) {
        frames[i] = naming.frames(query.addresses[i], chain);
    }
    naming.report_problems(report);
    frames
}

/// What DWARF says about the sorted addresses; empty without DWARF.
fn look_up(
    context: Context<'_>,
    sources: &Sources,
    sorted: &[u64],
    budget: &Budget,
    report: &mut ModuleReport,
) -> Vec<Vec<DwarfFrame>> {
    const WHAT: &str = "inline frames and lines";
    let Some((elf, kind, path)) = sources.with_dwarf() else {
        report.missing_dwarf = true;
        return Vec::new();
    };
    let split = Split { context, sources };
    let files = DwarfFiles {
        main: elf,
        supplementary: sources.supplementary.as_ref(),
        split: Some(&split),
    };
    let cache = Cache {
        surroundings: context.surroundings,
        build_id: build_id_of(elf),
        is_quick: context.options.inlines == Inlines::Quick,
    };
    let found = match cache.look_up(files, sorted, budget) {
        Ok((found, n_pending)) => {
            report.n_pending = n_pending;
            found
        }
        Err(error) => {
            report.problems.push(context.left_out(path, WHAT, error));
            report.missing_dwarf = true;
            return Vec::new();
        }
    };
    let has_failed = found.failed.is_some();
    if let Some((n, error)) = found.failed {
        let reason = format!("those of {n} addresses: {error}");
        report.problems.push(context.left_out(path, WHAT, reason));
    }
    if has_failed && found.frames.iter().all(Vec::is_empty) {
        report.missing_dwarf = true;
    } else if let Some(source) = report.sources.iter_mut().find(|s| s.kind == kind) {
        source.dwarf = true;
    }
    report.sources.extend(found.split.into_iter().map(|file| {
        let kind = match file.is_package {
            true => SourceKind::SplitPackage,
            false => SourceKind::SplitObject,
        };
        SourceUse {
            dwarf: true,
            ..SourceUse::new(kind, file.path)
        }
    }));
    found.frames
}

/// Names addresses of one module; reads further tables when an address needs them.
struct Naming<'a> {
    query: &'a ModuleQuery,
    context: Context<'a>,
    sources: &'a Sources,
    function_starts: OnceCell<Result<FunctionStarts, ElfError>>,
    plt: OnceCell<Result<PltStubs, ElfError>>,
    continued: OnceCell<Result<Continued, ElfError>>,
    /// By linkage name.
    demangled: HashMap<Vec<u8>, String>,
    /// Bytes of inline frames so far.
    inline_size: u64,
    /// Inline frames dropped since they have no name.
    n_unnamed: usize,
    /// Addresses that lost their inline frames to the memory limit.
    n_cut: usize,
}

impl Naming<'_> {
    /// The functions at an address, given those that DWARF knows.
    fn frames(&mut self, at: AddressQuery, mut chain: Vec<DwarfFrame>) -> Vec<SymbolFrame> {
        let outer = chain.pop().unwrap_or_default();
        let mut frames = Vec::with_capacity(chain.len() + 1);
        if self.inline_size > self.inline_limit() {
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
            let text = frame.name.len() + frame.file.as_ref().map_or(0, String::len);
            self.inline_size += (size_of::<SymbolFrame>() + text) as u64;
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

    fn inline_limit(&self) -> u64 {
        self.context.options.max_memory / INLINE_SHARE
    }

    /// The name of the function itself. Symbol tables come before DWARF: both hold the same
    /// linkage name, but only they distinguish `foo.cold` from `foo` and know which alias is exported.
    fn function(&mut self, at: AddressQuery, dwarf_name: Option<&str>) -> Option<String> {
        let sources = self.sources;
        if let Some(name) = sources.symbols.at(at.address) {
            let name = self.demangled(name);
            let n_folded = self.n_folded(at.address, &name);
            return Some(with_others(name, n_folded));
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
        if self.is_sigreturn(at.address) {
            return Some("__restore_rt".to_owned());
        }
        // Where there is call frame information, it says how far a function goes.
        if let Some(start) = self.function_start(at) {
            let names = self.continued()?.at(start);
            let (name, others) = names.split_first()?;
            let (name, n_others) = (name.to_vec(), others.len());
            return Some(with_others(self.demangled(&name), n_others));
        }
        let (start, name) = sources.symbols.sizeless_around(at.address)?;
        let start = AddressQuery::from(start);
        match self.function_start(start) {
            Some(_) => None,
            None => Some(self.demangled(name)),
        }
    }

    /// How many other functions a linker has folded with this one, because their code is the same.
    fn n_folded(&mut self, address: Svma, name: &str) -> usize {
        let all = self.sources.symbols.all_at(address);
        // Allocators define these as aliases of each other.
        let is_alias =
            |name: &str| name.starts_with("operator new") || name.starts_with("operator delete");
        if all.len() < 2 || is_alias(name) {
            return 0;
        }
        // Constructors and clones have several linkage names, and one name.
        let names = all.into_iter().map(|other| self.demangled(other));
        let names: BTreeSet<String> = names
            .map(|name| without_clone_suffix(&name).to_owned())
            .collect();
        let own = without_clone_suffix(name);
        match names.contains(own) {
            true => names.len() - 1,
            // An alias in C.
            false => 0,
        }
    }

    /// Start of the function by its FDE: the unwinder's, else this file's.
    fn function_start(&self, at: AddressQuery) -> Option<Svma> {
        let own = || Some(self.function_starts()?.function_at(at.address)?.0);
        at.function.or_else(own)
    }

    /// Those of the module's own file.
    fn function_starts(&self) -> Option<&FunctionStarts> {
        let starts = self.function_starts.get_or_init(|| {
            let own = self.sources.own.as_ref();
            own.map_or_else(|| Ok(FunctionStarts::default()), FunctionStarts::read)
        });
        starts.as_ref().ok()
    }

    /// What goes on in functions of the query that have no symbol.
    fn continued(&self) -> Option<&Continued> {
        let continued = self.continued.get_or_init(|| {
            let (Some(own), Some(starts)) = (&self.sources.own, self.function_starts()) else {
                return Ok(Continued::default());
            };
            let addresses = self.query.addresses.iter().map(|at| at.address);
            let unnamed = addresses.filter(|at| self.sources.symbols.at(*at).is_none());
            let mut functions: Vec<_> = unnamed.filter_map(|at| starts.function_at(at)).collect();
            functions.sort_unstable();
            functions.dedup();
            Continued::read(own, &self.sources.symbols, &functions)
        });
        continued.as_ref().ok()
    }

    /// Whether the kernel's signal frame returns here: a local function of libc, whose name is stripped.
    fn is_sigreturn(&self, address: Svma) -> bool {
        let Some(own) = &self.sources.own else {
            return false;
        };
        let mut sections = own.sections.iter();
        let section =
            sections.find(|s| s.is_executable() && (s.address..s.end()).contains(&address.0));
        section.is_some_and(|section| {
            let at = address.0 - section.address;
            let code = own.read_part(section, at, SIGRETURN.len() as u64);
            code.is_ok_and(|code| code == SIGRETURN)
        })
    }

    fn plt_stub(&self, address: Svma) -> Option<&[u8]> {
        let own: &ElfFile = self.sources.own.as_ref()?;
        let mut plt = own.sections.iter().filter(|s| is_plt(s));
        plt.find(|s| (s.address..s.end()).contains(&address.0))?;
        let stubs = self
            .plt
            .get_or_init(|| PltStubs::read(own, &self.sources.symbols));
        stubs.as_ref().ok()?.at(address)
    }

    /// `module+0xoffset` of the function's start. Code that no FDE covers, and no symbol, is one function from the end of
    /// what lies before it.
    fn unnamed(&self, at: AddressQuery) -> String {
        let start = self.function_start(at);
        let start = start.unwrap_or_else(|| self.gap_start(at.address));
        self.query.unnamed(start)
    }

    /// Where the code begins around an address of which nothing is known.
    fn gap_start(&self, address: Svma) -> Svma {
        let before = [
            self.function_starts()
                .and_then(|starts| starts.end_before(address)),
            self.sources.symbols.end_before(address),
            self.section_start(address),
        ];
        before.into_iter().flatten().max().unwrap_or(address)
    }

    /// First address of the section with code that an address is in, else of the segment.
    fn section_start(&self, address: Svma) -> Option<Svma> {
        let own = self.sources.own.as_ref()?;
        let sections = own.sections.iter().filter(|s| s.is_executable());
        let sections = sections.map(|s| s.address..s.end());
        let segments = own.segments.iter().filter(|s| s.is_code());
        let segments = segments.map(|s| s.address..s.address.saturating_add(s.memory_size));
        let mut all = sections.chain(segments);
        let around = all.find(|range| range.contains(&address.0))?;
        Some(Svma(around.start))
    }

    fn demangled(&mut self, linkage_name: &[u8]) -> String {
        if let Some(name) = self.demangled.get(linkage_name) {
            return name.clone();
        }
        let name = demangle(linkage_name);
        self.demangled.insert(linkage_name.to_vec(), name.clone());
        name
    }

    fn report_problems(self, report: &mut ModuleReport) {
        let context = self.context;
        let starts = self.function_starts.get().and_then(|r| r.as_ref().err());
        let plt = self.plt.get().and_then(|r| r.as_ref().err());
        let continued = self.continued.get().and_then(|r| r.as_ref().err());
        for (what, error) in [
            (".eh_frame", starts),
            ("PLT stubs", plt),
            ("names of functions by the jumps to them", continued),
        ] {
            if let Some(error) = error {
                let problem = context.left_out(&self.query.module.path, what, error);
                report.problems.push(problem);
            }
        }
        let with_dwarf = self.sources.with_dwarf();
        let path = with_dwarf
            .map(|(.., path)| path.clone())
            .unwrap_or_default();
        if self.n_cut > 0 {
            let reason = format!(
                "those of {} addresses, since the others take the {} bytes of the memory limit for them",
                self.n_cut,
                self.inline_limit()
            );
            report
                .problems
                .push(context.left_out(&path, "inline frames", reason));
        }
        if self.n_unnamed > 0 {
            let (n, path) = (self.n_unnamed, path.display());
            let text = format!("dropped {n} inline frames that have no name in `{path}`");
            report.problems.push(context.problem(text));
        }
    }
}

/// The name of a function that has others, too.
fn with_others(name: String, n_others: usize) -> String {
    match n_others {
        0 => name,
        1 => format!("{name} [or 1 other]"),
        n => format!("{name} [or {n} others]"),
    }
}
