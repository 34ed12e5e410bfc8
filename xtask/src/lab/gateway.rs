//! An object gateway in front of the cluster, and load on it through its Swift interface.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::conf::GATEWAY;
use super::{Daemon, Lab, create_folder, require_programs, wait_until, write};
use crate::process::{capture, tail};

/// The gateway's name in the cluster.
const NAME: &str = "client.rgw.a";
/// Password of the only user.
const SECRET: &str = "secret";
/// What a response may hold.
const MAX_BODY: usize = 64 << 20;

/// Starts the gateway and makes its user.
///
/// # Errors
/// When it is not installed or does not answer.
pub fn up(lab: &Lab) -> Result<Daemon> {
    require_programs(&["radosgw", "radosgw-admin"])?;
    lab.require_cluster()?;
    let folder = lab.cluster();
    let key = capture(lab.command("ceph").args([
        "auth",
        "get-or-create",
        NAME,
        "mon",
        "allow rw",
        "osd",
        "allow rwx",
    ]))?;
    write(&folder.join("rgw.keyring"), key)?;
    create_folder(&folder.join("rgw.a"))?;
    let log = lab.log("rgw.a.out");
    let mut command = lab.command("radosgw");
    command.arg("-c").arg(lab.conf()).args(["-n", NAME, "-f"]);
    let gateway = Daemon::start(&folder, "rgw.a", &mut command, &log)?;
    wait_until("the gateway answers", Duration::from_secs(120), || {
        ensure!(
            gateway.is_running(),
            "radosgw ended:\n{}",
            tail(&std::fs::read(&log).unwrap_or_default(), 10)
        );
        Ok(TcpStream::connect(GATEWAY).is_ok())
    })?;
    let admin = |arguments: &[&str]| {
        let mut command = lab.command("radosgw-admin");
        capture(
            command
                .arg("-c")
                .arg(lab.conf())
                .args(["-n", NAME])
                .args(arguments),
        )
    };
    admin(&["user", "create", "--uid", "lab", "--display-name", "lab"])?;
    admin(&[
        "subuser",
        "create",
        "--uid",
        "lab",
        "--subuser",
        "lab:swift",
        "--access",
        "full",
        "--secret",
        SECRET,
    ])?;
    Ok(gateway)
}

/// Operations that are asked for one after the other on some connections, until it is dropped.
#[derive(Debug)]
pub struct Load {
    stop: Arc<AtomicBool>,
    n_done: Arc<AtomicU64>,
    jobs: Vec<JoinHandle<Result<()>>>,
}

impl Load {
    /// Stores an object of `size` bytes, and reads it on `n_jobs` connections.
    ///
    /// # Errors
    /// When the gateway refuses it.
    pub fn start(n_jobs: u32, size: usize) -> Result<Self> {
        let mut connection = Connection::new()?;
        let login = connection.request(
            "GET /auth/1.0",
            &[("X-Auth-User", "lab:swift"), ("X-Auth-Key", SECRET)],
            &[],
        )?;
        let token = login.token.context("the gateway gave no token")?;
        let token = ("X-Auth-Token", token.as_str());
        connection.request(
            "PUT /swift/v1/load",
            &[token, ("X-Container-Read", ".r:*")],
            &[],
        )?;
        connection.request("PUT /swift/v1/load/o", &[token], &vec![b'x'; size])?;
        let (stop, n_done) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let job = || {
            let (stop, n_done) = (Arc::clone(&stop), Arc::clone(&n_done));
            std::thread::spawn(move || {
                let mut connection = Connection::new()?;
                while !stop.load(Ordering::Relaxed) {
                    connection.request("GET /swift/v1/load/o", &[], &[])?;
                    n_done.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            })
        };
        let jobs = (0..n_jobs).map(|_| job()).collect();
        Ok(Self { stop, n_done, jobs })
    }

    /// Operations done so far.
    pub fn n_done(&self) -> u64 {
        self.n_done.load(Ordering::Relaxed)
    }

    /// Ends it.
    ///
    /// # Errors
    /// What a job met.
    pub fn stop(mut self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        for job in self.jobs.drain(..) {
            match job.join() {
                Ok(result) => result?,
                Err(_) => bail!("a job of the load panicked"),
            }
        }
        Ok(())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// A connection that is kept.
struct Connection {
    stream: BufReader<TcpStream>,
}

/// What matters of a response.
#[derive(Debug, Default)]
struct Response {
    status: u16,
    length: usize,
    token: Option<String>,
}

impl Connection {
    fn new() -> Result<Self> {
        let stream = TcpStream::connect(GATEWAY).context("failed to connect to the gateway")?;
        stream
            .set_nodelay(true)
            .context("failed to set TCP_NODELAY")?;
        let patience = Some(Duration::from_secs(60));
        stream
            .set_read_timeout(patience)
            .context("failed to set a time limit")?;
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    /// `what`: method and path.
    fn request(&mut self, what: &str, headers: &[(&str, &str)], body: &[u8]) -> Result<Response> {
        let mut text = format!("{what} HTTP/1.1\r\nHost: lab\r\n");
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(body);
        let failed = || format!("failed to ask the gateway for `{what}`");
        self.stream
            .get_mut()
            .write_all(&bytes)
            .with_context(failed)?;
        let response = head(&mut self.stream).with_context(failed)?;
        let mut body = vec![0; response.length.min(MAX_BODY)];
        self.stream.read_exact(&mut body).with_context(failed)?;
        ensure!(
            (200..300).contains(&response.status),
            "the gateway answers `{what}` with {}: {}",
            response.status,
            String::from_utf8_lossy(&body)
        );
        Ok(response)
    }
}

/// Reads a response up to its body.
fn head(stream: &mut impl BufRead) -> Result<Response> {
    let mut response = Response::default();
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|s| s.parse().ok());
    response.status = status.with_context(|| format!("no status in `{}`", line.trim()))?;
    loop {
        line.clear();
        ensure!(
            stream.read_line(&mut line)? > 0,
            "the response ends in its head"
        );
        let text = line.trim();
        if text.is_empty() {
            return Ok(response);
        }
        let (name, value) = text.split_once(':').context("a header has no value")?;
        match name.to_ascii_lowercase().as_str() {
            "content-length" => response.length = value.trim().parse()?,
            "x-auth-token" => response.token = Some(value.trim().to_owned()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that status, length and token are found, and that a head that ends early is an error.
    #[test]
    fn heads() {
        let read = |text: &str| head(&mut text.as_bytes());
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 12\r\nX-Auth-Token: a b\r\n\r\nbody";
        let response = read(text).unwrap();
        assert_eq!((response.status, response.length), (200, 12));
        assert_eq!(response.token.as_deref(), Some("a b"));
        for text in [
            "",
            "HTTP/1.1\r\n\r\n",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 200 OK\r\nx\r\n\r\n",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
