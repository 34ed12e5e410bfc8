//! Linkage names to source names.

use std::fmt::{self, Write};

/// Longest name, characters; a longer one ends in `…`.
pub const MAX_NAME_CHARS: usize = 4096;
/// Longest linkage name that is demangled, bytes; a longer one is shown as it is. Demangling can
/// take time that is quadratic in it.
const MAX_LINKAGE_NAME: usize = 64 << 10;

/// Turns the linkage name of a function into what a reader expects.
///
/// C++ names are given in full, with arguments; Rust names without their hash; others unchanged.
/// The version that programs are linked with now (`@@GLIBC_2.14`) is dropped; that of older programs (`@GLIBC_2.2.5`)
/// is kept, since it is another function. What compilers append to a part or a clone of a
/// function is kept: `.cold` as ` [.cold]`; behind a C++ name also the others (` [.isra.0]`),
/// which in C names stay where they are (`parse.isra.0`). Control characters are escaped, the
/// length is capped at [`MAX_NAME_CHARS`].
pub fn demangle(linkage_name: &[u8]) -> String {
    let text = String::from_utf8_lossy(linkage_name);
    let (name, version) = match text.find('@') {
        Some(at) if at > 0 => text.split_at(at),
        _ => (&*text, ""),
    };
    let version = Some(version).filter(|version| !version.starts_with("@@"));
    let mut out = Capped::default();
    // An error means that the limit was met; what fits is kept.
    let _ = write_name(name, &mut out).and_then(|()| out.write_str(version.unwrap_or_default()));
    match out.finish() {
        // A Rust name of a hash alone.
        empty if empty.is_empty() => printable(&text),
        name => name,
    }
}

/// Text of others made safe to print: control characters escaped, at most [`MAX_NAME_CHARS`].
pub(crate) fn printable(text: &str) -> String {
    let mut out = Capped::default();
    let _ = out.write_str(text);
    out.finish()
}

fn write_name(name: &str, out: &mut Capped) -> fmt::Result {
    if name.len() > MAX_LINKAGE_NAME {
        return out.write_str(name);
    }
    let (body, cold) = split_cold(name);
    if let Ok(symbol) = rustc_demangle::try_demangle(body) {
        write!(out, "{symbol:#}")?;
    } else {
        // No character of a C++ linkage name is a dot: what follows one is a clone's suffix.
        let clone = || body.split_at(body.find('.').unwrap_or(body.len()));
        let (base, suffix) = coroutine(body).unwrap_or_else(clone);
        match cpp(base) {
            Some(text) => {
                out.write_str(&text)?;
                if !suffix.is_empty() {
                    write!(out, " [{suffix}]")?;
                }
            }
            None => out.write_str(body)?,
        }
    }
    if cold {
        out.write_str(" [.cold]")
    } else {
        Ok(())
    }
}

/// The coroutine whose body (`.actor`) or end (`.destroy`) a function of GCC is, and that suffix. Its linkage name has the
/// place of the parameters taken by the coroutine's frame, whose own name is the coroutine's whole linkage name and
/// `.Frame`: `_Z5innerPZ5inneriE15_Z5inneri.Frame.actor` (`gcc/cp/coroutines.cc`).
fn coroutine(name: &str) -> Option<(&str, &str)> {
    const FRAME: &str = ".Frame";
    let (typed, _) = name.split_once(".Frame.")?;
    let suffix = name.get(typed.len() + FRAME.len()..)?;
    let mut begins = typed.match_indices("_Z").map(|(at, _)| at);
    let at = begins.find(|&at| {
        let len = typed.len() - at + FRAME.len();
        typed
            .get(..at)
            .is_some_and(|before| before.ends_with(&len.to_string()))
    })?;
    Some((typed.get(at..)?, suffix))
}

/// Takes `.cold` or `.cold.N` off the end.
fn split_cold(name: &str) -> (&str, bool) {
    match name.rsplit_once(".cold") {
        Some((body, rest))
            if !body.is_empty()
                && rest
                    .strip_prefix('.')
                    .unwrap_or(rest)
                    .bytes()
                    .all(|b| b.is_ascii_digit()) =>
        {
            (body, true)
        }
        _ => (name, false),
    }
}

