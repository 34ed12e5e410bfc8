//! Full C++ names to short ones: template arguments and inline namespaces folded.

use crate::clones::without_clone_suffix;

/// Inline namespaces of the C++ libraries: libstdc++'s new strings and error categories, libc++'s
/// first version.
const INLINE_NAMESPACES: [&str; 3] = ["__cxx11", "_V2", "__1"];

/// Operators whose names have angle brackets, longer ones first.
const OPERATORS: [&str; 11] = [
    "<=>", "<<=", ">>=", "->*", "<<", ">>", "->", "<=", ">=", "<", ">",
];

/// The short form of a demangled C++ name: `std::map<…>::find(…)` keeps its arguments' types, but
/// template arguments become `<…>`, and namespaces that only distinguish versions of a library are
/// left out (`ceph::buffer::v15_2_0::list` is `ceph::buffer::list`, `std::__cxx11::string` is
/// `std::string`).
///
/// Different functions may get the same short name. A name whose brackets do not match is returned
/// as it is; Rust's `<T as Trait>::f` and `f::<T>` are no template arguments and stay. Takes time
/// linear in the name.
pub fn short_name(name: &str) -> String {
    without_arguments(name).map_or_else(|| name.to_owned(), |text| without_versions(&text))
}

/// The [short](short_name) name without the parameters of the function and what follows them: functions that differ in these
/// alone have one name. For what is stored for months, where names are most of the bytes.
pub fn call_name(name: &str) -> String {
    let mut short = short_name(without_clone_suffix(name));
    short.truncate(without_parameters(&short).len());
    short
}

/// Up to the last parameters, if nothing but qualifiers follows them.
fn without_parameters(name: &str) -> &str {
    let mut text = name;
    if let Some((before, note)) = text.rsplit_once(" [.")
        && note.ends_with(']')
    {
        text = before;
    }
    let qualifiers = [" const", " volatile", " &", " &&", " noexcept"];
    while let Some(rest) = qualifiers.iter().find_map(|one| text.strip_suffix(one)) {
        text = rest;
    }
    if !text.ends_with(')') {
        return name;
    }
    let mut depth = 0_usize;
    let open = text.bytes().enumerate().rev().find_map(|(at, byte)| {
        depth = match byte {
            b')' => depth + 1,
            b'(' => depth.checked_sub(1)?,
            _ => depth,
        };
        (depth == 0).then_some(at)
    });
    match open.map(|open| &text[..open]) {
        // A name in brackets, or the operator itself.
        None | Some("") => name,
        Some(before) if before.ends_with("operator") => name,
        Some(before) => before,
    }
}

/// Folds template arguments; `None` when brackets do not match.
fn without_arguments(name: &str) -> Option<String> {
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        if !out.ends_with(is_word)
            && let Some(symbol) = rest.strip_prefix("operator")
            && let Some(operator) = OPERATORS.iter().find(|op| symbol.starts_with(**op))
        {
            out.push_str("operator");
            out.push_str(operator);
            rest = symbol.get(operator.len()..)?;
            // Demanglers put a space between an operator and its template arguments.
            let arguments = rest.strip_prefix(' ').unwrap_or(rest);
            if arguments.starts_with('<') {
                rest = after_arguments(arguments)?;
                out.push_str("<…>");
            }
            continue;
        }
        let follows_name = out.ends_with(|c| is_word(c) || matches!(c, ')' | ']'));
        if c == '<' && follows_name {
            rest = after_arguments(rest)?;
            out.push_str("<…>");
        } else {
            out.push(c);
            rest = rest.get(c.len_utf8()..)?;
        }
    }
    Some(out)
}

/// What follows the template arguments that `text` begins with.
fn after_arguments(text: &str) -> Option<&str> {
    let (mut angles, mut rounds, mut before) = (0_usize, 0_usize, ' ');
    for (i, c) in text.char_indices() {
        match c {
            '(' => rounds += 1,
            ')' => rounds = rounds.checked_sub(1)?,
            // In round brackets they may be comparisons; demanglers put those there.
            '<' if rounds == 0 => angles += 1,
            '>' if rounds == 0 && before != '-' => angles -= 1,
            _ => {}
        }
        if angles == 0 {
            return text.get(i + 1..);
        }
        before = c;
    }
    None
}

