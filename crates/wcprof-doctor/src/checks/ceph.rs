//! Ceph: encryption of the messenger, the AES code it gets, OSD threads.

use wcprof_types::option_value;
use wcprof_types::snapshot::BlockDevice;

use super::kind::Kind;
use super::storage::leaves;
use crate::report::{Out, setting};

const ID_SECURE: &str = "msgr-secure";
const ID_AES: &str = "aes-kernel";
const ID_AES_HIDDEN: &str = "aes-hidden";
const ID_OSD_THREADS: &str = "osd-threads-flash";
/// Threads that `osd_op_num_shards_hdd` times `osd_op_num_threads_per_shard_hdd` give, at most.
const HDD_THREADS: usize = 5;

/// What OpenSSL's AES-GCM code for AVX-512 needs.
const AVX512_AES: [&str; 6] = [
    "vaes",
    "vpclmulqdq",
    "avx512f",
    "avx512dq",
    "avx512bw",
    "avx512vl",
];
/// The first version of OpenSSL with that code.
const AVX512_SINCE: (u32, u32) = (3, 1);

pub(super) fn check(out: &mut Out<'_>, kind: &Kind) {
    if kind.is_ceph(&out.snapshot.process) {
        let is_secure = messenger(out, kind);
        aes(out, is_secure);
    }
    if matches!(kind, Kind::Osd) {
        osd_threads(out);
    }
}

/// Value and origin of an option.
fn option<'a>(out: &Out<'a>, name: &str) -> Option<(&'a str, String)> {
    let process = &out.snapshot.process;
    let argument = format!("--{}", name.replace('_', "-"));
    if let Some(value) = option_value(&process.cmdline, &[&argument]) {
        return Some((value, "command line".into()));
    }
    let ceph = process.ceph.as_ref()?;
    let value = ceph.conf.get(name)?;
    Some((value, ceph.conf_path.clone()))
}

