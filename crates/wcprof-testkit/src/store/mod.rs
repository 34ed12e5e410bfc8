//! A profile store on loopback: it answers as the real ones do, or as it is told, and gives what it was sent.

mod messages;
mod request;
mod rules;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

pub use self::request::{StoreRequest, StoredProfile};
pub use self::rules::StoreRules;
use self::rules::{Judge, unpack};
use crate::proc::PATIENCE;

/// What the store does with a request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// Stores and answers what the store of its path would.
    AsReal,
    /// Stores what the store of its path would, and ends the connection without an answer.
    StoreAndLeave,
    /// Stores nothing, and answers with this status.
    Status(u16),
    /// Says nothing until the client has gone.
    Hang,
    /// Ends the connection.
    Leave,
}

/// A server on loopback that runs until this is dropped.
#[derive(Debug)]
pub struct TestStore {
    /// The address of the store: `http://127.0.0.1:PORT`.
    pub url: String,
    address: SocketAddr,
    requests: Receiver<StoreRequest>,
    open: OpenConnections,
    listening: Option<JoinHandle<()>>,
}

/// Connections that are open; `None` when no more are taken.
type OpenConnections = Arc<Mutex<Option<Vec<TcpStream>>>>;

/// What connections share.
struct SharedStore<N> {
    next: Arc<Mutex<N>>,
    judge: Arc<Mutex<Judge>>,
    sender: Sender<StoreRequest>,
}

impl TestStore {
    /// A store with the limits that Pyroscope is delivered with, which does with each request what `next` says.
    pub fn start(mut next: impl FnMut() -> Reply + Send + 'static) -> Self {
        Self::start_with(StoreRules::default(), 0, move |_| next())
    }

    /// A store with these limits, at a port, or at any free one (0), which does with each request what `next` says.
    pub fn start_with(
        rules: StoreRules,
        port: u16,
        next: impl FnMut(&StoreRequest) -> Reply + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("loopback");
        let address = listener.local_addr().expect("it is bound");
        let (sender, requests) = channel();
        let shared = SharedStore {
            next: Arc::new(Mutex::new(next)),
            judge: Arc::new(Mutex::new(Judge::new(rules))),
            sender,
        };
        let open: OpenConnections = Arc::new(Mutex::new(Some(Vec::new())));
        let all = Arc::clone(&open);
        let listening = thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut open = all.lock().unwrap_or_else(PoisonError::into_inner);
                let (Some(open), Ok(copy)) = (&mut *open, stream.try_clone()) else {
                    return;
                };
                open.push(copy);
                let shared = shared.clone();
                thread::spawn(move || shared.serve(&stream));
            }
        });
        Self {
            url: format!("http://{address}"),
            address,
            requests,
            open,
            listening: Some(listening),
        }
    }

    /// Ends it: gives the requests that are left, and the port, where another one can take its place.
    pub fn end(mut self) -> (Vec<StoreRequest>, u16) {
        self.close();
        // Until the last connection has ended.
        (self.requests.iter().collect(), self.address.port())
    }

    /// Takes no more connections, and breaks those that are there.
    fn close(&mut self) {
        let open = self
            .open
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        for stream in open.into_iter().flatten() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        // Wakes the one that waits for connections.
        let _ = TcpStream::connect(self.address);
        if let Some(listening) = self.listening.take() {
            let _ = listening.join();
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

impl Drop for TestStore {
    fn drop(&mut self) {
        self.close();
    }
}

impl<N> Clone for SharedStore<N> {
    fn clone(&self) -> Self {
        Self {
            next: Arc::clone(&self.next),
            judge: Arc::clone(&self.judge),
            sender: self.sender.clone(),
        }
    }
}

impl<N: FnMut(&StoreRequest) -> Reply> SharedStore<N> {
    fn judge(&self) -> MutexGuard<'_, Judge> {
        self.judge.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, mut stream: &TcpStream) {
        while let Some(mut request) = read(stream) {
            if request.path == "/ready" {
                let is_ready = self.judge().is_ready();
                let status = if is_ready { 200 } else { 503 };
                let answer = format!("HTTP/1.1 {status} Status\r\nContent-Length: 0\r\n\r\n");
                match stream.write_all(answer.as_bytes()) {
                    Ok(()) => continue,
                    Err(_) => return,
                }
            }
            let reply = (self.next.lock().expect("no test has panicked in it"))(&request);
            let mut said = String::new();
            match reply {
                Reply::AsReal | Reply::StoreAndLeave => {
                    (request.stored, request.status, said) = self.judge().judge(&request);
                }
                Reply::Status(status) => request.status = status,
                Reply::Hang | Reply::Leave => {}
            }
            if reply == Reply::StoreAndLeave {
                request.status = 0;
            }
            let answer = format!(
                "HTTP/1.1 {} Status\r\nContent-Length: {}\r\n\r\n{said}",
                request.status,
                said.len()
            );
            // The test may be over.
            let has_gone = self.sender.send(request).is_err();
            let goes_on = match reply {
                Reply::AsReal | Reply::Status(_) => stream.write_all(answer.as_bytes()).is_ok(),
                Reply::Hang => {
                    let _ = stream.read(&mut [0]);
                    false
                }
                Reply::Leave | Reply::StoreAndLeave => false,
            };
            if has_gone || !goes_on {
                return;
            }
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
    let length = headers
        .get("content-length")
        .map_or(Some(0), |length| length.parse().ok())?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    if headers
        .get("content-encoding")
        .is_some_and(|encoding| encoding == "gzip")
    {
        body = unpack(&body).expect("the body is gzipped");
    }
    Some(StoreRequest {
        path,
        headers,
        body,
        n_sent: length,
        ..StoreRequest::default()
    })
}
