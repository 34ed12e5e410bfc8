//! Traces in, a table out: how far names, inline chains and lines agree with other symbolizers.
//!
//! Takes every address of the traces in each module that is installed here, and `--spread N`
//! addresses evenly over each module's code, and asks `llvm-symbolizer` for them. Both sides are
//! compared by linkage name, demangled by the same demangler. Where they differ, `eu-addr2line` is
//! asked too, and the difference is put into a class. `--show N` prints N examples of each class.
//!
//! `--list` prints the addresses alone, a line each with its module's path before it.
//!
//! `cargo xtask truth` runs it on the recorded fixtures.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use wcprof_symbols::elf::ElfFile;
use wcprof_symbols::{
    AddressQuery, LocalFiles, ModuleIdentity, ModuleQuery, SymbolOptions, demangle, open_regular,
    symbolize_modules,
};
use wcprof_trace::TraceReader;
use wcprof_trace::model::{Frame, SymbolFrame};
use wcprof_types::{BuildId, Svma};

type Failure = Box<dyn std::error::Error>;

/// A function at an address; for both sides alike.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Function {
    name: String,
    file: String,
    line: u32,
}

/// Frames by address, innermost first.
type Answers = Vec<Vec<Function>>;

fn main() -> Result<(), Failure> {
    let mut traces = Vec::new();
    let (mut spread, mut show, mut list) = (0_u64, 0_usize, false);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut number = || args.next().unwrap_or_default().parse::<u64>();
        match arg.as_str() {
            "--spread" => spread = number()?,
            "--list" => list = true,
            "--show" => show = number()? as usize,
            _ => traces.push(PathBuf::from(arg)),
        }
    }
    let mut modules: BTreeMap<(String, BuildId), BTreeSet<Svma>> = BTreeMap::new();
    for path in &traces {
        collect(path, &mut modules)?;
    }
    if list {
        for ((path, _), addresses) in &modules {
            for address in addresses {
                println!("{path} {:#x}", address.0);
            }
        }
        return Ok(());
    }
    println!("| module | addresses | function | inline chain | lines | all three |");
    println!("|---|---|---|---|---|---|");
    let mut total = Tally::default();
    for ((path, build_id), addresses) in &mut modules {
        let file = open_regular(Path::new(path)).ok();
        let elf = file.and_then(|file| ElfFile::from_file(file).ok());
        let is_same = |elf: &ElfFile| elf.build_id().as_deref() == Some(build_id.as_bytes());
        let Some(elf) = elf.filter(is_same) else {
            eprintln!("{path}: the file with build-id {build_id} is not here");
            continue;
        };
        add_spread(&elf, spread, addresses);
        let addresses: Vec<Svma> = addresses.iter().copied().collect();
        let ours = wcprof(path, build_id, &addresses);
        let theirs = llvm(path, &addresses)?;
        let mut tally = compare(&ours, &theirs, &Aliases::read(path, build_id));
        let differing: Vec<usize> = tally.differing.iter().copied().collect();
        let asked: Vec<Svma> = differing.iter().map(|i| addresses[*i]).collect();
        let third = elfutils(path, &asked);
        for (i, third) in differing.iter().zip(&third) {
            let (ours, theirs) = (&ours[*i], &theirs[*i]);
            let answers = [("wcprof", ours), ("llvm  ", theirs), ("eu    ", third)];
            let answers = answers.map(|(who, answer)| format!("\n  {who} {}", text(answer)));
            let example = format!("{path} {:#x}{}", addresses[*i].0, answers.concat());
            tally.add_example(classify(ours, theirs, third), example);
        }
        println!("{}", tally.row(path.rsplit('/').next().unwrap_or(path)));
        total.add(tally);
    }
    println!("{}", total.row("all"));
    println!();
    for (class, examples) in &total.classes {
        println!("{:6} {class}", examples.len());
        for example in examples.iter().take(show) {
            println!("{example}");
        }
    }
    Ok(())
}

