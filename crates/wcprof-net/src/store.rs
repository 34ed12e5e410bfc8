//! A request to the answer of a profile store, and what is to be done about it.
//!
//! A store adds up what it gets: a request that is sent twice counts twice. So only what cannot have been stored is sent
//! again.

use std::fmt;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use base64::prelude::{BASE64_STANDARD, Engine};
use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;
use thiserror::Error;
use ureq::http::{HeaderMap, StatusCode};
use ureq::{Agent, SendBody};
use wcprof_text::terminal_name;

use crate::client::{ClientLimits, client};
use crate::said::{advice, said};

/// Bytes of an answer that are read; more is an error of the server.
const MAX_ANSWER: u64 = 64 << 10;
/// Bytes of a file with a token or a password.
const MAX_SECRET: u64 = 64 << 10;

/// How a store takes profiles.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum StoreKind {
    /// Grafana Pyroscope and Alloy: `push.v1`.
    Pyroscope,
    /// Parca: `writeraw` of its HTTP gateway, which reads JSON alone.
    Parca,
    /// OpenTelemetry's profiles signal, which is alpha.
    Otlp,
}

impl StoreKind {
    /// Every value.
    pub const ALL: [Self; 3] = [Self::Pyroscope, Self::Parca, Self::Otlp];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pyroscope => "pyroscope",
            Self::Parca => "parca",
            Self::Otlp => "otlp",
        }
    }

    /// Where it takes them, below its URL.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Pyroscope => "/push.v1.PusherService/Push",
            Self::Parca => "/api/profiles/writeraw",
            Self::Otlp => "/v1development/profiles",
        }
    }

    const fn content_type(self) -> &'static str {
        match self {
            Self::Pyroscope => "application/proto",
            Self::Parca => "application/json",
            Self::Otlp => "application/x-protobuf",
        }
    }

    /// Whether its requests are compressed whole. Parca's gateway does not unpack them.
    const fn is_compressed(self) -> bool {
        !matches!(self, Self::Parca)
    }

    /// A request as it is sent.
    ///
    /// # Panics
    /// Never: it is compressed in memory.
    pub fn pack(self, request: Vec<u8>) -> Vec<u8> {
        if !self.is_compressed() {
            return request;
        }
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        let packed = encoder.write_all(&request).and_then(|()| encoder.finish());
        packed.expect("memory takes all that is written to it")
    }
}

/// A password or token, which no output shows.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    /// Itself.
    Text(String),
    /// The file that it is in, which is read for each request: others may replace it.
    File(PathBuf),
}

impl Secret {
    fn read(&self) -> Result<String, String> {
        let path = match self {
            Self::Text(text) => return Ok(text.clone()),
            Self::File(path) => path,
        };
        let mut text = String::new();
        let read = std::fs::File::open(path)
            .and_then(|file| file.take(MAX_SECRET).read_to_string(&mut text));
        match read {
            Ok(_) => Ok(text.trim().to_owned()),
            Err(error) => Err(format!("failed to read `{}`: {error}", path.display())),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(_) => f.write_str("Text(..)"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

/// Who the store believes wcprof to be.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Credentials {
    /// Anybody.
    #[default]
    None,
    /// `Authorization: Basic`.
    Basic(String, Secret),
    /// `Authorization: Bearer`.
    Bearer(Secret),
}

impl Credentials {
    fn header(&self) -> Result<Option<String>, String> {
        Ok(match self {
            Self::None => None,
            Self::Basic(user, password) => {
                let pair = format!("{user}:{}", password.read()?);
                Some(format!("Basic {}", BASE64_STANDARD.encode(pair)))
            }
            Self::Bearer(token) => Some(format!("Bearer {}", token.read()?)),
        })
    }
}

/// What a store is reached by.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// `http` or `https`, host and perhaps a port and a path.
    pub url: String,
    /// What it takes.
    pub kind: StoreKind,
    /// Who asks.
    pub credentials: Credentials,
    /// `X-Scope-OrgID`: whose profiles they are, where several share a store.
    pub tenant: Option<String>,
    /// What it is waited for.
    pub limits: ClientLimits,
}

impl StoreOptions {
    /// Without credentials, with limits for a store on any network.
    pub fn new(url: &str, kind: StoreKind) -> Self {
        Self {
            url: url.to_owned(),
            kind,
            credentials: Credentials::None,
            tenant: None,
            limits: ClientLimits {
                connect: Some(Duration::from_secs(5)),
                step: Some(Duration::from_secs(15)),
                whole: Some(Duration::from_secs(30)),
                // A request with a password follows nobody elsewhere.
                max_redirects: 0,
                proxy: true,
            },
        }
    }
}

/// Why a store cannot be used at all.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum StoreError {
    /// The URL is none.
    #[error("`{0}` is no URL of a store: it must begin with http:// or https:// and name a host")]
    Url(String),
    /// The URL holds a user or a password, which everybody sees who lists processes.
    #[error("the URL of the store holds a user or password: use the options for these")]
    UserInUrl,
}

/// What became of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The store has it.
    Taken,
    /// The store has it, but for some profiles, which are lost; or it has something to say of it (OTLP's `partial_success`).
    Partly {
        /// How many it has not taken; 0 for a warning.
        n_rejected: u64,
        /// Harmless.
        reason: String,
    },
    /// It did not reach the store, or the store has none of it and may take it later.
    Later {
        /// Why not now; harmless.
        reason: String,
        /// When it wants to be asked again.
        after: Option<Duration>,
    },
    /// The store does not know wcprof: 401 or 403. It may later.
    NoEntry {
        /// Harmless.
        reason: String,
    },
    /// The store will never take it, and has none of it.
    Refused {
        /// Harmless.
        reason: String,
    },
    /// The store has a part of it, and will never take the rest. What comes next may be taken.
    InPart {
        /// Harmless.
        reason: String,
    },
    /// The store may have it, or a part of it.
    Unsure {
        /// Harmless.
        reason: String,
    },
}

