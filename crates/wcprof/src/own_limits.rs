//! Limits of this process, which a shell or a service may have set, to those that it works with. A program that runs out of its
//! stack, or of addresses, is ended by a signal, which says nothing.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::failure::{Exit, Failure};

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

/// Raises the limits that are too low, as far as permitted.
///
/// # Errors
/// When one is too low, and may not be raised.
pub(crate) fn raise() -> Result<(), Failure> {
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
            let (kib, least) = (hard >> 10, least >> 10);
            let text = format!("{name} is {kib} KiB, and wcprof needs at least {least}");
            let failure = Failure::new(Exit::Failure, anyhow::anyhow!(text));
            return Err(failure.hint(format!(
                "raise it: `ulimit {flag} {least}`, as root if the shell refuses"
            )));
        }
    }
    Ok(())
}
