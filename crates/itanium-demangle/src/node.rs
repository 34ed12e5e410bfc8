//! The parts of a linkage name as a graph: a part that the name refers to again is shared.

use std::rc::Rc;

/// A part of a name; cheap to refer to.
pub(crate) type Part = Rc<Node>;

/// Parts of names and types.
#[derive(Debug)]
pub(crate) enum Node {
    /// Text as it is.
    Text(String),
    /// `a::b`.
    Nested(Part, Part),
    /// `name<arguments>`; the arguments are a [`Node::List`].
    Template(Part, Part),
    /// Template arguments, and other parts between commas.
    List(Vec<Part>),
    /// The arguments, a [`Node::List`], that one parameter stands for.
    Pack(Part),
    /// The pattern before `...`, once for each argument of its packs.
    Expansion(Part),
    /// A type and its qualifiers, with a space before each.
    Qualified(Part, &'static str),
    Pointer(Part),
    /// `&`, or `&&`.
    Reference(Part, bool),
    /// A pointer to a member: class and type.
    Member(Part, Part),
    Array(Option<Part>, Part),
    Function(Signature),
    /// A function: its name and its signature.
    Encoding(Part, Signature),
    /// Text before a part.
    Before(&'static str, Part),
    /// A constructor or destructor (true) of the class of that name.
    Structor(Part, bool),
    /// A lambda: parameters, its number.
    Lambda(Vec<Part>, usize),
    /// Parts one after the other.
    Sequence(Vec<Part>),
    /// A template parameter that is known once more of the name was read.
    Later(Later),
}

/// A part that is known when more of the name was read.
pub(crate) type Later = Rc<std::cell::RefCell<Option<Part>>>;

impl Node {
    /// The parts of a list.
    pub(crate) fn parts(&self) -> &[Part] {
        match self {
            Self::List(parts) => parts,
            _ => &[],
        }
    }
}

/// Parameters and return type of a function.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signature {
    pub(crate) result: Option<Part>,
    pub(crate) parameters: Vec<Part>,
    /// ` const`, ` &` and the like.
    pub(crate) qualifiers: String,
}

/// Plain text.
pub(crate) fn text(text: impl Into<String>) -> Part {
    Rc::new(Node::Text(text.into()))
}

/// The last name of a class: what its constructors are called.
pub(crate) fn base_name(part: &Part) -> Part {
    match &**part {
        Node::Nested(_, last) => base_name(last),
        Node::Template(name, _) => base_name(name),
        Node::Text(name) => match name.as_str() {
            "std::string" => text("basic_string"),
            "std::istream" => text("basic_istream"),
            "std::ostream" => text("basic_ostream"),
            "std::iostream" => text("basic_iostream"),
            name => text(name.rsplit("::").next().unwrap_or(name)),
        },
        // Without its ABI tags.
        Node::Sequence(parts) => parts.first().map_or_else(|| Rc::clone(part), base_name),
        _ => Rc::clone(part),
    }
}
