//! Ceph: encryption of the messenger, the AES code it gets, OSD threads.

use std::collections::BTreeMap;

use wcprof_findings::Setting;

use super::Kind;
use crate::report::{Out, setting};

const ID_SECURE: &str = "msgr-secure";
const ID_AES: &str = "aes-kernel";
const ID_AES_HIDDEN: &str = "aes-hidden";
const ID_OSD_THREADS: &str = "osd-threads-flash";
/// Threads that `osd_op_num_shards_hdd` times `osd_op_num_threads_per_shard_hdd` give, at most.
const HDD_THREADS: usize = 5;

pub(super) fn check(out: &mut Out<'_>, kind: &Kind) {
    if kind.is_ceph(out) {
        let secure = messenger(out, kind);
        aes(out, secure);
    }
    if matches!(kind, Kind::Osd) {
        osd_threads(out);
    }
}

/// `--ms-cluster-mode=secure`, `--ms_cluster_mode secure`.
fn argument<'a>(args: &'a [String], option: &str) -> Option<&'a str> {
    let mut args = args.iter().peekable();
    while let Some(arg) = args.next() {
        let Some(arg) = arg.strip_prefix("--") else {
            continue;
        };
        let (key, value) = match arg.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (arg, None),
        };
        if key.replace('-', "_") == option {
            return value.or_else(|| args.peek().map(|v| v.as_str()));
        }
    }
    None
}

/// Value and origin of an option.
fn option<'a>(out: &Out<'a>, name: &str) -> Option<(&'a str, String)> {
    let process = &out.snapshot.process;
    if let Some(value) = argument(&process.cmdline, name) {
        return Some((value, "command line".into()));
    }
    let ceph = process.ceph.as_ref()?;
    let value = ceph.conf.get(name)?;
    Some((value, ceph.conf_path.clone()))
}

/// Whether its data connections are known to be encrypted.
fn messenger(out: &mut Out<'_>, kind: &Kind) -> Option<bool> {
    let names: &[&str] = match kind {
        Kind::Osd => &["ms_cluster_mode", "ms_service_mode"],
        _ => &["ms_client_mode"],
    };
    let mut secure: Vec<Setting> = Vec::new();
    let mut known: BTreeMap<&str, String> = BTreeMap::new();
    for name in names {
        if let Some((value, origin)) = option(out, name) {
            // The first mode of the list is what this side prefers.
            if value.trim().starts_with("secure") {
                secure.push(setting(*name, value, origin));
            } else {
                known.insert(name, format!("{name} = {value} ({origin})"));
            }
        }
    }
    let missing: Vec<&str> = names
        .iter()
        .copied()
        .filter(|n| !known.contains_key(n) && secure.iter().all(|s| s.name != *n))
        .collect();
    let missing = match &out.observed.encrypting {
        Some(function) => {
            secure.push(setting("at work", function.clone(), "stacks of the trace"));
            Vec::new()
        }
        None => missing,
    };
    let is_secure = !secure.is_empty();
    out.found_or_passed(
        ID_SECURE,
        secure,
        known.into_values().collect::<Vec<_>>().join(", "),
    );
    if missing.is_empty() {
        return Some(is_secure);
    }
    let pid = out.snapshot.process.pid;
    out.unknown(
        ID_SECURE,
        format!(
            "{} not set on the command line or in the configuration file; the monitors may set it, and the default is `crc secure`",
            missing.join(", ")
        ),
        format!(
            "its stacks tell, under load: `wcprof attach {pid}`, then `wcprof doctor TRACE` finds it, or `aes-gcm` of `wcprof hotspots`"
        ),
    );
    is_secure.then_some(true)
}

