//! The admin socket of a Ceph daemon: one JSON command, one JSON answer.
//!
//! The command ends with a zero byte; a length of four bytes, big endian, precedes the answer.
//! Unlike the `ceph` tool this costs next to nothing, so that it can be used within a measurement.

use std::fmt;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{Lab, POOL};
use crate::process::capture;

/// No answer is longer.
const MAX_ANSWER: u32 = 64 << 20;

/// Sends a command and returns the answer; null when it is empty.
///
/// # Errors
/// When the daemon does not answer within ten seconds or not with JSON.
pub fn ask(socket: &Path, command: &Value) -> Result<Value> {
    let context = || format!("failed to ask `{}` for {command}", socket.display());
    let mut stream = UnixStream::connect(socket).with_context(context)?;
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .with_context(context)?;
    stream
        .write_all(format!("{command}\0").as_bytes())
        .with_context(context)?;
    let mut length = [0; 4];
    stream.read_exact(&mut length).with_context(context)?;
    let length = u32::from_be_bytes(length);
    ensure!(
        length <= MAX_ANSWER,
        "an answer of {length} bytes is too long"
    );
    let mut answer = Vec::new();
    stream
        .take(u64::from(length))
        .read_to_end(&mut answer)
        .with_context(context)?;
    if answer.iter().all(u8::is_ascii_whitespace) {
        return Ok(Value::Null);
    }
    serde_json::from_slice(&answer).with_context(context)
}

/// How many messages of a short while went over connections of each mode.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct WireModes {
    crc: usize,
    secure: usize,
}

impl fmt::Display for WireModes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "log lines of open connections: secure {}, crc {}",
            self.secure, self.crc
        )
    }
}

/// Raises the OSD's message log level for a second and counts modes in what it logs.
///
/// # Errors
/// When the OSD does not answer or its log can not be read.
pub fn wire_modes(lab: &Lab) -> Result<WireModes> {
    lab.osd()?;
    let socket = lab.socket("osd.0");
    let log = lab.log("osd.0.log");
    let before = fs::metadata(&log)
        .with_context(|| format!("failed to examine `{}`", log.display()))?
        .len();
    let set_level = |level: &str| {
        ask(
            &socket,
            &json!({"prefix": "config set", "var": "debug_ms", "val": [level]}),
        )
    };
    set_level("10/10")?;
    // Some messages, in case nobody else sends any.
    let traffic = capture(
        lab.command("timeout")
            .args(["20", "rados", "-p", POOL, "ls"]),
    );
    std::thread::sleep(Duration::from_secs(1));
    set_level("0/0")?;
    ask(&socket, &json!({"prefix": "log flush"}))?;
    traffic?;
    let mut text = Vec::new();
    let mut file =
        File::open(&log).with_context(|| format!("failed to open `{}`", log.display()))?;
    file.seek(SeekFrom::Start(before))
        .and_then(|_| file.take(256 << 20).read_to_end(&mut text))
        .with_context(|| format!("failed to read `{}`", log.display()))?;
    Ok(count_modes(&String::from_utf8_lossy(&text)))
}

fn count_modes(log: &str) -> WireModes {
    let mut modes = WireModes::default();
    for line in log.lines() {
        if !line.contains("--2-") || !line.contains("s=READY") {
            continue;
        }
        if line.contains(" secure :") {
            modes.secure += 1;
        } else if line.contains(" crc :") {
            modes.crc += 1;
        }
    }
    modes
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// Check that only open connections of the second protocol are counted.
    #[test]
    fn modes() {
        let log = "--2- [v2:a] >> b conn(0x1 0x2 secure :-1 s=READY pgs=1)\n\
            --2- [v2:a] >> b conn(0x1 0x2 crc :-1 s=READY pgs=1)\n\
            --2- [v2:a] >> b conn(0x1 0x2 crc :-1 s=CLOSED pgs=1)\n\
            --1- [v2:a] >> b conn(0x1 0x2 crc :-1 s=READY pgs=1)\n";
        assert_eq!(count_modes(log), WireModes { crc: 1, secure: 1 });
    }

    /// Check the framing of question and answer.
    #[test]
    fn framing() {
        let path = std::env::temp_dir().join(format!("wcprof-asok-{}", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut question = Vec::new();
            let mut byte = [0];
            while stream.read_exact(&mut byte).is_ok() && byte[0] != 0 {
                question.push(byte[0]);
            }
            stream.write_all(b"\0\0\0\x09{\"a\": 42}").unwrap();
            question
        });
        assert_eq!(
            ask(&path, &json!({"prefix": "x"})).unwrap(),
            json!({"a": 42})
        );
        assert_eq!(server.join().unwrap(), br#"{"prefix":"x"}"#);
        fs::remove_file(&path).unwrap();
    }
}
