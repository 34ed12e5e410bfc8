//! C++ linkage names to what they say, as binutils and GDB write it.
//!
//! The grammar is that of the Itanium C++ ABI, section 5.1 ("External Names"). The crate
//! `cpp_demangle`, which is asked for what is not understood here, drops references of expanded
//! packs and the first parameter of constructor templates (`docs/symbols.md`).

mod expression;
mod node;
mod print;
mod types;

use std::collections::HashMap;
use std::fmt::Write;
use std::rc::Rc;

use node::{Later, Node, Part, Signature, base_name, text};

/// Nesting at most, in the name.
const MAX_DEPTH: u32 = 200;
/// Names in a row at most, each in the scope of the one before.
const MAX_SCOPES: usize = 250;

/// Writes what `name` says; `None` when it is no such name, or one that is not understood. An error
/// of `out` itself ends the writing, and counts as success: it has what fits.
pub(crate) fn demangle(name: &str, out: &mut dyn Write) -> Option<()> {
    let rest = name.strip_prefix("_Z")?;
    let mut parser = Parser {
        rest,
        depth: 0,
        substitutions: Vec::new(),
        known_parameters: HashMap::new(),
        parameters: Vec::new(),
        later: Vec::new(),
        cells: Vec::new(),
        in_conversion: false,
        in_type: false,
        lambda: false,
    };
    let encoding = parser.encoding()?;
    let is_whole = parser.rest.is_empty() && parser.later.is_empty();
    if !is_whole {
        return None;
    }
    let mut sink = Sink { out, failed: false };
    let printed = print::print(&encoding, &mut sink);
    (printed.is_ok() || sink.failed).then_some(())
}

/// Tells the caller's failure, which means that it has enough, from one of printing.
struct Sink<'o> {
    out: &'o mut dyn Write,
    failed: bool,
}

impl Write for Sink<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let result = self.out.write_str(text);
        self.failed |= result.is_err();
        result
    }
}

struct Parser<'n> {
    rest: &'n str,
    depth: u32,
    substitutions: Vec<Part>,
    /// Which of these are parameters of a template, and which.
    known_parameters: HashMap<usize, usize>,
    /// Arguments of the template whose signature is read.
    parameters: Vec<Part>,
    /// Parameters that a conversion operator's type names before its arguments.
    later: Vec<(usize, Later)>,
    /// All of these, also those that are known by now.
    cells: Vec<Later>,
    in_conversion: bool,
    /// In a type: template arguments are not those of the function.
    in_type: bool,
    /// In the parameters of a lambda, whose own parameters are `auto`.
    lambda: bool,
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

/// What a function's name tells of its signature.
#[derive(Default)]
struct NameFacts {
    /// It ends in template arguments.
    is_template: bool,
    /// It is a constructor, destructor or conversion, which give nothing.
    no_result: bool,
    qualifiers: String,
}

impl<'n> Parser<'n> {
    fn eat(&mut self, prefix: &str) -> bool {
        match self.rest.strip_prefix(prefix) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, prefix: &str) -> Option<()> {
        self.eat(prefix).then_some(())
    }

    fn peek(&self) -> u8 {
        self.rest.bytes().next().unwrap_or(0)
    }

    fn peek_at(&self, at: usize) -> u8 {
        self.rest.as_bytes().get(at).copied().unwrap_or(0)
    }

    /// Runs `f` one level deeper.
    fn nested<T>(&mut self, f: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        if self.depth >= MAX_DEPTH {
            return None;
        }
        self.depth += 1;
        let result = f(self);
        self.depth -= 1;
        result
    }