/// `OpenSSL 3.0.15 3 Sep 2024` to (3, 0).
fn version(text: &str) -> Option<(u32, u32)> {
    let numbers = text.strip_prefix("OpenSSL ")?.split(' ').next()?;
    let mut numbers = numbers.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn aes(out: &mut Out<'_>, secure: Option<bool>) {
    let snapshot = out.snapshot;
    let mut libraries = snapshot.process.libraries.iter().flatten();
    let Some(crypto) = libraries.find(|l| l.file_name().starts_with("libcrypto")) else {
        return;
    };
    let has = |flag: &str| snapshot.host.cpu_flags.iter().any(|f| f == flag);
    if snapshot.host.cpu_flags.is_empty() {
        out.unknown(
            ID_AES,
            "the processor's features are not known",
            "`grep flags /proc/cpuinfo`",
        );
        return;
    }
    if !has("aes") || !has("pclmulqdq") {
        let flags = snapshot.host.cpu_flags.join(" ");
        let found = vec![setting("processor features", flags, "/proc/cpuinfo")];
        if secure == Some(true) {
            out.found(ID_AES_HIDDEN, found, &[]);
        }
        return;
    }
    let environ = snapshot.process.environ.as_ref();
    if let Some(mask) = environ.and_then(|e| e.get("OPENSSL_ia32cap")) {
        if hides_aes(mask) {
            let found = vec![setting("OPENSSL_ia32cap", mask.clone(), "environ")];
            out.found(ID_AES_HIDDEN, found, &[]);
        } else {
            out.unknown(
                ID_AES,
                format!("OPENSSL_ia32cap={mask} changes what OpenSSL sees of the processor"),
                "`man OPENSSL_ia32cap`; `wcprof crypto calibrate --pid PID` measures",
            );
        }
        return;
    }
    let Some(text) = &crypto.version else {
        let next = format!("`strings {} | grep '^OpenSSL [0-9]'`", crypto.path);
        out.unknown(ID_AES, "libcrypto's version was not found", next);
        return;
    };
    let needed = [
        "vaes",
        "vpclmulqdq",
        "avx512f",
        "avx512dq",
        "avx512bw",
        "avx512vl",
    ];
    let capable = needed.iter().all(|f| has(f));
    match version(text) {
        Some(v) if capable && v < (3, 1) && secure == Some(true) => {
            let found = vec![
                setting("libcrypto", text.clone(), crypto.path.clone()),
                setting("processor", needed.join(" "), "/proc/cpuinfo"),
            ];
            out.found(ID_AES, found, &[]);
        }
        Some(v) => {
            let kernel = match capable && v >= (3, 1) {
                true => "AVX-512 (VAES)",
                false if has("avx") && has("movbe") => "AES-NI, stitched with PCLMULQDQ",
                false => "AES-NI",
            };
            let more = match capable && v < (3, 1) {
                true => "; the processor has VAES and AVX-512, which OpenSSL uses since 3.1",
                false => "",
            };
            out.passed(ID_AES, format!("{text}: {kernel}{more}"));
        }
        None => out.passed(ID_AES, text.clone()),
    }
}

/// Whether a mask (`~0x200000200000000`, `0x...:0x...`) takes AES-NI (bit 57) or PCLMULQDQ (bit 33)
/// away. What cannot be read does not.
fn hides_aes(mask: &str) -> bool {
    const BITS: u64 = 1 << 57 | 1 << 33;
    let first = mask.split(':').next().unwrap_or_default();
    let (inverted, digits) = match first.strip_prefix('~') {
        Some(digits) => (true, digits),
        None => (false, first),
    };
    let number = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => digits.parse(),
    };
    match number {
        Ok(n) if inverted => n & BITS != 0,
        Ok(n) => n & BITS != BITS,
        Err(_) => false,
    }
}

fn osd_threads(out: &mut Out<'_>) {
    let process = &out.snapshot.process;
    let n = process
        .threads
        .iter()
        .filter(|t| t.comm == "tp_osd_tp")
        .count();
    let devices = &out.snapshot.host.devices;
    let data = process
        .fds
        .iter()
        .flat_map(|f| &f.files)
        .find(|f| f.is_device);
    let leaf = data.and_then(|d| {
        super::storage::leaves(devices, &d.device)
            .into_iter()
            .next()
    });
    let shape: Vec<String> = ["osd_op_num_shards", "osd_op_num_threads_per_shard"]
        .iter()
        .filter_map(|o| option(out, o).map(|(value, origin)| format!("{o} = {value} ({origin})")))
        .collect();
    let messengers = process
        .threads
        .iter()
        .filter(|t| t.comm.starts_with("msgr-worker"))
        .count();
    match leaf {
        Some(disk) if n > 0 && n <= HDD_THREADS && disk.rotational == Some(false) => {
            let mut found = vec![
                setting(
                    "threads tp_osd_tp",
                    n.to_string(),
                    format!("/proc/{}/task", process.pid),
                ),
                setting(
                    format!("{} rotational", disk.name),
                    "0",
                    format!("/sys/block/{}/queue/rotational", disk.name),
                ),
            ];
            found.extend(shape.iter().map(|s| setting("set", s.clone(), "")));
            out.found(ID_OSD_THREADS, found, &[]);
        }
        _ if n > 0 => {
            let mut seen = format!("{n} threads tp_osd_tp, {messengers} msgr-worker");
            for text in shape {
                seen.push_str("; ");
                seen.push_str(&text);
            }
            out.passed(ID_OSD_THREADS, seen);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check masks of OPENSSL_ia32cap.
    #[test]
    fn masks() {
        assert!(hides_aes("~0x200000200000000"));
        assert!(hides_aes("0"));
        assert!(hides_aes("~0x200000000000000:~0x1"));
        assert!(!hides_aes("~0x1:0x2"));
        assert!(!hides_aes("0xffffffffffffffff"));
        assert!(!hides_aes("rubbish"));
        assert_eq!(version("OpenSSL 3.0.15 3 Sep 2024"), Some((3, 0)));
        assert_eq!(version("BoringSSL"), None);
    }
}
