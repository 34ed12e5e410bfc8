//! Expressions in names: those that template arguments and `decltype` hold.

use std::rc::Rc;

use super::node::{Node, Part, text};
use super::{NameFacts, Parser};

/// Code, text, operands.
const OPERATORS: [(&str, &str, u8); 51] = [
    ("aN", "&=", 2),
    ("aS", "=", 2),
    ("aa", "&&", 2),
    ("ad", "&", 1),
    ("an", "&", 2),
    ("cl", "()", 0),
    ("cm", ",", 2),
    ("co", "~", 1),
    ("dV", "/=", 2),
    ("da", "delete[]", 1),
    ("de", "*", 1),
    ("dl", "delete", 1),
    ("ds", ".*", 2),
    ("dv", "/", 2),
    ("eO", "^=", 2),
    ("eo", "^", 2),
    ("eq", "==", 2),
    ("ge", ">=", 2),
    ("gt", ">", 2),
    ("ix", "[]", 0),
    ("lS", "<<=", 2),
    ("le", "<=", 2),
    ("ls", "<<", 2),
    ("lt", "<", 2),
    ("mI", "-=", 2),
    ("mL", "*=", 2),
    ("mi", "-", 2),
    ("ml", "*", 2),
    ("mm", "--", 1),
    ("na", "new[]", 0),
    ("ne", "!=", 2),
    ("ng", "-", 1),
    ("nt", "!", 1),
    ("nw", "new", 0),
    ("oR", "|=", 2),
    ("oo", "||", 2),
    ("or", "|", 2),
    ("pL", "+=", 2),
    ("pl", "+", 2),
    ("pm", "->*", 2),
    ("pp", "++", 1),
    ("ps", "+", 1),
    ("pt", "->", 0),
    ("qu", "?", 0),
    ("rM", "%=", 2),
    ("rS", ">>=", 2),
    ("rm", "%", 2),
    ("rs", ">>", 2),
    ("ss", "<=>", 2),
    ("aw", "co_await", 1),
    ("st", "sizeof ", 0),
];

fn find(code: &str) -> Option<(&'static str, u8)> {
    let code = code.get(..2)?;
    let found = OPERATORS.iter().find(|(known, ..)| *known == code)?;
    Some((found.1, found.2))
}

/// What an operator is called that a name begins with.
pub(super) fn operator(code: &str) -> Option<&'static str> {
    find(code).map(|(text, _)| text)
}

fn sequence<const N: usize>(parts: [Part; N]) -> Part {
    Rc::new(Node::Sequence(parts.into()))
}

/// An operand: in parentheses unless it is a name.
fn operand(part: Part) -> Part {
    match &*part {
        Node::Text(_) | Node::Nested(..) => part,
        _ => sequence([text("("), part, text(")")]),
    }
}

