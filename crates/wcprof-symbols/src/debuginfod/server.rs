//! A URL to the bytes behind it, with every wait and every size bounded.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use nix::sys::statvfs::fstatvfs;
use ureq::tls::{RootCerts, TlsConfig, TlsProvider};
use ureq::{Agent, Proxy};

use super::options::{DebuginfodOptions, ServerFailure};
use crate::demangle::printable;

/// Bytes that must come in each span of [`DebuginfodOptions::timeout`], as elfutils has it.
const MIN_BYTES: u64 = 100 << 10;
/// Bytes of the file system that are left free.
const KEEP_FREE: u64 = 512 << 20;
/// Bytes read at a time.
const STEP: usize = 64 << 10;
const MAX_REDIRECTS: u32 = 5;
/// Between two calls for progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// One server and what became of it.
#[derive(Debug)]
pub(super) struct Server {
    url: String,
    agent: OnceLock<Agent>,
    is_dead: AtomicBool,
    /// Time that it took without giving a file.
    lost_ms: AtomicU64,
    failure: Mutex<Option<ServerFailure>>,
}

/// How a download ended.
#[derive(Debug)]
pub(super) enum Outcome {
    Downloaded {
        modified: Option<SystemTime>,
    },
    Missing,
    /// The server failed, and this was noted.
    Failed,
    /// This file is not taken.
    Refused(String),
}

/// Why a download ended early.
enum Stop {
    /// The server is not asked again.
    Dead(String),
    Failed(String),
    Refused(String),
}

impl Server {
    pub(super) fn new(url: &str) -> Self {
        let server = Self {
            url: url.trim_end_matches('/').to_owned(),
            agent: OnceLock::new(),
            is_dead: AtomicBool::new(false),
            lost_ms: AtomicU64::new(0),
            failure: Mutex::new(None),
        };
        if !url.starts_with("http://") && !url.starts_with("https://") {
            server.fail("only http and https URLs are supported".to_owned(), true);
        }
        server
    }

    pub(super) fn is_alive(&self) -> bool {
        !self.is_dead.load(Ordering::Relaxed)
    }

    pub(super) fn failure(&self) -> Option<ServerFailure> {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.clone()
    }

    /// Its host and port.
    pub(super) fn name(&self) -> &str {
        let rest = self
            .url
            .split_once("://")
            .map_or(&*self.url, |(_, rest)| rest);
        let authority = rest.split('/').next().unwrap_or(rest);
        authority.rsplit('@').next().unwrap_or(authority)
    }

    pub(super) fn url(&self, build_id: &str, name: &str) -> String {
        format!("{}/buildid/{build_id}/{name}", self.url)
    }

    /// The same without user and password.
    pub(super) fn shown_url(&self, build_id: &str, name: &str) -> String {
        format!("{}/buildid/{build_id}/{name}", self.shown())
    }

    fn shown(&self) -> String {
        let (scheme, _) = self.url.split_once("://").unwrap_or(("", ""));
        let (_, path) = self.url.split_once(self.name()).unwrap_or(("", ""));
        match scheme {
            "http" | "https" => printable(&format!("{scheme}://{}{path}", self.name())),
            _ => printable(&self.url),
        }
    }

    /// Notes time that was waited for nothing; too much of it ends the server.
    pub(super) fn lost(&self, time: Duration, options: &DebuginfodOptions) {
        let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let before = self.lost_ms.fetch_add(ms, Ordering::Relaxed);
        if let Some(timeout) = options.timeout
            && u128::from(before.saturating_add(ms)) >= timeout.as_millis()
        {
            let reason = format!("{} s were spent on it in vain", timeout.as_secs_f64());
            self.fail(reason, true);
        }
    }

