//! Types, template arguments and parts that a name refers to again.

use std::rc::Rc;

use super::node::{Later, Node, Part, Signature, text};
use super::{NameFacts, Parser};

/// Types of one letter.
const BUILTIN: [(u8, &str); 22] = [
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
    (b'D', ""),
];

/// Types of `D` and a letter.
const BUILTIN_D: [(u8, &str); 11] = [
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
    (b'?', ""),
];

impl Parser<'_> {
    pub(super) fn type_(&mut self) -> Option<Part> {
        self.nested(|p| {
            let (part, is_new) = p.any_type()?;
            if is_new {
                p.add(&part);
            }
            Some(part)
        })
    }

    /// A type, and whether a name can refer to it again from here on.
    fn any_type(&mut self) -> Option<(Part, bool)> {
        let new = |node: Node| Some((Rc::new(node), true));
        match self.peek() {
            b'r' | b'V' | b'K' => self.qualified(),
            b'P' => {
                self.expect("P")?;
                new(Node::Pointer(self.type_()?))
            }
            b'R' => {
                self.expect("R")?;
                new(Node::Reference(self.type_()?, false))
            }
            b'O' => {
                self.expect("O")?;
                new(Node::Reference(self.type_()?, true))
            }
            b'C' => {
                self.expect("C")?;
                new(Node::Qualified(self.type_()?, " _Complex"))
            }
            b'M' => {
                self.expect("M")?;
                let class = self.type_()?;
                new(Node::Member(class, self.type_()?))
            }
            b'A' => {
                self.expect("A")?;
                let size = match self.peek() {
                    b'_' => None,
                    b'0'..=b'9' => Some(text(self.digits())),
                    _ => Some(self.expression()?),
                };
                self.expect("_")?;
                new(Node::Array(size, self.type_()?))
            }
            b'F' => Some((self.function("")?, true)),
            b'T' if matches!(self.peek_at(1), b's' | b'u' | b'e') => {
                self.rest = self.rest.get(2..)?;
                Some((self.name(&mut NameFacts::default())?, true))
            }
            b'T' => {
                let of = self.substitutions.len();
                let (part, index) = self.indexed_parameter()?;
                self.known_parameters.insert(of, index);
                // Behind a conversion's type are the arguments of the conversion itself.
                let is_target = self.in_conversion && !self.in_type;
                if self.peek() == b'I' && !is_target {
                    self.add(&part);
                    let arguments = self.arguments(false)?;
                    return new(Node::Template(part, arguments));
                }
                Some((part, true))
            }
            b'S' if self.peek_at(1) != b't' => {
                let part = self.substitution()?;
                if self.peek() != b'I' {
                    return Some((part, false));
                }
                let arguments = self.arguments(false)?;
                new(Node::Template(part, arguments))
            }
            b'D' => self.type_of_d(),
            b'u' => {
                self.expect("u")?;
                Some((self.source_name()?, true))
            }
            b'U' if !matches!(self.peek_at(1), b'l' | b't') => {
                self.expect("U")?;
                let qualifier = self.source_name()?;
                if self.peek() == b'I' {
                    self.arguments(false)?;
                }
                let inner = self.type_()?;
                new(Node::Sequence(vec![inner, text(" "), qualifier]))
            }
            letter if letter.is_ascii_lowercase() => {
                let (_, name) = BUILTIN.iter().find(|(code, _)| *code == letter)?;
                self.rest = self.rest.get(1..)?;
                Some((text(*name), false))
            }
            _ => {
                let outer = std::mem::replace(&mut self.in_type, true);
                let name = self.name(&mut NameFacts::default());
                self.in_type = outer;
                Some((name?, true))
            }
        }
    }

    fn qualified(&mut self) -> Option<(Part, bool)> {
        let restrict = self.eat("r");
        let volatile = self.eat("V");
        let constant = self.eat("K");
        if self.peek() == b'F' {
            let mut qualifiers = String::new();
            for (has, text) in [(constant, " const"), (volatile, " volatile")] {
                qualifiers.push_str(if has { text } else { "" });
            }
            return Some((self.function(&qualifiers)?, true));
        }
        let mut part = self.type_()?;
        for (has, text) in [
            (constant, " const"),
            (volatile, " volatile"),
            (restrict, " restrict"),
        ] {
            if has && !matches!(&*part, Node::Qualified(_, same) if *same == text) {
                part = Rc::new(Node::Qualified(part, text));
            }
        }
        Some((part, true))
    }

    /// `F result parameters E`, whose exception specification stands before it.
    fn function(&mut self, qualifiers: &str) -> Option<Part> {
        let mut qualifiers = qualifiers.to_owned();
        self.expect("F")?;
        self.eat("Y");
        let result = self.type_()?;
        let mut parameters = Vec::new();
        loop {
            if self.eat("E") {
                break;
            }
            if self.eat("RE") {
                qualifiers.push_str(" &");
                break;
            }
            if self.eat("OE") {
                qualifiers.push_str(" &&");
                break;
            }
            if self.eat("v") {
                continue;
            }
            parameters.push(self.type_()?);
        }
        Some(Rc::new(Node::Function(Signature {
            result: Some(result),
            parameters,
            qualifiers,
        })))
    }

    fn type_of_d(&mut self) -> Option<(Part, bool)> {
        match self.peek_at(1) {
            b'p' => {
                self.expect("Dp")?;
                let pattern = self.type_()?;
                Some((Rc::new(Node::Expansion(pattern)), true))
            }
            b't' | b'T' => Some((self.decltype()?, true)),
            b'v' => {
                self.expect("Dv")?;
                let size = match self.peek() {
                    b'0'..=b'9' => text(self.digits()),
                    _ => {
                        self.expect("_")?;
                        self.expression()?
                    }
                };
                self.expect("_")?;
                let element = self.type_()?;
                let parts = vec![element, text(" __vector("), size, text(")")];
                Some((Rc::new(Node::Sequence(parts)), true))
            }
            b'o' => {
                self.expect("Do")?;
                let function = self.function("")?;
                let Ok(Node::Function(mut signature)) = Rc::try_unwrap(function) else {
                    return None;
                };
                signature.qualifiers.push_str(" noexcept");
                Some((Rc::new(Node::Function(signature)), true))
            }
            b'F' => {
                self.expect("DF")?;
                let bits = self.digits();
                let suffix = if self.eat("x") { "x" } else { "" };
                let part = text(format!("_Float{bits}{suffix}"));
                self.eat("_");
                Some((part, false))
            }
            letter => {
                let (_, name) = BUILTIN_D.iter().find(|(code, _)| *code == letter)?;
                self.rest = self.rest.get(2..)?;
                Some((text(*name), false))
            }
        }
    }

    pub(super) fn decltype(&mut self) -> Option<Part> {
        self.rest = self.rest.get(2..)?;
        let expression = self.expression()?;
        self.expect("E")?;
        let before = "decltype (".to_owned();
        Some(Rc::new(Node::Around(before, expression, ")".to_owned())))
    }

    /// A template's parameter: what it stands for.
    pub(super) fn parameter(&mut self) -> Option<Part> {
        Some(self.indexed_parameter()?.0)
    }

    fn indexed_parameter(&mut self) -> Option<(Part, usize)> {
        self.expect("T")?;
        let index = self.position(10)?;
        Some((self.parameter_at(index)?, index))
    }

    fn parameter_at(&mut self, index: usize) -> Option<Part> {
        if self.lambda {
            return Some(text(format!("auto:{}", index.checked_add(1)?)));
        }
        if self.in_conversion {
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
    pub(super) fn substitution(&mut self) -> Option<Part> {
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
                    None => self.substitutions.get(index).cloned(),
                };
            }
        };
        self.rest = self.rest.get(1..)?;
        let part = text(known);
        if !self.eat("B") {
            return Some(part);
        }
        let parts = vec![part, text("[abi:"), self.source_name()?, text("]")];
        let tagged = Rc::new(Node::Sequence(parts));
        self.add(&tagged);
        Some(tagged)
    }

    /// `I arguments E`; of the name of a function they are what its signature refers to.
    pub(super) fn arguments(&mut self, is_name: bool) -> Option<Part> {
        self.expect("I")?;
        let is_own = is_name && !self.in_type;
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

    pub(super) fn argument(&mut self) -> Option<Part> {
        self.nested(|p| match p.peek() {
            b'X' => {
                p.expect("X")?;
                let part = p.expression()?;
                p.expect("E")?;
                Some(part)
            }
            b'J' => {
                p.expect("J")?;
                let mut parts = Vec::new();
                while !p.eat("E") {
                    parts.push(p.argument()?);
                }
                Some(Rc::new(Node::List(parts)))
            }
            b'L' => p.literal(),
            _ => {
                let outer = std::mem::replace(&mut p.in_type, true);
                let part = p.type_();
                p.in_type = outer;
                part
            }
        })
    }
}
