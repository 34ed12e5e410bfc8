//! A URL to the bytes behind it, with every wait and every size bounded.

use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use dwarf_stream::Cancel;
use httpdate::parse_http_date;
use ureq::http::Response;
use ureq::{Agent, Body};
use wcprof_host::own_files::check_free;
use wcprof_net::{ClientLimits, client};

use super::options::{DebuginfodOptions, ServerFailure};
use crate::demangle::printable;

/// Bytes that must come in each span of [`DebuginfodOptions::timeout`], as elfutils has it.
const MIN_BYTES: u64 = 100 << 10;
/// Bytes read at a time.
const STEP: usize = 64 << 10;
const MAX_REDIRECTS: u32 = 5;
/// Between two calls for progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// Between two looks whether the file is still wanted.
const CANCEL_INTERVAL: Duration = Duration::from_millis(50);

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

/// Why there is no file.
#[derive(Debug)]
pub(super) enum Stop {
    /// The server does not have it.
    Missing,
    /// The server failed, and is to be given up.
    Dead(String),
    /// The server failed.
    Failed(String),
    /// This file is not taken.
    Refused(String),
    /// Nobody wants it any more.
    Cancelled,
}

/// What the thread of a download says.
enum News {
    /// Bytes that came, and of how many.
    Progress(u64, Option<u64>),
    End(Result<Option<SystemTime>, Stop>),
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
        let (_, place) = self.without_user();
        place.split('/').next().unwrap_or(place)
    }

    /// Scheme, and host with what follows it.
    fn without_user(&self) -> (&str, &str) {
        let (scheme, rest) = self.url.split_once("://").unwrap_or(("", &self.url));
        (scheme, rest.rsplit('@').next().unwrap_or(rest))
    }

    pub(super) fn url(&self, build_id: &str, name: &str) -> String {
        format!("{}/buildid/{build_id}/{name}", self.url)
    }

    /// The same without user and password.
    pub(super) fn shown_url(&self, build_id: &str, name: &str) -> String {
        format!("{}/buildid/{build_id}/{name}", self.shown())
    }

    fn shown(&self) -> String {
        match self.without_user() {
            ("", place) => printable(place),
            (scheme, place) => printable(&format!("{scheme}://{place}")),
        }
    }

    /// Adds time that was lost on the server; too much of it ends its use.
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

    /// Notes a failure, once; a server that is given up is not asked again.
    pub(super) fn fail(&self, reason: String, given_up: bool) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        let was_alive = !self.is_dead.fetch_or(given_up, Ordering::Relaxed);
        // The reason for giving it up replaces earlier ones.
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
            client(&ClientLimits {
                connect: Some(options.connect_timeout),
                step: options.timeout,
                whole: options.max_time,
                max_redirects: MAX_REDIRECTS,
                proxy: options.proxy,
            })
        })
    }

    /// Downloads like [`Self::download`], for as long as `cancel` does not end it. The wait for a server cannot be
    /// ended, only left alone: it is on a thread of its own.
    pub(super) fn download_unless(
        self: &Arc<Self>,
        cancel: &Cancel,
        url: String,
        mut file: File,
        options: &DebuginfodOptions,
        progress: &mut dyn FnMut(u64, Option<u64>),
    ) -> Result<Option<SystemTime>, Stop> {
        let (sender, news) = mpsc::channel();
        let (server, options) = (Arc::clone(self), options.clone());
        let download = move || {
            // Nobody listens to what was left alone.
            let mut progress = |received, size| drop(sender.send(News::Progress(received, size)));
            let end = server.download(&url, &mut file, &options, &mut progress);
            drop(sender.send(News::End(end)));
        };
        let thread = thread::Builder::new().name("wcprof-download".to_owned());
        thread
            .spawn(download)
            .map_err(|e| Stop::Failed(format!("failed to start a thread: {e}")))?;
        loop {
            match news.recv_timeout(CANCEL_INTERVAL) {
                Ok(News::End(end)) => return end,
                _ if cancel.is_cancelled() => return Err(Stop::Cancelled),
                Ok(News::Progress(received, size)) => progress(received, size),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Stop::Failed("its download panicked".to_owned()));
                }
            }
        }
    }

    /// Downloads `url` to the empty `file`; gives when it was changed last on the server.
    fn download(
        &self,
        url: &str,
        file: &mut File,
        options: &DebuginfodOptions,
        progress: &mut dyn FnMut(u64, Option<u64>),
    ) -> Result<Option<SystemTime>, Stop> {
        let begin = Instant::now();
        let response = self.request(url, options, begin)?;
        let modified = response.headers().get("last-modified");
        let modified = modified.and_then(|date| parse_http_date(date.to_str().ok()?).ok());
        let size = response.body().content_length();
        let limit = match size {
            Some(size) => options.max_size.unwrap_or(size),
            None => options.max_size.unwrap_or(options.max_unknown_size),
        };
        if size.is_some_and(|size| size > limit) {
            return Err(too_large(size, Some(limit)));
        }
        let refused = |error: io::Error| Stop::Refused(error.to_string());
        check_free(file, size.unwrap_or(0)).map_err(refused)?;
        let mut body = response.into_body().into_reader();
        let mut buffer = vec![0; STEP];
        let mut received = 0_u64;
        let mut pace = Pace {
            begin,
            window: (begin, 0),
            reported: begin,
        };
        loop {
            let n = body
                .read(&mut buffer)
                .map_err(|error| stop(error.into(), begin, options))?;
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
            // Others write there, too.
            let left = size.map_or(0, |size| size.saturating_sub(received));
            check_free(file, left).map_err(refused)?;
            file.write_all(bytes)
                .map_err(|e| Stop::Refused(format!("failed to write it: {e}")))?;
            if pace.check(n as u64, options)? {
                progress(received, size);
            }
        }
        if let Some(size) = size.filter(|size| *size != received) {
            let reason = format!("it ended a file after {received} of {size} bytes");
            return Err(Stop::Failed(reason));
        }
        progress(received, Some(received));
        Ok(modified)
    }

    /// Asks for a file.
    fn request(
        &self,
        url: &str,
        options: &DebuginfodOptions,
        begin: Instant,
    ) -> Result<Response<Body>, Stop> {
        let mut request = self.agent(options).get(url);
        if let Some(max_size) = options.max_size {
            request = request.header("X-DEBUGINFOD-MAXSIZE", max_size.to_string());
        }
        let response = request
            .call()
            .map_err(|error| stop(error, begin, options))?;
        match response.status().as_u16() {
            200 => Ok(response),
            404 => Err(Stop::Missing),
            // What debuginfod answers when the file is larger than the request allows.
            406 if options.max_size.is_some() => Err(too_large(None, options.max_size)),
            status => {
                self.lost(begin.elapsed(), options);
                Err(Stop::Failed(format!("it answered with status {status}")))
            }
        }
    }
}

