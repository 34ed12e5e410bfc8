//! Messages to bytes on a socket, and back: a length, a JSON document, and perhaps a descriptor.

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Bytes that a document is read in: it is believed as far as it has come.
const STEP: usize = 1 << 20;

/// Sends a message, and a descriptor with it.
///
/// # Errors
/// When the other side has ended, or the message is larger than 4 GiB.
pub fn send(
    mut socket: &UnixStream,
    message: &impl Serialize,
    file: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let document = serde_json::to_vec(message)?;
    let length = u32::try_from(document.len()).map_err(|_| ErrorKind::FileTooLarge)?;
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if file.is_some() {
        control.push(SendAncillaryMessage::ScmRights(file.as_slice()));
    }
    let length = length.to_le_bytes();
    let sent = sendmsg(
        socket,
        &[IoSlice::new(&length)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    // The descriptor went with the first byte.
    socket.write_all(length.get(sent..).unwrap_or_default())?;
    socket.write_all(&document)
}

/// Receives a message whose document has at most `limit` bytes, and the descriptor that came with it; `None`
/// when the other side has ended. `on_read` is called before the document is parsed.
///
/// # Errors
/// When the message is larger, is none, or is cut short.
pub fn receive<T: DeserializeOwned>(
    mut socket: &UnixStream,
    limit: u64,
    on_read: impl FnOnce(),
) -> io::Result<Option<(T, Option<File>)>> {
    let mut length = [0; 4];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut length)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let n = recvmsg(socket.as_fd(), &mut parts, &mut control, flags)?.bytes;
    if n == 0 {
        return Ok(None);
    }
    let file = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    socket.read_exact(length.get_mut(n..).unwrap_or_default())?;
    let length = u32::from_le_bytes(length);
    if u64::from(length) > limit {
        let text = format!("a message of {length} bytes, the limit is {limit}");
        return Err(io::Error::new(ErrorKind::InvalidData, text));
    }
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let mut document = Vec::new();
    while document.len() < length {
        let begin = document.len();
        document.resize(length.min(begin + STEP.max(begin)), 0);
        socket.read_exact(document.get_mut(begin..).unwrap_or_default())?;
    }
    on_read();
    let message = serde_json::from_slice(&document)?;
    Ok(Some((message, file.map(File::from))))
}

/// Receives as [`receive`] does, where the other side must not end.
///
/// # Errors
/// Those of [`receive`], and `UnexpectedEof` when the other side has ended.
pub fn expect<T: DeserializeOwned>(
    socket: &UnixStream,
    limit: u64,
) -> io::Result<(T, Option<File>)> {
    receive(socket, limit, || ())?.ok_or_else(|| ErrorKind::UnexpectedEof.into())
}

#[cfg(test)]
mod tests {
    use std::io::Seek;

    use super::*;

    /// Check that a message and its descriptor arrive, also a large one, and that the end is seen.
    #[test]
    fn round_trip() {
        let (a, b) = UnixStream::pair().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"text").unwrap();
        let large = "x".repeat(3 << 20);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                send(&a, &"first", Some(file.as_fd())).unwrap();
                send(&a, &large, None).unwrap();
                drop(a);
            });
            let (text, received) = expect::<String>(&b, 100).unwrap();
            assert_eq!(text, "first");
            let mut received = received.unwrap();
            received.rewind().unwrap();
            assert_eq!(io::read_to_string(received).unwrap(), "text");
            let (text, none) = expect::<String>(&b, 4 << 20).unwrap();
            assert!(text == large && none.is_none());
            assert!(receive::<String>(&b, 100, || ()).unwrap().is_none());
        });
    }

    /// Check that a length beyond the limit is refused, and that a length that lies reserves no memory.
    #[test]
    fn lengths_that_lie() {
        let (mut a, b) = UnixStream::pair().unwrap();
        a.write_all(&u32::MAX.to_le_bytes()).unwrap();
        let error = expect::<String>(&b, 1 << 20).unwrap_err();
        assert!(
            error.to_string().contains("the limit is 1048576"),
            "{error}"
        );
        let (mut a, b) = UnixStream::pair().unwrap();
        a.write_all(&u32::MAX.to_le_bytes()).unwrap();
        drop(a);
        let error = expect::<String>(&b, u64::MAX).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    }
}