    fn digits(&mut self) -> &'n str {
        let end = self
            .rest
            .bytes()
            .position(|b| !b.is_ascii_digit())
            .unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        self.rest = rest;
        digits
    }

    /// Digits, `n` before them if they are negative.
    fn number(&mut self) -> Option<String> {
        let sign = if self.eat("n") { "-" } else { "" };
        let digits = self.digits();
        (!digits.is_empty()).then(|| format!("{sign}{digits}"))
    }

    /// A position: `_` is 0, `0_` is 1.
    fn position(&mut self, radix: u32) -> Option<usize> {
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

    fn add(&mut self, part: &Part) {
        self.substitutions.push(Rc::clone(part));
    }

    /// A function or an object.
    fn encoding(&mut self) -> Option<Part> {
        self.nested(|p| {
            if matches!(p.peek(), b'T' | b'G') {
                return p.special();
            }
            p.function_or_object()
        })
    }

    /// An encoding inside another one, which has template arguments of its own.
    fn encoding_apart(&mut self) -> Option<Part> {
        let parameters = std::mem::take(&mut self.parameters);
        let later = std::mem::take(&mut self.later);
        let flags = (self.in_conversion, self.in_type, self.lambda);
        (self.in_conversion, self.in_type, self.lambda) = (false, false, false);
        let encoding = self.encoding();
        let is_complete = self.later.is_empty();
        (self.in_conversion, self.in_type, self.lambda) = flags;
        self.parameters = parameters;
        self.later = later;
        encoding.filter(|_| is_complete)
    }

    fn function_or_object(&mut self) -> Option<Part> {
        let mut facts = NameFacts::default();
        let name = self.name(&mut facts)?;
        for (index, later) in std::mem::take(&mut self.later) {
            *later.borrow_mut() = Some(Rc::clone(self.parameters.get(index)?));
        }
        // What GCC appends to a clone's name stands behind a dot.
        if matches!(self.peek(), 0 | b'E' | b'.' | b'_') {
            return Some(name);
        }
        let result = match facts.is_template && !facts.no_result {
            true => Some(self.type_()?),
            false => None,
        };
        let mut parameters = Vec::new();
        if !self.eat("v") {
            while !matches!(self.peek(), 0 | b'E' | b'.' | b'Q') {
                parameters.push(self.type_()?);
            }
        }
        let signature = Signature {
            result,
            parameters,
            qualifiers: facts.qualifiers,
        };
        Some(Rc::new(Node::Encoding(name, signature)))
    }

    /// Tables, thunks and other things that compilers make.
    fn special(&mut self) -> Option<Part> {
        const OF_TYPE: [(&str, &str); 4] = [
            ("TV", "vtable for "),
            ("TT", "VTT for "),
            ("TI", "typeinfo for "),
            ("TS", "typeinfo name for "),
        ];
        for (code, what) in OF_TYPE {
            if self.eat(code) {
                let of = self.type_()?;
                return Some(Rc::new(Node::Before(what, of)));
            }
        }
        const OF_NAME: [(&str, &str); 3] = [
            ("GV", "guard variable for "),
            ("TH", "TLS init function for "),
            ("TW", "TLS wrapper function for "),
        ];
        for (code, what) in OF_NAME {
            if self.eat(code) {
                let of = self.name(&mut NameFacts::default())?;
                return Some(Rc::new(Node::Before(what, of)));
            }
        }
        if self.eat("GR") {
            let of = self.name(&mut NameFacts::default())?;
            let number = self.position(36)?;
            let before = format!("reference temporary #{number} for ");
            return Some(Rc::new(Node::Around(before, of, String::new())));
        }
        if self.eat("GTt") || self.eat("GTn") {
            let of = self.encoding()?;
            return Some(Rc::new(Node::Before("transaction clone for ", of)));
        }
        if self.eat("TC") {
            let derived = self.type_()?;
            self.number()?;
            self.expect("_")?;
            let base = self.type_()?;
            let parts = vec![
                text("construction vtable for "),
                base,
                text("-in-"),
                derived,
            ];
            return Some(Rc::new(Node::Sequence(parts)));
        }
        self.expect("T")?;
        let what = match self.peek() {
            b'c' => {
                self.expect("c")?;
                self.call_offset()?;
                "covariant return thunk to "
            }
            b'h' => "non-virtual thunk to ",
            _ => "virtual thunk to ",
        };
        self.call_offset()?;
        let target = self.encoding()?;
        Some(Rc::new(Node::Before(what, target)))
    }

    fn call_offset(&mut self) -> Option<()> {
        if !self.eat("h") {
            self.expect("v")?;
            self.number()?;
            self.expect("_")?;
        }
        self.number()?;
        self.expect("_")
    }

    fn name(&mut self, facts: &mut NameFacts) -> Option<Part> {
        self.nested(|p| match p.peek() {
            b'N' => p.nested_name(facts),
            b'Z' => p.local_name(facts),
            b'S' if p.peek_at(1) != b't' => {
                let part = p.substitution()?;
                p.expect_arguments(part, facts)
            }
            _ => {
                let scope = p.eat("St").then(|| text("std"));
                let mut part = p.unqualified(scope.as_ref(), facts)?;
                if let Some(scope) = scope {
                    part = Rc::new(Node::Nested(scope, part));
                }
                if p.peek() == b'I' {
                    p.add(&part);
                    return p.expect_arguments(part, facts);
                }
                Some(part)
            }
        })
    }

    fn expect_arguments(&mut self, name: Part, facts: &mut NameFacts) -> Option<Part> {
        let arguments = self.arguments(true)?;
        facts.is_template = true;
        Some(Rc::new(Node::Template(name, arguments)))
    }

    /// `N qualifiers prefix name E`.
    fn nested_name(&mut self, facts: &mut NameFacts) -> Option<Part> {
        self.expect("N")?;
        for (code, text) in [("r", " restrict"), ("V", " volatile"), ("K", " const")] {
            if self.eat(code) {
                // Written in the other order.
                facts.qualifiers.insert_str(0, text);
            }
        }
        if self.eat("O") {
            facts.qualifiers.push_str(" &&");
        } else if self.eat("R") {
            facts.qualifiers.push_str(" &");
        }
        let mut part: Option<Part> = None;
        for _ in 0..MAX_SCOPES {
            if self.eat("E") {
                return part;
            }
            self.eat("L");
            // A part that names refer to again is known already.
            let mut is_known = false;
            part = Some(match self.peek() {
                b'I' => {
                    let name = part?;
                    self.expect_arguments(name, facts)?
                }
                b'T' if part.is_none() => self.parameter()?,
                b'D' if part.is_none() && matches!(self.peek_at(1), b't' | b'T') => {
                    self.decltype()?
                }
                b'S' if part.is_none() => {
                    is_known = true;
                    match self.eat("St") {
                        true => text("std"),
                        false => self.substitution()?,
                    }
                }
                b'M' => {
                    // A data member with an initializer; its lambdas follow.
                    self.expect("M")?;
                    continue;
                }
                _ => {
                    facts.is_template = false;
                    facts.no_result = false;
                    let name = self.unqualified(part.as_ref(), facts)?;
                    match part {
                        Some(scope) => Rc::new(Node::Nested(scope, name)),
                        None => name,
                    }
                }
            });
            if !is_known && self.peek() != b'E' {
                self.substitutions.push(Rc::clone(part.as_ref()?));
            }
        }
        None
    }

    /// `Z function E entity`.
    fn local_name(&mut self, facts: &mut NameFacts) -> Option<Part> {
        self.expect("Z")?;
        let function = self.encoding_apart()?;
        // A scope is not written with what it gives.
        let function = match &*function {
            Node::Encoding(name, signature) => Rc::new(Node::Encoding(
                Rc::clone(name),
                Signature {
                    result: None,
                    parameters: signature.parameters.clone(),
                    qualifiers: signature.qualifiers.clone(),
                },
            )),
            _ => function,
        };
        self.expect("E")?;
        let entity = if self.eat("s") {
            self.discriminator();
            text("string literal")
        } else if self.eat("d") {
            let digits = match self.eat("_") {
                true => 1,
                false => {
                    let n: usize = self.digits().parse().ok()?;
                    self.expect("_")?;
                    n.checked_add(2)?
                }
            };
            let inner = self.name(facts)?;
            let scope = text(format!("{{default arg#{digits}}}"));
            Rc::new(Node::Nested(scope, inner))
        } else {
            let entity = self.name(facts)?;
            self.discriminator();
            entity
        };
        Some(Rc::new(Node::Nested(function, entity)))
    }

    fn discriminator(&mut self) {
        let before = self.rest;
        if self.eat("__") {
            let has_digits = !self.digits().is_empty();
            if has_digits && self.eat("_") {
                return;
            }
            self.rest = before;
        } else if self.eat("_") {
            if !self.digits().is_empty() {
                return;
            }
            self.rest = before;
        }
    }

    /// A name without its scope, which a constructor's is taken from.
    fn unqualified(&mut self, scope: Option<&Part>, facts: &mut NameFacts) -> Option<Part> {
        self.eat("L");
        let part = match self.peek() {
            b'0'..=b'9' => self.source_name()?,
            b'C' if matches!(self.peek_at(1), b'1'..=b'5' | b'I') => {
                self.expect("C")?;
                let inherits = self.eat("I");
                self.rest = self.rest.get(1..)?;
                if inherits {
                    self.type_()?;
                }
                facts.no_result = true;
                Rc::new(Node::Structor(base_name(scope?), false))
            }
            b'D' if matches!(self.peek_at(1), b'0'..=b'5') => {
                self.rest = self.rest.get(2..)?;
                facts.no_result = true;
                Rc::new(Node::Structor(base_name(scope?), true))
            }
            b'D' if self.peek_at(1) == b'C' => {
                self.expect("DC")?;
                let mut names = Vec::new();
                while !self.eat("E") {
                    names.push(self.source_name()?);
                }
                let names = Rc::new(Node::Joined(names, ", "));
                Rc::new(Node::Around("[".to_owned(), names, "]".to_owned()))
            }
            b'U' => self.unnamed()?,
            _ => self.operator_name(facts)?,
        };
        if self.peek() != b'B' {
            return Some(part);
        }
        let mut parts = vec![part];
        while self.eat("B") {
            parts.extend([text("[abi:"), self.source_name()?, text("]")]);
        }
        Some(Rc::new(Node::Sequence(parts)))
    }

    fn source_name(&mut self) -> Option<Part> {
        let len: usize = self.digits().parse().ok()?;
        let name = self.rest.get(..len).filter(|name| !name.is_empty())?;
        self.rest = self.rest.get(len..)?;
        let is_anonymous = name
            .strip_prefix("_GLOBAL_")
            .is_some_and(|rest| rest.starts_with(['_', '.', '$']) && rest.get(1..2) == Some("N"));
        Some(text(if is_anonymous {
            "(anonymous namespace)"
        } else {
            name
        }))
    }

    /// Types without a name, and lambdas.
    fn unnamed(&mut self) -> Option<Part> {
        if self.eat("Ut") {
            let number = self.position(10)?;
            return Some(text(format!("{{unnamed type#{}}}", number + 1)));
        }
        self.expect("Ul")?;
        let outer = std::mem::replace(&mut self.lambda, true);
        let mut parameters = Vec::new();
        let result = loop {
            if self.eat("E") {
                break Some(());
            }
            if self.eat("v") {
                continue;
            }
            match self.type_() {
                Some(part) => parameters.push(part),
                None => break None,
            }
        };
        self.lambda = outer;
        result?;
        let number = self.position(10)?;
        Some(Rc::new(Node::Lambda(parameters, number + 1)))
    }

    /// `operator+`, or a conversion.
    fn operator_name(&mut self, facts: &mut NameFacts) -> Option<Part> {
        if self.eat("cv") {
            let outer = std::mem::replace(&mut self.in_conversion, true);
            let to = self.type_();
            self.in_conversion = outer;
            facts.no_result = true;
            return Some(Rc::new(Node::Conversion(to?)));
        }
        if self.eat("li") {
            let name = self.source_name()?;
            return Some(Rc::new(Node::Before("operator\"\" ", name)));
        }
        let operator = expression::operator(self.rest)?;
        self.rest = self.rest.get(2..)?;
        let space = if operator.starts_with(|c: char| c.is_ascii_alphabetic()) {
            " "
        } else {
            ""
        };
        Some(text(format!("operator{space}{operator}")))
    }
}

#[cfg(test)]
mod tests;
