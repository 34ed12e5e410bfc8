//! C++ linkage names to C++ names, as binutils and GDB write them.
//!
//! The grammar is that of the Itanium C++ ABI, section 5.1 ("External Names").
//!
//! ```
//! let name = itanium_demangle::demangle("_ZN1AC1IiEET_i");
//! assert_eq!(name.as_deref(), Some("A::A<int>(int, int)"));
//! assert_eq!(itanium_demangle::demangle("main"), None);
//! ```
#![forbid(unsafe_code)]

mod expression;
mod names;
mod node;
mod operators;
mod parser;
mod print;
mod types;

use std::fmt::{self, Write};

use parser::Parser;

/// Longest text that [`demangle`] gives, bytes.
const MAX_TEXT: usize = 1 << 20;

/// The C++ name that the linkage name `name` stands for; `None` if it is no such name, or one that this
/// crate does not understand.
///
/// A short name can stand for a very long text: it is cut at 1 MiB.
pub fn demangle(name: &str) -> Option<String> {
    let mut text = String::new();
    write_demangled(name, &mut text)?;
    Some(text)
}

/// Writes the C++ name of `name` to `out`, likewise cut; `None` if it is no linkage name, or not understood.
///
/// An error of `out` ends the writing and counts as success: `out` has what it wants.
///
/// ```
/// let mut text = String::new();
/// itanium_demangle::write_demangled("_ZN1A1fEi", &mut text).expect("valid name");
/// assert_eq!(text, "A::f(int)");
/// ```
pub fn write_demangled(name: &str, out: &mut dyn Write) -> Option<()> {
    let rest = name.strip_prefix("_Z")?;
    for scopes_are_types in [true, false] {
        let mut parser = Parser::new(rest, scopes_are_types);
        if let Some(encoding) = parser.encoding()
            && parser.is_at_end()
        {
            let mut sink = Sink {
                out,
                left: MAX_TEXT,
                failed: false,
            };
            let printed = print::print(&encoding, &mut sink);
            return (printed.is_ok() || sink.failed).then_some(());
        }
    }
    None
}

/// Limits the text, and distinguishes an error of the caller's writer from one of printing.
struct Sink<'o> {
    out: &'o mut dyn Write,
    /// Bytes that may still be written.
    left: usize,
    /// No more is to be written.
    failed: bool,
}

impl Write for Sink<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let left = self.left.checked_sub(text.len());
        let result = left.map_or(Err(fmt::Error), |_| self.out.write_str(text));
        self.left = left.unwrap_or(0);
        self.failed |= result.is_err();
        result
    }
}

#[cfg(test)]
mod tests;
