//! Types, template arguments and parts that a name refers to again.

use std::rc::Rc;

use super::node::{Later, Node, Part, Signature, text};
use super::parser::{Context, NameFacts, Parser};

/// Types of one letter.
const BUILTIN: [(u8, &str); 21] = [
    (b'v', "void"),
    (b'w', "wchar_t"),
    (b'b', "bool"),
    (b'c', "char"),
    (b'a', "signed char"),
    (b'h', "unsigned char"),
    (b's', "short"),
    (b't', "unsigned short"),
    (b'i', "int"),
    (b'j', "unsigned int"),
    (b'l', "long"),
    (b'm', "unsigned long"),
    (b'x', "long long"),
    (b'y', "unsigned long long"),
    (b'n', "__int128"),
    (b'o', "unsigned __int128"),
    (b'f', "float"),
    (b'd', "double"),
    (b'e', "long double"),
    (b'g', "__float128"),
    (b'z', "..."),
];

/// Types of `D` and a letter.
const BUILTIN_D: [(u8, &str); 10] = [
    (b'd', "decimal64"),
    (b'e', "decimal128"),
    (b'f', "decimal32"),
    (b'h', "half"),
    (b'i', "char32_t"),
    (b's', "char16_t"),
    (b'u', "char8_t"),
    (b'a', "auto"),
    (b'c', "decltype(auto)"),
    (b'n', "decltype(nullptr)"),
];

impl<'n> Parser<'n> {
    pub(crate) fn type_(&mut self) -> Option<Part> {
        self.nested(|p| {
            let (start, n_parameters) = (p.rest, p.n_parameters);
            let (part, is_new) = p.any_type()?;
            if is_new {
                if p.n_parameters != n_parameters {
                    let text = &start[..start.len() - p.rest.len()];
                    let found = (text, p.scope());
                    p.dependent.insert(p.substitutions.len(), found);
                }
                p.add(&part);
            }
            Some(part)
        })
    }

    /// A type, and whether the name can refer to it again from here on.
    fn any_type(&mut self) -> Option<(Part, bool)> {
        let node = match self.peek() {
            b'r' | b'V' | b'K' => return Some((self.qualified()?, true)),
            b'F' => return Some((self.function("")?, true)),
            b'T' => return Some((self.template_type()?, true)),
            b'D' => return self.type_of_d(),
            b'P' => {
                self.take(1)?;
                Node::Pointer(self.type_()?)
            }
            b'R' => {
                self.take(1)?;
                Node::Reference(self.type_()?, false)
            }
            b'O' => {
                self.take(1)?;
                Node::Reference(self.type_()?, true)
            }
            b'C' => {
                self.take(1)?;
                Node::Qualified(self.type_()?, " _Complex")
            }
            b'M' => {
                self.take(1)?;
                Node::Member(self.type_()?, self.type_()?)
            }
            b'A' => {
                self.take(1)?;
                let size = match self.peek() {
                    b'_' => None,
                    b'0'..=b'9' => Some(text(self.digits())),
                    _ => Some(self.expression()?),
                };
                self.expect("_")?;
                Node::Array(size, self.type_()?)
            }
            b'S' if self.peek_at(1) != b't' => {
                let part = self.substitution()?;
                if self.peek() != b'I' {
                    return Some((part, false));
                }
                Node::Template(part, self.arguments(false)?)
            }
            b'u' => {
                self.take(1)?;
                return Some((self.source_name()?, true));
            }
            b'U' if !matches!(self.peek_at(1), b'l' | b't') => {
                self.take(1)?;
                let qualifier = self.source_name()?;
                if self.peek() == b'I' {
                    self.arguments(false)?;
                }
                Node::Sequence(vec![self.type_()?, text(" "), qualifier])
            }
            letter if letter.is_ascii_lowercase() => {
                self.take(1)?;
                return Some((builtin(&BUILTIN, letter)?, false));
            }
            _ => {
                let name = self.within(self.in_type(), |p| p.name(&mut NameFacts::default()))?;
                return Some((name, true));
            }
        };
        Some((Rc::new(node), true))
    }

