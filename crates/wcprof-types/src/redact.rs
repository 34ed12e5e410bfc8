//! Command lines and environment variables to ones without secrets: what wcprof stores and
//! prints of them has gone through here first.
//!
//! Replaced by `***`: values of options that are named like a key, secret, password, token or
//! credential (`key=`, `--password VALUE`, `"password-secret":"..."`), `data` of QEMU's secret
//! objects, `string` of QEMU's `-fw_cfg`, users of Ceph (`rbd:...:id=`, `user=` of the rbd driver) and
//! what stands before the `@` of a URL. A secret in an option with a harmless name is not found.

use std::sync::LazyLock;

use regex::Regex;

/// What stands in place of a secret.
pub const REDACTED: &str = "***";

/// The arguments without secrets.
pub fn redact_args(args: &[String]) -> Vec<String> {
    let mut out = Vec::with_capacity(args.len());
    let mut before = "";
    for arg in args {
        let flag = before.strip_prefix("--").filter(|f| !f.contains('='));
        // `--key VALUE`; a flag that takes no value is followed by the next option.
        if flag.is_some_and(is_secret) && !arg.starts_with("--") {
            out.push(REDACTED.to_owned());
        } else {
            out.push(redact(arg, before == "-append", before == "-fw_cfg"));
        }
        before = arg;
    }
    out
}

/// The value of an environment variable without secrets; words are separated by spaces, as in
/// `CEPH_ARGS`.
pub fn redact_value(value: &str) -> String {
    let words: Vec<String> = value.split(' ').map(str::to_owned).collect();
    redact_args(&words).join(" ")
}

/// Whether an option of this name has a secret as its value.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('-', "_");
    let last = name.rsplit('.').next().unwrap_or(&name);
    SECRET.is_match(last) && !HARMLESS.is_match(last)
}

/// Names of options with a secret, and names like these of options without.
static SECRET: LazyLock<Regex> = LazyLock::new(|| {
    regex("secret|passw|passphrase|token|credential|apikey|(?:^|_)(?:key|pass|pwd)$")
});
static HARMLESS: LazyLock<Regex> =
    LazyLock::new(|| regex("(?:_file|_path|_dir|keyring|_len|_size)$"));
/// `name=`, or `name": "` of JSON.
static KEY: LazyLock<Regex> = LazyLock::new(|| regex(r#"([A-Za-z0-9_.-]+)(?:=|"\s*:\s*")"#));
/// A character of a value, or an escaped one. QEMU writes a comma inside a value as two.
static PIECE: LazyLock<Regex> = LazyLock::new(|| regex(r"(?s)\\.?|,,|."));
/// What stands before the host of a URL.
static USER: LazyLock<Regex> = LazyLock::new(|| regex(r#"://[^/,"? ]*@"#));

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the pattern is a constant")
}

fn redact(arg: &str, words: bool, firmware: bool) -> String {
    let is_rbd = arg.contains("rbd");
    let has_secret_object = arg.contains("secret");
    let arg = USER.replace_all(arg, format!("://{REDACTED}@"));
    let mut out = String::with_capacity(arg.len());
    let mut rest: &str = &arg;
    while let Some(key) = KEY.captures(rest) {
        let (name, before) = (&key[1], &rest[..key.get_match().start()]);
        let (head, value) = rest.split_at(key.get_match().end());
        let is_quoted = head.ends_with('"');
        let ends = |piece: &str| match piece {
            "\"" => is_quoted,
            "," => !is_quoted,
            ":" => !is_quoted && is_rbd,
            " " => !is_quoted && words,
            _ => false,
        };
        out.push_str(head);
        rest = value;
        if is_secret(name)
            || (has_secret_object && name == "data")
            || (firmware && name == "string")
            || (is_rbd && name == "id" && before.ends_with(':'))
            || (is_rbd && matches!(name, "user" | "file.user"))
        {
            out.push_str(REDACTED);
            let end = PIECE.find_iter(value).find(|piece| ends(piece.as_str()));
            rest = end.map_or("", |end| &value[end.start()..]);
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(arg: &str) -> String {
        redact_args(&[arg.to_owned()]).remove(0)
    }

    fn all(args: &[&str]) -> Vec<String> {
        let args: Vec<String> = args.iter().map(|&a| a.to_owned()).collect();
        redact_args(&args)
    }

    /// Check QEMU's rbd drive: key and user go, what advice needs stays.
    #[test]
    fn rbd_drive() {
        assert_eq!(
            one(
                "file=rbd:vms/disk:id=libvirt:key=AQBz7+/w==:auth_supported=cephx\\;none:mon_host=a\\:3300:rbd_cache=true,format=raw,if=none,id=drive0,cache=none"
            ),
            "file=rbd:vms/disk:id=***:key=***:auth_supported=cephx\\;none:mon_host=a\\:3300:rbd_cache=true,format=raw,if=none,id=drive0,cache=none"
        );
        assert_eq!(
            one("driver=rbd,pool=p,image=i,user=eve,key-secret=s0,cache.direct=on"),
            "driver=rbd,pool=p,image=i,user=***,key-secret=***,cache.direct=on"
        );
    }

    /// Check JSON: strings with escaped quotes go whole.
    #[test]
    fn json() {
        assert_eq!(
            one(
                r#"{"driver":"rbd","pool":"p","user":"eve","key-secret": "a\"b","node-name":"n","cache":{"direct":true}}"#
            ),
            r#"{"driver":"rbd","pool":"p","user":"***","key-secret": "***","node-name":"n","cache":{"direct":true}}"#
        );
        assert_eq!(
            one(r#"{"qom-type":"secret","id":"m","format":"base64","data":"c2VjcmV0"}"#),
            r#"{"qom-type":"secret","id":"m","format":"base64","data":"***"}"#
        );
    }

    /// Check options apart from their values, and doubled commas inside a value.
    #[test]
    fn options() {
        assert_eq!(
            all(&["ceph", "--key", "AQ==", "--keyring", "/etc/k", "--id", "x"]),
            ["ceph", "--key", "***", "--keyring", "/etc/k", "--id", "x"]
        );
        assert_eq!(all(&["--secret", "--next"]), ["--secret", "--next"]);
        assert_eq!(
            one("secret,id=s,data=a,,b,format=raw"),
            "secret,id=s,data=***,format=raw"
        );
        assert_eq!(one("--admin-password=a b:c"), "--admin-password=***");
        assert_eq!(
            all(&["-append", "quiet password=x root=/dev/vda"]),
            ["-append", "quiet password=*** root=/dev/vda"]
        );
        assert_eq!(
            all(&["-fw_cfg", "name=opt/ign,string=secretly"]),
            ["-fw_cfg", "name=opt/ign,string=***"]
        );
        assert_eq!(
            one("https://me:pw@host/x?token=1"),
            "https://***@host/x?token=***"
        );
        assert_eq!(redact_value("--id a --key AQ=="), "--id a --key ***");
    }

    /// Check that harmless options and odd text stay as they are.
    #[test]
    fn harmless() {
        for text in [
            "virtio-blk-pci,bus=pci.0,drive=d,id=virtio-disk0,bootindex=1",
            "guest=vm1,debug-threads=on",
            "secret,id=masterKey0,format=raw,file=/var/lib/libvirt/master-key.aes",
            "--osd-op-num-shards=8",
            "",
            "=",
            "ä=ö\"::\"",
            "keyring=/etc/ceph/k",
        ] {
            assert_eq!(one(text), text);
        }
    }
}
