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
pub(crate) fn bare(name: &str) -> String {
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
        match c {
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
            ("<std::thread::Thread>::park", "park"),
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
