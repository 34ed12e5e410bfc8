//! A graph of parts to text, as binutils and GDB write it.
//!
//! A declarator stands between the two halves of its type (`int (*)[3]`), so a type is written in two:
//! what comes before the declarator and what comes behind it.

use std::fmt::{self, Write};

use super::node::{Later, Node, Part, Signature};

/// Most parts that are written: a short name can stand for an endless text, also for one of no length.
const MAX_STEPS: u32 = 100_000;
/// Deepest nesting.
const MAX_DEPTH: u32 = 200;

/// Writes `part`.
pub(crate) fn print(part: &Part, out: &mut dyn Write) -> fmt::Result {
    let mut printer = Printer {
        out,
        steps: 0,
        depth: 0,
        pack: None,
        last: ' ',
    };
    printer.whole(part)
}

struct Printer<'o> {
    out: &'o mut dyn Write,
    steps: u32,
    depth: u32,
    /// Which argument of packs is written.
    pack: Option<usize>,
    /// Last character written.
    last: char,
}

impl Printer<'_> {
    fn write(&mut self, text: &str) -> fmt::Result {
        if let Some(last) = text.chars().next_back() {
            self.last = last;
        }
        self.out.write_str(text)
    }

    fn whole(&mut self, part: &Part) -> fmt::Result {
        self.left(part)?;
        self.right(part)
    }

    /// Runs `write` one level deeper, within the limits.
    fn nested(&mut self, write: impl FnOnce(&mut Self) -> fmt::Result) -> fmt::Result {
        self.steps += 1;
        self.depth += 1;
        if self.steps > MAX_STEPS || self.depth > MAX_DEPTH {
            return Err(fmt::Error);
        }
        let result = write(self);
        self.depth -= 1;
        result
    }

    /// Writes what is before the declarator.
    fn left(&mut self, part: &Part) -> fmt::Result {
        self.nested(|p| p.left_of(part))
    }

    fn left_of(&mut self, part: &Part) -> fmt::Result {
        match &**part {
            Node::Text(text) => self.write(text),
            Node::Nested(scope, name) => {
                self.whole(scope)?;
                self.write("::")?;
                self.whole(name)
            }
            Node::Template(name, arguments) => {
                self.whole(name)?;
                // `operator< <int>`
                self.write(if self.last == '<' { " <" } else { "<" })?;
                self.whole(arguments)?;
                self.write(if self.last == '>' { " >" } else { ">" })
            }
            Node::List(parts) => self.list(parts),
            Node::Pack(list) => match self.pack {
                Some(at) => match list.parts().get(at) {
                    Some(part) => self.one(|p| p.left(part)),
                    None => Ok(()),
                },
                None => self.list(list.parts()),
            },
            Node::Expansion(pattern) => self.expansion(pattern),
            Node::Qualified(inner, qualifiers) => {
                self.left(inner)?;
                self.write(qualifiers)
            }
            Node::Pointer(inner) => self.declarator(inner, "*"),
            Node::Reference(..) => {
                let (inner, is_rvalue) = self.collapsed(part);
                self.declarator(&inner, if is_rvalue { "&&" } else { "&" })
            }
            Node::Member(class, member) => {
                self.left(member)?;
                self.write(if self.is_function(member) { "(" } else { " " })?;
                self.whole(class)?;
                self.write("::*")
            }
            Node::Array(_, element) => self.left(element),
            Node::Function(signature) => self.result(signature),
            Node::Encoding(name, signature) => {
                self.result(signature)?;
                self.whole(name)?;
                self.behind(signature)
            }
            Node::Before(text, inner) => {
                self.write(text)?;
                self.whole(inner)
            }
            Node::Structor(name, is_destructor) => {
                self.write(if *is_destructor { "~" } else { "" })?;
                self.whole(name)
            }
            Node::Lambda(parameters, number) => {
                self.write("{lambda(")?;
                self.list(parameters)?;
                self.write(&format!(")#{number}}}"))
            }
            Node::Sequence(parts) => parts.iter().try_for_each(|part| self.whole(part)),
            Node::Later(later) => self.left(&known(later).ok_or(fmt::Error)?),
        }
    }

    /// Writes what is behind the declarator.
    fn right(&mut self, part: &Part) -> fmt::Result {
        self.nested(|p| p.right_of(part))
    }

    fn right_of(&mut self, part: &Part) -> fmt::Result {
        match &**part {
            Node::Pack(list) => match self.pack.and_then(|at| list.parts().get(at)) {
                Some(part) => self.one(|p| p.right(part)),
                None => Ok(()),
            },
            Node::Qualified(inner, _) => self.right(inner),
            Node::Pointer(inner) => self.behind_declarator(inner),
            Node::Reference(..) => {
                let (inner, _) = self.collapsed(part);
                self.behind_declarator(&inner)
            }
            Node::Member(_, member) => {
                self.write(if self.is_function(member) { ")" } else { "" })?;
                self.right(member)
            }
            Node::Array(size, element) => {
                self.write(if self.last == ']' { "[" } else { " [" })?;
                if let Some(size) = size {
                    self.whole(size)?;
                }
                self.write("]")?;
                self.right(element)
            }
            Node::Function(signature) => self.behind(signature),
            Node::Later(later) => self.right(&known(later).ok_or(fmt::Error)?),
            _ => Ok(()),
        }
    }

    /// Writes an argument of a pack: packs inside it are not expanded with it.
    fn one(&mut self, write: impl FnOnce(&mut Self) -> fmt::Result) -> fmt::Result {
        let at = self.pack.take();
        let result = write(self);
        self.pack = at;
        result
    }

    fn declarator(&mut self, inner: &Part, mark: &str) -> fmt::Result {
        self.left(inner)?;
        if self.is_array(inner) {
            self.write(" (")?;
        } else if self.is_function(inner) {
            self.write("(")?;
        }
        self.write(mark)
    }

    fn behind_declarator(&mut self, inner: &Part) -> fmt::Result {
        if self.is_array(inner) || self.is_function(inner) {
            self.write(")")?;
        }
        self.right(inner)
    }

    fn result(&mut self, signature: &Signature) -> fmt::Result {
        if let Some(result) = &signature.result {
            self.left(result)?;
            if !self.is_function(result) && !self.is_array(result) {
                self.write(" ")?;
            }
        }
        Ok(())
    }

    fn behind(&mut self, signature: &Signature) -> fmt::Result {
        self.write("(")?;
        self.list(&signature.parameters)?;
        self.write(")")?;
        if let Some(result) = &signature.result {
            self.right(result)?;
        }
        self.write(&signature.qualifiers)
    }

    /// Those parts that are not empty packs, with commas.
    fn list(&mut self, parts: &[Part]) -> fmt::Result {
        let mut is_first = true;
        for part in parts {
            if self.is_nothing(part) {
                continue;
            }
            if !is_first {
                self.write(", ")?;
            }
            is_first = false;
            self.whole(part)?;
        }
        Ok(())
    }

    fn expansion(&mut self, pattern: &Part) -> fmt::Result {
        let Some(n) = pack_len(pattern, 0, &mut self.steps) else {
            // No pack here: the template's own text.
            self.whole(pattern)?;
            return self.write("...");
        };
        let before = self.pack;
        for at in 0..n {
            self.write(if at > 0 { ", " } else { "" })?;
            self.pack = Some(at);
            let result = self.whole(pattern);
            self.pack = before;
            result?;
        }
        Ok(())
    }

    /// A part that stands for no text at all.
    fn is_nothing(&mut self, part: &Part) -> bool {
        self.steps += 1;
        if self.steps > MAX_STEPS {
            return true;
        }
        match &**part {
            Node::Pack(list) if self.pack.is_none() => self.is_nothing(list),
            Node::Expansion(pattern) => pack_len(pattern, 0, &mut self.steps) == Some(0),
            Node::List(parts) => parts.iter().all(|part| self.is_nothing(part)),
            _ => false,
        }
    }

    /// What a part is that stands for another one.
    fn resolved(&self, part: &Part) -> Part {
        let mut part = Part::clone(part);
        for _ in 0..MAX_DEPTH {
            let next = match &*part {
                Node::Pack(list) => self.pack.and_then(|at| list.parts().get(at)).cloned(),
                Node::Later(later) => known(later),
                _ => None,
            };
            match next {
                Some(next) => part = next,
                None => break,
            }
        }
        part
    }

    /// What a reference to references refers to, and whether it is `&&`.
    fn collapsed(&self, part: &Part) -> (Part, bool) {
        let mut part = Part::clone(part);
        let mut all_rvalue = true;
        for _ in 0..MAX_DEPTH {
            match &*self.resolved(&part) {
                Node::Reference(inner, is_rvalue) => {
                    all_rvalue &= is_rvalue;
                    part = Part::clone(inner);
                }
                _ => break,
            }
        }
        (part, all_rvalue)
    }

    fn is_array(&self, part: &Part) -> bool {
        match &*self.resolved(part) {
            Node::Array(..) => true,
            Node::Qualified(inner, _) => matches!(&*self.resolved(inner), Node::Array(..)),
            _ => false,
        }
    }

    fn is_function(&self, part: &Part) -> bool {
        matches!(&*self.resolved(part), Node::Function(_))
    }
}

/// What a parameter turned out to be.
fn known(later: &Later) -> Option<Part> {
    later.try_borrow().ok()?.clone()
}

/// Number of arguments of the first pack in a pattern.
fn pack_len(part: &Part, depth: u32, steps: &mut u32) -> Option<usize> {
    *steps += 1;
    if depth > MAX_DEPTH || *steps > MAX_STEPS {
        return None;
    }
    let mut of = |part: &Part| pack_len(part, depth + 1, steps);
    match &**part {
        Node::Pack(list) => Some(list.parts().len()),
        Node::Nested(a, b) | Node::Template(a, b) | Node::Member(a, b) => of(a).or_else(|| of(b)),
        Node::List(parts) | Node::Sequence(parts) => parts.iter().find_map(of),
        Node::Qualified(a, _) | Node::Pointer(a) | Node::Reference(a, _) | Node::Before(_, a) => {
            of(a)
        }
        Node::Array(size, a) => size.iter().chain([a]).find_map(of),
        Node::Function(s) => s.result.iter().chain(&s.parameters).find_map(of),
        Node::Later(later) => later.try_borrow().ok()?.as_ref().and_then(of),
        _ => None,
    }
}
