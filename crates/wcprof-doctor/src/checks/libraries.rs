//! Libraries: whose malloc is called, versions, files that were replaced.

use wcprof_findings::Setting;
use wcprof_types::snapshot::Library;

use super::Kind;
use crate::report::{Out, setting};

const ID_LIBC_MALLOC: &str = "libc-malloc";
const ID_NOT_EFFECTIVE: &str = "allocator-not-effective";
const ID_OLD_LIBRBD: &str = "librbd-old";
const ID_REPLACED: &str = "library-replaced";

/// Major version of Ceph whose librbd has the asynchronous I/O path of the report.
const ASIO_SINCE: u32 = 16;

/// Allocators that are known by their file name.
fn allocator(file_name: &str) -> Option<&'static str> {
    ["tcmalloc", "jemalloc", "mimalloc"]
        .into_iter()
        .find(|name| file_name.starts_with(&format!("lib{name}")))
}

fn file_name(path: &str) -> &str {
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    path.rsplit('/').next().unwrap_or(path)
}

pub(super) fn check(out: &mut Out<'_>, kind: &Kind) {
    let snapshot = out.snapshot;
    let Some(libraries) = snapshot.process.libraries.as_deref() else {
        let needs_root = "run as root or with CAP_SYS_PTRACE";
        out.unknown(
            ID_LIBC_MALLOC,
            "the mapped libraries are not known",
            needs_root,
        );
        return;
    };
    malloc(out, kind, libraries);
    librbd(out, libraries);
    let replaced: Vec<Setting> = libraries
        .iter()
        .filter(|l| l.deleted && !l.path.starts_with("/memfd:") && !l.path.starts_with("/dev/"))
        .map(|l| {
            setting(
                l.path.clone(),
                "deleted or replaced since it was mapped",
                maps(out),
            )
        })
        .collect();
    out.found_or_passed(ID_REPLACED, replaced, "all mapped files are still in place");
}

fn maps(out: &Out<'_>) -> String {
    format!("/proc/{}/maps", out.snapshot.process.pid)
}

fn malloc(out: &mut Out<'_>, kind: &Kind, libraries: &[Library]) {
    let process = &out.snapshot.process;
    let preload = process.environ.as_ref().and_then(|e| e.get("LD_PRELOAD"));
    let asked: Vec<&str> = preload
        .iter()
        .flat_map(|p| p.split([' ', ':']))
        .map(file_name)
        .filter(|f| allocator(f).is_some())
        .collect();
    let mapped: Vec<&str> = libraries
        .iter()
        .map(Library::file_name)
        .filter(|f| allocator(f).is_some())
        .collect();
    // The slot in memory proves it; else the first one preloaded is called, if it is mapped.
    let proven = process.malloc.as_ref().map(|m| file_name(&m.provider));
    let is_mapped = |asked: &&&str| mapped.iter().any(|m| allocator(m) == allocator(asked));
    let effective = proven.or_else(|| asked.iter().find(is_mapped).copied());
    let origin = match &process.malloc {
        Some(m) => format!("malloc as bound in {}", file_name(&m.caller)),
        None => maps(out),
    };
    let mut useless: Vec<Setting> = asked
        .iter()
        .filter(|a| !is_mapped(a))
        .map(|a| setting("LD_PRELOAD", format!("{a}, which is not mapped"), "environ"))
        .collect();
    if let Some(effective) = effective {
        let others = mapped
            .iter()
            .filter(|m| allocator(m) != allocator(effective));
        useless.extend(others.map(|m| {
            setting(
                *m,
                format!("mapped, but malloc is that of {effective}"),
                origin.clone(),
            )
        }));
    }
    let ends = useless.is_empty();
    out.found_or_passed(ID_NOT_EFFECTIVE, useless, "");
    if !kind.is_ceph(out) {
        if let Some(effective) = effective {
            out.passed(
                ID_LIBC_MALLOC,
                format!("malloc is that of {effective} ({origin})"),
            );
        }
        return;
    }
    let is_libc = |file: &str| file.starts_with("libc.so") || file.starts_with("libc-2.");
    match effective {
        Some(e) if is_libc(e) => {
            let found = vec![setting("malloc", e, origin)];
            out.found(ID_LIBC_MALLOC, found, &[]);
        }
        Some(e) => out.passed(ID_LIBC_MALLOC, format!("malloc is that of {e} ({origin})")),
        None if mapped.is_empty() && libraries.iter().any(|l| is_libc(l.file_name())) => {
            let value = "libc's: neither tcmalloc nor jemalloc is mapped";
            out.found(ID_LIBC_MALLOC, vec![setting("malloc", value, origin)], &[]);
        }
        None if ends => out.unknown(
            ID_LIBC_MALLOC,
            format!(
                "{} mapped; whether malloc leads there is not known",
                mapped.join(", ")
            ),
            "run on the live process as root: its bound symbols tell",
        ),
        None => {}
    }
}

fn librbd(out: &mut Out<'_>, libraries: &[Library]) {
    let find = |name: &str| libraries.iter().find(|l| l.file_name().starts_with(name));
    let Some(librbd) = find("librbd.so") else {
        return;
    };
    let file = librbd.path.clone();
    match find("libceph-common.so").and_then(|l| l.version.clone()) {
        Some(version) => {
            let major = version
                .split('.')
                .next()
                .and_then(|m| m.parse::<u32>().ok());
            if major.is_some_and(|m| m < ASIO_SINCE) {
                let found = vec![setting("librbd", format!("Ceph {version}"), file)];
                out.found(ID_OLD_LIBRBD, found, &[]);
            } else {
                out.passed(ID_OLD_LIBRBD, format!("librbd of Ceph {version} ({file})"));
            }
        }
        None => out.unknown(
            ID_OLD_LIBRBD,
            format!("{} tells no version of Ceph", librbd.file_name()),
            "`dpkg -S` or `rpm -qf` of that file, in the process's container",
        ),
    }
}
