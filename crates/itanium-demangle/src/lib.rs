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
    let mut text = Limited(String::new());
    write_demangled(name, &mut text)?;
    Some(text.0)
}

/// A text of at most [`MAX_TEXT`] bytes.
struct Limited(String);

impl Write for Limited {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MAX_TEXT {
            return Err(fmt::Error);
        }
        self.0.write_str(text)
    }
}

/// Writes the C++ name of `name` to `out`; `None` if it is no linkage name, or not understood.
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
    for scopes_are_types in [false, true] {
        let mut parser = Parser::new(rest, scopes_are_types);
        if let Some(encoding) = parser.encoding()
            && parser.is_at_end()
        {
            let mut sink = Sink { out, failed: false };
            let printed = print::print(&encoding, &mut sink);
            return (printed.is_ok() || sink.failed).then_some(());
        }
    }
    None
}

/// Distinguishes an error of the caller's writer from one of printing.
struct Sink<'o> {
    out: &'o mut dyn Write,
    failed: bool,
}

impl Write for Sink<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let result = self.out.write_str(text);
        self.failed |= result.is_err();
        result
    }
}

#[cfg(test)]
mod tests;