/// A profile store.
#[derive(Debug)]
pub struct Store {
    agent: Agent,
    url: String,
    options: StoreOptions,
}

impl Store {
    /// Connects to nothing yet.
    ///
    /// # Errors
    /// When the URL is none.
    pub fn new(options: StoreOptions) -> Result<Self, StoreError> {
        let base = options.url.trim_end_matches('/');
        let rest = ["http://", "https://"]
            .iter()
            .find_map(|scheme| base.strip_prefix(scheme));
        let authority = rest.and_then(|rest| rest.split(['/', '?', '#']).next());
        match authority {
            Some(authority) if authority.contains('@') => return Err(StoreError::UserInUrl),
            Some(authority) if !authority.is_empty() => {}
            _ => return Err(StoreError::Url(terminal_name(&options.url).into_owned())),
        }
        Ok(Self {
            agent: client(&options.limits),
            url: format!("{base}{}", options.kind.path()),
            options,
        })
    }

    /// Where requests go.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What it takes.
    pub fn kind(&self) -> StoreKind {
        self.options.kind
    }

    /// Why a store that failed before is better not sent anything yet: one that starts may answer 500, which says nothing of
    /// what it has. `None` where it is ready, or does not say.
    pub fn not_ready(&self) -> Option<Answer> {
        if self.options.kind != StoreKind::Pyroscope {
            return None;
        }
        let base = self.url.strip_suffix(self.options.kind.path())?;
        let response = match self.agent.get(&format!("{base}/ready")).call() {
            Ok(response) => response,
            Err(error) => return Some(broken(&error, false, &self.options.limits)),
        };
        let (head, body) = response.into_parts();
        // A gateway may know no such path.
        if head.status != StatusCode::SERVICE_UNAVAILABLE {
            return None;
        }
        let body = body.into_with_config().limit(MAX_ANSWER).read_to_vec();
        let text = said(&body.unwrap_or_default());
        Some(Answer::Later {
            reason: format!("it is not ready: {text}"),
            after: None,
        })
    }

    /// Sends a [packed](StoreKind::pack) request.
    pub fn send(&self, request: &[u8]) -> Answer {
        let kind = self.options.kind;
        let mut post = self.agent.post(&self.url);
        post = post.header("Content-Type", kind.content_type());
        if kind.is_compressed() {
            post = post.header("Content-Encoding", "gzip");
        }
        if let Some(tenant) = &self.options.tenant {
            post = post.header("X-Scope-OrgID", tenant);
        }
        match self.options.credentials.header() {
            Ok(Some(header)) => post = post.header("Authorization", header),
            Ok(None) => {}
            Err(reason) => return Answer::NoEntry { reason },
        }
        post = post.header("Content-Length", request.len());
        let mut unsent = request;
        let response = match post.send(SendBody::from_reader(&mut unsent)) {
            Ok(response) => response,
            Err(error) => return broken(&error, unsent.is_empty(), &self.options.limits),
        };
        let (head, body) = response.into_parts();
        let body = body.into_with_config().limit(MAX_ANSWER).read_to_vec();
        if head.status.is_success() {
            return match body {
                Ok(body) if is_page(&head.headers, &body) => Answer::Later {
                    reason: format!("status {}: {}", head.status, said(&body)),
                    after: None,
                },
                Ok(body) if kind == StoreKind::Otlp => partly(&body).unwrap_or(Answer::Taken),
                Ok(_) => Answer::Taken,
                Err(error) => broken(&error, true, &self.options.limits),
            };
        }
        refusal(kind, head.status, &head.headers, &body.unwrap_or_default())
    }
}

