//! Names: functions and objects, their scopes, and what compilers make of them (thunks, tables).

use std::rc::Rc;

use super::node::{Node, Part, Signature, base_name, text};
use super::operators;
use super::parser::{Context, MAX_SCOPES, NameFacts, Parser};

/// Codes of special names, and the text before the type.
const OF_TYPE: [(&str, &str); 4] = [
    ("TV", "vtable for "),
    ("TT", "VTT for "),
    ("TI", "typeinfo for "),
    ("TS", "typeinfo name for "),
];

/// Codes of special names, and the text before the name.
const OF_NAME: [(&str, &str); 3] = [
    ("GV", "guard variable for "),
    ("TH", "TLS init function for "),
    ("TW", "TLS wrapper function for "),
];

impl Parser<'_> {
    /// A function or an object.
    pub(crate) fn encoding(&mut self) -> Option<Part> {
        self.nested(|p| {
            if matches!(p.peek(), b'T' | b'G') {
                return p.special();
            }
            p.function_or_object()
        })
    }

    /// An encoding inside another one, which has template arguments of its own.
    pub(crate) fn encoding_apart(&mut self) -> Option<Part> {
        let parameters = std::mem::take(&mut self.parameters);
        let later = std::mem::take(&mut self.later);
        let context = Context {
            encoding: self.rest.as_ptr().addr(),
            ..Context::default()
        };
        let encoding = self.within(context, Self::encoding);
        let is_complete = self.later.is_empty();
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
        for (code, what) in OF_TYPE {
            if self.eat(code) {
                let of = self.type_()?;
                return Some(Rc::new(Node::Before(what, of)));
            }
        }
        for (code, what) in OF_NAME {
            if self.eat(code) {
                let of = self.name(&mut NameFacts::default())?;
                return Some(Rc::new(Node::Before(what, of)));
            }
        }
        if self.eat("GR") {
            let of = self.name(&mut NameFacts::default())?;
            let number = self.position(36)?;
            let before = text(format!("reference temporary #{number} for "));
            return Some(Rc::new(Node::Sequence(vec![before, of])));
        }
        if self.eat("GTt") || self.eat("GTn") {
            let of = self.encoding()?;
            return Some(Rc::new(Node::Before("transaction clone for ", of)));
        }
        if self.eat("TC") {
            let derived = self.type_()?;
            self.skip_number()?;
            self.expect("_")?;
            let base = self.type_()?;
            let before = text("construction vtable for ");
            let parts = vec![before, base, text("-in-"), derived];
            return Some(Rc::new(Node::Sequence(parts)));
        }
        self.expect("T")?;
        let what = match self.peek() {
            b'c' => {
                self.take(1)?;
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
            self.skip_number()?;
            self.expect("_")?;
        }
        self.skip_number()?;
        self.expect("_")
    }

    pub(crate) fn name(&mut self, facts: &mut NameFacts) -> Option<Part> {
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
                    self.take(1)?;
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
            Node::Encoding(name, signature) => {
                let signature = Signature {
                    result: None,
                    ..signature.clone()
                };
                Rc::new(Node::Encoding(Rc::clone(name), signature))
            }
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

    /// `_3` or `__12_`; anything else is left.
    fn discriminator(&mut self) {
        let before = self.rest;
        let is_long = self.eat("__");
        let is_complete =
            (is_long || self.eat("_")) && !self.digits().is_empty() && (!is_long || self.eat("_"));
        if !is_complete {
            self.rest = before;
        }
    }

    /// A name without its scope, which a constructor's is taken from.
    fn unqualified(&mut self, scope: Option<&Part>, facts: &mut NameFacts) -> Option<Part> {
        self.eat("L");
        let part = match self.peek() {
            b'0'..=b'9' => self.source_name()?,
            b'C' if matches!(self.peek_at(1), b'1'..=b'5' | b'I') => {
                self.take(1)?;
                let inherits = self.eat("I");
                self.take(1)?;
                if inherits {
                    self.type_()?;
                }
                facts.no_result = true;
                Rc::new(Node::Structor(base_name(scope?), false))
            }
            b'D' if matches!(self.peek_at(1), b'0'..=b'5') => {
                self.take(2)?;
                facts.no_result = true;
                Rc::new(Node::Structor(base_name(scope?), true))
            }
            b'D' if self.peek_at(1) == b'C' => {
                self.take(2)?;
                let names = Rc::new(Node::List(self.parts(Self::source_name)?));
                Rc::new(Node::Sequence(vec![text("["), names, text("]")]))
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

    pub(crate) fn source_name(&mut self) -> Option<Part> {
        let len: usize = self.digits().parse().ok()?;
        let name = self.take(len).filter(|name| !name.is_empty())?;
        let is_anonymous = name
            .strip_prefix("_GLOBAL_")
            .is_some_and(|rest| rest.starts_with(['_', '.', '$']) && rest.get(1..2) == Some("N"));
        Some(text(match is_anonymous {
            true => "(anonymous namespace)",
            false => name,
        }))
    }

    /// Types without a name, and lambdas.
    fn unnamed(&mut self) -> Option<Part> {
        if self.eat("Ut") {
            let number = self.position(10)?;
            return Some(text(format!("{{unnamed type#{}}}", number + 1)));
        }
        self.expect("Ul")?;
        let in_lambda = Context {
            in_lambda: true,
            ..self.context
        };
        let parameters = self.within(in_lambda, Self::parameter_types)?;
        let number = self.position(10)?;
        Some(Rc::new(Node::Lambda(parameters, number + 1)))
    }

    /// Types up to `E`; `v` alone says that there are none.
    fn parameter_types(&mut self) -> Option<Vec<Part>> {
        let mut types = Vec::new();
        while !self.eat("E") {
            if !self.eat("v") {
                types.push(self.type_()?);
            }
        }
        Some(types)
    }

    /// `operator+`, or a conversion.
    pub(crate) fn operator_name(&mut self, facts: &mut NameFacts) -> Option<Part> {
        if self.eat("cv") {
            let in_conversion = Context {
                in_conversion: true,
                ..self.context
            };
            let to = self.within(in_conversion, Self::type_)?;
            facts.no_result = true;
            return Some(Rc::new(Node::Before("operator ", to)));
        }
        if self.eat("li") {
            let name = self.source_name()?;
            return Some(Rc::new(Node::Before("operator\"\" ", name)));
        }
        let (operator, _) = operators::find(self.take(2)?)?;
        let is_word = operator.starts_with(|c: char| c.is_ascii_alphabetic());
        let space = if is_word { " " } else { "" };
        Some(text(format!("operator{space}{operator}")))
    }
}