/// Adds the addresses of a trace.
fn collect(
    path: &Path,
    modules: &mut BTreeMap<(String, BuildId), BTreeSet<Svma>>,
) -> Result<(), Failure> {
    let (tables, _) = TraceReader::open(path)?.read(|_, _| {})?;
    for frame in &tables.frames {
        if let Frame::Native {
            module, address, ..
        } = frame
            && let Some(module) = tables.modules.get(module.0 as usize)
            && let Some(build_id) = &module.build_id
            && module.path.starts_with('/')
        {
            let addresses = modules.entry((module.path.clone(), build_id.clone()));
            addresses.or_default().insert(module.svma(*address));
        }
    }
    Ok(())
}

/// Adds addresses at even distances in the code.
fn add_spread(elf: &ElfFile, n: u64, addresses: &mut BTreeSet<Svma>) {
    if let Some(text) = elf.section(".text")
        && let Some(step) = text.size.checked_div(n)
    {
        addresses.extend((0..n).map(|i| Svma(text.address + i * step.max(1))));
    }
}

fn wcprof(path: &str, build_id: &BuildId, addresses: &[Svma]) -> Answers {
    let query = |address: &Svma| AddressQuery::from(*address);
    let query = ModuleQuery {
        module: ModuleIdentity {
            path: path.to_owned(),
            build_id: Some(build_id.clone()),
            pid: None,
            start: None,
        },
        base: Svma(0),
        addresses: addresses.iter().map(query).collect(),
    };
    let options = SymbolOptions::default();
    let symbols = symbolize_modules(&[query], &LocalFiles, &options).remove(0);
    for problem in &symbols.report.problems {
        eprintln!("{problem}");
    }
    let function = |frame: SymbolFrame| Function {
        name: match frame.resolved {
            true => frame.name,
            false => String::new(),
        },
        file: normal(&frame.file.unwrap_or_default()),
        line: frame.line.unwrap_or(0),
    };
    let answers = symbols.frames.into_iter();
    let answers = answers.map(|frames| frames.into_iter().map(function).collect());
    answers.collect()
}

/// Runs a program with lines of input; its output.
fn ask(command: &mut Command, addresses: &[Svma]) -> Result<String, Failure> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| format!("failed to run {command:?}: {e}"))?;
    let mut input = child.stdin.take().ok_or("no pipe")?;
    let lines: String = addresses.iter().map(|a| format!("{:#x}\n", a.0)).collect();
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = child.wait_with_output()?;
    writer.join().map_err(|_| "the writer failed")??;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// `llvm-symbolizer`: for each frame a name and `file:line:column`, then an empty line.
fn llvm(path: &str, addresses: &[Svma]) -> Result<Answers, Failure> {
    let program = ["llvm-symbolizer", "llvm-symbolizer-14"]
        .into_iter()
        .find(|p| Command::new(p).arg("--version").output().is_ok())
        .ok_or("llvm-symbolizer is not installed (Debian: package llvm)")?;
    let mut command = Command::new(program);
    command.args(["--no-demangle", "--inlines", "--obj", path]);
    let output = ask(&mut command, addresses)?;
    let mut answers = Answers::new();
    for block in output.split_terminator("\n\n") {
        let lines: Vec<&str> = block.trim_start_matches('\n').lines().collect();
        let frames = lines.chunks_exact(2).map(|pair| {
            let place = pair[1];
            function(pair[0], place.rsplit_once(':').map_or(place, |(p, _)| p))
        });
        answers.push(frames.collect());
    }
    let (n, all) = (answers.len(), addresses.len());
    match n == all {
        true => Ok(answers),
        false => Err(format!("{program} answered {n} of {all}").into()),
    }
}

/// `eu-addr2line`, an address at a time since nothing else separates the answers: the address,
/// then for each frame a name and `file:line`.
fn elfutils(path: &str, addresses: &[Svma]) -> Answers {
    let mut command = Command::new("eu-addr2line");
    command.args(["-a", "-f", "-i", "-e", path]);
    let output = ask(&mut command, addresses).unwrap_or_default();
    let mut answers = Answers::new();
    let mut lines = output.lines().peekable();
    while let Some(line) = lines.next() {
        if line.starts_with("0x") {
            answers.push(Vec::new());
        } else if let Some(answer) = answers.last_mut() {
            let name = line.split(" inlined at ").next().unwrap_or(line);
            answer.push(function(name, lines.next().unwrap_or_default()));
        }
    }
    answers.resize(addresses.len(), Vec::new());
    answers
}

