//! Call frame information and stacks.

use std::sync::Arc;

use wcprof_types::{Avma, FrameAddress, LoadBias, ScratchRegs, StackEnd, UserRegs};
use wcprof_unwind::{MAX_FRAMES, ModuleCode, StackCopy, Unwinder, UnwoundStack};

use crate::bytes::Bytes;
use crate::image;

/// Where the stack is.
const STACK: u64 = 0x7000_0000;
const MAX_STACK: usize = 4096;

/// Registers, a stack, and the sections of a module (see [`image`]): unwinds the stack of it with
/// and without code to check guesses against.
pub(crate) fn unwind(data: &[u8]) {
    let mut input = Bytes(data);
    let flags = input.u8();
    let ip = u64::from(input.u32());
    // Mostly in the stack, as real ones are.
    let register = |input: &mut Bytes<'_>| match input.u8() {
        offset @ ..=127 => STACK + u64::from(offset) * 8,
        128..=191 => u64::from(input.u32()),
        _ => input.u64(),
    };
    let bp = register(&mut input);
    let scratch = [(); 5].map(|()| register(&mut input));
    let size = usize::from(input.u16()).min(MAX_STACK);
    let stack = input.take(size);
    let image = image::build(&image::parts(&mut input));
    let Ok(code) = ModuleCode::parse(image.as_slice()) else {
        return;
    };
    let end = code.end().0.max(1);
    let code = Arc::new(code);
    let mut unwinder = Unwinder::default();
    let added = unwinder.add_module(Avma(0), Avma(end), LoadBias(0), Ok(Arc::clone(&code)));
    if added.is_none() {
        return;
    }
    let regs = UserRegs {
        ip: Avma(ip),
        sp: Avma(STACK),
        bp: (flags & 1 != 0).then_some(bp),
        bx: (flags & 32 != 0).then_some(bp),
        scratch: ScratchRegs::new([
            (0, (flags & 2 != 0).then_some(scratch[0])),
            (1, (flags & 64 != 0).then_some(scratch[0])),
            (5, (flags & 16 != 0).then_some(scratch[0])),
            (8, (flags & 4 != 0).then_some(scratch[1])),
            (9, (flags & 4 != 0).then_some(scratch[2])),
            (10, (flags & 4 != 0).then_some(scratch[3])),
            (11, (flags & 4 != 0).then_some(scratch[4])),
        ]),
    };
    let limit = Avma(STACK + 2 * MAX_STACK as u64);
    let mut text = |address: Avma, bytes: &mut [u8]| {
        let part = usize::try_from(address.0).ok().and_then(|at| {
            let end = at.checked_add(bytes.len())?;
            image.get(at..end).filter(|_| flags & 8 != 0)
        });
        part.map(|part| bytes.copy_from_slice(part)).is_some()
    };
    let mut out = UnwoundStack::default();
    let mut first = None;
    // The second time with what the first left in the caches: it must not differ, unless it got further.
    for _ in 0..2 {
        let mut memory = StackCopy::new(Avma(STACK), stack, limit);
        unwinder.unwind(&regs, &mut memory, &mut text, &mut out);
        assert!((1..=MAX_FRAMES).contains(&out.frames.len()));
        let leaf = out.frames.first().map(|frame| frame.address);
        assert_eq!(leaf, Some(FrameAddress::InstructionPointer(regs.ip)));
        match &first {
            None => first = Some(out.clone()),
            Some(first) if first.end == StackEnd::TooManyFrames => {}
            Some(first) => assert_eq!(*first, out),
        }
    }
}
