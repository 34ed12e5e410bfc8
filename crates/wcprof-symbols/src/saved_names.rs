//! Names that a trace holds, brought in line with what is asked for.

use wcprof_trace::model::{SymbolFrame, SymbolTable};

/// Takes over the names that were found where they say more than the saved ones.
pub fn improve_names(saved: &mut SymbolTable, found: SymbolTable) {
    let detail = |frames: &[SymbolFrame]| {
        let outer = frames.last();
        outer.map(|frame| (frame.resolved, frame.line.is_some()))
    };
    for (id, frames) in found.frames {
        let known = saved.frames.entry(id).or_default();
        if detail(&frames) > detail(known) {
            *known = frames;
        }
    }
}

/// Leaves of saved names what `--no-inline` would have saved.
pub fn drop_inline_frames(symbols: &mut SymbolTable) {
    for frames in symbols.frames.values_mut() {
        frames.retain(|frame| !frame.inlined);
        for frame in frames {
            (frame.file, frame.line) = (None, None);
        }
    }
}