/// Leaves inline namespaces out.
fn without_versions(name: &str) -> String {
    let mut parts = name.split("::");
    let mut out = parts.next().unwrap_or_default().to_owned();
    let mut parts = parts.peekable();
    while let Some(part) = parts.next() {
        // The last part is no namespace.
        if parts.peek().is_none() || !(is_version(part) || INLINE_NAMESPACES.contains(&part)) {
            out.push_str("::");
            out.push_str(part);
        }
    }
    out
}

/// Whether it is like `v15_2_0`; `v2` alone may be a namespace with a meaning (`msgr::v2`).
fn is_version(part: &str) -> bool {
    part.strip_prefix('v').is_some_and(|numbers| {
        numbers.contains('_')
            && numbers
                .split('_')
                .all(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that template arguments and versions are folded, and nothing else.
    #[test]
    fn folds() {
        for (full, short) in [
            (
                "ceph::buffer::v15_2_0::list::rebuild()",
                "ceph::buffer::list::rebuild()",
            ),
            (
                "f(ceph::buffer::v15_2_0::list&, std::__cxx11::basic_string<char>)",
                "f(ceph::buffer::list&, std::basic_string<…>)",
            ),
            (
                "std::map<int, std::vector<long> >::find(int const&) [.cold]",
                "std::map<…>::find(int const&) [.cold]",
            ),
            ("A<(B)1, (2 > 1)>::f() const", "A<…>::f() const"),
            ("A<decltype (p->q)>::f()", "A<…>::f()"),
            ("g<auto (int)->long>(int)", "g<…>(int)"),
            ("operator<(A<int>, A<int>)", "operator<(A<…>, A<…>)"),
            ("operator<< <char>(S<char>&)", "operator<<<…>(S<…>&)"),
            ("A::operator->() const", "A::operator->() const"),
            (
                "A<int>::operator()<long>(long)",
                "A<…>::operator()<…>(long)",
            ),
            ("f[abi:cxx11]<int>(int)", "f[abi:cxx11]<…>(int)"),
            ("my_operator<int>()", "my_operator<…>()"),
        ] {
            assert_eq!(short_name(full), short, "{full}");
        }
    }

    /// Check that names with nothing to fold, and such as do not parse, stay as they are.
    #[test]
    fn keeps() {
        for name in [
            "",
            "malloc@plt",
            "parse.isra.0",
            "libcrypto.so.3+0x241c80",
            "ceph::msgr::v2::FrameAssembler::f(int)",
            "<alloc::vec::Vec as core::ops::Drop>::drop",
            "core::mem::drop::<u8>",
            "(anonymous namespace)::f()",
            "v15_2_0::f()",
            "A::v1_2",
            "A<int",
            "A<)>",
            "A<<<<",
            "::::",
            "é<é",
        ] {
            assert_eq!(short_name(name), name);
        }
    }

    /// Check that the parameters of the function go, and no others.
    #[test]
    fn without_parameters() {
        for (full, name) in [
            (
                "OSD::ShardedOpWQ::_process(unsigned int, ceph::heartbeat_handle_d*)",
                "OSD::ShardedOpWQ::_process",
            ),
            (
                "std::map<int, long>::find(int const&) const",
                "std::map<…>::find",
            ),
            (
                "A::f(int)::{lambda(long)#1}::operator()(long) const",
                "A::f(int)::{lambda(long)#1}::operator()",
            ),
            ("f(void (*)(int), (anonymous namespace)::B) [.cold]", "f"),
            ("(anonymous namespace)::f()", "(anonymous namespace)::f"),
            ("operator()", "operator()"),
            ("operator new(unsigned long)", "operator new"),
            ("main.(*Pool).run", "main.(*Pool).run"),
            ("pthread_join [or 3 others]", "pthread_join [or 3 others]"),
            ("(anonymous namespace)", "(anonymous namespace)"),
            ("a)", "a)"),
            ("", ""),
        ] {
            assert_eq!(call_name(full), name, "{full}");
        }
    }

    /// Check that a short name has nothing left to fold, and that a long name takes linear time.
    #[test]
    fn again() {
        let deep = format!("A{}int{}::f()", "<B".repeat(50_000), ">".repeat(50_000));
        for name in ["std::map<A<B>, C>::find(X<Y>)", "a<b>()::c<d>::e()", &deep] {
            let once = short_name(name);
            assert_eq!(short_name(&once), once);
        }
        assert_eq!(short_name(&deep), "A<…>::f()");
    }
}
