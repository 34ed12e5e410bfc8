//! Unwinds real stacks of a compiled program that says itself which functions it called.

use crate::common;

use std::sync::Arc;

use common::{Dump, Fixture, Regions, no_text};
use object::{Object, ObjectSection};
use wcprof_types::{Avma, StackEnd, Svma};
use wcprof_unwind::{ModuleCode, SplicedStack, StackCopy, UnwoundStack};

const SCENARIOS: [&str; 9] = [
    "alloca",
    "realigned",
    "deep",
    "qsort",
    "indirect",
    "assembler",
    "signal",
    "thread",
    "coroutine",
];

/// What to unwind with.
#[derive(Copy, Clone, PartialEq, Debug)]
enum Known {
    /// All registers.
    Registers,
    /// All but `rbp`.
    NoBp,
}

fn unwind(dump: &Dump, known: Known) -> (UnwoundStack, wcprof_unwind::Unwinder) {
    let (mut unwinder, files) = dump.unwinder();
    let mut stack = UnwoundStack::default();
    let mut regs = dump.regs;
    let mut memory = dump.memory.clone();
    let mut text = |address: Avma, bytes: &mut [u8]| files.read(address, bytes);
    regs.bp = regs.bp.filter(|_| known == Known::Registers);
    unwinder.unwind(&regs, &mut memory, &mut text, &mut stack);
    (stack, unwinder)
}

/// The executable's own functions in a stack, leaf first, by their first addresses.
fn functions(fixture: &Fixture, dump: &Dump, known: Known) -> (Vec<Avma>, UnwoundStack) {
    let (stack, unwinder) = unwind(dump, known);
    let own = dump.executable(fixture.binary());
    let starts = stack
        .frames
        .iter()
        .map(|f| f.address.for_lookup())
        .filter(|a| own.contains(a))
        .map(|a| unwinder.fde_start(a).unwrap())
        .collect();
    (starts, stack)
}

/// Every scenario gives exactly the called functions (and below `main` only the start-up code),
/// and reaches the root.
fn check_all(flags: &[&str]) {
    let fixture = Fixture::build(flags);
    for scenario in SCENARIOS {
        let dump = fixture.run(scenario);
        for known in [Known::Registers, Known::NoBp] {
            let what = format!("{scenario} {known:?} {flags:?}");
            let (starts, stack) = functions(&fixture, &dump, known);
            assert_eq!(stack.end, StackEnd::Root, "{what}: {stack:?}");
            // A static binary has the C library's functions in between and below.
            let found: Vec<Avma> = starts
                .iter()
                .copied()
                .filter(|s| dump.chain.contains(s))
                .collect();
            assert_eq!(found, dump.chain, "{what}");
            if !flags.iter().any(|f| f.starts_with("-static")) {
                let n_start = starts.len() - dump.chain.len();
                assert!(n_start <= 1, "{what}: {starts:?}");
            }
            if known == Known::Registers {
                assert_eq!(stack.n_guessed, 0, "{what}");
            }
        }
    }
}

/// Check code as most distributions build it.
#[test]
fn without_frame_pointers() {
    check_all(&["-O2", "-fomit-frame-pointer"]);
}

/// Check code built with frame pointers, also when `rbp` is unknown.
#[test]
fn with_frame_pointers() {
    check_all(&["-O2", "-fno-omit-frame-pointer"]);
}

/// Check unoptimized code.
#[test]
fn unoptimized() {
    check_all(&["-O0"]);
}

/// Check an executable at a fixed address.
#[test]
fn non_pie() {
    check_all(&["-O2", "-no-pie", "-fno-pie"]);
}

/// Check a static executable.
#[test]
fn static_executable() {
    check_all(&["-O2", "-static"]);
}

/// Check a static PIE.
#[test]
fn static_pie() {
    check_all(&["-O2", "-static-pie"]);
}

