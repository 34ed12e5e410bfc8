//! Libraries: whose malloc is called, versions, files that were replaced.

use wcprof_findings::Setting;
use wcprof_types::snapshot::Library;
use wcprof_types::{file_name, undeleted};

use super::kind::Kind;
use crate::report::{Out, setting};

const ID_LIBC_MALLOC: &str = "libc-malloc";
const ID_NOT_EFFECTIVE: &str = "allocator-not-effective";
const ID_OLD_LIBRBD: &str = "librbd-old";
const ID_REPLACED: &str = "library-replaced";

/// Major version of Ceph whose librbd has the asynchronous I/O path of the report.
const ASIO_SINCE: u32 = 16;

/// The allocator that a library is, by its file name.
fn allocator(file_name: &str) -> Option<&'static str> {
    ["tcmalloc", "jemalloc", "mimalloc"]
        .into_iter()
        .find(|name| file_name.starts_with(&format!("lib{name}")))
}

pub(super) fn check(out: &mut Out<'_>, kind: &Kind) {
    let Some(libraries) = out.snapshot.process.libraries.as_deref() else {
        let reason = "the mapped libraries are not known";
        out.unknown(ID_LIBC_MALLOC, reason, "run as root or with CAP_SYS_PTRACE");
        return;
    };
    let maps = format!("/proc/{}/maps", out.snapshot.process.pid);
    malloc(out, kind, libraries, &maps);
    librbd(out, libraries);
    let replaced = libraries
        .iter()
        .filter(|l| l.deleted && !l.path.starts_with("/memfd:") && !l.path.starts_with("/dev/"))
        .map(|l| setting(&l.path, "deleted or replaced since it was mapped", &maps));
    let seen = "all mapped files are still in place";
    out.found_or_passed(ID_REPLACED, replaced.collect(), seen);
}

fn malloc(out: &mut Out<'_>, kind: &Kind, libraries: &[Library], maps: &str) {
    let process = &out.snapshot.process;
    let preload = process.environ.as_ref().and_then(|e| e.get("LD_PRELOAD"));
    let preloaded = preload
        .iter()
        .flat_map(|p| p.split([' ', ':']))
        .map(file_name);
    let preloaded: Vec<&str> = preloaded.filter(|f| allocator(f).is_some()).collect();
    let mapped = libraries.iter().map(Library::file_name);
    let mapped: Vec<&str> = mapped.filter(|f| allocator(f).is_some()).collect();
    let is_mapped = |file: &&str| mapped.iter().any(|m| allocator(m) == allocator(file));
    // The slot in memory proves it; else the first one preloaded is called, if it is mapped.
    let (proven, origin) = match &process.malloc {
        Some(malloc) => (
            Some(file_name(undeleted(&malloc.provider))),
            format!(
                "malloc as bound in {}",
                file_name(undeleted(&malloc.caller))
            ),
        ),
        None => (None, maps.to_owned()),
    };
    let effective = proven.or_else(|| preloaded.iter().copied().find(is_mapped));
    let missing = preloaded.iter().filter(|file| !is_mapped(file));
    let missing =
        missing.map(|a| setting("LD_PRELOAD", format!("{a}, which is not mapped"), "environ"));
    let unused = effective.into_iter().flat_map(|effective| {
        let others = mapped
            .iter()
            .filter(move |m| allocator(m) != allocator(effective));
        others.map(move |m| (*m, format!("mapped, but malloc is that of {effective}")))
    });
    let unused = unused.map(|(file, value)| setting(file, value, &origin));
    let useless: Vec<Setting> = missing.chain(unused).collect();
    let is_clear = useless.is_empty();
    out.found(ID_NOT_EFFECTIVE, useless);
    let is_ceph = kind.is_ceph(process);
    let is_libc = |file: &str| file.starts_with("libc.so") || file.starts_with("libc-2.");
    match effective {
        Some(e) if is_ceph && is_libc(e) => {
            out.found(ID_LIBC_MALLOC, [setting("malloc", e, origin)]);
        }
        Some(e) => out.passed(ID_LIBC_MALLOC, format!("malloc is that of {e} ({origin})")),
        None if !is_ceph => {}
        None if mapped.is_empty() && libraries.iter().any(|l| is_libc(l.file_name())) => {
            let value = "libc's: neither tcmalloc nor jemalloc is mapped";
            out.found(ID_LIBC_MALLOC, [setting("malloc", value, origin)]);
        }
        None if is_clear => out.unknown(
            ID_LIBC_MALLOC,
            mapped.join(", ") + " mapped; whether malloc leads there is not known",
            "run on the live process as root: its bound symbols show it",
        ),
        None => {}
    }
}

fn librbd(out: &mut Out<'_>, libraries: &[Library]) {
    let find = |name: &str| libraries.iter().find(|l| l.file_name().starts_with(name));
    let Some(librbd) = find("librbd.so") else {
        return;
    };
    let file = &librbd.path;
    let Some(version) = find("libceph-common.so").and_then(|l| l.version.as_ref()) else {
        out.unknown(
            ID_OLD_LIBRBD,
            format!("{} shows no version of Ceph", librbd.file_name()),
            "`dpkg -S` or `rpm -qf` of that file, in the process's container",
        );
        return;
    };
    let major = version
        .split('.')
        .next()
        .and_then(|m| m.parse::<u32>().ok());
    let old = major.filter(|m| *m < ASIO_SINCE);
    let old = old.map(|_| setting("librbd", format!("Ceph {version}"), file));
    let seen = format!("librbd of Ceph {version} ({file})");
    out.found_or_passed(ID_OLD_LIBRBD, old.into_iter().collect(), seen);
}
