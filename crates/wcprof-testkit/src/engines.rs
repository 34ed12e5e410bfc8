//! One suite of assertions, run with each engine. `tests/README.md` has the table of what each engine sees.

use crate::skip::{has_capability, skip};
use crate::wcprof::Engine;

/// Makes tests of functions that take an engine. `each` run with each engine; what does not depend on it is
/// in `any` and runs with the best one, and with the others when ignored tests are included; `long` ones
/// run with each engine then.
#[macro_export]
macro_rules! engine_tests {
    (each { $($each:tt)* } any { $($any:tt)* } long { $($long:tt)* }) => {
        mod bpf {
            $crate::engine_tests!(@ Bpf, {} $($each)* $($any)*);
            $crate::engine_tests!(@ Bpf, { #[ignore = "long: with --full"] } $($long)*);
        }
        mod procfs {
            $crate::engine_tests!(@ Procfs, {} $($each)*);
            $crate::engine_tests!(@ Procfs, { #[ignore = "long: with --full"] } $($any)* $($long)*);
        }
        mod procfs_only {
            $crate::engine_tests!(@ ProcfsOnly, {} $($each)*);
            $crate::engine_tests!(@ ProcfsOnly, { #[ignore = "long: with --full"] } $($any)* $($long)*);
        }
    };
    (@ $engine:ident, $ignore:tt $($module:ident :: $test:ident: $doc:literal,)*) => {
        $($crate::engine_tests!(@@ $engine, $module, $test, $doc, $ignore);)*
    };
    (@@ $engine:ident, $module:ident, $test:ident, $doc:literal, { $($ignore:tt)* }) => {
        #[doc = $doc]
        #[test]
        $($ignore)*
        fn $test() {
            if $crate::usable($crate::Engine::$engine, stringify!($test)) {
                super::$module::$test($crate::Engine::$engine);
            }
        }
    };
}

/// Whether an engine can work here; prints the skip if not.
pub fn usable(engine: Engine, test: &str) -> bool {
    let usable = engine != Engine::Bpf || has_capability();
    if !usable {
        skip(
            &format!("{test} ({})", engine.name()),
            "needs CAP_SYS_ADMIN to load BPF programs; run the tests as root",
        );
    }
    usable
}
