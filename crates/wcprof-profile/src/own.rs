//! Functions that say what a program does, apart from those that say how: the C library, language libraries, and
//! functions by which every lock, reference and call goes.

use crate::model::{Function, FunctionId, Profile};
use crate::places::is_runtime;
use crate::short::bare;

/// Namespaces of libraries that are compiled into programs.
const NAMESPACES: [&str; 7] = [
    "std::",
    "boost::",
    "__gnu_cxx::",
    "fu2::",
    "core::",
    "alloc::",
    "compiler_builtins::",
];
/// Types of Rust that belong to no crate: their methods are the standard library's.
const PRIMITIVES: [&str; 17] = [
    "bool", "char", "str", "u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64",
    "i128", "isize", "f32", "f64",
];
/// Last components of names of functions that only count references or pass a call on, by their starts.
const PASSES_ON: [&str; 6] = [
    "operator",
    "intrusive_ptr_",
    "_M_",
    "_FUN",
    "_Destroy",
    "__invoke",
];
/// Functions of the C language's mathematics, which compilers link into a program where no library has them: Rust's
/// `compiler_builtins`, static libm. The language reserves these names, so that no program has its own of them. `f`, `l`, `f16` and
/// `f128` after them stand for other types.
const MATH: [&str; 44] = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cbrt",
    "ceil",
    "copysign",
    "cos",
    "cosh",
    "erf",
    "erfc",
    "exp",
    "exp10",
    "exp2",
    "expm1",
    "fabs",
    "fdim",
    "floor",
    "fma",
    "fmax",
    "fmin",
    "fmod",
    "frexp",
    "hypot",
    "ilogb",
    "ldexp",
    "lgamma",
    "log",
    "log10",
    "log1p",
    "log2",
    "modf",
    "pow",
    "remainder",
    "rint",
    "round",
    "sin",
    "sincos",
    "sqrt",
    "tan",
    "trunc",
];
/// Functions for what a processor has no instruction for, which compilers link into programs (libgcc, `compiler_builtins`), by
/// their starts.
const ARITHMETIC: [&str; 14] = [
    "__add", "__ashl", "__ashr", "__div", "__fix", "__float", "__lshr", "__mod", "__mul", "__pow",
    "__sub", "__udiv", "__umod", "__extend",
];
/// Functions of programs that wait for any of their locks or events.
const WAITS: [&str; 14] = [
    "WaitEventSetWait",
    "WaitLatch",
    "ProcSleep",
    "PGSemaphoreLock",
    "LWLockAcquire",
    "LWLockAcquireOrWait",
    "LWLockWaitForVar",
    "LockAcquire",
    "LockAcquireExtended",
    "qemu_mutex_lock_impl",
    "qemu_rec_mutex_lock_impl",
    "qemu_cond_wait_impl",
    "MDL_wait::timed_wait",
    "inline_mysql_mutex_lock",
];
/// Functions without a name in a row that a caller with one stands for.
const MAX_UNNAMED: usize = 4;

/// Which functions of a profile say what its programs do.
#[derive(Clone, Debug)]
pub struct OwnFunctions {
    /// By [`FunctionId`].
    kinds: Vec<Kind>,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Kind {
    /// It says what is done.
    Named,
    /// It is the program's, and has no name.
    Unnamed,
    /// It is the program's, and says how something is done.
    How,
    /// It is a library's of the system or the language, or the kernel's.
    Runtime,
}

impl Kind {
    fn of(function: &Function) -> Self {
        if is_runtime(function) || is_linked_in(&function.name) {
            return Self::Runtime;
        }
        if !function.resolved {
            return Self::Unnamed;
        }
        let name = bare(&function.name);
        let last = name.rsplit("::").next().unwrap_or_default();
        let first = name.split("::").next().unwrap_or_default();
        let is_library = NAMESPACES.iter().any(|start| name.starts_with(start))
            || (first != name && PRIMITIVES.contains(&first));
        let passes_on = last.is_empty() || PASSES_ON.iter().any(|start| last.starts_with(start));
        match is_library || passes_on || WAITS.contains(&name.as_str()) {
            true => Self::How,
            false => Self::Named,
        }
    }
}

/// Whether a function of a program is one of the C runtime's that the compiler linked into it.
fn is_linked_in(name: &str) -> bool {
    let types = ["f16", "f128", "f", "l", ""];
    let mut bases = types.iter().filter_map(|one| name.strip_suffix(one));
    bases.any(|base| MATH.contains(&base))
        || ARITHMETIC.iter().any(|start| {
            // `__mulsc3`, `__udivti3`, `__fixunsdfti`: a type's name, `si`, `di`, `ti`, `sf`, `df`, `tf`, follows.
            let rest = name.strip_prefix(start).unwrap_or_default();
            let rest = rest.strip_prefix("un").unwrap_or(rest);
            let mut kinds = ["si", "di", "ti", "sf", "df", "tf", "sc", "dc", "xf", "mod"].iter();
            kinds.any(|kind| rest.starts_with(kind))
        })
}

impl OwnFunctions {
    /// Of all functions of a profile.
    pub fn new(profile: &Profile) -> Self {
        Self {
            kinds: profile.functions.iter().map(Kind::of).collect(),
        }
    }