/// Unwinds from `ip` as if the code there had been called by the dump's leaf, with `n_pushed`
/// more words on the stack, and expects the leaf's chain behind it.
fn check_called(dump: &Dump, ip: Avma, n_pushed: u64, expected: &UnwoundStack) {
    let (mut unwinder, files) = dump.unwinder();
    let mut text = |address: Avma, bytes: &mut [u8]| files.read(address, bytes);
    let (vdso, bytes) = dump.vdso();
    let code = Arc::new(ModuleCode::parse(bytes).unwrap());
    let bias = code.load_bias(vdso).unwrap();
    unwinder
        .add_module(vdso.start, vdso.end, bias, Ok(code))
        .unwrap();
    let mut regs = dump.regs;
    let mut called = vec![0xaa; 8 * n_pushed as usize];
    called.extend_from_slice(&regs.ip.0.to_le_bytes());
    let mut memory = dump.memory.clone();
    let sp = regs.sp.0 - called.len() as u64;
    memory.0.insert(0, (sp, called));
    regs.sp = Avma(sp);
    regs.ip = ip;
    let mut stack = UnwoundStack::default();
    unwinder.unwind(&regs, &mut memory, &mut text, &mut stack);
    let addresses =
        |s: &UnwoundStack| -> Vec<_> { s.frames.iter().skip(1).map(|f| f.module).collect() };
    assert_eq!(stack.end, StackEnd::Root, "{ip:?}: {stack:?}");
    assert_eq!(
        stack.frames.len(),
        expected.frames.len() + 1,
        "{ip:?}: {stack:?}"
    );
    assert_eq!(addresses(&stack)[1..], addresses(expected)[..], "{ip:?}");
}

/// Check every function of the vdso at its first instruction, and lazy PLT entries before and
/// after they push their index (the CFA there is an expression over `rip`).
#[test]
fn vdso_and_plt() {
    let fixture = Fixture::build(&["-O2", "-Wl,-z,lazy", "-fcf-protection=none"]);
    let dump = fixture.run("alloca");
    let (expected, _) = unwind(&dump, Known::Registers);
    let (mapping, bytes) = dump.vdso();
    let code = ModuleCode::parse(bytes).unwrap();
    let bias = code.load_bias(mapping).unwrap();
    let mut starts: Vec<_> = (0..code.end().0)
        .filter_map(|a| code.fde_start(Svma(a)))
        .collect();
    starts.dedup();
    assert!(starts.len() > 3, "{starts:?}");
    for start in starts {
        check_called(&dump, bias.to_avma(start), 0, &expected);
    }

    let file = std::fs::read(fixture.binary()).unwrap();
    let elf = object::File::parse(&*file).unwrap();
    let plt = elf.section_by_name(".plt").unwrap();
    let own = dump
        .mappings
        .iter()
        .find(|m| m.path == fixture.binary().to_str().unwrap())
        .unwrap();
    let bias = ModuleCode::parse(&file[..])
        .unwrap()
        .load_bias(own)
        .unwrap();
    // Entry 0 is the resolver's; an entry is jmp *slot (6 bytes), push index (5), jmp entry 0.
    for entry in (16..plt.size()).step_by(16) {
        for (offset, n_pushed) in [(0, 0), (6, 0), (11, 1)] {
            let ip = bias.to_avma(Svma(plt.address() + entry + offset));
            check_called(&dump, ip, n_pushed, &expected);
        }
    }
}

/// Check a copy that is too short: alone it ends there, a second source continues it, and one
/// that has changed since is not believed.
#[test]
fn splice() {
    let fixture = Fixture::build(&["-O2"]);
    let dump = fixture.run("deep");
    let (full, _) = unwind(&dump, Known::Registers);
    assert!(full.frames.len() > 500);
    let (mut unwinder, files) = dump.unwinder();
    let (base, bytes) = dump.memory.0[0].clone();
    let limit = Avma(base + bytes.len() as u64);
    let copy = StackCopy::new(Avma(base), &bytes[..1024], limit);
    let mut text = |address: Avma, bytes: &mut [u8]| files.read(address, bytes);

    let mut short = UnwoundStack::default();
    unwinder.unwind(&dump.regs, &mut { copy }, &mut text, &mut short);
    assert_eq!(short.end, StackEnd::CopyTooShort);
    assert!(short.frames.len() > 10);
    assert_eq!(short.frames[..], full.frames[..short.frames.len()]);

    let mut rest = dump.memory.clone();
    let mut stack = UnwoundStack::default();
    let mut spliced = SplicedStack::new(copy, &mut rest);
    unwinder.unwind(&dump.regs, &mut spliced, &mut text, &mut stack);
    assert_eq!(stack, full);

    // The stack above was rewritten: its words are code addresses, but no call precedes them.
    let uncalled = dump.chain[0].0;
    let other: Vec<u8> = std::iter::repeat_n(uncalled.to_le_bytes(), bytes.len() / 8)
        .flatten()
        .collect();
    let mut rest = Regions(vec![(base, other)]);
    let mut spliced = SplicedStack::new(copy, &mut rest);
    unwinder.unwind(&dump.regs, &mut spliced, &mut text, &mut stack);
    assert_eq!(stack, short);

    let mut rest = dump.memory.clone();
    let mut spliced = SplicedStack::new(copy, &mut rest);
    unwinder.unwind(&dump.regs, &mut spliced, &mut no_text, &mut stack);
    assert_eq!(stack, short, "without code bytes nothing can be checked");
}

