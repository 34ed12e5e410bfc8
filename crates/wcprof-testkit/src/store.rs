//! A profile store on loopback: it answers as it is told, and gives what it was sent.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use flate2::read::GzDecoder;

use crate::proc::PATIENCE;

/// What it does with a request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// Answers with this status.
    Status(u16),
    /// Says nothing until the client has gone.
    Hang,
    /// Ends the connection.
    Leave,
}

/// The rate limit of a tenant, as Pyroscope's distributor has it (`pkg/distributor`, `rateLimit`): a bucket of bytes, from which
/// each series takes its own or is refused alone.
#[derive(Debug)]
pub struct RateLimit {
    /// Bytes a second.
    rate: f64,
    burst: f64,
    left: f64,
    at: Instant,
}

impl RateLimit {
    /// A full bucket.
    pub fn new(rate: f64, burst: f64) -> Self {
        Self {
            rate,
            burst,
            left: burst,
            at: Instant::now(),
        }
    }

    /// Whether a series with these bytes is taken.
    pub fn takes(&mut self, n_bytes: usize) -> bool {
        let now = Instant::now();
        let since = now.duration_since(std::mem::replace(&mut self.at, now));
        self.left = (self.left + since.as_secs_f64() * self.rate).min(self.burst);
        let takes = self.left >= n_bytes as f64;
        if takes {
            self.left -= n_bytes as f64;
        }
        takes
    }
}

/// A server that runs until the test ends.
#[derive(Debug)]
pub struct TestStore {
    /// Where it is.
    pub url: String,
    requests: Receiver<StoreRequest>,
}

/// What it was sent, not compressed.
#[derive(Clone, Debug, Default)]
pub struct StoreRequest {
    /// Below its URL.
    pub path: String,
    /// Names in lower case.
    pub headers: BTreeMap<String, String>,
    /// Whatever it is.
    pub body: Vec<u8>,
    /// What it answered; 0 for nothing.
    pub status: u16,
}

/// A profile of a request to Pyroscope.
#[derive(Clone, Debug, Default)]
pub struct PushedPprof {
    /// By name.
    pub labels: BTreeMap<String, String>,
    /// A message of pprof.
    pub pprof: Vec<u8>,
    /// The agent gives each profile a new one; others may give none.
    pub id: Vec<u8>,
}

impl TestStore {
    /// Asks `next` what to do with each request.
    pub fn start(mut next: impl FnMut() -> Reply + Send + 'static) -> Self {
        Self::start_at(0, move |_| next())
    }

    /// Asks `next` what to do with each request, at a port, or at any free one (0).
    pub fn start_at(port: u16, next: impl FnMut(&StoreRequest) -> Reply + Send + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("loopback");
        let address = listener.local_addr().expect("it is bound");
        let (sender, requests) = channel();
        let next = Arc::new(Mutex::new(next));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (sender, next) = (sender.clone(), Arc::clone(&next));
                let next = move |request: &StoreRequest| {
                    (next.lock().expect("no test has panicked in it"))(request)
                };
                thread::spawn(move || serve(&stream, &sender, next));
            }
        });
        Self {
            url: format!("http://{address}"),
            requests,
        }
    }

    /// The next request.
    #[track_caller]
    pub fn next(&self) -> StoreRequest {
        let request = self.requests.recv_timeout(PATIENCE);
        request.expect("no request came")
    }

    /// The next request, if it comes within this time.
    pub fn next_within(&self, time: Duration) -> Option<StoreRequest> {
        self.requests.recv_timeout(time).ok()
    }
}

fn serve(
    mut stream: &TcpStream,
    sender: &Sender<StoreRequest>,
    mut next: impl FnMut(&StoreRequest) -> Reply,
) {
    while let Some(mut request) = read(stream) {
        let reply = next(&request);
        if let Reply::Status(status) = reply {
            request.status = status;
        }
        let head = format!(
            "HTTP/1.1 {} Status\r\nContent-Length: 0\r\n\r\n",
            request.status
        );
        // The test may be over.
        let has_gone = sender.send(request).is_err();
        let goes_on = match reply {
            Reply::Status(_) => stream.write_all(head.as_bytes()).is_ok(),
            Reply::Hang => {
                let _ = stream.read(&mut [0]);
                false
            }
            Reply::Leave => false,
        };
        if has_gone || !goes_on {
            return;
        }
    }
}

fn read(mut stream: &TcpStream) -> Option<StoreRequest> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.extend(byte);
    }
    let head = String::from_utf8(head).expect("a head is text");
    let mut lines = head.lines();
    let path = lines.next()?.split(' ').nth(1)?.to_owned();
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers: BTreeMap<String, String> = headers
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let length = headers.get("content-length")?.parse().ok()?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    if headers
        .get("content-encoding")
        .is_some_and(|encoding| encoding == "gzip")
    {
        let mut plain = Vec::new();
        let read = GzDecoder::new(&*body).read_to_end(&mut plain);
        read.expect("the body is gzipped");
        body = plain;
    }
    Some(StoreRequest {
        path,
        headers,
        body,
        status: 0,
    })
}

impl StoreRequest {
    /// The profiles of `push.v1.PushRequest`, by its documented field numbers.
    pub fn pushed(&self) -> Vec<PushedPprof> {
        let series = fields(&self.body).into_iter();
        let profiles = series.map(|(number, series)| {
            assert_eq!(number, 1, "series");
            let mut pushed = PushedPprof::default();
            for (number, value) in fields(series) {
                let of_value = fields(value);
                match number {
                    1 => {
                        let text = |at: usize| String::from_utf8(of_value[at].1.to_vec());
                        let label = [text(0), text(1)].map(|text| text.expect("labels are text"));
                        let [name, value] = label;
                        assert_eq!(pushed.labels.insert(name, value), None);
                    }
                    2 => {
                        pushed.pprof = of_value[0].1.to_vec();
                        pushed.id = of_value.get(1).map_or_else(Vec::new, |id| id.1.to_vec());
                    }
                    other => panic!("field {other} of a series"),
                }
            }
            pushed
        });
        profiles.collect()
    }
}

/// The fields of a message that have a length: number and content.
fn fields(mut bytes: &[u8]) -> Vec<(u8, &[u8])> {
    let mut all = Vec::new();
    while let [tag, rest @ ..] = bytes {
        assert_eq!(tag & 7, 2, "a field with a length");
        let n = rest.iter().take_while(|byte| **byte >= 128).count();
        let digits = rest[..=n].iter().rev();
        let len = digits.fold(0, |sum, byte| sum << 7 | usize::from(byte & 127));
        let rest = &rest[n + 1..];
        all.push((tag >> 3, &rest[..len]));
        bytes = &rest[len..];
    }
    all
}