fn cpp(name: &str) -> Option<String> {
    let mut out = Capped::default();
    itanium_demangle::write_demangled(name, &mut out)?;
    // Beyond the limit for the caller, too, who then says so.
    out.text.push_str(if out.full { "…" } else { "" });
    Some(out.text)
}

/// Collects at most [`MAX_NAME_CHARS`] characters, then fails.
#[derive(Default)]
struct Capped {
    text: String,
    n_chars: usize,
    full: bool,
}

impl Capped {
    fn finish(mut self) -> String {
        if self.full {
            self.text.push('…');
        }
        if self.text.chars().any(char::is_control) {
            let escape = |c: char| -> String {
                if c.is_control() {
                    c.escape_default().collect()
                } else {
                    c.into()
                }
            };
            self.text = self.text.chars().map(escape).collect();
        }
        self.text
    }
}

impl Write for Capped {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        let room = MAX_NAME_CHARS - self.n_chars;
        match s.char_indices().nth(room) {
            None => {
                self.text.push_str(s);
                self.n_chars += s.chars().count();
                Ok(())
            }
            Some((end, _)) => {
                self.text.push_str(&s[..end]);
                self.n_chars = MAX_NAME_CHARS;
                self.full = true;
                Err(fmt::Error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(linkage_name: &str, expected: &str) {
        assert_eq!(demangle(linkage_name.as_bytes()), expected);
    }

    /// Check a full C++ name with arguments and qualifiers, as Ceph has them.
    #[test]
    fn cpp_full() {
        check(
            "_ZNK4ceph4msgr2v214FrameAssembler28disasm_remaining_secure_rev1EPNS_6buffer7v15_2_04listERS5_",
            "ceph::msgr::v2::FrameAssembler::disasm_remaining_secure_rev1(\
             ceph::buffer::v15_2_0::list*, ceph::buffer::v15_2_0::list&) const",
        );
        check("_ZN3FooC4Ev", "Foo::Foo()");
    }

    /// Check the parts of coroutines as GCC 12 names them; the functions are what `c++filt` writes.
    #[test]
    fn coroutines() {
        check(
            "_Z5innerPZ5inneriE15_Z5inneri.Frame.actor",
            "inner(int) [.actor]",
        );
        check(
            "_Z5innerPZ5inneriE15_Z5inneri.Frame.actor.cold",
            "inner(int) [.actor] [.cold]",
        );
        check(
            "_Z5localPZL5localdE16_ZL5locald.Frame.destroy",
            "local(double) [.destroy]",
        );
        check(
            "_ZN1n1A4tmplEPZNS0_4tmplIiEENS_4TaskIT_EES3_PS0_E42_ZN1n1A4tmplIiEENS_4TaskIT_EES3_PS0_.Frame.actor",
            "n::Task<int> n::A::tmpl<int>(int, n::A*) [.actor]",
        );
        check(
            "_ZN1n1A6memberEPZNKS0_6memberEiE23_ZNK1n1A6memberEi.Frame.actor",
            "n::A::member(int) const [.actor]",
        );
        check(
            "_ZN3lamMUliRN1n1AEE_clEPZNKS2_clEiS1_E34_ZNK3lamMUliRN1n1AEE_clEiS1_.Frame.actor",
            "lam::{lambda(int, n::A&)#1}::operator()(int, n::A) const [.actor]",
        );
        // What only looks like one stays what it is.
        check("_Z1fi.Frame.actor", "f(int) [.Frame.actor]");
        check("a.Frame.actor", "a.Frame.actor");
        check(".Frame.", ".Frame.");
    }

    /// Check literals and empty packs against what `c++filt` writes.
    #[test]
    fn cpp_like_binutils() {
        check("_ZN1A1fI1BLm4ELj2ELi3EEEvv", "void A::f<B, 4ul, 2u, 3>()");
        check("_ZN1A1fI1BLl4EEEvv", "void A::f<B, 4l>()");
        check("_Z4makeI1AJEEvDpOT0_", "void make<A>()");
        check("_Z4makeI1AJiEEvDpOT0_", "void make<A, int>(int&&)");
        check("_Z1fRA3_KcS1_", "f(char const (&) [3], char const (&) [3])");
    }

    /// Check thunks against what `c++filt` writes.
    #[test]
    fn thunks() {
        check("_ZThn16_N1A1fEi", "non-virtual thunk to A::f(int)");
        check("_ZTv0_n24_N1A1fEv", "virtual thunk to A::f()");
        check("_ZTchn8_v0_n24_N1A1fEv", "covariant return thunk to A::f()");
        check("_ZTh", "_ZTh");
        check("_ZTh_N1A1fEv", "_ZTh_N1A1fEv");
        check(
            &format!("_Z{}", "Th0_".repeat(1000)),
            &format!("_Z{}", "Th0_".repeat(1000)),
        );
    }

    /// Check nesting: what compilers write is demangled, more is left as it is, and neither takes
    /// more than the stack of a symbolizing thread.
    #[test]
    fn nested() {
        let name = |depth| format!("_Z1f{}i", "P".repeat(depth));
        let check = move || {
            check(&name(100), &format!("f(int{})", "*".repeat(100)));
            for depth in (150..=200).chain([1000, 60_000]) {
                let text = demangle(name(depth).as_bytes());
                assert!(text.starts_with("_Z1fP") || text.starts_with("f(int*"));
            }
            for depth in (20..=200).chain([10_000]) {
                let name = format!("_Z1f{}i{}", "1AI".repeat(depth), "E".repeat(depth));
                let text = demangle(name.as_bytes());
                assert!(text.starts_with("_Z1f1AI") || text.starts_with("f(A<A<"));
            }
        };
        let thread = std::thread::Builder::new().stack_size(crate::module::STACK_SIZE);
        thread.spawn(check).unwrap().join().unwrap();
    }

    /// Check that Rust names of both schemes come without their hash.
    #[test]
    fn rust() {
        check(
            "_ZN4core3fmt9Formatter3pad17h1f2e3d4c5b6a7988E",
            "core::fmt::Formatter::pad",
        );
        check("_RNvCs15kBYyAo9fc_7mycrate7example", "mycrate::example");
        check("_ZN17h1f2e3d4c5b6a7988E", "_ZN17h1f2e3d4c5b6a7988E");
    }

    /// Check the suffixes of parts and clones, in C and in C++.
    #[test]
    fn suffixes() {
        check("_Z3foov.cold", "foo() [.cold]");
        check("_Z3fooi.isra.0", "foo(int) [.isra.0]");
        check(
            "_Z3fooi.constprop.0.cold.3",
            "foo(int) [.constprop.0] [.cold]",
        );
        check("parse.cold", "parse [.cold]");
        check("parse.part.0", "parse.part.0");
        check("a.colder", "a.colder");
        check(".cold", ".cold");
    }

    /// Check that versions for programs of today are dropped, older ones are kept, and that what is no linkage name stays as it is.
    #[test]
    fn plain() {
        check("pthread_cond_wait@@GLIBC_2.3.2", "pthread_cond_wait");
        check("memcpy@GLIBC_2.2.5", "memcpy@GLIBC_2.2.5");
        check("_ZN1a1bEv@@A_2", "a::b()");
        check("_ZN1a1bEv@A_1", "a::b()@A_1");
        check("main", "main");
        check("_Zebra", "_Zebra");
        check("@", "@");
        check("", "");
    }

    /// Check that control characters are escaped and that names end at the cap.
    #[test]
    fn hostile() {
        check("a\u{1b}[2Jb\n", "a\\u{1b}[2Jb\\n");
        assert_eq!(demangle(b"\xff"), "\u{fffd}");
        let long = demangle("x".repeat(10_000).as_bytes());
        assert_eq!(long.chars().count(), MAX_NAME_CHARS + 1);
        assert!(long.ends_with('…'));
    }

    /// Check that a name whose substitutions double over and over stays within the cap.
    #[test]
    fn expanding() {
        // Each pair of arguments repeats the one before twice: f(A, B<A, A>, B<B<..>, B<..>>, ..).
        let mut name = "_Z1f1A1BIS_S_E".to_owned();
        for i in 1..30 {
            let s = format!(
                "S{}_",
                char::from_digit(i, 36).unwrap().to_ascii_uppercase()
            );
            name.push_str(&format!("S0_I{s}{s}E"));
        }
        assert!(demangle(name.as_bytes()).chars().count() <= MAX_NAME_CHARS + 1);
    }
}
