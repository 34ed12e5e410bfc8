//! The state of demangling: the rest of the name, and the parts that it can refer to again.

use std::collections::HashMap;
use std::rc::Rc;

use super::node::{Later, Part};

/// Deepest nesting of the name's parts.
const MAX_DEPTH: u32 = 200;
/// Most substitutions that are read again in another place.
const MAX_READINGS: u32 = 500;
/// Most names in a row, each in the scope of the one before.
pub(crate) const MAX_SCOPES: usize = 250;

/// Reads one name. The other files add methods for the productions of the grammar; each of them takes
/// what it understands off `rest`, and returns `None` for what it does not understand.
pub(crate) struct Parser<'n> {
    pub(crate) rest: &'n str,
    depth: u32,
    /// What `S_`, `S0_` and so on refer to.
    pub(crate) substitutions: Vec<Part>,
    /// Substitutions that are template parameters, with the index of the parameter.
    pub(crate) known_parameters: HashMap<usize, usize>,
    /// Substitutions that name a template parameter in them: their text, and whose parameter it is.
    pub(crate) dependent: HashMap<usize, (&'n str, (usize, bool))>,
    /// Template parameters read so far.
    pub(crate) n_parameters: usize,
    /// Substitutions that may still be read again.
    pub(crate) n_readings: u32,
    /// Arguments of the template whose signature is read.
    pub(crate) parameters: Vec<Part>,
    /// Parameters that a conversion operator's type names before its arguments.
    pub(crate) later: Vec<(usize, Later)>,
    /// All of these, also those that are known by now.
    pub(crate) cells: Vec<Later>,
    pub(crate) context: Context,
    /// `srN` begins a type, as GCC writes it: the name can refer to the parts of the scope again. In the
    /// ABI, and with Clang, it cannot.
    pub(crate) scopes_are_types: bool,
}

/// Where the parser is in the name.
#[derive(Copy, Clone, Default)]
pub(crate) struct Context {
    /// In the type of a conversion operator.
    pub(crate) in_conversion: bool,
    /// In a type: template arguments are not those of the function.
    pub(crate) in_type: bool,
    /// In the parameters of a lambda, whose own parameters are `auto`.
    pub(crate) in_lambda: bool,
    /// Address where the encoding begins, in an encoding inside another one.
    pub(crate) encoding: usize,
}

impl Drop for Parser<'_> {
    /// Frees parts from the last to the first: each may hold all before it, and freeing it first would
    /// nest as deeply. A part that is known later may hold itself.
    fn drop(&mut self) {
        for cell in self.cells.drain(..) {
            cell.replace(None);
        }
        self.parameters.clear();
        while self.substitutions.pop().is_some() {}
    }
}

/// What a function's name says about its signature.
#[derive(Default)]
pub(crate) struct NameFacts {
    /// It ends in template arguments.
    pub(crate) is_template: bool,
    /// It is a constructor, destructor or conversion, whose signature has no return type.
    pub(crate) no_result: bool,
    /// ` const`, ` &` and the like.
    pub(crate) qualifiers: String,
}

impl<'n> Parser<'n> {
    /// `rest` is the name behind its `_Z`.
    pub(crate) fn new(rest: &'n str, scopes_are_types: bool) -> Self {
        Self {
            rest,
            depth: 0,
            substitutions: Vec::new(),
            known_parameters: HashMap::new(),
            dependent: HashMap::new(),
            n_parameters: 0,
            n_readings: MAX_READINGS,
            parameters: Vec::new(),
            later: Vec::new(),
            cells: Vec::new(),
            context: Context::default(),
            scopes_are_types,
        }
    }

    /// Whether all was read and all parameters are known.
    pub(crate) fn is_at_end(&self) -> bool {
        self.rest.is_empty() && self.later.is_empty()
    }

    /// Takes `prefix` off the rest; false if the rest does not begin with it.
    pub(crate) fn eat(&mut self, prefix: &str) -> bool {
        let rest = self.rest.strip_prefix(prefix);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    pub(crate) fn expect(&mut self, prefix: &str) -> Option<()> {
        self.eat(prefix).then_some(())
    }

    /// Takes `n` bytes off the rest.
    pub(crate) fn take(&mut self, n: usize) -> Option<&'n str> {
        let (taken, rest) = self.rest.split_at_checked(n)?;
        self.rest = rest;
        Some(taken)
    }

    /// The next byte, 0 at the end.
    pub(crate) fn peek(&self) -> u8 {
        self.peek_at(0)
    }

    pub(crate) fn peek_at(&self, at: usize) -> u8 {
        self.rest.as_bytes().get(at).copied().unwrap_or(0)
    }

    /// Runs `f` one level deeper.
    pub(crate) fn nested<T>(&mut self, f: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        if self.depth >= MAX_DEPTH {
            return None;
        }
        self.depth += 1;
        let result = f(self);
        self.depth -= 1;
        result
    }

    /// Runs `f` in another context.
    pub(crate) fn within<T>(&mut self, context: Context, f: impl FnOnce(&mut Self) -> T) -> T {
        let outer = std::mem::replace(&mut self.context, context);
        let result = f(self);
        self.context = outer;
        result
    }

    pub(crate) fn digits(&mut self) -> &'n str {
        let end = self.rest.bytes().position(|b| !b.is_ascii_digit());
        let (digits, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        digits
    }

    /// Passes over digits, with `n` before them if they are negative.
    pub(crate) fn skip_number(&mut self) -> Option<()> {
        self.eat("n");
        (!self.digits().is_empty()).then_some(())
    }

    /// A position: `_` is 0, `0_` is 1.
    pub(crate) fn position(&mut self, radix: u32) -> Option<usize> {
        let (digits, rest) = self.rest.split_once('_')?;
        self.rest = rest;
        if digits.is_empty() {
            return Some(0);
        }
        if digits.bytes().any(|b| b.is_ascii_lowercase()) {
            return None;
        }
        usize::from_str_radix(digits, radix).ok()?.checked_add(1)
    }

    /// Parts up to `E`.
    pub(crate) fn parts(&mut self, read: impl Fn(&mut Self) -> Option<Part>) -> Option<Vec<Part>> {
        let mut parts = Vec::new();
        while !self.eat("E") {
            parts.push(read(self)?);
        }
        Some(parts)
    }

    /// Makes a part one that the name can refer to again.
    pub(crate) fn add(&mut self, part: &Part) {
        self.substitutions.push(Rc::clone(part));
    }
}
