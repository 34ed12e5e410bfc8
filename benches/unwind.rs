//! Time to unwind one stack of a compiled program, with a warm rule cache, and to read a module.

#[path = "../crates/wcprof-unwind/tests/common/mod.rs"]
mod common;

use std::hint::black_box;

use common::Fixture;
use criterion::{Criterion, criterion_group, criterion_main};
use wcprof_types::Avma;
use wcprof_unwind::{ModuleCode, StackCopy, UnwindLimits, UnwoundStack};

fn unwind(c: &mut Criterion) {
    let fixture = Fixture::build(&["-O2"]);
    for scenario in ["fifteen", "signal", "deep"] {
        let dump = fixture.run(scenario);
        let (mut unwinder, _) = dump.unwinder();
        let mut regions = dump.memory.clone();
        let mut stack = UnwoundStack::default();
        let limits = UnwindLimits::default();
        unwinder.unwind(&dump.regs, &mut regions, None, limits, &mut stack);
        let name = format!("{scenario}, {} frames", stack.frames.len());
        if scenario == "signal" {
            c.bench_function(&name, |b| {
                b.iter(|| {
                    unwinder.unwind(
                        black_box(&dump.regs),
                        &mut regions,
                        None,
                        limits,
                        &mut stack,
                    )
                });
            });
        } else {
            let (base, bytes) = &dump.memory.0[0];
            let mut copy = StackCopy::new(Avma(*base), bytes, Avma(base + bytes.len() as u64));
            c.bench_function(&name, |b| {
                b.iter(|| {
                    unwinder.unwind(black_box(&dump.regs), &mut copy, None, limits, &mut stack)
                });
            });
        }
    }
}

/// `rbp` unknown in code built with frame pointers: the stack is searched.
fn search(c: &mut Criterion) {
    let fixture = Fixture::build(&["-O2", "-fno-omit-frame-pointer"]);
    let dump = fixture.run("alloca");
    let (mut unwinder, files) = dump.unwinder();
    let mut text = |address: Avma, bytes: &mut [u8]| files.read(address, bytes);
    let mut regs = dump.regs;
    regs.bp = None;
    let (base, bytes) = &dump.memory.0[0];
    let mut copy = StackCopy::new(Avma(*base), bytes, Avma(base + bytes.len() as u64));
    let mut stack = UnwoundStack::default();
    c.bench_function("search for rbp", |b| {
        b.iter(|| {
            let limits = UnwindLimits::default();
            unwinder.unwind(
                black_box(&regs),
                &mut copy,
                Some(&mut text),
                limits,
                &mut stack,
            );
        });
    });
}

fn parse(c: &mut Criterion) {
    let fixture = Fixture::build(&["-O2"]);
    let dump = fixture.run("alloca");
    let libc = dump
        .mappings
        .iter()
        .find(|m| m.path.contains("/libc"))
        .unwrap();
    let bytes = std::fs::read(&libc.path).unwrap();
    c.bench_function("read libc", |b| {
        b.iter(|| ModuleCode::parse(black_box(&bytes[..])).unwrap());
    });
}

criterion_group!(benches, unwind, search, parse);
criterion_main!(benches);