impl Parser<'_> {
    pub(super) fn expression(&mut self) -> Option<Part> {
        self.nested(Self::any_expression)
    }

    /// Expressions up to `E`.
    fn expressions(&mut self) -> Option<Part> {
        let mut parts = Vec::new();
        while !self.eat("E") {
            parts.push(self.expression()?);
        }
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
        let casts = [
            ("dc", "dynamic_cast"),
            ("sc", "static_cast"),
            ("cc", "const_cast"),
            ("rc", "reinterpret_cast"),
        ];
        for (code, cast) in casts {
            if self.eat(code) {
                let to = self.type_()?;
                let of = self.expression()?;
                let parts = [text(cast), text("<"), to, text(">("), of, text(")")];
                return Some(sequence(parts));
            }
        }
        let of_types = [("st", "sizeof ("), ("at", "alignof ("), ("ti", "typeid (")];
        for (code, before) in of_types {
            if self.eat(code) {
                return Some(sequence([text(before), self.type_()?, text(")")]));
            }
        }
        let of_expressions = [
            ("sz", "sizeof ("),
            ("az", "alignof ("),
            ("te", "typeid ("),
            ("nx", "noexcept("),
            ("sZ", "sizeof...("),
        ];
        for (code, before) in of_expressions {
            if self.eat(code) {
                let of = self.expression()?;
                return Some(sequence([text(before), of, text(")")]));
            }
        }
        if self.eat("sr") {
            return self.unresolved(is_global);
        }
        if self.eat("sp") {
            return Some(Rc::new(Node::Expansion(self.expression()?)));
        }
        if self.eat("cl") {
            let function = self.expression()?;
            let arguments = self.expressions()?;
            let function = match &*function {
                Node::Template(..) => function,
                _ => operand(function),
            };
            return Some(sequence([function, text("("), arguments, text(")")]));
        }
        if self.eat("cv") {
            let to = self.type_()?;
            let of = match self.eat("_") {
                true => self.expressions()?,
                false => self.expression()?,
            };
            return Some(sequence([text("("), to, text(")("), of, text(")")]));
        }
        if self.eat("il") {
            let parts = self.expressions()?;
            return Some(sequence([text("{"), parts, text("}")]));
        }
        if self.eat("tl") {
            let of = self.type_()?;
            let parts = self.expressions()?;
            return Some(sequence([of, text("{"), parts, text("}")]));
        }
        for (code, between) in [("dt", "."), ("pt", "->")] {
            if self.eat(code) {
                let of = operand(self.expression()?);
                let member = self.member()?;
                return Some(sequence([of, text(between), member]));
            }
        }
        if self.eat("ix") {
            let of = operand(self.expression()?);
            let at = self.expression()?;
            return Some(sequence([of, text("["), at, text("]")]));
        }
        if self.eat("qu") {
            let condition = operand(self.expression()?);
            let yes = operand(self.expression()?);
            let no = operand(self.expression()?);
            return Some(sequence([condition, text("?"), yes, text(" : "), no]));
        }
        if self.eat("tw") {
            return Some(Rc::new(Node::Before("throw ", self.expression()?)));
        }
        if self.eat("tr") {
            return Some(text("throw"));
        }
        if self.eat("on") || self.eat("dn") {
            return self.member();
        }
        let (operator, operands) = find(self.rest)?;
        self.rest = self.rest.get(2..)?;
        match operands {
            1 => {
                let is_prefix = self.eat("_");
                let of = self.expression()?;
                let is_suffix = matches!(operator, "++" | "--") && !is_prefix;
                // The address of a function is written without its signature.
                let of = match &*of {
                    Node::Encoding(name, _) if operator == "&" => Rc::clone(name),
                    _ => operand(of),
                };
                Some(match is_suffix {
                    true => sequence([of, text(operator)]),
                    false => sequence([text(operator), of]),
                })
            }
            2 => {
                let left = operand(self.expression()?);
                let right = operand(self.expression()?);
                let parts = [left, text(operator), right];
                // `>` would end the template's arguments.
                Some(match operator {
                    ">" => sequence([text("("), sequence(parts), text(")")]),
                    _ => sequence(parts),
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
        self.expect("f")?;
        let kind = self.peek();
        self.rest = self.rest.get(1..)?;
        let (operator, _) = find(self.rest)?;
        self.rest = self.rest.get(2..)?;
        let first = operand(self.expression()?);
        let parts = match kind {
            b'l' => [text("(..."), text(operator), first, text(")")],
            b'r' => [text("("), first, text(operator), text("...)")],
            b'L' | b'R' => {
                let second = operand(self.expression()?);
                let middle = format!("{operator}...{operator}");
                let parts = [text("("), first, text(middle), second, text(")")];
                return Some(sequence(parts));
            }
            _ => return None,
        };
        Some(sequence(parts))
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
        match self.peek() {
            b'0'..=b'9' => self.simple_name(),
            b'o' if self.peek_at(1) == b'n' => {
                self.expect("on")?;
                self.member()
            }
            b'd' if self.peek_at(1) == b'n' => {
                self.expect("dn")?;
                let of = self.member()?;
                Some(Rc::new(Node::Before("~", of)))
            }
            b's' if self.peek_at(1) == b'r' => {
                self.expect("sr")?;
                self.unresolved(false)
            }
            _ => {
                let name = self.operator_name(&mut NameFacts::default())?;
                self.with_arguments(name)
            }
        }
    }

    /// `sr type name`, `srN type names E name`, `sr names E name`.
    fn unresolved(&mut self, is_global: bool) -> Option<Part> {
        let mut scope;
        if self.eat("N") {
            scope = self.scope_type()?;
            while !self.eat("E") {
                let name = self.simple_name()?;
                scope = Rc::new(Node::Nested(scope, name));
            }
        } else if self.peek().is_ascii_digit() {
            scope = self.simple_name()?;
            while !self.eat("E") {
                let name = self.simple_name()?;
                scope = Rc::new(Node::Nested(scope, name));
            }
        } else {
            scope = self.scope_type()?;
        }
        let name = self.member()?;
        let nested = Rc::new(Node::Nested(scope, name));
        Some(match is_global {
            true => Rc::new(Node::Before("::", nested)),
            false => nested,
        })
    }

    /// A type before `::`. GCC writes `St7is_same` for a class of the standard library, too.
    fn scope_type(&mut self) -> Option<Part> {
        self.type_()
    }

    /// `L type value E`, or the name of a function or object.
    pub(super) fn literal(&mut self) -> Option<Part> {
        self.expect("L")?;
        if self.eat("_Z") || self.peek() == b'Z' {
            self.eat("Z");
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
            b'b' => {
                return Some(text(match value.as_str() {
                    "0" => "false".to_owned(),
                    "1" => "true".to_owned(),
                    _ => format!("(bool){value}"),
                }));
            }
            b'i' => "",
            b'j' => "u",
            b'l' => "l",
            b'm' => "ul",
            b'x' => "ll",
            b'y' => "ull",
            b'D' if value.is_empty() => return Some(text("(decltype(nullptr))0")),
            _ => {
                let value = text(value);
                let open = if matches!(code, b'f' | b'd' | b'e') {
                    "["
                } else {
                    ""
                };
                let close = if open.is_empty() { "" } else { "]" };
                let parts = [text("("), of, text(")"), text(open), value, text(close)];
                return Some(sequence(parts));
            }
        };
        Some(text(format!("{value}{suffix}")))
    }
}
