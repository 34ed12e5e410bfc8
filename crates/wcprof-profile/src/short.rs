//! Names of functions for a glance: without arguments, template arguments and outer namespaces.

/// Components of a scoped name that are shown.
const COMPONENTS: usize = 2;

/// `OSD::ShardedOpWQ::_process(unsigned int, ...)` is `ShardedOpWQ::_process`, and Go's `example.org/a/store.(*Disk).Sync` is
/// `store.(*Disk).Sync`.
pub fn short(name: &str) -> String {
    if let Some(name) = without_import_path(name) {
        return name.to_owned();
    }
    let bare = bare(name);
    let parts = bare.split("::").filter(|part| !part.is_empty());
    let parts: Vec<&str> = parts.collect();
    match parts.len() {
        0 => name.to_owned(),
        n => parts[n.saturating_sub(COMPONENTS)..].join("::"),
    }
}

/// The name with its namespaces, without its return type, arguments and template arguments:
/// `std::_Destroy` of `void std::_Destroy<ceph::buffer::ptr*>(ceph::buffer::ptr*)`.
///
/// Of a method of Rust, `<app::Job as core::fmt::Debug>::fmt`, the type is its scope; where that has no path of its own, as a
/// primitive or a type parameter, the trait.
pub(crate) fn bare(name: &str) -> String {
    bare_within(name, MAX_NESTED)
}

/// Scopes of methods of Rust that are associated types of others: `<<A as B>::C as D>::f`. Names are hostile.
const MAX_NESTED: usize = 4;

fn bare_within(name: &str, n_nested: usize) -> String {
    match rust_method(name).filter(|_| n_nested > 0) {
        Some((scope, method)) => bare_within(scope, n_nested - 1) + &bare_path(method),
        None => bare_path(name),
    }
}

/// The scope of a method of Rust whose name begins with `<`, and the rest from `::` on.
fn rust_method(name: &str) -> Option<(&str, &str)> {
    let inner = name.strip_prefix('<')?;
    let mut depth = 1_usize;
    let mut separator = None;
    let end = inner.char_indices().find_map(|(at, c)| {
        match c {
            '<' | '(' | '[' | '{' => depth += 1,
            // An arrow closes nothing.
            '>' if inner[..at].ends_with('-') => {}
            '>' | ')' | ']' | '}' => depth -= 1,
            ' ' if depth == 1 && inner[at..].starts_with(AS) => separator = separator.or(Some(at)),
            _ => {}
        }
        (depth == 0).then_some(at)
    })?;
    let method = inner.get(end + 1..).filter(|m| m.starts_with("::"))?;
    let (of_type, of_trait) = match separator {
        Some(at) => (&inner[..at], Some(&inner[at + AS.len()..end])),
        None => (&inner[..end], None),
    };
    let of_type = of_type.trim_start_matches(['&', '*']);
    let words = ["mut ", "const ", "dyn "];
    let of_type = words
        .iter()
        .fold(of_type, |t, w| t.strip_prefix(w).unwrap_or(t));
    let scope = match of_trait {
        Some(of_trait) if !bare_path(of_type).contains("::") => of_trait,
        _ => of_type,
    };
    // Slices, tuples and functions have no name.
    scope
        .starts_with(|c: char| c.is_alphabetic() || "_<".contains(c))
        .then_some((scope, method))
}

/// Between the type and the trait of a method of Rust.
const AS: &str = " as ";

fn bare_path(name: &str) -> String {
    let mut out = String::new();
    let mut depth = 0_usize;
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        if depth == 0 && rest.starts_with("operator()") {
            out.push_str("operator()");
            rest = &rest["operator()".len()..];
            continue;
        }
        let is_first = out.is_empty() || out.ends_with("::");
        let is_arrow = c == '>' && name[..name.len() - rest.len()].ends_with('-');
        match c {
            // An arrow closes nothing.
            _ if depth > 0 && is_arrow => {}
            // The arguments.
            '(' if depth == 0 && !is_first => break,
            '<' | '(' | '{' | '[' => depth += 1,
            '>' | ')' | '}' | ']' => depth = depth.saturating_sub(1),
            _ if depth == 0 => out.push(c),
            _ => {}
        }
        rest = &rest[c.len_utf8()..];
    }
    // The return type of a template comes first.
    let operator = out.find("operator").unwrap_or(out.len());
    let start = out[..operator].rfind(' ').map_or(0, |at| at + 1);
    out.split_off(start)
}

/// A function of Go without the folders of its package; `None` for those of other languages. Receivers stay: Go's
/// function literals have no other name than the method that they are in.
fn without_import_path(name: &str) -> Option<&str> {
    let end = name.find('[').unwrap_or(name.len());
    let start = name[..end].rfind('/').map_or(0, |at| at + 1);
    let (package, _) = name[start..end].split_once('.')?;
    let is_word = |name: &str| {
        let is_part = |b: u8| b.is_ascii_alphanumeric() || b"_-%".contains(&b);
        name.bytes().all(is_part)
    };
    let is_go = start > 0 || name[..end].contains(".(*");
    let other = [' ', ':', '~', '<'];
    (is_go && is_word(package) && !name[..end].contains(other)).then(|| &name[start..])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a name of any depth takes no more than a few levels.
    #[test]
    fn deep() {
        let name = format!("{}A{}", "<".repeat(100_000), "::C>::f".repeat(100_000));
        assert!(short(&name).ends_with("::f"));
    }

    /// Check names of C, C++ and Rust, and that nothing is lost of what cannot be shortened.
    #[test]
    fn shortened() {
        for (name, expected) in [
            ("malloc", "malloc"),
            (
                "OSD::ShardedOpWQ::_process(unsigned int, ceph::heartbeat_handle_d*)",
                "ShardedOpWQ::_process",
            ),
            (
                "ceph::timer<ceph::mono_clock>::timer_thread()",
                "timer::timer_thread",
            ),
            (
                "void boost::asio::detail::posix_event::wait<boost::x>(boost::y&)",
                "posix_event::wait",
            ),
            ("operator new(unsigned long)", "operator new"),
            ("(anonymous namespace)::run(int)", "run"),
            ("Context::operator()(int)", "Context::operator()"),
            ("ceph-osd+0x602c60", "ceph-osd+0x602c60"),
            ("<std::thread::Thread>::park", "Thread::park"),
            ("<app::work::A as app::work::Job>::run", "A::run"),
            (
                "<&mut app::Log<fn() -> u8> as core::fmt::Write>::write_str::<u8>",
                "Log::write_str",
            ),
            ("<u32 as core::cmp::PartialOrd>::lt", "PartialOrd::lt"),
            ("<f64>::to_bits", "f64::to_bits"),
            ("<[u8] as core::fmt::Debug>::fmt", "Debug::fmt"),
            ("<[u8]>::sort", "sort"),
            ("<<app::A as app::B>::C as app::D>::run", "C::run"),
            ("<T as app::Run", "<T as app::Run"),
            ("app::main::{closure#0}", "app::main"),
            ("example.org/a/store.(*Disk).Sync", "store.(*Disk).Sync"),
            ("main.(*Pool).run.func1", "main.(*Pool).run.func1"),
            ("runtime/internal/syscall.Syscall6", "syscall.Syscall6"),
            ("runtime.futex", "runtime.futex"),
            (
                "a/b.Map[go.shape.int,x/y.z].Get",
                "b.Map[go.shape.int,x/y.z].Get",
            ),
            ("JS:*alpha /srv/threads.cjs:3:7", "/srv/threads.cjs:3:7"),
            ("", ""),
        ] {
            assert_eq!(short(name), expected);
        }
    }
}
