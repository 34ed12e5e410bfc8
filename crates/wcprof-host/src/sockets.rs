//! The inode in a descriptor's link to the addresses of its socket, from the tables in
//! `/proc/PID/net` of the target's own network namespace (`net/ipv4/tcp_ipv4.c`,
//! `net/unix/af_unix.c`).
//!
//! The kernel walks all sockets of the namespace for each reading, which on a busy host takes
//! long. So it is read when a socket is not known, never by the sampler, and less often the longer it
//! takes.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use wcprof_types::Pid;

use crate::procfs::{live_folder, open};

/// Bytes read of one table.
const MAX_BYTES: u64 = 16 << 20;
/// Sockets remembered.
const MAX_SOCKETS: usize = 1 << 16;
/// Sockets of one process on which it listens.
const MAX_LISTENING: usize = 64;
/// Longer paths are cut.
const MAX_PATH: usize = 200;
/// The tables are not read again sooner than this.
const MIN_PAUSE: Duration = Duration::from_secs(1);
/// Nor sooner than this many times what the last reading took.
const PAUSE_FACTOR: u32 = 100;
/// A number can be given to another socket: names are read again after this long.
const TRUST: Duration = Duration::from_secs(60);

/// Sockets of one process by inode.
#[derive(Debug)]
pub struct SocketNames {
    pid: Pid,
    names: HashMap<u64, String>,
    read_at: Option<Instant>,
    not_before: Option<Instant>,
}

impl SocketNames {
    /// Reads nothing yet.
    pub fn new(pid: Pid) -> Self {
        Self {
            pid,
            names: HashMap::new(),
            read_at: None,
            not_before: None,
        }
    }

    /// The name of a socket by its descriptor's link, `socket:[123]`: `tcp 10.0.0.1:6800 ->
    /// 10.0.0.2:40112`, `tcp 0.0.0.0:80 (listening)`, `unix /run/x.sock`. `None` while it is not
    /// known.
    pub fn name(&mut self, link: &str) -> Option<&str> {
        let inode = inode(link)?;
        let is_old = self.read_at.is_some_and(|at| at.elapsed() > TRUST);
        if is_old || !self.names.contains_key(&inode) {
            self.read();
        }
        self.names.get(&inode).map(String::as_str)
    }

    fn read(&mut self) {
        let begin = Instant::now();
        if self.not_before.is_some_and(|time| begin < time) {
            return;
        }
        self.names.clear();
        for protocol in ["tcp", "udp"] {
            self.read_table(protocol, |line| inet_line(line, protocol));
            self.read_table(&format!("{protocol}6"), |line| inet_line(line, protocol));
        }
        self.read_table("unix", unix_line);
        let pause = (begin.elapsed() * PAUSE_FACTOR).max(MIN_PAUSE);
        self.read_at = Some(begin);
        self.not_before = Some(Instant::now() + pause);
    }

    fn read_table(&mut self, table: &str, parse: impl Fn(&str) -> Option<(u64, String)>) {
        for_each_line(self.pid, table, |line| {
            self.names.extend(parse(line));
            self.names.len() < MAX_SOCKETS
        });
    }
}

/// The lines of a table, until `each` gives false. A table that cannot be read has none.
fn for_each_line(pid: Pid, table: &str, mut each: impl FnMut(&str) -> bool) {
    let Ok(file) = open(format!("{}/net/{table}", live_folder(pid))) else {
        return;
    };
    let mut lines = BufReader::with_capacity(1 << 16, file.take(MAX_BYTES));
    let mut line = Vec::new();
    while matches!(lines.read_until(b'\n', &mut line), Ok(1..)) {
        if !each(&String::from_utf8_lossy(&line)) {
            return;
        }
        line.clear();
    }
}

/// Paths of the UNIX sockets on which a process listens, as it bound them; without abstract ones.
///
/// # Errors
/// When its descriptors may not be read.
pub(crate) fn listening_paths(pid: Pid) -> io::Result<Vec<String>> {
    let mut own = HashSet::new();
    for entry in fs::read_dir(format!("{}/fd", live_folder(pid)))? {
        let link = entry.and_then(|entry| fs::read_link(entry.path()));
        // One that was closed meanwhile.
        let Ok(link) = link else { continue };
        own.extend(inode(&link.to_string_lossy()));
    }
    let mut paths = Vec::new();
    for_each_line(pid, "unix", |line| {
        if let Some(socket) = UnixSocket::parse(line)
            && socket.listens
            && own.contains(&socket.inode)
            && !socket.path.is_empty()
            && !socket.path.starts_with('@')
        {
            paths.push(socket.path.to_owned());
        }
        paths.len() < MAX_LISTENING
    });
    Ok(paths)
}