    fn fail(&self, reason: String, given_up: bool) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        let was_alive = !self.is_dead.fetch_or(given_up, Ordering::Relaxed);
        // What ended it is the last to be told.
        if failure.is_none() || (given_up && was_alive) {
            *failure = Some(ServerFailure {
                server: self.shown(),
                reason,
                given_up,
            });
        }
    }

    fn agent(&self, options: &DebuginfodOptions) -> &Agent {
        self.agent.get_or_init(|| {
            let tls = TlsConfig::builder()
                .provider(TlsProvider::NativeTls)
                .root_certs(RootCerts::PlatformVerifier)
                .build();
            let connect = Some(options.connect_timeout);
            let config = Agent::config_builder()
                .tls_config(tls)
                .user_agent(concat!("wcprof/", env!("CARGO_PKG_VERSION")))
                .http_status_as_error(false)
                .max_redirects(MAX_REDIRECTS)
                .timeout_resolve(connect)
                .timeout_connect(connect)
                .timeout_send_request(options.timeout)
                .timeout_recv_response(options.timeout)
                .timeout_per_read(options.timeout)
                .timeout_per_call(options.max_time)
                .proxy(match options.proxy {
                    true => Proxy::try_from_env(),
                    false => None,
                });
            config.build().new_agent()
        })
    }

    /// Downloads `url` to the empty `file`.
    pub(super) fn download(
        &self,
        url: &str,
        file: &mut File,
        options: &DebuginfodOptions,
        progress: &mut dyn FnMut(u64, Option<u64>),
    ) -> Outcome {
        match self.try_download(url, file, options, progress) {
            Ok(outcome) => outcome,
            Err(Stop::Refused(reason)) => Outcome::Refused(reason),
            Err(Stop::Failed(reason)) => {
                self.fail(reason, false);
                Outcome::Failed
            }
            Err(Stop::Dead(reason)) => {
                self.fail(reason, true);
                Outcome::Failed
            }
        }
    }

    fn try_download(
        &self,
        url: &str,
        file: &mut File,
        options: &DebuginfodOptions,
        progress: &mut dyn FnMut(u64, Option<u64>),
    ) -> Result<Outcome, Stop> {
        let begin = Instant::now();
        let mut request = self.agent(options).get(url);
        if let Some(max_size) = options.max_size {
            request = request.header("X-DEBUGINFOD-MAXSIZE", max_size.to_string());
        }
        let response = match request.call() {
            Ok(response) => response,
            Err(error) => return Err(stop(error, begin, options)),
        };
        match response.status().as_u16() {
            200 => {}
            404 => return Ok(Outcome::Missing),
            // What debuginfod answers when the file is larger than the request allows.
            406 if options.max_size.is_some() => return Err(too_large(None, options.max_size)),
            status => {
                self.lost(begin.elapsed(), options);
                return Err(Stop::Failed(format!("it answered with status {status}")));
            }
        }
        let modified = response.headers().get("last-modified");
        let modified = modified
            .and_then(|date| date.to_str().ok())
            .and_then(http_date);
        let size = response.body().content_length();
        let limit = match size {
            Some(size) => options.max_size.unwrap_or(size),
            None => options.max_size.unwrap_or(options.max_unknown_size),
        };
        if size.is_some_and(|size| size > limit) {
            return Err(too_large(size, Some(limit)));
        }
        check_free(file, size.unwrap_or(0))?;
        let mut body = response.into_body().into_reader();
        let mut buffer = vec![0; STEP];
        let mut received = 0_u64;
        let mut window = (begin, 0_u64);
        let mut told = begin;
        loop {
            let n = match body.read(&mut buffer) {
                Ok(n) => n,
                Err(error) => return Err(stop(ureq::Error::from(error), begin, options)),
            };
            let bytes = buffer.get(..n).unwrap_or_default();
            if received == 0 && n >= 4 && !bytes.starts_with(b"\x7fELF") {
                return Err(Stop::Refused("not an ELF file".to_owned()));
            }
            if n == 0 {
                break;
            }
            received += n as u64;
            if received > limit {
                return Err(too_large(None, Some(limit)));
            }
            if size.is_none() {
                check_free(file, 0)?;
            }
            file.write_all(bytes)
                .map_err(|e| Stop::Refused(format!("failed to write it: {e}")))?;
            window.1 += n as u64;
            let now = Instant::now();
            if let Some(timeout) = options.timeout
                && now.duration_since(window.0) >= timeout
            {
                if window.1 < MIN_BYTES {
                    return Err(too_slow(timeout));
                }
                window = (now, 0);
            }
            if options
                .max_time
                .is_some_and(|max| now.duration_since(begin) >= max)
            {
                return Err(out_of_time(options));
            }
            if now.duration_since(told) >= PROGRESS_INTERVAL {
                told = now;
                progress(received, size);
            }
        }
        if size.is_some_and(|size| size != received) {
            return Err(Stop::Failed(format!(
                "it ended a file after {received} of {} bytes",
                size.unwrap_or(0)
            )));
        }
        progress(received, size.or(Some(received)));
        Ok(Outcome::Downloaded { modified })
    }
}