    fn kind(&self, function: FunctionId) -> Kind {
        let kind = self.kinds.get(function.0 as usize);
        kind.copied().unwrap_or(Kind::Runtime)
    }

    /// Whether a function says what is done.
    pub(crate) fn says_what(&self, function: FunctionId) -> bool {
        self.kind(function) == Kind::Named
    }

    /// Whether a function is the program's own.
    pub(crate) fn is_of_program(&self, function: FunctionId) -> bool {
        self.kind(function) != Kind::Runtime
    }

    /// Of a stack's functions, innermost first, the innermost one that says what is done, and those that called it. Where
    /// none near the leaf has a name, from the innermost of the program on; empty where none is the program's.
    pub fn from_own<'f>(&self, leaf_first: &'f [FunctionId]) -> &'f [FunctionId] {
        let mut first = None;
        let mut n_unnamed = 0;
        for (at, &function) in leaf_first.iter().enumerate() {
            match self.kind(function) {
                Kind::Named => return &leaf_first[at..],
                Kind::Unnamed => {
                    first = first.or(Some(at));
                    n_unnamed += 1;
                    if n_unnamed > MAX_UNNAMED {
                        break;
                    }
                }
                Kind::How | Kind::Runtime => {}
            }
        }
        // Better a function that passes on than none.
        let passes_on = || leaf_first.iter().position(|f| self.kind(*f) == Kind::How);
        let first = first.or_else(passes_on).unwrap_or(leaf_first.len());
        &leaf_first[first..]
    }

    /// As [`Self::from_own`], only those that say what is done, or that it begins with.
    pub fn own<'f>(
        &'f self,
        leaf_first: &'f [FunctionId],
    ) -> impl Iterator<Item = FunctionId> + 'f {
        let from = self.from_own(leaf_first);
        let says =
            |(at, f): (usize, &FunctionId)| (at == 0 || self.kind(*f) == Kind::Named).then_some(*f);
        from.iter().enumerate().filter_map(says)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(name: &str, module: &str) -> Kind {
        Kind::of(&Function {
            name: name.to_owned(),
            module: module.to_owned(),
            resolved: !name.contains("+0x"),
            source: None,
            inlined: false,
            image: None,
        })
    }

    /// Check names of the C runtime, of C++ libraries in a program, of what passes calls on, and of the program's own.
    #[test]
    fn kinds() {
        for (name, module, expected) in [
            ("__sin_fma", "libm.so.6", Kind::Runtime),
            ("cbrt", "app", Kind::Runtime),
            ("fmaf128", "app", Kind::Runtime),
            ("__udivmodti4", "app", Kind::Runtime),
            ("__floatuntidf", "app", Kind::Runtime),
            (
                "compiler_builtins::math::libm_math::cbrt::cbrt",
                "app",
                Kind::How,
            ),
            ("app::fma", "app", Kind::Named),
            ("__address_of", "app", Kind::Named),
            ("__submit", "app", Kind::Named),
            ("fold", "app", Kind::Named),
            ("epoll_wait", "libc.so.6", Kind::Runtime),
            (
                "void std::_Destroy<ceph::ptr*>(ceph::ptr*)",
                "ceph-osd",
                Kind::How,
            ),
            ("intrusive_ptr_release(PG*)", "ceph-osd", Kind::How),
            (
                "boost::asio::detail::scheduler::run()",
                "librbd.so.1",
                Kind::How,
            ),
            ("Context::complete(int)", "ceph-osd", Kind::Named),
            (
                "PG::do_op()::{lambda(int)#1}::operator()(int) const",
                "ceph-osd",
                Kind::Named,
            ),
            ("WaitLatch", "postgres", Kind::How),
            ("LockRelationOid", "postgres", Kind::Named),
            ("postgres+0x45d8a0", "postgres", Kind::Unnamed),
            ("compute(double)", "pool", Kind::Named),
            ("<app::Job as core::fmt::Debug>::fmt", "app", Kind::Named),
            ("<f64>::to_bits", "app", Kind::How),
            (
                "<F as core::ops::function::FnOnce<()>>::call_once",
                "app",
                Kind::How,
            ),
            (
                "<alloc::boxed::Box<dyn app::Job> as app::Job>::run",
                "app",
                Kind::How,
            ),
        ] {
            assert_eq!(kind(name, module), expected, "{name}");
        }
    }

    /// Check that the nearest function that says something is found, through what has no name, and else what there is.
    #[test]
    fn innermost() {
        use Kind::{How, Named, Runtime, Unnamed};
        let of = |kinds: &[Kind]| {
            let own = OwnFunctions {
                kinds: kinds.to_vec(),
            };
            let all: Vec<FunctionId> = (0..kinds.len() as u32).map(FunctionId).collect();
            own.from_own(&all).first().map(|f| f.0)
        };
        assert_eq!(of(&[Runtime, How, Unnamed, Named]), Some(3));
        assert_eq!(of(&[Runtime, Unnamed, Runtime]), Some(1));
        assert_eq!(of(&[Unnamed; 6]), Some(0));
        assert_eq!(of(&[Runtime, How]), Some(1));
        assert_eq!(of(&[Runtime]), None);
    }
}