/// The times of a download.
struct Pace {
    begin: Instant,
    /// Start of the span in which [`MIN_BYTES`] must come, and the bytes that came in it.
    window: (Instant, u64),
    /// When progress was last reported.
    reported: Instant,
}

impl Pace {
    /// Counts `n` bytes; returns whether it is time to report the progress.
    fn check(&mut self, n: u64, options: &DebuginfodOptions) -> Result<bool, Stop> {
        let now = Instant::now();
        let has_passed = |since: Instant, span| now.duration_since(since) >= span;
        self.window.1 += n;
        if let Some(timeout) = options.timeout.filter(|t| has_passed(self.window.0, *t)) {
            if self.window.1 < MIN_BYTES {
                return Err(too_slow(timeout));
            }
            self.window = (now, 0);
        }
        if options
            .max_time
            .is_some_and(|max| has_passed(self.begin, max))
        {
            return Err(out_of_time(options));
        }
        let is_due = has_passed(self.reported, PROGRESS_INTERVAL);
        if is_due {
            self.reported = now;
        }
        Ok(is_due)
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

#[cfg(test)]
mod tests {
    use super::*;

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
        for (url, shown) in [
            ("http://host:secret@host/", "http://host"),
            ("ftp://me:secret@host/x", "ftp://host/x"),
            ("me:secret@host", "host"),
        ] {
            assert_eq!(Server::new(url).shown(), shown);
        }
    }
}