fn stop(error: ureq::Error, begin: Instant, options: &DebuginfodOptions) -> Stop {
    match error {
        ureq::Error::Timeout(ureq::Timeout::PerCall) => out_of_time(options),
        ureq::Error::Timeout(ureq::Timeout::Resolve | ureq::Timeout::Connect) => {
            Stop::Dead(format!(
                "failed to connect in {:.1} s",
                begin.elapsed().as_secs_f64()
            ))
        }
        ureq::Error::Timeout(_) => too_slow(options.timeout.unwrap_or_default()),
        ureq::Error::HostNotFound => Stop::Dead("its host was not found".to_owned()),
        ureq::Error::BadUri(_) | ureq::Error::Http(_) => {
            Stop::Dead("its URL is malformed".to_owned())
        }
        error => Stop::Dead(printable(&error.to_string())),
    }
}

fn too_slow(timeout: Duration) -> Stop {
    let seconds = timeout.as_secs_f64();
    Stop::Dead(format!(
        "it gave less than {} KiB in {seconds} s (DEBUGINFOD_TIMEOUT)",
        MIN_BYTES >> 10
    ))
}

fn out_of_time(options: &DebuginfodOptions) -> Stop {
    let seconds = options.max_time.unwrap_or_default().as_secs_f64();
    Stop::Refused(format!(
        "it took more than {seconds} s (DEBUGINFOD_MAXTIME)"
    ))
}

fn too_large(size: Option<u64>, limit: Option<u64>) -> Stop {
    let size = size.map_or_else(String::new, |size| format!("has {size} bytes and "));
    let limit = limit.unwrap_or(0);
    Stop::Refused(format!(
        "it {size}is larger than {limit} bytes (DEBUGINFOD_MAXSIZE)"
    ))
}

/// Leaves room on the file system for others.
fn check_free(file: &File, size: u64) -> Result<(), Stop> {
    // A file system that does not tell is not guarded.
    let Ok(stat) = fstatvfs(file.as_fd()) else {
        return Ok(());
    };
    let free = stat.blocks_available().saturating_mul(stat.fragment_size());
    match size.saturating_add(KEEP_FREE) > free {
        true => Err(Stop::Refused(format!(
            "its file system has {} MiB free, of which {} are left to others",
            free >> 20,
            KEEP_FREE >> 20
        ))),
        false => Ok(()),
    }
}

/// The time in `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110, 5.6.7).
fn http_date(text: &str) -> Option<SystemTime> {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let mut words = text.split_once(", ")?.1.split(' ');
    let day: u64 = words.next()?.parse().ok()?;
    let name = words.next()?;
    let month = MONTHS.iter().position(|m| *m == name)? as u64 + 1;
    let year: u64 = words.next()?.parse().ok()?;
    let mut clock = words.next()?.split(':').map(|n| n.parse::<u64>().ok());
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    if !(1970..=9999).contains(&year) || !(1..=31).contains(&day) || hour > 23 || minute > 59 {
        return None;
    }
    // Days since 1970, with years that begin in March.
    let (y, m) = match month {
        1 | 2 => (year - 1, month + 9),
        _ => (year, month - 3),
    };
    let days = y * 365 + y / 4 - y / 100 + y / 400 + (m * 153 + 2) / 5 + day - 1;
    let days = days.checked_sub(719_468)?;
    let seconds = days * 86_400 + hour * 3600 + minute * 60 + second.min(60);
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check dates at the ends of years and of a leap month.
    #[test]
    fn dates() {
        let seconds = |text| {
            let time = http_date(text)?.duration_since(SystemTime::UNIX_EPOCH);
            Some(time.unwrap().as_secs())
        };
        assert_eq!(seconds("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(seconds("Tue, 29 Feb 2000 23:59:59 GMT"), Some(951_868_799));
        assert_eq!(
            seconds("Tue, 31 Dec 2024 12:00:00 GMT"),
            Some(1_735_646_400)
        );
        assert_eq!(seconds("yesterday"), None);
    }

    /// Check that messages show neither user nor password of a URL.
    #[test]
    fn names() {
        let server = Server::new("https://me:secret@host:8002/x/");
        assert_eq!(server.name(), "host:8002");
        assert_eq!(
            server.url("ab", "debuginfo"),
            "https://me:secret@host:8002/x/buildid/ab/debuginfo"
        );
        server.fail("why".to_owned(), false);
        let failure = server.failure().unwrap();
        assert_eq!(failure.server, "https://host:8002/x");
        assert!(server.is_alive());
        assert!(!Server::new("file:///x").is_alive());
    }
}
