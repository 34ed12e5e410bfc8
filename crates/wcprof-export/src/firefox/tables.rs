//! Stacks to the tables that all threads of a document share; an entry's place is its number.

use indexmap::IndexSet;
use serde_json::{Value, json};

use crate::stacks::{Frame, Image, Stacks};
use crate::strings::Strings;

/// A frame: its function, and what the viewer keeps apart below that.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
struct FrameEntry {
    function: usize,
    category: usize,
    line: Option<u32>,
    inline_depth: u32,
}

/// A function: the numbers of its name and source file, and its module.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
struct FunctionEntry {
    name: usize,
    source: Option<usize>,
    image: Option<usize>,
}

/// The tables under construction.
#[derive(Debug, Default)]
pub(super) struct Tables<'p> {
    pub(super) strings: Strings,
    images: IndexSet<Image<'p>>,
    /// Names of source files, by string.
    sources: IndexSet<usize>,
    functions: IndexSet<FunctionEntry>,
    frames: IndexSet<FrameEntry>,
    /// The caller's node and the frame.
    nodes: IndexSet<(Option<usize>, usize)>,
}

impl<'p> Tables<'p> {
    /// The number of a stack, root first; `None` for an empty one.
    pub(super) fn stack(
        &mut self,
        stacks: &Stacks<'p>,
        frames: &[Frame],
        category: usize,
    ) -> Option<usize> {
        let mut stack = None;
        for (frame, inline_depth) in frames.iter().zip(stacks.inline_depths(frames)) {
            let frame = self.frame(stacks, *frame, category, inline_depth);
            stack = Some(self.nodes.insert_full((stack, frame)).0);
        }
        stack
    }

    fn frame(
        &mut self,
        stacks: &Stacks<'p>,
        frame: Frame,
        category: usize,
        inline_depth: u32,
    ) -> usize {
        let source = stacks.source(frame);
        let line = source
            .as_ref()
            .map(|(_, line)| *line)
            .filter(|line| *line > 0);
        let file = source.map(|(file, _)| self.strings.number(&file));
        let function = FunctionEntry {
            name: self.strings.number(&stacks.text(frame)),
            source: file.map(|file| self.sources.insert_full(file).0),
            image: stacks.image(frame).map(|i| self.images.insert_full(i).0),
        };
        let frame = FrameEntry {
            function: self.functions.insert_full(function).0,
            category,
            line,
            inline_depth,
        };
        self.frames.insert_full(frame).0
    }

    /// The modules, and the tables of strings, stacks, frames and functions.
    pub(super) fn into_json(mut self, stacks: &Stacks<'p>) -> (Vec<Value>, Value) {
        let texts: Vec<_> = self.images.iter().map(|i| stacks.image_text(*i)).collect();
        let names: Vec<usize> = texts.iter().map(|t| self.strings.number(&t.name)).collect();
        let libs = texts.iter().map(|text| {
            let code_id = (!text.build_id.is_empty()).then_some(&text.build_id);
            json!({
                "arch": "", "name": text.name, "path": text.path, "debugName": text.name,
                "debugPath": text.path, "breakpadId": code_id.map_or_else(String::new, |id| breakpad_id(id)),
                "codeId": code_id,
            })
        });
        let libs = libs.collect();
        let (callers, frames_of_nodes): (Vec<_>, Vec<_>) = self.nodes.iter().copied().unzip();
        let shared = json!({
            "stackTable": {
                "length": callers.len(),
                "frame": frames_of_nodes,
                "prefix": callers,
            },
            "frameTable": self.frame_table(),
            "funcTable": self.function_table(),
            // Libraries.
            "resourceTable": {
                "lib": (0..names.len()).collect::<Vec<_>>(),
                "host": nulls(names.len()),
                "type": vec![1; names.len()],
                "length": names.len(),
                "name": names,
            },
            // These name machine code by its address.
            "nativeSymbols": {
                "libIndex": [], "address": [], "name": [], "functionSize": [], "length": 0,
            },
            "sources": {
                "id": nulls(self.sources.len()),
                "startLine": vec![1; self.sources.len()],
                "startColumn": vec![1; self.sources.len()],
                "sourceMapURL": nulls(self.sources.len()),
                "length": self.sources.len(),
                "filename": self.sources.iter().collect::<Vec<_>>(),
            },
            "stringArray": self.strings.into_list(),
        });
        (libs, shared)
    }

    /// Names are final: no addresses.
    fn frame_table(&self) -> Value {
        let n = self.frames.len();
        let column = |of: fn(&FrameEntry) -> Value| self.frames.iter().map(of).collect::<Vec<_>>();
        json!({
            "address": vec![-1; n],
            "inlineDepth": column(|frame| frame.inline_depth.into()),
            "category": column(|frame| frame.category.into()),
            "subcategory": vec![0; n],
            "func": column(|frame| frame.function.into()),
            "nativeSymbol": nulls(n),
            "innerWindowID": nulls(n),
            "line": column(|frame| frame.line.into()),
            "column": nulls(n),
            "length": n,
        })
    }

    fn function_table(&self) -> Value {
        let n = self.functions.len();
        let column =
            |of: fn(&FunctionEntry) -> Value| self.functions.iter().map(of).collect::<Vec<_>>();
        json!({
            "name": column(|function| function.name.into()),
            "isJS": vec![false; n],
            "relevantForJS": vec![false; n],
            "resource": column(|function| function.image.map_or(json!(-1), Value::from)),
            "source": column(|function| function.source.into()),
            "lineNumber": nulls(n),
            "columnNumber": nulls(n),
            "length": n,
        })
    }
}

/// A build-id as Breakpad writes it: its first 16 bytes as a GUID, and an age of 0.
fn breakpad_id(build_id: &str) -> String {
    let padded = format!("{build_id:0<32}").to_uppercase();
    let bytes: Vec<&str> = (0..16).map(|at| &padded[2 * at..2 * at + 2]).collect();
    let order = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    order.map(|at| bytes[at]).concat() + "0"
}

fn nulls(n: usize) -> Vec<Value> {
    vec![Value::Null; n]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the order of bytes, as `dump_syms` writes it, and a short build-id.
    #[test]
    fn breakpad() {
        let id = breakpad_id("be4e976c325246ee9d6b7847a670b2a956ff9a25");
        assert_eq!(id, "6C974EBE5232EE469D6B7847A670B2A90");
        assert_eq!(breakpad_id("0102"), "000002010000000000000000000000000");
    }
}
