//! Damages a real ELF file and a real stack: nothing may panic, hang or grow without bound.

use crate::common;

use std::process::Command;
use std::sync::{Arc, LazyLock};

use common::{Dump, Files, Fixture, no_text};
use object::{Object, ObjectSection, ObjectSymbol};
use proptest::prelude::*;
use wcprof_types::{Avma, LoadBias, StackEnd, UserRegs};
use wcprof_unwind::{MAX_FRAMES, ModuleCode, StackCopy, Unwinder, UnwoundStack};

struct Sample {
    file: Vec<u8>,
    /// Position of `.eh_frame` in the file.
    eh_frame: (usize, usize),
    dump: Dump,
    files: Files,
    path: String,
}

static SAMPLE: LazyLock<Sample> = LazyLock::new(|| {
    let fixture = Fixture::build(&["-O2", "-fno-omit-frame-pointer"]);
    let dump = fixture.run("realigned");
    let file = std::fs::read(fixture.binary()).unwrap();
    let range = {
        let elf = object::File::parse(&*file).unwrap();
        elf.section_by_name(".eh_frame")
            .unwrap()
            .file_range()
            .unwrap()
    };
    let path = fixture.binary().to_str().unwrap().to_owned();
    let (_, files) = dump.unwinder();
    Sample {
        files,
        file,
        eh_frame: (range.0 as usize, range.1 as usize),
        dump,
        path,
    }
});

