//! Damages a real ELF file and a real stack: nothing may panic, hang or grow without bound.

use crate::common;

use std::sync::{Arc, LazyLock};

use common::{Dump, Files, Fixture};
use object::{Object, ObjectSection};
use proptest::prelude::*;
use wcprof_types::{Avma, StackEnd};
use wcprof_unwind::{ModuleCode, UnwindLimits, Unwinder, UnwoundStack};

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
            .add_module(mapping.start, mapping.end, bias, Some(Arc::clone(&code)))
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
    let limits = UnwindLimits {
        search_bytes: 4096,
        ..UnwindLimits::default()
    };
    for bp in [sample.dump.regs.bp, None, Some(u64::MAX), Some(0)] {
        let mut regs = sample.dump.regs;
        regs.bp = bp;
        unwinder.unwind(&regs, &mut memory, Some(&mut text), limits, &mut stack);
        assert!(!stack.frames.is_empty() && stack.frames.len() <= limits.max_frames);
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
        unwinder.unwind(
            &regs,
            &mut memory,
            None,
            UnwindLimits::default(),
            &mut stack,
        );
        assert_eq!((stack.frames.len(), stack.end), (1, StackEnd::NotInModule));
    }
}