/// Whether an answer is for a browser: that of a login, or of a user interface.
fn is_page(headers: &HeaderMap, body: &[u8]) -> bool {
    let kind = headers.get("content-type");
    let is_html = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/html"));
    is_html || body.trim_ascii_start().starts_with(b"<!")
}

/// An error on the way. A store that has got a whole request may have stored it.
fn broken(error: &ureq::Error, is_sent: bool, limits: &ClientLimits) -> Answer {
    let seconds = |time: Option<Duration>| time.unwrap_or_default().as_secs_f64();
    let reason = match error {
        ureq::Error::Timeout(ureq::Timeout::Resolve | ureq::Timeout::Connect) => {
            format!("no connection within {} s", seconds(limits.connect))
        }
        ureq::Error::Timeout(ureq::Timeout::PerCall) => {
            format!("no whole answer within {} s", seconds(limits.whole))
        }
        ureq::Error::Timeout(_) => format!("nothing came for {} s", seconds(limits.step)),
        ureq::Error::HostNotFound => "its host was not found".to_owned(),
        ureq::Error::BodyExceedsLimit(n) => format!("its answer is longer than {n} bytes"),
        error => {
            let text = said(error.to_string().as_bytes());
            match advice(0, &text) {
                "" => text,
                advice => format!("{text}: {advice}"),
            }
        }
    };
    match is_sent {
        true => Answer::Unsure { reason },
        false => Answer::Later {
            reason,
            after: None,
        },
    }
}

/// `ExportProfilesServiceResponse` of OTLP.
#[derive(Clone, PartialEq, prost::Message)]
struct OtlpResponse {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<OtlpPartialSuccess>,
}

/// `ExportProfilesPartialSuccess` of OTLP.
#[derive(Clone, PartialEq, prost::Message)]
struct OtlpPartialSuccess {
    #[prost(int64, tag = "1")]
    rejected_profiles: i64,
    #[prost(string, tag = "2")]
    error_message: String,
}

/// Profiles of a request, which is of one process: CPU time, wall-clock time, samples, time off CPUs. A collector cannot have rejected more.
const MAX_REJECTED: u64 = 4;

/// What a collector says beside its success; nothing if that is no message.
fn partly(body: &[u8]) -> Option<Answer> {
    let part = OtlpResponse::decode(body).ok()?.partial_success?;
    let n_rejected = u64::try_from(part.rejected_profiles).unwrap_or(0);
    let n_rejected = n_rejected.min(MAX_REJECTED);
    let reason = said(part.error_message.as_bytes());
    (n_rejected > 0 || !reason.is_empty()).then_some(Answer::Partly { n_rejected, reason })
}