/// Unwinds the sample's stack with a damaged file, from every register state that an engine has.
fn unwind(file: &[u8], damaged_stack: &[(usize, u8)]) {
    let sample = &*SAMPLE;
    let Ok(code) = ModuleCode::parse(file) else {
        return;
    };
    let code = Arc::new(code);
    let mut unwinder = sample.files.unwinder();
    let mapping = sample
        .dump
        .mappings
        .iter()
        .find(|m| m.executable && m.path == sample.path)
        .unwrap();
    if let Some(bias) = code.load_bias(mapping) {
        unwinder
            .add_module(mapping.start, mapping.end, bias, Ok(Arc::clone(&code)))
            .unwrap();
    }
    let mut memory = sample.dump.memory.clone();
    let stack_bytes = &mut memory.0[0].1;
    for (at, value) in damaged_stack {
        let len = stack_bytes.len();
        stack_bytes[at % len] = *value;
    }
    let mut text = |address: Avma, bytes: &mut [u8]| sample.files.read(address, bytes);
    let mut stack = UnwoundStack::default();
    for bp in [sample.dump.regs.bp, None, Some(u64::MAX), Some(0)] {
        let mut regs = sample.dump.regs;
        regs.bp = bp;
        unwinder.unwind(&regs, &mut memory, &mut text, &mut stack);
        assert!(!stack.frames.is_empty() && stack.frames.len() <= MAX_FRAMES);
        for frame in &stack.frames {
            unwinder.fde_start(frame.address.for_lookup());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    /// Check flipped bytes of `.eh_frame`.
    #[test]
    fn flipped_eh_frame(flips in prop::collection::vec((any::<usize>(), any::<u8>()), 1..12)) {
        let mut file = SAMPLE.file.clone();
        let (start, len) = SAMPLE.eh_frame;
        for (at, value) in flips {
            file[start + at % len] = value;
        }
        unwind(&file, &[]);
    }

    /// Check flipped bytes of the headers, which also move and resize the sections.
    #[test]
    fn flipped_headers(
        flips in prop::collection::vec((any::<usize>(), any::<u8>()), 1..6),
        in_sections in any::<bool>(),
    ) {
        let mut file = SAMPLE.file.clone();
        let len = file.len();
        for (at, value) in flips {
            let at = if in_sections { len - 1 - at % 2048 } else { at % 1024 };
            file[at] = value;
        }
        unwind(&file, &[]);
    }

    /// Check a file that ends anywhere.
    #[test]
    fn truncated(at in any::<usize>()) {
        let file = &SAMPLE.file;
        unwind(&file[..at % file.len()], &[]);
    }

    /// Check flipped bytes of the stack.
    #[test]
    fn flipped_stack(flips in prop::collection::vec((0_usize..2048, any::<u8>()), 1..64)) {
        unwind(&SAMPLE.file, &flips);
    }

    /// Check arbitrary bytes as a whole file.
    #[test]
    fn noise(mut bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
        if let Some(head) = bytes.get_mut(..20) {
            head.copy_from_slice(&SAMPLE.file[..20]);
        }
        let _ = ModuleCode::parse(&bytes[..]);
    }
}

/// Check that addresses anywhere, without modules, give the leaf and a reason.
#[test]
fn no_modules() {
    let mut unwinder = Unwinder::default();
    let mut stack = UnwoundStack::default();
    for ip in [0, 1, u64::MAX, 1 << 47] {
        let mut regs = SAMPLE.dump.regs;
        regs.ip = Avma(ip);
        let mut memory = SAMPLE.dump.memory.clone();
        unwinder.unwind(&regs, &mut memory, &mut no_text, &mut stack);
        assert_eq!((stack.frames.len(), stack.end), (1, StackEnd::NotInModule));
    }
}

/// An ELF file of one executable segment, 2 MiB from 4 MiB on, without call frame information.
fn bare_elf() -> Vec<u8> {
    let mut file = vec![0; 120];
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"\x7fELF\x02\x01\x01");
    // Executable, for x86-64, version 1.
    put(16, &[2, 0, 62, 0, 1]);
    // One program header behind this one.
    put(32, &[64]);
    put(52, &[64, 0, 56, 0, 1, 0, 64, 0]);
    // PT_LOAD, readable and executable.
    put(64, &[1, 0, 0, 0, 5]);
    put(80, &0x40_0000_u64.to_le_bytes());
    put(96, &120_u64.to_le_bytes());
    put(104, &0x20_0000_u64.to_le_bytes());
    file
}

/// Check that a stack cannot ask for more than so many looks at code: thousands of frames without call frame
/// information, between which there are words that look like return addresses behind calls of other functions.
#[test]
fn looks_at_code() {
    let code = Arc::new(ModuleCode::parse(&bare_elf()).unwrap());
    let mut unwinder = Unwinder::default();
    let (start, end) = (Avma(0x40_0000), Avma(0x60_0000));
    unwinder
        .add_module(start, end, LoadBias(0), Ok(code))
        .unwrap();
    const BASE: u64 = 0x7fff_0000_0000;
    let frame = |n: u64| {
        let words = [BASE + 64 * (n + 1), 0x41_0000 + n];
        let others = (0..6).map(move |i| 0x42_0000 + 6 * n + i);
        words.into_iter().chain(others)
    };
    let bytes: Vec<u8> = (0..3000)
        .flat_map(frame)
        .flat_map(u64::to_le_bytes)
        .collect();
    let mut n_looks = 0;
    let mut text = |_: Avma, bytes: &mut [u8]| {
        n_looks += 1;
        bytes.fill(0x90);
        if bytes.len() < 8
            && let Some(call) = bytes.last_chunk_mut()
        {
            *call = [0xe8, 0, 0, 0x10, 0];
        }
        true
    };
    let regs = UserRegs {
        ip: Avma(0x40_1000),
        sp: Avma(BASE),
        bp: Some(BASE),
        ..UserRegs::default()
    };
    let mut memory = StackCopy::new(regs.sp, &bytes, Avma(u64::MAX));
    let mut stack = UnwoundStack::default();
    unwinder.unwind(&regs, &mut memory, &mut text, &mut stack);
    // Frame pointers are followed as before.
    assert_eq!(
        (stack.frames.len(), stack.end),
        (MAX_FRAMES, StackEnd::TooManyFrames)
    );
    assert!(n_looks < 50_000, "{n_looks}");
}

/// A function whose every address has a row of its own, at the end of 24 000 instructions.
const LONG_ENTRY: &str = ".globl f\nf:\n.cfi_startproc\n.rept 8000\nnop\n.cfi_remember_state\n.cfi_restore_state\n.endr\nret\n\
     .cfi_endproc\n";

/// Check that a stack cannot ask for more than so much call frame information to be executed, and that the next one gets
/// further.
#[test]
fn long_entries() {
    let folder = tempfile::tempdir().unwrap();
    let [source, library] = ["f.s", "f.so"].map(|name| folder.path().join(name));
    std::fs::write(&source, LONG_ENTRY).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-nostdlib", "-o"])
        .args([&library, &source]);
    assert!(cc.status().expect("cc is installed").success());
    let file = std::fs::read(&library).unwrap();
    let elf = object::File::parse(&*file).unwrap();
    let f = elf.symbol_by_name("f").unwrap().address();
    let code = Arc::new(ModuleCode::parse(&file).unwrap());
    let mut unwinder = Unwinder::default();
    let whole = unwinder.add_module(Avma(0x100), Avma(0x10_0000), LoadBias(0), Ok(code));
    assert!(whole.is_some());
    const BASE: u64 = 0x7fff_0000_0000;
    let returns = (0..500).map(|n| f + 7000 + n);
    let bytes: Vec<u8> = returns.flat_map(u64::to_le_bytes).collect();
    let regs = UserRegs {
        ip: Avma(f + 6999),
        sp: Avma(BASE),
        ..SAMPLE.dump.regs
    };
    let (mut stack, mut n_frames) = (UnwoundStack::default(), 0);
    for _ in 0..3 {
        let mut memory = StackCopy::new(Avma(BASE), &bytes, Avma(u64::MAX));
        unwinder.unwind(&regs, &mut memory, &mut no_text, &mut stack);
        assert_eq!(stack.end, StackEnd::TooManyFrames);
        let n_more = stack.frames.len() - n_frames;
        assert!((30..60).contains(&n_more), "{n_frames} and {n_more} frames");
        n_frames = stack.frames.len();
    }
}