fn function(name: &str, place: &str) -> Function {
    // `file:line`, with elfutils also `file:line:column`, and remarks behind it.
    let place = place.split(" (").next().unwrap_or(place);
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let (file, line) = match place.rsplit_once(':') {
        Some((rest, column)) if number(column) => match rest.rsplit_once(':') {
            Some((file, line)) if number(line) => (file, line),
            _ => (rest, column),
        },
        _ => (place, ""),
    };
    Function {
        name: match name {
            "??" => String::new(),
            name => demangle(name.as_bytes()),
        },
        file: match file {
            "??" => String::new(),
            file => normal(file),
        },
        line: line.parse().unwrap_or(0),
    }
}

/// A path without `.` and `..`, which symbolizers treat differently.
fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// What agrees in one module.
#[derive(Debug, Default)]
struct Tally {
    n: usize,
    /// Addresses whose function, inline chain, lines, and all three agree.
    agreeing: [usize; 4],
    differing: BTreeSet<usize>,
    classes: BTreeMap<String, Vec<String>>,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.n += other.n;
        for (sum, n) in self.agreeing.iter_mut().zip(other.agreeing) {
            *sum += n;
        }
        for (class, examples) in other.classes {
            self.classes.entry(class).or_default().extend(examples);
        }
    }

    fn add_example(&mut self, class: impl Into<String>, example: String) {
        self.classes.entry(class.into()).or_default().push(example);
    }

    fn row(&self, name: &str) -> String {
        let share = |n: usize| format!("{:.2} %", 100.0 * n as f64 / self.n.max(1) as f64);
        let shares = self.agreeing.map(share).join(" | ");
        format!("| {name} | {} | {shares} |", self.n)
    }
}

fn compare(ours: &Answers, theirs: &Answers, aliases: &Aliases) -> Tally {
    let mut tally = Tally {
        n: ours.len(),
        ..Tally::default()
    };
    for (i, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
        // What has no answer is no other answer.
        let function =
            outermost(theirs).is_empty() || aliases.same(outermost(ours), outermost(theirs));
        if function && outermost(ours) != outermost(theirs) {
            let (ours, theirs) = (outermost(ours), outermost(theirs));
            let class = match () {
                () if theirs.is_empty() && ours.ends_with("@plt") => {
                    "(counted as agreeing) a PLT stub, which only wcprof names"
                }
                () if theirs.is_empty() => "(counted as agreeing) only wcprof has a name",
                () if is_plain_name(ours, theirs) => {
                    "(counted as agreeing) llvm has the plain name of a local function alone"
                }
                () if ours.starts_with(theirs) => {
                    "(counted as agreeing) wcprof keeps the suffix of a clone or cold part"
                }
                () => "(counted as agreeing) two names of the same symbol address",
            };
            tally.add_example(class, format!("  {ours}  |  {theirs}"));
        }
        let chain = same_chain(ours, theirs);
        let lines = same_places(ours, theirs);
        if lines && places(ours) != places(theirs) {
            let class = "(counted as agreeing) llvm puts a relative folder twice into the path";
            tally.add_example(class, format!("  {}  |  {}", text(ours), text(theirs)));
        }
        let all = function && chain && lines;
        for (sum, agrees) in tally.agreeing.iter_mut().zip([function, chain, lines, all]) {
            *sum += usize::from(agrees);
        }
        if !all {
            tally.differing.insert(i);
        }
    }
    tally
}

/// Name of the function itself, without those inlined into it.
fn outermost(frames: &[Function]) -> &str {
    frames.last().map_or("", |f| &f.name)
}

/// Whether `theirs` is what `ours` is called inside its namespace or class: compilers give
/// functions that are local to a file no linkage name in DWARF, but one in the symbol table.
fn is_plain_name(ours: &str, theirs: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let plain = theirs.split('<').next().unwrap_or_default();
    !plain.is_empty()
        && !plain.contains("::")
        && (plain == "operator()" || !plain.contains('('))
        && ours.match_indices(plain).any(|(at, _)| {
            let (before, rest) = ours.split_at(at);
            let after = rest.strip_prefix(plain).unwrap_or_default();
            !before.ends_with(is_word) && after.starts_with(['(', '<', '['])
        })
}

