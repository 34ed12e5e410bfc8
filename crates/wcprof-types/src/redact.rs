//! Command lines and environment variables to ones without secrets: what wcprof stores and
//! prints of them has gone through here first.
//!
//! Replaced by `***`: values of options that are named like a key, secret, password, token or
//! credential (`key=`, `--password VALUE`, `"password-secret":"..."`), `data` of QEMU's secret
//! objects, `string` of QEMU's `-fw_cfg`, users of Ceph (`rbd:...:id=`, `user=` of the rbd driver) and
//! what stands before the `@` of a URL. A secret in an option with a harmless name is not found.

use std::borrow::Cow;

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
    let harmless = ["_file", "_path", "_dir", "keyring", "_len", "_size"];
    if harmless.iter().any(|end| last.ends_with(end)) {
        return false;
    }
    let parts = [
        "secret",
        "passw",
        "passphrase",
        "token",
        "credential",
        "apikey",
    ];
    let ends = ["key", "pass", "pwd"];
    parts.iter().any(|part| last.contains(part))
        || ends
            .iter()
            .any(|end| last == *end || last.ends_with(&format!("_{end}")))
}

/// What ends a value.
#[derive(Copy, Clone)]
struct Ends {
    space: bool,
    colon: bool,
}

fn redact(arg: &str, words: bool, firmware: bool) -> String {
    let is_rbd = arg.contains("rbd");
    let has_secret_object = arg.contains("secret");
    let arg = without_userinfo(arg);
    let mut out = String::with_capacity(arg.len());
    let mut rest: &str = &arg;
    while let Some(key) = next_key(rest) {
        let name = &rest[key.start..key.end];
        let behind = rest[..key.start].chars().next_back();
        let secret = is_secret(name)
            || (has_secret_object && name == "data")
            || (firmware && name == "string")
            || (is_rbd && name == "id" && behind == Some(':'))
            || (is_rbd && matches!(name, "user" | "file.user"));
        let ends = Ends {
            space: words,
            colon: is_rbd,
        };
        let value = &rest[key.value..];
        out.push_str(&rest[..key.value]);
        if secret {
            out.push_str(REDACTED);
            rest = &value[value_length(value, key.quoted, ends)..];
        } else {
            rest = value;
        }
    }
    out.push_str(rest);
    out
}

/// A key in front of a value, as byte positions.
struct Key {
    start: usize,
    end: usize,
    value: usize,
    /// The value is a JSON string, whose quote is before `value`.
    quoted: bool,
}

fn is_name(c: u8) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-' | b'.')
}

/// The first `name=`, or `"name": "`.
fn next_key(text: &str) -> Option<Key> {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        while bytes.get(at).is_some_and(|&c| is_name(c)) {
            at += 1;
        }
        if at == start {
            at += 1;
            continue;
        }
        let end = at;
        if bytes.get(at) == Some(&b'=') {
            return Some(Key {
                start,
                end,
                value: at + 1,
                quoted: false,
            });
        }
        if bytes.get(at) == Some(&b'"') {
            let space = |mut i: usize| {
                while bytes.get(i).is_some_and(u8::is_ascii_whitespace) {
                    i += 1;
                }
                i
            };
            let colon = space(at + 1);
            let quote = space(colon + 1);
            if bytes.get(colon) == Some(&b':') && bytes.get(quote) == Some(&b'"') {
                return Some(Key {
                    start,
                    end,
                    value: quote + 1,
                    quoted: true,
                });
            }
        }
    }
    None
}

/// Bytes of the value that `text` begins with.
fn value_length(text: &str, quoted: bool, ends: Ends) -> usize {
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let doubled = chars.peek().is_some_and(|&(_, next)| next == c);
        match c {
            '\\' => {
                chars.next();
            }
            '"' if quoted => return at,
            _ if quoted => {}
            // QEMU writes a comma inside a value as two.
            ',' if doubled => {
                chars.next();
            }
            ',' => return at,
            ':' if ends.colon => return at,
            ' ' if ends.space => return at,
            _ => {}
        }
    }
    text.len()
}

/// `scheme://user:password@host` without what stands before the `@`.
fn without_userinfo(text: &str) -> Cow<'_, str> {
    if !text.contains("://") {
        return Cow::Borrowed(text);
    }
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (head, tail) = rest.split_at(at + 3);
        out.push_str(head);
        let host = tail.find(['/', ',', '"', ' ', '?']).unwrap_or(tail.len());
        rest = match tail[..host].rfind('@') {
            Some(user) => {
                out.push_str(REDACTED);
                &tail[user..]
            }
            None => tail,
        };
    }
    out.push_str(rest);
    Cow::Owned(out)
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