/// An answer that is no success. `docs/agent.md` has the table of what is done, and why.
fn refusal(kind: StoreKind, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Answer {
    let text = said(body);
    let mut reason = format!("status {status}");
    for part in [&*text, advice(status.as_u16(), &text)] {
        if !part.is_empty() {
            reason = format!("{reason}: {part}");
        }
    }
    match status.as_u16() {
        401 | 403 => Answer::NoEntry { reason },
        // Some of a request's series are stored before the first one that is too many.
        429 if text.to_lowercase().contains("series limit") => Answer::InPart { reason },
        // Pyroscope checks the rate of each profile of a request alone, and takes the others.
        429 if kind == StoreKind::Otlp && text.contains("push series") => Answer::Unsure { reason },
        // Nothing takes profiles there: it never reached a store.
        300..=399 | 404 | 405 | 408 | 425 | 429 | 502 | 503 => {
            let after = headers.get("retry-after");
            let after = after.and_then(|after| wait(after.to_str().ok()?.trim()));
            Answer::Later { reason, after }
        }
        500.. => Answer::Unsure { reason },
        _ => Answer::Refused { reason },
    }
}

/// `Retry-After`: seconds, or a date (RFC 9110, section 10.2.3).
fn wait(after: &str) -> Option<Duration> {
    if let Ok(seconds) = after.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(after).ok()?;
    Some(date.duration_since(SystemTime::now()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that URLs get the path of their store, that what is no URL is refused, and that no password is shown.
    #[test]
    fn urls() {
        let url = |url: &str, kind| {
            let store = Store::new(StoreOptions::new(url, kind))?;
            Ok(store.url().to_owned())
        };
        assert_eq!(
            url("http://host:4040/", StoreKind::Pyroscope).unwrap(),
            "http://host:4040/push.v1.PusherService/Push"
        );
        assert_eq!(
            url("https://host/sub", StoreKind::Otlp).unwrap(),
            "https://host/sub/v1development/profiles"
        );
        for bad in ["", "host:4040", "ftp://host", "http://", "https:///x"] {
            assert!(
                matches!(url(bad, StoreKind::Parca), Err(StoreError::Url(_))),
                "{bad}"
            );
        }
        let error = url("https://me:hush@host", StoreKind::Parca).unwrap_err();
        assert_eq!(error, StoreError::UserInUrl);
        assert!(!error.to_string().contains("hush"));
        let secret = Credentials::Bearer(Secret::Text("hush".into()));
        assert!(!format!("{secret:?}").contains("hush"));
    }

    /// Check what is done about each answer of the table in `docs/agent.md`.
    #[test]
    fn answers() {
        let kind = |store, status: u16, text: &str| {
            let status = StatusCode::from_u16(status).unwrap();
            match refusal(store, status, &HeaderMap::new(), text.as_bytes()) {
                Answer::Later { .. } => "later",
                Answer::NoEntry { .. } => "no entry",
                Answer::Refused { .. } => "refused",
                Answer::InPart { .. } => "in part",
                Answer::Unsure { .. } => "unsure",
                other => panic!("{other:?}"),
            }
        };
        let message = |text: &str| format!(r#"{{"code":"resource_exhausted","message":"{text}"}}"#);
        let rate = message("push rate limit (4.0 MiB) exceeded while adding 1.2 MiB");
        let series = message("Maximum active series limit exceeded (5001/5000), reduce the number");
        for (status, text, expected) in [
            (429, &*rate, "later"),
            (429, &*series, "in part"),
            (400, "profile with invalid time", "refused"),
            (413, "", "refused"),
            (401, "no org id", "no entry"),
            (403, "", "no entry"),
            (301, "", "later"),
            (404, "404 page not found", "later"),
            (500, "", "unsure"),
            (502, "", "later"),
            (503, "", "later"),
            (504, "", "unsure"),
        ] {
            for store in [StoreKind::Pyroscope, StoreKind::Otlp] {
                assert_eq!(kind(store, status, text), expected, "{status} {text}");
            }
        }
        let part = "push series with index 1 failed: push rate limit (4.0 MiB) exceeded";
        assert_eq!(kind(StoreKind::Otlp, 429, part), "unsure");
        assert_eq!(kind(StoreKind::Pyroscope, 429, part), "later");
        let mut headers = HeaderMap::new();
        for (after, seconds) in [("7", 7), ("Thu, 01 Jan 1970 00:00:00 GMT", 0)] {
            headers.insert("retry-after", after.parse().unwrap());
            let status = StatusCode::SERVICE_UNAVAILABLE;
            let answer = refusal(StoreKind::Parca, status, &headers, b"");
            let wait = Some(Duration::from_secs(seconds));
            assert!(
                matches!(answer, Answer::Later { after, .. } if after == wait),
                "{answer:?}"
            );
        }
    }

    /// Check what is read of a collector's answer, and that one that is none, or lies, is harmless.
    #[test]
    fn partial_success() {
        let body = |rejected_profiles, text: &str| {
            let said = OtlpPartialSuccess {
                rejected_profiles,
                error_message: text.to_owned(),
            };
            let response = OtlpResponse {
                partial_success: Some(said),
            };
            partly(&response.encode_to_vec())
        };
        let answer = |n_rejected, reason: &str| {
            let reason = reason.to_owned();
            Some(Answer::Partly { n_rejected, reason })
        };
        assert_eq!(body(2, "too old"), answer(2, "too old"));
        assert_eq!(body(i64::MAX, "lies"), answer(MAX_REJECTED, "lies"));
        assert_eq!(body(0, "slow down"), answer(0, "slow down"));
        assert_eq!(body(-1, ""), None);
        let long = body(1, &"\x1b[2J".repeat(1000));
        let Some(Answer::Partly { reason, .. }) = long else {
            panic!("{long:?}")
        };
        assert!(!reason.contains('\x1b'));
        // By the field numbers of the specification.
        assert_eq!(partly(b"\x0a\x05\x08\x02\x12\x01x"), answer(2, "x"));
        for none in [&b""[..], b"{}", b"\x0a\xff\xff\xff\xff\x0f", b"<html>"] {
            assert_eq!(partly(none), None, "{none:?}");
        }
    }
}
