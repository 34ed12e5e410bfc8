//! Limits of this process, which a shell or a service may have set, to those that it works with. A program that runs out of its
//! stack, or of addresses, is ended by a signal, which says nothing.

use std::fmt;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Resource, its name and flag of `ulimit`, what wcprof needs at least, and what it takes where it has to raise the limit, bytes.
const NEEDS: [(Resource, &str, &str, u64, u64); 2] = [
    (
        Resource::RLIMIT_STACK,
        "RLIMIT_STACK",
        "-s",
        1 << 20,
        8 << 20,
    ),
    (Resource::RLIMIT_AS, "RLIMIT_AS", "-v", 128 << 20, u64::MAX),
];

/// A limit that is too low and may not be raised. Saying so takes no memory, of which there may be none.
#[derive(Debug)]
pub(crate) struct LowLimit {
    name: &'static str,
    flag: &'static str,
    /// KiB.
    is: u64,
    /// KiB.
    least: u64,
}

impl fmt::Display for LowLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            flag,
            is,
            least,
        } = self;
        write!(
            f,
            "wcprof: {name} is {is} KiB, and wcprof needs at least {least}\n\
             hint: raise it: `ulimit {flag} {least}`, as root if the shell refuses"
        )
    }
}

/// Raises the limits that are too low, as far as permitted.
///
/// # Errors
/// When one is too low, and may not be raised.
pub(crate) fn raise() -> Result<(), LowLimit> {
    for (resource, name, flag, least, usual) in NEEDS {
        let Ok((soft, hard)) = getrlimit(resource) else {
            continue;
        };
        if soft >= least {
            continue;
        }
        // The stack grows up to the limit of the time; no new program needs to be started for it.
        let is_raised = if hard >= least {
            setrlimit(resource, usual.min(hard), hard).is_ok()
        } else {
            setrlimit(resource, usual, usual).is_ok()
        };
        if !is_raised {
            return Err(LowLimit {
                name,
                flag,
                is: hard >> 10,
                least: least >> 10,
            });
        }
    }
    Ok(())
}