/// Of `socket:[123]`.
fn inode(link: &str) -> Option<u64> {
    let number = link.strip_prefix("socket:[")?.strip_suffix(']')?;
    number.parse().ok().filter(|&inode| inode != 0)
}

/// `sl local_address rem_address st tx:rx tr:tm retrnsmt uid timeout inode ...`
fn inet_line(line: &str, protocol: &str) -> Option<(u64, String)> {
    let mut fields = line.split_ascii_whitespace();
    let local = address(fields.nth(1)?)?;
    let remote = address(fields.next()?)?;
    let state = fields.next()?;
    let inode = fields.nth(5)?.parse().ok().filter(|&inode| inode != 0)?;
    let name = match (state, remote.port()) {
        // TCP_LISTEN
        ("0A", _) if protocol == "tcp" => format!("{protocol} {local} (listening)"),
        (_, 0) => format!("{protocol} {local}"),
        _ => format!("{protocol} {local} -> {remote}"),
    };
    Some((inode, name))
}

/// `0100007F:1A90`: 32-bit words of an address in network order, printed as numbers.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| {
        let digits = ip.get(at * 8..at * 8 + 8)?;
        u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes)
    };
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?].concat();
            let bytes: [u8; 16] = words.try_into().ok()?;
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    // A socket of IPv6 that speaks IPv4 shows its IPv4 address.
    Some(SocketAddr::new(ip.to_canonical(), port))
}

/// A line of the table of UNIX sockets: `Num RefCount Protocol Flags Type St Inode Path`.
struct UnixSocket<'l> {
    inode: u64,
    listens: bool,
    /// Empty without a name.
    path: &'l str,
}

impl<'l> UnixSocket<'l> {
    fn parse(line: &'l str) -> Option<Self> {
        let mut rest = line.trim_end_matches('\n');
        let mut fields = [""; 7];
        for field in &mut fields {
            rest = rest.trim_start_matches(' ');
            (*field, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        }
        Some(Self {
            inode: fields[6].parse().ok()?,
            // __SO_ACCEPTCON
            listens: u32::from_str_radix(fields[3], 16).ok()? & 0x10000 != 0,
            path: rest.trim_start_matches(' '),
        })
    }
}

fn unix_line(line: &str) -> Option<(u64, String)> {
    let socket = UnixSocket::parse(line)?;
    let path: String = socket.path.chars().take(MAX_PATH).collect();
    let name = if path.is_empty() { "(unnamed)" } else { &path };
    Some((socket.inode, format!("unix {name}")))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use super::*;

    /// Check lines as kernels print them.
    #[test]
    fn lines() {
        let line = "   3: 0100007F:1A90 0200000A:9CB0 01 00000000:00000000 00:00000000 00000000   167        0 99231 1 0000";
        assert_eq!(
            inet_line(line, "tcp"),
            Some((99231, "tcp 127.0.0.1:6800 -> 10.0.0.2:40112".into()))
        );
        let listening = "   0: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 5 1";
        assert_eq!(
            inet_line(listening, "tcp"),
            Some((5, "tcp 0.0.0.0:80 (listening)".into()))
        );
        let six = "   1: 00000000000000000000000001000000:1F90 0000000000000000FFFF00000200000A:0001 01 0:0 00:0 0 0 0 77 1";
        assert_eq!(
            inet_line(six, "tcp"),
            Some((77, "tcp [::1]:8080 -> 10.0.0.2:1".into()))
        );
        let unix = "ffff8880: 00000003 00000000 00000000 0001 03 28154 /run/a b.sock\n";
        assert_eq!(unix_line(unix), Some((28154, "unix /run/a b.sock".into())));
        let unnamed = "ffff8880: 00000003 00000000 00000000 0001 03 28155\n";
        assert_eq!(unix_line(unnamed), Some((28155, "unix (unnamed)".into())));
        for bad in ["", "a b c", "0: zz:1 00000000:0 01 a b c d e 9", "sl local"] {
            assert_eq!(inet_line(bad, "tcp"), None, "{bad:?}");
        }
        assert_eq!(
            unix_line("Num RefCount Protocol Flags Type St Inode Path\n"),
            None
        );
    }

    /// Check a connection of this process by its descriptor's link.
    #[test]
    fn own_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let own = stream.local_addr().unwrap().port();
        let link = |fd: i32| fs::read_link(format!("/proc/self/fd/{fd}")).unwrap();
        let mut names = SocketNames::new(Pid(std::process::id() as i32));
        let name = names.name(&link(stream.as_raw_fd()).to_string_lossy());
        let expected = format!("tcp 127.0.0.1:{own} -> 127.0.0.1:{port}");
        assert_eq!(name, Some(expected.as_str()));
        assert_eq!(names.name("socket:[0]"), None);
        assert_eq!(names.name("pipe:[5]"), None);
    }
}
