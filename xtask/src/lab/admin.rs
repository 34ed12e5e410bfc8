//! The admin socket of a Ceph daemon: one JSON command, one JSON answer.
//!
//! The command ends with a zero byte; a length of four bytes, big endian, precedes the answer.
//! Unlike the `ceph` tool this costs next to nothing, so that it can be used within a measurement.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// Sends a command and returns the answer.
///
/// # Errors
/// When the daemon does not answer within ten seconds or not with JSON.
fn ask(socket: &Path, command: &Value) -> Result<Value> {
    exchange(socket, command)
        .with_context(|| format!("failed to ask `{}` for {command}", socket.display()))
}

/// A counter of a daemon: how often something happened since its start.
///
/// # Errors
/// When the daemon does not answer, or has no such counter.
pub fn counter(socket: &Path, logger: &str, counter: &str) -> Result<u64> {
    let question = json!({"prefix": "perf dump", "logger": logger, "counter": counter});
    let answer = ask(socket, &question)?;
    let value = answer[logger][counter].as_u64();
    value.with_context(|| format!("no counter {logger}.{counter}: {answer}"))
}

/// Sum of such counters of all images that a client of librbd has open.
///
/// # Errors
/// When the client does not answer, or has no image open.
pub fn image_counters(socket: &Path, counters: &[&str]) -> Result<u64> {
    let answer = ask(socket, &json!({"prefix": "perf dump"}))?;
    let loggers = answer.as_object().into_iter().flatten();
    let values = loggers
        .filter(|(logger, _)| logger.starts_with("librbd-"))
        .flat_map(|(_, image)| counters.iter().map(|counter| image[*counter].as_u64()));
    let values: Option<Vec<u64>> = values.collect();
    let values = values.filter(|values| !values.is_empty());
    let values = values.with_context(|| format!("no counters {counters:?} of an image"))?;
    Ok(values.into_iter().sum())
}

fn exchange(socket: &Path, command: &Value) -> Result<Value> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(format!("{command}\0").as_bytes())?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length);
    Ok(serde_json::from_reader(stream.take(length.into()))?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

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
        std::fs::remove_file(&path).unwrap();
    }
}