    fn in_type(&self) -> Context {
        Context {
            in_type: true,
            ..self.context
        }
    }

    /// A type that begins with `T`: one with its keyword, or what a template parameter stands for.
    fn template_type(&mut self) -> Option<Part> {
        if matches!(self.peek_at(1), b's' | b'u' | b'e') {
            self.take(2)?;
            return self.name(&mut NameFacts::default());
        }
        let of = self.substitutions.len();
        let (part, index) = self.indexed_parameter()?;
        self.known_parameters.insert(of, index);
        // Behind a conversion's type are the arguments of the conversion itself.
        let is_target = self.context.in_conversion && !self.context.in_type;
        if self.peek() != b'I' || is_target {
            return Some(part);
        }
        self.add(&part);
        let arguments = self.arguments(false)?;
        Some(Rc::new(Node::Template(part, arguments)))
    }

    fn qualified(&mut self) -> Option<Part> {
        let found = [
            (self.eat("r"), " restrict"),
            (self.eat("V"), " volatile"),
            (self.eat("K"), " const"),
        ];
        // Written in the other order.
        let qualifiers = || {
            found
                .iter()
                .rev()
                .filter(|(has, _)| *has)
                .map(|(_, text)| *text)
        };
        if self.peek() == b'F' {
            // Of a function type, `restrict` says nothing.
            let text: String = qualifiers().filter(|text| *text != " restrict").collect();
            return self.function(&text);
        }
        let mut part = self.type_()?;
        for text in qualifiers() {
            if !matches!(&*part, Node::Qualified(_, same) if *same == text) {
                part = Rc::new(Node::Qualified(part, text));
            }
        }
        Some(part)
    }

    /// `F result parameters E`, whose exception specification stands before it.
    fn function(&mut self, qualifiers: &str) -> Option<Part> {
        self.signature(qualifiers)
            .map(|signature| Rc::new(Node::Function(signature)))
    }

    fn signature(&mut self, qualifiers: &str) -> Option<Signature> {
        self.expect("F")?;
        self.eat("Y");
        let mut signature = Signature {
            result: Some(self.type_()?),
            parameters: Vec::new(),
            qualifiers: qualifiers.to_owned(),
        };
        loop {
            for (end, qualifier) in [("E", ""), ("RE", " &"), ("OE", " &&")] {
                if self.eat(end) {
                    signature.qualifiers.push_str(qualifier);
                    return Some(signature);
                }
            }
            if !self.eat("v") {
                signature.parameters.push(self.type_()?);
            }
        }
    }

    /// A type that begins with `D`, likewise.
    fn type_of_d(&mut self) -> Option<(Part, bool)> {
        if matches!(self.peek_at(1), b't' | b'T') {
            return Some((self.decltype()?, true));
        }
        let node = match self.take(2)?.as_bytes().last()? {
            b'p' => Node::Expansion(self.type_()?),
            b'v' => {
                let size = match self.peek() {
                    b'0'..=b'9' => text(self.digits()),
                    _ => {
                        self.expect("_")?;
                        self.expression()?
                    }
                };
                self.expect("_")?;
                let element = self.type_()?;
                Node::Sequence(vec![element, text(" __vector("), size, text(")")])
            }
            b'o' => {
                let mut signature = self.signature("")?;
                signature.qualifiers.push_str(" noexcept");
                Node::Function(signature)
            }
            b'F' => {
                let bits = self.digits();
                let suffix = if self.eat("x") { "x" } else { "" };
                self.eat("_");
                return Some((text(format!("_Float{bits}{suffix}")), false));
            }
            letter => return Some((builtin(&BUILTIN_D, *letter)?, false)),
        };
        Some((Rc::new(node), true))
    }

    pub(crate) fn decltype(&mut self) -> Option<Part> {
        self.take(2)?;
        let parts = vec![text("decltype ("), self.expression()?, text(")")];
        self.expect("E")?;
        Some(Rc::new(Node::Sequence(parts)))
    }

    /// A template's parameter: what it stands for.
    pub(crate) fn parameter(&mut self) -> Option<Part> {
        Some(self.indexed_parameter()?.0)
    }

