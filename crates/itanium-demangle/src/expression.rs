//! Expressions in names: those that template arguments and `decltype` hold.

use std::rc::Rc;

use super::node::{Node, Part, text};
use super::operators;
use super::parser::{MAX_SCOPES, NameFacts, Parser};

fn sequence<const N: usize>(parts: [Part; N]) -> Part {
    Rc::new(Node::Sequence(parts.into()))
}

fn enclosed(before: &'static str, part: Part, behind: &'static str) -> Part {
    sequence([text(before), part, text(behind)])
}

/// An operand: in parentheses unless it is a name.
fn in_parentheses(part: Part) -> Part {
    match &*part {
        Node::Text(_) | Node::Nested(..) => part,
        _ => enclosed("(", part, ")"),
    }
}

impl Parser<'_> {
    pub(crate) fn expression(&mut self) -> Option<Part> {
        self.nested(Self::any_expression)
    }

    fn operand(&mut self) -> Option<Part> {
        self.expression().map(in_parentheses)
    }

    /// Expressions up to `E`.
    fn expressions(&mut self) -> Option<Part> {
        let parts = self.parts(Self::expression)?;
        Some(Rc::new(Node::List(parts)))
    }

    fn any_expression(&mut self) -> Option<Part> {
        let is_global = self.eat("gs");
        match self.peek() {
            b'L' => return self.literal(),
            b'T' => return self.parameter(),
            b'0'..=b'9' => return self.simple_name(),
            b'f' if matches!(self.peek_at(1), b'p' | b'L') && !self.is_fold() => {
                return self.function_parameter();
            }
            b'f' => return self.fold(),
            _ => {}
        }
        match self.take(2)? {
            "dc" => self.cast("dynamic_cast<"),
            "sc" => self.cast("static_cast<"),
            "cc" => self.cast("const_cast<"),
            "rc" => self.cast("reinterpret_cast<"),
            "st" => self.type_().map(|of| enclosed("sizeof (", of, ")")),
            "at" => self.type_().map(|of| enclosed("alignof (", of, ")")),
            "ti" => self.type_().map(|of| enclosed("typeid (", of, ")")),
            "sz" => self.expression().map(|of| enclosed("sizeof (", of, ")")),
            "az" => self.expression().map(|of| enclosed("alignof (", of, ")")),
            "te" => self.expression().map(|of| enclosed("typeid (", of, ")")),
            "nx" => self.expression().map(|of| enclosed("noexcept(", of, ")")),
            "sZ" => self.expression().map(|of| enclosed("sizeof...(", of, ")")),
            "il" => self.expressions().map(|of| enclosed("{", of, "}")),
            "sr" => self.unresolved(is_global),
            "sp" => Some(Rc::new(Node::Expansion(self.expression()?))),
            "cl" => self.call(),
            "cv" => self.conversion(),
            "tl" => Some(sequence([
                self.type_()?,
                enclosed("{", self.expressions()?, "}"),
            ])),
            "dt" => Some(sequence([self.operand()?, text("."), self.member()?])),
            "pt" => Some(sequence([self.operand()?, text("->"), self.member()?])),
            "ix" => Some(sequence([
                self.operand()?,
                enclosed("[", self.expression()?, "]"),
            ])),
            "qu" => {
                let (condition, yes) = (self.operand()?, self.operand()?);
                Some(sequence([
                    condition,
                    text("?"),
                    yes,
                    text(" : "),
                    self.operand()?,
                ]))
            }
            "tw" => Some(Rc::new(Node::Before("throw ", self.expression()?))),
            "tr" => Some(text("throw")),
            "on" | "dn" => self.member(),
            code => self.operation(code),
        }
    }

    /// `dynamic_cast<T>(x)` and the like.
    fn cast(&mut self, before: &'static str) -> Option<Part> {
        let to = enclosed(before, self.type_()?, ">");
        Some(sequence([to, enclosed("(", self.expression()?, ")")]))
    }

    fn call(&mut self) -> Option<Part> {
        let function = self.expression()?;
        let function = match &*function {
            Node::Template(..) => function,
            _ => in_parentheses(function),
        };
        Some(sequence([
            function,
            enclosed("(", self.expressions()?, ")"),
        ]))
    }

    fn conversion(&mut self) -> Option<Part> {
        let to = self.type_()?;
        let of = match self.eat("_") {
            true => self.expressions()?,
            false => self.expression()?,
        };
        Some(sequence([enclosed("(", to, ")"), enclosed("(", of, ")")]))
    }

    /// An operator before, between or behind its operands.
    fn operation(&mut self, code: &str) -> Option<Part> {
        match operators::find(code)? {
            (operator, 1) => {
                let is_prefix = self.eat("_");
                let of = self.expression()?;
                // The address of a function is written without its signature.
                let of = match &*of {
                    Node::Encoding(name, _) if operator == "&" => Rc::clone(name),
                    _ => in_parentheses(of),
                };
                Some(match matches!(operator, "++" | "--") && !is_prefix {
                    true => sequence([of, text(operator)]),
                    false => sequence([text(operator), of]),
                })
            }
            (operator, 2) => {
                let operation = sequence([self.operand()?, text(operator), self.operand()?]);
                // `>` would end the template's arguments.
                Some(match operator {
                    ">" => enclosed("(", operation, ")"),
                    _ => operation,
                })
            }
            _ => None,
        }
    }

    fn is_fold(&self) -> bool {
        // `fL0p_` is a parameter, `fLplT_...` a fold.
        self.peek_at(1) == b'L' && !self.peek_at(2).is_ascii_digit()
    }

    /// `(... + pack)` and the like.
    fn fold(&mut self) -> Option<Part> {
        let kind = self.take(2)?;
        let (operator, _) = operators::find(self.take(2)?)?;
        let first = self.operand()?;
        let parts = match kind {
            "fl" => sequence([text("..."), text(operator), first]),
            "fr" => sequence([first, text(operator), text("...")]),
            "fL" | "fR" => {
                let middle = text(format!("{operator}...{operator}"));
                sequence([first, middle, self.operand()?])
            }
            _ => return None,
        };
        Some(enclosed("(", parts, ")"))
    }

    fn function_parameter(&mut self) -> Option<Part> {
        self.expect("f")?;
        if self.eat("L") {
            self.digits();
        }
        self.expect("p")?;
        for qualifier in ["r", "V", "K"] {
            self.eat(qualifier);
        }
        if self.eat("T") {
            return Some(text("this"));
        }
        let index = self.position(10)?;
        Some(text(format!("{{parm#{}}}", index + 1)))
    }

    /// A name that is looked up when the template is used, and its template arguments.
    fn simple_name(&mut self) -> Option<Part> {
        let name = self.source_name()?;
        self.with_arguments(name)
    }

    fn with_arguments(&mut self, name: Part) -> Option<Part> {
        if self.peek() != b'I' {
            return Some(name);
        }
        let arguments = self.arguments(false)?;
        Some(Rc::new(Node::Template(name, arguments)))
    }

    /// A member: its name, an operator, a destructor.
    fn member(&mut self) -> Option<Part> {
        self.nested(|p| {
            if p.peek().is_ascii_digit() {
                return p.simple_name();
            }
            if p.eat("on") {
                return p.member();
            }
            if p.eat("dn") {
                return Some(Rc::new(Node::Before("~", p.member()?)));
            }
            if p.eat("sr") {
                return p.unresolved(false);
            }
            let name = p.operator_name(&mut NameFacts::default())?;
            p.with_arguments(name)
        })
    }

    /// `sr type name`, `srN type names E name`, `sr names E name`. GCC also writes `St7is_same` as the
    /// type for a class of the standard library.
    fn unresolved(&mut self, is_global: bool) -> Option<Part> {
        let starts_with_name = self.peek().is_ascii_digit();
        let has_names = starts_with_name || (!self.scopes_are_types && self.eat("N"));
        let mut scope = match starts_with_name {
            true => self.simple_name()?,
            false => self.type_()?,
        };
        for _ in 0..MAX_SCOPES {
            if !has_names || self.eat("E") {
                break;
            }
            scope = Rc::new(Node::Nested(scope, self.simple_name()?));
        }
        let nested = Rc::new(Node::Nested(scope, self.member()?));
        Some(match is_global {
            true => Rc::new(Node::Before("::", nested)),
            false => nested,
        })
    }

    /// `L type value E`, or the name of a function or object.
    pub(crate) fn literal(&mut self) -> Option<Part> {
        self.expect("L")?;
        if self.eat("_Z") || self.eat("Z") {
            let part = self.encoding_apart()?;
            self.expect("E")?;
            return Some(part);
        }
        let code = self.peek();
        let of = self.type_()?;
        let end = self.rest.find('E')?;
        let (value, rest) = self.rest.split_at(end);
        self.rest = rest.get(1..)?;
        let value = match value.strip_prefix('n') {
            Some(digits) => format!("-{digits}"),
            None => value.to_owned(),
        };
        let suffix = match code {
            b'b' if value == "0" => return Some(text("false")),
            b'b' if value == "1" => return Some(text("true")),
            b'i' => "",
            b'j' => "u",
            b'l' => "l",
            b'm' => "ul",
            b'x' => "ll",
            b'y' => "ull",
            b'D' if value.is_empty() => return Some(text("(decltype(nullptr))0")),
            b'f' | b'd' | b'e' => {
                return Some(sequence([
                    enclosed("(", of, ")"),
                    text(format!("[{value}]")),
                ]));
            }
            _ => return Some(sequence([enclosed("(", of, ")"), text(value)])),
        };
        Some(text(format!("{value}{suffix}")))
    }
}