/// Whether its data connections are known to be encrypted.
fn messenger(out: &mut Out<'_>, kind: &Kind) -> bool {
    let names: &[&str] = match kind {
        Kind::Osd => &["ms_cluster_mode", "ms_service_mode"],
        _ => &["ms_client_mode"],
    };
    let (mut secure, mut plain, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    for name in names {
        match option(out, name) {
            // The first mode of the list is what this side prefers.
            Some((value, origin)) if value.trim().starts_with("secure") => {
                secure.push(setting(*name, value, origin));
            }
            Some((value, origin)) => plain.push(format!("{name} = {value} ({origin})")),
            None => missing.push(*name),
        }
    }
    if let Some(function) = &out.observed.encrypting {
        secure.push(setting("at work", function, "stacks of the trace"));
        missing.clear();
    }
    let is_secure = !secure.is_empty();
    out.found_or_passed(ID_SECURE, secure, plain.join(", "));
    if !missing.is_empty() {
        let pid = out.snapshot.process.pid;
        out.unknown(
            ID_SECURE,
            format!(
                "{} not set on the command line or in the configuration file; the monitors may set it, and the default is `crc secure`",
                missing.join(", ")
            ),
            format!(
                "its stacks show it, under load: `wcprof attach {pid}`, then `wcprof doctor TRACE` finds it, or `aes-gcm` of `wcprof doctor`"
            ),
        );
    }
    is_secure
}

/// `OpenSSL 3.0.15 3 Sep 2024` to (3, 0).
fn version(text: &str) -> Option<(u32, u32)> {
    let numbers = text.strip_prefix("OpenSSL ")?.split(' ').next()?;
    let mut numbers = numbers.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The AES code that OpenSSL runs here.
fn aes(out: &mut Out<'_>, is_secure: bool) {
    let (process, flags) = (&out.snapshot.process, &out.snapshot.host.cpu_flags);
    let mut libraries = process.libraries.iter().flatten();
    let Some(crypto) = libraries.find(|l| l.file_name().starts_with("libcrypto")) else {
        return;
    };
    let has = |flag: &str| flags.iter().any(|f| f == flag);
    let mask = process
        .environ
        .as_ref()
        .and_then(|e| e.get("OPENSSL_ia32cap"));
    match (mask, &crypto.version) {
        _ if flags.is_empty() => out.unknown(
            ID_AES,
            "the processor's features are not known",
            "`grep flags /proc/cpuinfo`",
        ),
        _ if !has("aes") || !has("pclmulqdq") => {
            let found = setting("processor features", flags.join(" "), "/proc/cpuinfo");
            out.found(ID_AES_HIDDEN, is_secure.then_some(found));
        }
        (Some(mask), _) if hides_aes(mask) => {
            out.found(ID_AES_HIDDEN, [setting("OPENSSL_ia32cap", mask, "environ")]);
        }
        (Some(mask), _) => out.unknown(
            ID_AES,
            format!("OPENSSL_ia32cap={mask} changes what OpenSSL sees of the processor"),
            "`man OPENSSL_ia32cap`; `wcprof crypto calibrate PID` measures",
        ),
        (None, None) => {
            let next = format!("`strings {} | grep '^OpenSSL [0-9]'`", crypto.path);
            out.unknown(ID_AES, "libcrypto's version was not found", next);
        }
        (None, Some(text)) => {
            let is_capable = AVX512_AES.iter().all(|f| has(f));
            let is_new = version(text).map(|v| v >= AVX512_SINCE);
            let code = match (is_new, is_capable) {
                (Some(false), true) if is_secure => {
                    let processor = setting("processor", AVX512_AES.join(" "), "/proc/cpuinfo");
                    out.found(
                        ID_AES,
                        [setting("libcrypto", text, &crypto.path), processor],
                    );
                    return;
                }
                (None, _) => "",
                (Some(true), true) => ": AVX-512 (VAES)",
                _ if has("avx") && has("movbe") => ": AES-NI, stitched with PCLMULQDQ",
                _ => ": AES-NI",
            };
            let more = match (is_new, is_capable) {
                (Some(false), true) => {
                    "; the processor has VAES and AVX-512, which OpenSSL uses since 3.1"
                }
                _ => "",
            };
            out.passed(ID_AES, format!("{text}{code}{more}"));
        }
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

/// Words in the models of flash drives.
const FLASH_MODELS: [&str; 4] = ["SSD", "NVME", "FLASH", "OPTANE"];

/// Whether a disk is flash: it says that it does not rotate, or it says that it does, as behind some controllers, and its
/// name or model says what it is.
fn is_flash(disk: &BlockDevice) -> bool {
    let model = disk
        .model
        .as_deref()
        .unwrap_or_default()
        .to_ascii_uppercase();
    let is_named =
        disk.name.starts_with("nvme") || FLASH_MODELS.iter().any(|word| model.contains(word));
    disk.rotational == Some(false) || (disk.rotational == Some(true) && is_named)
}

fn osd_threads(out: &mut Out<'_>) {
    let process = &out.snapshot.process;
    let names = || process.threads.iter().map(|t| t.comm.as_str());
    let n = names().filter(|&comm| comm == "tp_osd_tp").count();
    let messengers = names()
        .filter(|comm| comm.starts_with("msgr-worker"))
        .count();
    let mut files = process.fds.iter().flat_map(|f| &f.files);
    let disk = files.find(|f| f.is_device).and_then(|data| {
        let leaves = leaves(&out.snapshot.host.devices, &data.device);
        leaves.into_iter().next()
    });
    let options = ["osd_op_num_shards", "osd_op_num_threads_per_shard"].into_iter();
    let options = options.filter_map(|name| {
        let (value, origin) = option(out, name)?;
        Some(format!("{name} = {value} ({origin})"))
    });
    let options: Vec<String> = options.collect();
    match disk {
        Some(disk) if (1..=HDD_THREADS).contains(&n) && is_flash(disk) => {
            let task = format!("/proc/{}/task", process.pid);
            let mut found = vec![setting("threads tp_osd_tp", n.to_string(), task)];
            let queue = |file: &str| format!("/sys/block/{}/{file}", disk.name);
            if let Some(rotational) = disk.rotational {
                let value = u8::from(rotational).to_string();
                let label = format!("{} rotational", disk.name);
                found.push(setting(label, value, queue("queue/rotational")));
            }
            if let Some(model) = &disk.model {
                let label = format!("{} model", disk.name);
                found.push(setting(label, model.as_str(), queue("device/model")));
            }
            found.extend(options.iter().map(|text| setting("set", text, "")));
            out.found(ID_OSD_THREADS, found);
        }
        _ if n > 0 => {
            let threads = format!("{n} threads tp_osd_tp, {messengers} msgr-worker");
            let seen = [&[threads], options.as_slice()].concat();
            out.passed(ID_OSD_THREADS, seen.join("; "));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check flash that says so, flash behind a controller that says that it rotates, a hard disk, and a virtual one.
    #[test]
    fn flash() {
        let disk = |name: &str, rotational, model: &str| BlockDevice {
            name: name.to_owned(),
            rotational,
            model: Some(model.to_owned()).filter(|model| !model.is_empty()),
            ..BlockDevice::default()
        };
        assert!(is_flash(&disk("sda", Some(false), "")));
        assert!(is_flash(&disk("sdb", Some(true), "Intel SSDSC2KB96")));
        assert!(is_flash(&disk("nvme0n1", Some(true), "")));
        assert!(!is_flash(&disk("sda", Some(true), "ST4000NM0023")));
        assert!(!is_flash(&disk("vda", Some(true), "")));
        assert!(!is_flash(&disk("sda", None, "SSD")));
    }

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