    fn indexed_parameter(&mut self) -> Option<(Part, usize)> {
        self.expect("T")?;
        let index = self.position(10)?;
        self.n_parameters += 1;
        Some((self.parameter_at(index)?, index))
    }

    fn parameter_at(&mut self, index: usize) -> Option<Part> {
        if self.context.in_lambda {
            return Some(text(format!("auto:{}", index.checked_add(1)?)));
        }
        if self.context.in_conversion {
            let later = Later::default();
            self.later.push((index, Rc::clone(&later)));
            self.cells.push(Rc::clone(&later));
            return Some(Rc::new(Node::Later(later)));
        }
        let part = self.parameters.get(index)?;
        Some(match &**part {
            Node::List(_) => Rc::new(Node::Pack(Rc::clone(part))),
            _ => Rc::clone(part),
        })
    }

    /// `S_`, `S1_`, and the abbreviations of the standard library.
    pub(crate) fn substitution(&mut self) -> Option<Part> {
        self.expect("S")?;
        let known = match self.peek() {
            b'a' => "std::allocator",
            b'b' => "std::basic_string",
            b's' => "std::string",
            b'i' => "std::istream",
            b'o' => "std::ostream",
            b'd' => "std::iostream",
            _ => {
                let index = self.position(36)?;
                // A parameter is what it is here, not where it stood first.
                return match self.known_parameters.get(&index).copied() {
                    Some(parameter) => self.parameter_at(parameter),
                    None => self
                        .reread(index)
                        .or_else(|| self.substitutions.get(index).cloned()),
                };
            }
        };
        self.take(1)?;
        let part = text(known);
        if !self.eat("B") {
            return Some(part);
        }
        let parts = vec![part, text("[abi:"), self.source_name()?, text("]")];
        let tagged = Rc::new(Node::Sequence(parts));
        self.add(&tagged);
        Some(tagged)
    }

    /// Whose template parameters are named here: the encoding's, or those of a lambda in it.
    fn scope(&self) -> (usize, bool) {
        (self.context.encoding, self.context.in_lambda)
    }

    /// A substitution that names a template parameter, of a lambda or of what is around it: what it is here.
    fn reread(&mut self, index: usize) -> Option<Part> {
        let (text, scope) = self.dependent.get(&index).copied()?;
        // Behind a conversion's type parameters are not known yet.
        if self.context.in_conversion || scope == self.scope() {
            return None;
        }
        self.n_readings = self.n_readings.checked_sub(1)?;
        let n = self.substitutions.len();
        let rest = std::mem::replace(&mut self.rest, text);
        let part = self.any_type();
        let is_whole = std::mem::replace(&mut self.rest, rest).is_empty();
        // What was read had its place in the name before.
        self.substitutions.truncate(n);
        self.known_parameters.retain(|at, _| *at < n);
        self.dependent.retain(|at, _| *at < n);
        let (part, _) = part?;
        is_whole.then_some(part)
    }

    /// `I arguments E`; of the name of a function they are what its signature refers to.
    pub(crate) fn arguments(&mut self, is_name: bool) -> Option<Part> {
        self.expect("I")?;
        let is_own = is_name && !self.context.in_type;
        if is_own {
            self.parameters.clear();
        }
        let mut parts = Vec::new();
        while !self.eat("E") {
            let part = self.argument()?;
            if is_own {
                self.parameters.push(Rc::clone(&part));
            }
            parts.push(part);
        }
        Some(Rc::new(Node::List(parts)))
    }

    fn argument(&mut self) -> Option<Part> {
        self.nested(|p| match p.peek() {
            b'X' => {
                p.take(1)?;
                let part = p.expression()?;
                p.expect("E")?;
                Some(part)
            }
            b'J' => {
                p.take(1)?;
                let parts = p.parts(Self::argument)?;
                Some(Rc::new(Node::List(parts)))
            }
            b'L' => p.literal(),
            _ => p.within(p.in_type(), Self::type_),
        })
    }
}

/// The builtin type of this letter.
fn builtin(types: &[(u8, &'static str)], letter: u8) -> Option<Part> {
    let (_, name) = types.iter().find(|(code, _)| *code == letter)?;
    Some(text(*name))
}
