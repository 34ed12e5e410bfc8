//! What a linkage name says, as a graph: parts that a name refers to again are shared.

use std::rc::Rc;

/// A part of a name; cheap to refer to.
pub(super) type Part = Rc<Node>;

/// Parts of names and types.
#[derive(Debug)]
pub(super) enum Node {
    /// Text as it is.
    Text(String),
    /// `a::b`.
    Nested(Part, Part),
    /// `name<arguments>`; the arguments are a [`Node::List`].
    Template(Part, Part),
    /// Template arguments.
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
    /// Text around a part: before and behind.
    Around(String, Part, String),
    /// A constructor or destructor (true) of the class of that name.
    Structor(Part, bool),
    /// `operator T`.
    Conversion(Part),
    /// A lambda: parameters, its number.
    Lambda(Vec<Part>, usize),
    /// Several parts and text between them.
    Joined(Vec<Part>, &'static str),
    /// Parts one after the other.
    Sequence(Vec<Part>),
    /// What a template parameter turns out to be further on in the name.
    Later(Later),
}

/// A part that is known when more of the name was read.
pub(super) type Later = Rc<std::cell::RefCell<Option<Part>>>;

impl Node {
    /// The parts of a list.
    pub(super) fn parts(&self) -> &[Part] {
        match self {
            Self::List(parts) => parts,
            _ => &[],
        }
    }
}

/// What a function takes and gives.
#[derive(Debug, Default)]
pub(super) struct Signature {
    pub(super) result: Option<Part>,
    pub(super) parameters: Vec<Part>,
    /// ` const`, ` &` and the like.
    pub(super) qualifiers: String,
}

/// Plain text.
pub(super) fn text(text: impl Into<String>) -> Part {
    Rc::new(Node::Text(text.into()))
}

/// The last name of a class: what its constructors are called.
pub(super) fn base_name(part: &Part) -> Part {
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