/// Names of the same symbol address, by `nm`.
#[derive(Debug, Default)]
struct Aliases(BTreeMap<String, BTreeSet<u64>>);

impl Aliases {
    fn read(path: &str, build_id: &BuildId) -> Self {
        let id = build_id.to_string();
        let (first, rest) = id.split_at_checked(2).unwrap_or_default();
        let debug = format!("/usr/lib/debug/.build-id/{first}/{rest}.debug");
        let mut aliases = Self::default();
        for (flag, file) in [("-D", path), ("-a", path), ("-a", &debug)] {
            let mut command = Command::new("nm");
            command.args(["--defined-only", flag, file]);
            let Ok(output) = ask(&mut command, &[]) else {
                continue;
            };
            for line in output.lines() {
                let mut fields = line.split_whitespace();
                let (address, name) = (fields.next(), fields.nth(1));
                if let (Some(address), Some(name)) = (address, name)
                    && let Ok(address) = u64::from_str_radix(address, 16)
                {
                    let name = demangle(name.as_bytes());
                    aliases.0.entry(name).or_default().insert(address);
                }
            }
        }
        aliases
    }

    /// Whether two names mean the same function: equal but for the suffix of a clone or part that
    /// compilers append, or names of the same address.
    fn same(&self, ours: &str, theirs: &str) -> bool {
        let suffix = ours.strip_prefix(theirs).filter(|_| !theirs.is_empty());
        let is_suffix =
            |text: &str| text.is_empty() || text.starts_with(" [.") || text.starts_with('.');
        if ours == theirs || suffix.is_some_and(is_suffix) || is_plain_name(ours, theirs) {
            return true;
        }
        match (self.0.get(ours), self.0.get(theirs)) {
            (Some(a), Some(b)) => !a.is_disjoint(b),
            _ => false,
        }
    }
}

/// Names of the inlined functions; that of the function itself is compared apart.
fn same_chain(a: &[Function], b: &[Function]) -> bool {
    fn names(frames: &[Function]) -> impl Iterator<Item = &str> {
        frames.iter().rev().skip(1).map(|f| f.name.as_str())
    }
    names(a).eq(names(b))
}

/// Lines are the same, and so are paths. A compilation directory that is relative (`./csu`) stands
/// in the file table too, and llvm and elfutils join both: there the shorter path is an end of
/// the longer one.
fn same_places(a: &[Function], b: &[Function]) -> bool {
    let (a, b) = (places(a), places(b));
    a.len() == b.len()
        && a.iter().zip(&b).all(|((a, a_line), (b, b_line))| {
            a_line == b_line && (a == b || b.strip_suffix(a).is_some_and(|r| r.ends_with('/')))
        })
}

fn places(frames: &[Function]) -> Vec<(&str, u32)> {
    let is_known = |f: &Function| f.line > 0 && !f.file.is_empty();
    let places = frames.iter().map(|f| match is_known(f) {
        true => (f.file.as_str(), f.line),
        false => ("", 0),
    });
    places.collect()
}

/// In what the answers differ, and whom the third one agrees with.
fn classify(ours: &[Function], theirs: &[Function], third: &[Function]) -> String {
    let same_function: Same = |a, b| outermost(a) == outermost(b);
    let kinds: [(&str, Same); 3] = [
        ("inline chain", same_chain),
        ("lines", same_places),
        ("function", same_function),
    ];
    let differing = kinds.into_iter().find(|(_, same)| !same(ours, theirs));
    let (what, same) = differing.unwrap_or(("function", same_function));
    if what == "function" && outermost(ours).is_empty() {
        return match outermost(third) {
            "" => "function: wcprof and elfutils have none, llvm takes the nearest symbol".into(),
            _ => "function: only wcprof has none".into(),
        };
    }
    match () {
        () if same(ours, third) => format!("{what}: elfutils as wcprof"),
        () if same(theirs, third) => format!("{what}: elfutils as llvm"),
        () => format!("{what}: elfutils as neither"),
    }
}

/// Whether two answers agree in something.
type Same = fn(&[Function], &[Function]) -> bool;

fn text(frames: &[Function]) -> String {
    let text = |f: &Function| format!("{} at {}:{}", f.name, f.file, f.line);
    frames.iter().map(text).collect::<Vec<_>>().join(" <- ")
}
