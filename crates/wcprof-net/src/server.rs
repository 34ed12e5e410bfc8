//! Paths that others ask for by HTTP to texts: each connection has little time, and there are few at once.

use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Builder;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

/// Bytes of a request that are read.
const MAX_REQUEST: usize = 8 << 10;
/// For a request and its answer, however slowly they trickle.
const WHOLE: Duration = Duration::from_secs(2);
/// Connections that are served at once. The next one takes the place of all of them.
const AT_ONCE: usize = 32;
/// Time that these have before that. Askers send their request at once: a connection that was silent for this long has none.
const GRACE: Duration = Duration::from_millis(2);
/// Connections that the kernel holds until they are taken: where it holds no more, an asker tries again after a second. At most
/// `net.core.somaxconn`.
const BACKLOG: u32 = 4096;
/// Until the next try when no connection can be taken, since this process has too many descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Answers GET requests by what `text` has of their path, on a thread of its own, for ever. `begin` is called first on
/// that thread.
///
/// # Errors
/// When the thread cannot be started.
pub fn serve(
    listener: TcpListener,
    begin: impl FnOnce() + Send + 'static,
    text: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    listener.set_nonblocking(true)?;
    let listener = {
        let _context = runtime.enter();
        // The standard library lets 128 wait.
        let socket = std::net::TcpStream::from(OwnedFd::from(listener));
        TcpSocket::from_std_stream(socket).listen(BACKLOG)?
    };
    let thread = thread::Builder::new().name("wcprof-serve".to_owned());
    thread.spawn(move || {
        begin();
        runtime.block_on(accept(listener, Arc::new(text)));
    })?;
    Ok(())
}

async fn accept(
    listener: tokio::net::TcpListener,
    text: Arc<impl Fn(&str) -> Option<String> + Send + Sync + 'static>,
) {
    let mut served: Vec<AbortHandle> = Vec::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        served.retain(|task| !task.is_finished());
        if served.len() >= AT_ONCE {
            sleep(GRACE).await;
            // Whoever asks asks again.
            served.drain(..).for_each(|task| task.abort());
        }
        let text = Arc::clone(&text);
        let task = tokio::spawn(timeout(WHOLE, async move { answer(stream, &*text).await }));
        served.push(task.abort_handle());
    }
}

async fn answer(mut stream: TcpStream, text: &impl Fn(&str) -> Option<String>) -> io::Result<()> {
    let path = path(&mut stream).await?;
    let (status, body) = match path.map(|path| text(&path)) {
        Some(Some(body)) => ("200 OK", body),
        Some(None) => ("404 Not Found", String::new()),
        None => ("400 Bad Request", String::new()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).await?;
    stream.shutdown().await
}

/// What a GET request asks for; `None` for any other.
async fn path(stream: &mut TcpStream) -> io::Result<Option<String>> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let n = stream.read_buf(&mut head).await?;
        if n == 0 || head.len() > MAX_REQUEST {
            return Ok(None);
        }
    }
    let head = String::from_utf8_lossy(&head);
    let path = head
        .strip_prefix("GET ")
        .and_then(|rest| rest.split([' ', '?']).next());
    Ok(path.map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::time::Instant;

    use super::*;

    fn start() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let text = |path: &str| (path == "/there").then(|| "text\n".to_owned());
        serve(listener, || (), text).unwrap();
        address
    }

    fn ask(address: &str, request: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        // The answer to what is too long may come before its end.
        let _ = stream.write_all(request.as_bytes());
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    /// Check what is answered, also to what is no request.
    #[test]
    fn answers() {
        let address = start();
        let answer = ask(&address, "GET /there HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.ends_with("\r\n\r\ntext\n"), "{answer}");
        assert!(ask(&address, "GET /x HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
        assert!(ask(&address, "POST /there HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 400"));
        assert!(!ask(&address, &"x".repeat(20_000)).contains("200"));
    }

    /// Check that askers who say nothing, or a byte now and then, are cut off before they have sent what may be sent,
    /// and that others are answered.
    #[test]
    fn slow_askers() {
        let address = start();
        let silent: Vec<_> = (0..AT_ONCE)
            .map(|_| TcpStream::connect(&address).unwrap())
            .collect();
        let mut trickling = TcpStream::connect(&address).unwrap();
        let answer = ask(&address, "GET /there HTTP/1.1\r\n\r\n");
        assert!(answer.ends_with("text\n"), "{answer}");
        let mut n_sent = 0;
        while trickling.write_all(b"x").is_ok() {
            n_sent += 1;
            assert!(n_sent < MAX_REQUEST, "still taken");
            thread::sleep(Duration::from_millis(20));
        }
        drop(silent);
    }

    /// Ten thousand connections, or as many as this process may have beside its other files.
    fn n_silent() -> usize {
        let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
        let mut lines = limits.lines();
        let files = lines.find_map(|line| line.strip_prefix("Max open files"));
        let soft = files.and_then(|line| line.split_whitespace().next());
        let soft = soft.and_then(|limit| limit.parse().ok());
        soft.unwrap_or(usize::MAX).saturating_sub(300).min(10_000)
    }

    /// Check that askers who say nothing make way for one who asks, however many they are: each of them may be silent for
    /// seconds where there is room.
    #[test]
    fn many_silent_askers() {
        let address = start();
        let began = Instant::now();
        let silent: Vec<_> = (0..n_silent())
            .map(|_| TcpStream::connect(&address).unwrap())
            .collect();
        let answer = ask(&address, "GET /there HTTP/1.1\r\n\r\n");
        assert!(answer.ends_with("text\n"), "{answer}");
        let by_turns = WHOLE * (silent.len() / AT_ONCE) as u32;
        assert!(began.elapsed() < by_turns / 2, "{:?}", began.elapsed());
    }
}
