//! A process of Ceph, or with a Ceph library, to its counters and slow operations, by its admin socket.
//!
//! Facts: `common/admin_socket.cc` of Ceph for the exchange (a JSON command and a zero byte; the answer after
//! its length; a failure is text that starts with `ERROR:`), `common/ceph_context.cc` for the commands. `counter
//! dump` came with Reef (18); it has the labeled counters, too. A question that a daemon does not know is an error in its log.

use serde::Deserialize;
use wcprof_types::Pid;

use super::dump::{Counters, parse_dump};
use super::socket::{NoAnswer, ask, try_access};
use crate::procfs::read_file;
use crate::sockets::listening_paths;

/// Questions that are asked: none changes anything.
#[derive(Copy, Clone, Debug)]
enum Question {
    Version,
    CounterDump,
    PerfDump,
    SlowOps,
}

impl Question {
    fn text(self) -> &'static [u8] {
        match self {
            Self::Version => b"{\"prefix\": \"version\"}\0",
            Self::CounterDump => b"{\"prefix\": \"counter dump\"}\0",
            Self::PerfDump => b"{\"prefix\": \"perf dump\"}\0",
            Self::SlowOps => b"{\"prefix\": \"dump_historic_slow_ops\"}\0",
        }
    }
}

/// The first release with `counter dump`: Reef.
const FIRST_COUNTER_DUMP: u32 = 18;

/// The answer to `version`.
#[derive(Deserialize)]
struct Version {
    /// `16.2.15`
    version: String,
}

/// The admin socket of one process.
#[derive(Debug)]
pub struct CephDaemon {
    pid: Pid,
    /// In the process's mount namespace.
    path: String,
    /// Older releases do not know the other one.
    dump: Question,
}

impl CephDaemon {
    /// Finds the admin socket of a process among the UNIX sockets on which it listens. The kernel lists these by the
    /// paths that the process gave them, whatever its configuration is.
    ///
    /// # Errors
    /// When it has none, or they may not be listed.
    pub fn locate(pid: Pid) -> Result<Self, NoAnswer> {
        let paths = listening_paths(pid).map_err(NoAnswer::Unlisted)?;
        let is_default = |path: &&String| path.ends_with(".asok");
        // QEMU listens on sockets of other protocols, which expect other bytes.
        let found = match paths.iter().find(is_default) {
            None if is_of_ceph(pid) => paths.first(),
            found => found,
        };
        Ok(Self::at(pid, found.ok_or(NoAnswer::NoSocket)?.clone()))
    }

    /// Finds the admin socket of a process, and asks for its version and its counters.
    ///
    /// # Errors
    /// When it has none, may not be asked, or does not answer.
    pub fn find(pid: Pid) -> Result<(Self, Counters), NoAnswer> {
        let mut daemon = Self::locate(pid)?;
        let counters = daemon.first_counters()?;
        Ok((daemon, counters))
    }

    /// Its counters, by the question that its release knows.
    pub(super) fn first_counters(&mut self) -> Result<Counters, NoAnswer> {
        let version = match self.ask(Question::Version) {
            Err(NoAnswer::Nonsense(_)) => None,
            answered => serde_json::from_slice::<Version>(&answered?).ok(),
        };
        let major = version.and_then(|version| version.version.split('.').next()?.parse().ok());
        // All releases know `perf dump`.
        self.dump = match major {
            Some(FIRST_COUNTER_DUMP..) => Question::CounterDump,
            _ => Question::PerfDump,
        };
        self.counters()
    }

    /// The one at this path, of an old release for all that is known.
    pub(super) fn at(pid: Pid, path: String) -> Self {
        Self {
            pid,
            path,
            dump: Question::PerfDump,
        }
    }

    /// The socket's path in the process's mount namespace.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Whether it may be asked; nothing is.
    ///
    /// # Errors
    /// When the socket is not there, or may not be written to.
    pub fn try_access(&self) -> Result<(), NoAnswer> {
        try_access(self.pid, &self.path)
    }

    /// Its counters now.
    ///
    /// # Errors
    /// When it does not answer, or with something else.
    pub fn counters(&self) -> Result<Counters, NoAnswer> {
        let text = self.ask(self.dump)?;
        parse_dump(&text).map_err(|error| NoAnswer::Nonsense(error.to_string()))
    }

    /// The operations that it remembers as slow: JSON, as it was answered.
    ///
    /// # Errors
    /// When it does not answer, or does not know the question (only OSDs do).
    pub fn slow_ops(&self) -> Result<Vec<u8>, NoAnswer> {
        self.ask(Question::SlowOps)
    }

    fn ask(&self, question: Question) -> Result<Vec<u8>, NoAnswer> {
        let answer = ask(self.pid, &self.path, question.text())?;
        match answer.first() {
            Some(b'{') => Ok(answer),
            _ => {
                let start = String::from_utf8_lossy(&answer[..answer.len().min(80)]);
                Err(NoAnswer::Nonsense(start.trim().replace('\n', " ")))
            }
        }
    }
}

/// Programs whose only UNIX socket is the admin socket, whatever it is called.
fn is_of_ceph(pid: Pid) -> bool {
    let comm = read_file(format!("/proc/{pid}/comm")).unwrap_or_default();
    let comm = comm.trim();
    comm.starts_with("ceph-") || comm == "radosgw"
}