/// Check each reason to stop that does not need damaged input.
#[test]
fn end_reasons() {
    let fixture = Fixture::build(&["-O2"]);
    let dump = fixture.run("qsort");
    let (full, mut unwinder) = unwind(&dump, Known::Registers);
    let (_, files) = dump.unwinder();
    let mut text = |address: Avma, bytes: &mut [u8]| files.read(address, bytes);
    let mut memory = dump.memory.clone();
    let mut stack = UnwoundStack::default();
    let mut nothing = Regions(vec![(dump.regs.sp.0, Vec::new())]);
    unwinder.unwind(&dump.regs, &mut nothing, &mut text, &mut stack);
    assert_eq!(
        (stack.frames.len(), stack.end),
        (1, StackEnd::UnreadableStack)
    );

    let libc = dump
        .mappings
        .iter()
        .find(|m| m.executable && m.path.contains("/libc"))
        .unwrap();
    let n_own = full
        .frames
        .iter()
        .take_while(|f| f.module == full.frames[0].module)
        .count();
    unwinder
        .add_module(
            libc.start,
            libc.end,
            Default::default(),
            Err(StackEnd::ModuleUnreadable),
        )
        .unwrap();
    unwinder.unwind(&dump.regs, &mut memory, &mut text, &mut stack);
    assert_eq!(
        (stack.frames.len(), stack.end),
        (n_own + 1, StackEnd::ModuleUnreadable)
    );

    unwinder.remove_module(libc.start);
    unwinder.unwind(&dump.regs, &mut memory, &mut text, &mut stack);
    assert_eq!(
        (stack.frames.len(), stack.end),
        (n_own + 1, StackEnd::NotInModule)
    );
}

/// Check that a frame pointer is followed through a function without an FDE only when the code
/// confirms it, and that the guess is counted.
#[test]
fn function_without_fde() {
    let fixture = Fixture::build(&["-O2", "-fomit-frame-pointer"]);
    let dump = fixture.run("no_cfi");
    let (mut unwinder, files) = dump.unwinder();
    let mut text = |address: Avma, bytes: &mut [u8]| files.read(address, bytes);
    let mut memory = dump.memory.clone();
    let mut stack = UnwoundStack::default();
    unwinder.unwind(&dump.regs, &mut memory, &mut text, &mut stack);
    assert_eq!(
        (stack.end, stack.n_guessed),
        (StackEnd::Root, 1),
        "{stack:?}"
    );
    let starts: Vec<_> = stack
        .frames
        .iter()
        .map(|f| unwinder.fde_start(f.address.for_lookup()))
        .collect();
    let at = starts.iter().position(Option::is_none).unwrap();
    assert_eq!(starts[at - 1], Some(dump.chain[2]), "middle is the callee");
    assert_eq!(starts[at + 1], Some(dump.chain[4]), "main is the caller");

    unwinder.unwind(&dump.regs, &mut memory, &mut no_text, &mut stack);
    assert_eq!(
        (stack.end, stack.frames.len()),
        (StackEnd::NoUnwindInfo, at + 1)
    );
}

/// Check that a file stripped of its section headers unwinds like the whole one.
#[test]
fn no_section_headers() {
    let fixture = Fixture::build(&["-O2"]);
    let dump = fixture.run("alloca");
    let path = fixture.binary().to_str().unwrap();
    let whole = std::fs::read(path).unwrap();
    let (full, _) = unwind(&dump, Known::Registers);
    let check = |file: &[u8], what: &str| {
        let (mut unwinder, files) = dump.unwinder();
        let mut text = |address: Avma, bytes: &mut [u8]| files.read(address, bytes);
        let code = ModuleCode::parse(file).unwrap();
        assert!(code.n_fdes() > 10, "{what}");
        let m = dump
            .mappings
            .iter()
            .find(|m| m.executable && m.path == path)
            .unwrap();
        let bias = code.load_bias(m).unwrap();
        unwinder
            .add_module(m.start, m.end, bias, Ok(Arc::new(code)))
            .unwrap();
        let mut stack = UnwoundStack::default();
        let mut memory = dump.memory.clone();
        unwinder.unwind(&dump.regs, &mut memory, &mut text, &mut stack);
        let addresses = |s: &UnwoundStack| s.frames.iter().map(|f| f.address).collect::<Vec<_>>();
        assert_eq!(
            (addresses(&stack), stack.end),
            (addresses(&full), full.end),
            "{what}"
        );
    };
    let mut stripped = whole.clone();
    // e_shoff, e_shnum and e_shstrndx.
    stripped[40..48].fill(0);
    stripped[60..64].fill(0);
    check(&stripped, "no section headers");
    check(&whole, "whole");
}
