//! Requests that wait for a store: files in a folder, the oldest first, within a limit.
//!
//! What the folder holds outlives the process. A file has another name while its request is sent: where the process ends
//! meanwhile, the store may have it, and the next process does not send it again. Where the folder cannot be written to, a few
//! requests wait in memory.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Bytes of requests that wait in memory where the folder does not take them.
const MAX_MEMORY: u64 = 8 << 20;
/// The ending of a file that is written, until it is whole.
const UNFINISHED: &str = "part";
/// What the ending of a file has more while its request is sent.
const SENDING: &str = "-sending";

/// Where requests wait.
#[derive(Debug)]
pub struct SpoolOptions {
    /// An open folder that nobody else can write to. `None`: in memory.
    pub folder: Option<File>,
    /// What kind of requests these are, the ending of their files: others are not of this store.
    pub kind: &'static str,
    /// Beyond it the oldest are dropped.
    pub max_bytes: u64,
    /// Requests whose profiles began longer ago are dropped before they are sent: the store would refuse them.
    pub max_age: Option<Duration>,
}

impl SpoolOptions {
    /// A path that leads to the folder, whatever happens to the one by which it was found.
    fn folder(&self) -> Option<PathBuf> {
        let folder = self.folder.as_ref()?;
        Some(format!("/proc/self/fd/{}", folder.as_raw_fd()).into())
    }
}

/// What waits, and what was lost.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct SpoolFigures {
    /// Requests.
    pub n_waiting: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Requests dropped to make room.
    pub n_dropped: u64,
    /// Requests dropped since the store takes no profiles of their age.
    pub n_expired: u64,
    /// Requests that could not be written to the folder and wait, or waited, in memory.
    pub n_unwritten: u64,
    /// Those that wait there.
    pub n_in_memory: u64,
    /// Requests that were being sent when an earlier process ended: the store may have them.
    pub n_unsure: u64,
}

/// Requests that wait.
#[derive(Debug)]
pub struct Spool {
    options: SpoolOptions,
    waiting: Mutex<Waiting>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    entries: VecDeque<Entry>,
    next: u64,
    figures: SpoolFigures,
    /// A request that is being sent: it is not dropped, since the store may have it.
    sending: Option<u64>,
    /// The request that was tried last and waits again: the next one is tried after it, so that one request that the store
    /// never takes holds up no other.
    tried: Option<u64>,
    is_closed: bool,
    is_stopped: bool,
}

#[derive(Clone, Debug)]
struct Entry {
    number: u64,
    /// When its profiles begin, seconds since 1970.
    begin: u64,
    len: u64,
    /// `None`: in its file.
    memory: Option<Arc<[u8]>>,
}

/// Whether an error passes by itself.
fn is_short_of_means(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    code.is_some_and(|code| [libc::EMFILE, libc::ENFILE, libc::ENOMEM].contains(&code))
}

impl Waiting {
    fn next_to_try(&self) -> Option<Entry> {
        let is_next = |entry: &&Entry| self.tried.is_none_or(|tried| entry.number > tried);
        let next = self.entries.iter().find(is_next);
        next.or(self.entries.front()).cloned()
    }
}

fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

impl Spool {
    /// Takes up what waits in the folder.
    ///
    /// # Errors
    /// When it cannot be listed.
    pub fn open(options: SpoolOptions) -> io::Result<Self> {
        let mut waiting = Waiting::default();
        if let Some(folder) = options.folder() {
            let mut found = Vec::new();
            for entry in fs::read_dir(folder)? {
                let entry = entry?;
                let path = entry.path();
                let stem = path.file_stem().and_then(|stem| stem.to_str());
                let numbers = stem.and_then(|stem| {
                    let (number, begin) = stem.split_once('-')?;
                    Some((number.parse().ok()?, begin.parse().ok()?))
                });
                let ending = path.extension().and_then(|ending| ending.to_str());
                let metadata = entry.metadata()?;
                match (numbers, ending) {
                    (Some((number, begin)), Some(ending))
                        if ending == options.kind && metadata.is_file() =>
                    {
                        let len = metadata.len();
                        found.push(Entry {
                            number,
                            begin,
                            len,
                            memory: None,
                        });
                    }
                    (Some(_), Some(UNFINISHED)) => fs::remove_file(&path)?,
                    (Some(_), Some(ending))
                        if ending.strip_suffix(SENDING) == Some(options.kind) =>
                    {
                        fs::remove_file(&path)?;
                        waiting.figures.n_unsure += 1;
                    }
                    _ => {}
                }
            }
            found.sort_by_key(|entry| entry.number);
            waiting.next = found
                .last()
                .map_or(0, |entry| entry.number.saturating_add(1));
            waiting.figures.bytes = found.iter().map(|entry| entry.len).sum();
            waiting.entries = found.into();
        }
        let spool = Self {
            options,
            waiting: Mutex::new(waiting),
            arrived: Condvar::new(),
        };
        let removed = spool.make_room(&mut spool.lock());
        removed
            .into_iter()
            .for_each(|entry| spool.remove_file(&entry));
        Ok(spool)
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request whose profiles begin then. Whoever takes requests meanwhile does not wait for the disk.
    ///
    /// # Errors
    /// Why the folder does not take it: it waits in memory then.
    pub fn add(&self, request: Vec<u8>, begin: SystemTime) -> io::Result<()> {
        let number = {
            let mut waiting = self.lock();
            waiting.next += 1;
            waiting.next - 1
        };
        let mut entry = Entry {
            number,
            begin: unix_seconds(begin),
            len: request.len() as u64,
            memory: None,
        };
        let written = self.write(&entry, &request);
        let is_written = written.as_ref().is_ok_and(|in_folder| *in_folder);
        let mut waiting = self.lock();
        waiting.figures.n_unwritten += u64::from(!is_written);
        waiting.figures.bytes += entry.len;
        entry.memory = (!is_written).then(|| request.into());
        waiting.entries.push_back(entry);
        let removed = self.make_room(&mut waiting);
        drop(waiting);
        self.arrived.notify_all();
        removed
            .into_iter()
            .for_each(|entry| self.remove_file(&entry));
        written.map(drop)
    }

    fn path(&self, entry: &Entry, ending: &str) -> Option<PathBuf> {
        let folder = self.options.folder()?;
        let Entry { number, begin, .. } = entry;
        Some(folder.join(format!("{number:020}-{begin}.{ending}")))
    }

    /// Gives the file of a request another name, if it has one.
    fn mark(&self, entry: &Entry, from: &str, to: &str) -> io::Result<()> {
        match self.path(entry, from).zip(self.path(entry, to)) {
            Some((from, to)) if entry.memory.is_none() => fs::rename(from, to),
            _ => Ok(()),
        }
    }

    fn sending(&self) -> String {
        format!("{}{SENDING}", self.options.kind)
    }

    /// A file appears when it is whole. It is private, and never written through a link. `false`: there is no folder.
    fn write(&self, entry: &Entry, request: &[u8]) -> io::Result<bool> {
        let paths = self
            .path(entry, UNFINISHED)
            .zip(self.path(entry, self.options.kind));
        let Some((unfinished, path)) = paths else {
            return Ok(false);
        };
        let created = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&unfinished);
        let written = created
            .and_then(|mut file| file.write_all(request))
            .and_then(|()| fs::rename(&unfinished, path));
        if written.is_err() {
            // A part of it takes room where there may be none.
            let _ = fs::remove_file(unfinished);
        }
        written.map(|()| true)
    }

    fn remove_file(&self, entry: &Entry) {
        self.remove_named(entry, self.options.kind);
    }

    fn remove_named(&self, entry: &Entry, ending: &str) {
        let path = self.path(entry, ending);
        if let Some(path) = path.filter(|_| entry.memory.is_none()) {
            // One that stays is found by the next process.
            let _ = fs::remove_file(path);
        }
    }

    /// Takes out the oldest until the others are within the limits.
    fn make_room(&self, waiting: &mut Waiting) -> Vec<Entry> {
        let mut removed = Vec::new();
        loop {
            let is_free = |entry: &Entry| Some(entry.number) != waiting.sending;
            let in_memory = waiting
                .entries
                .iter()
                .filter(|entry| entry.memory.is_some());
            let in_memory: u64 = in_memory.map(|entry| entry.len).sum();
            let oldest = match () {
                () if waiting.figures.bytes > self.options.max_bytes => {
                    waiting.entries.iter().position(is_free)
                }
                () if in_memory > MAX_MEMORY => waiting
                    .entries
                    .iter()
                    .position(|entry| entry.memory.is_some() && is_free(entry)),
                () => None,
            };
            let Some(entry) = oldest.and_then(|at| waiting.entries.remove(at)) else {
                return removed;
            };
            waiting.figures.bytes -= entry.len;
            waiting.figures.n_dropped += 1;
            removed.push(entry);
        }
    }

    /// The request after the one that was tried last, else the oldest, and its number. It is not dropped until it is
    /// [kept](Self::keep) or removed, and its file says that it is being sent. One whose file has gone or is damaged is dropped, so
    /// that it holds up no other; one may be read later if only means are short. One that is too old is dropped.
    pub(crate) fn next(&self) -> Option<(u64, io::Result<Arc<[u8]>>)> {
        loop {
            let entry = {
                let mut waiting = self.lock();
                let entry = waiting.next_to_try()?;
                waiting.sending = Some(entry.number);
                entry
            };
            if self.is_too_old(&entry) {
                if self.remove(entry.number) {
                    self.lock().figures.n_expired += 1;
                }
                continue;
            }
            if let Some(request) = entry.memory {
                return Some((entry.number, Ok(request)));
            }
            let path = self.path(&entry, self.options.kind)?;
            match fs::read(path) {
                Err(error) if !is_short_of_means(&error) => {
                    if self.remove(entry.number) {
                        self.lock().figures.n_dropped += 1;
                    }
                }
                read => {
                    // What cannot be marked waits: the next process would send it, too.
                    let marked = read.and_then(|request| {
                        self.mark(&entry, self.options.kind, &self.sending())?;
                        Ok(request.into())
                    });
                    return Some((entry.number, marked));
                }
            }
        }
    }

    fn is_too_old(&self, entry: &Entry) -> bool {
        let age = unix_seconds(SystemTime::now()).saturating_sub(entry.begin);
        self.options
            .max_age
            .is_some_and(|max_age| age > max_age.as_secs())
    }

    /// The request that was to be sent waits again.
    pub(crate) fn keep(&self) {
        let sending = {
            let waiting = self.lock();
            let is_it = |entry: &&Entry| Some(entry.number) == waiting.sending;
            waiting.entries.iter().find(is_it).cloned()
        };
        if let Some(entry) = sending {
            // One that could not be read was not marked.
            let _ = self.mark(&entry, &self.sending(), self.options.kind);
        }
        let mut waiting = self.lock();
        waiting.tried = waiting.sending.take();
        let removed = self.make_room(&mut waiting);
        drop(waiting);
        removed.iter().for_each(|entry| self.remove_file(entry));
    }

    /// Takes a request out, if it has not been dropped meanwhile. Gives whether it was there.
    pub(crate) fn remove(&self, number: u64) -> bool {
        let mut waiting = self.lock();
        let at = waiting
            .entries
            .iter()
            .position(|entry| entry.number == number);
        let Some(entry) = at.and_then(|at| waiting.entries.remove(at)) else {
            return false;
        };
        waiting.figures.bytes -= entry.len;
        drop(waiting);
        self.remove_named(&entry, &self.sending());
        self.remove_file(&entry);
        true
    }

    /// Waits until a request is there, or the spool is closed. Gives whether there is one.
    pub(crate) fn wait(&self) -> bool {
        let mut waiting = self.lock();
        while waiting.entries.is_empty() && !waiting.is_closed {
            waiting = self
                .arrived
                .wait(waiting)
                .unwrap_or_else(PoisonError::into_inner);
        }
        !waiting.entries.is_empty() && !waiting.is_stopped
    }

    /// Waits until this time has passed or the spool is closed.
    pub(crate) fn pause(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut waiting = self.lock();
        while !waiting.is_closed {
            let Some(left) = until
                .checked_duration_since(Instant::now())
                .filter(|left| !left.is_zero())
            else {
                return;
            };
            let woken = self.arrived.wait_timeout(waiting, left);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Nothing more comes: nobody waits any longer.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.arrived.notify_all();
    }

    /// What waits is not sent any more by this process.
    pub(crate) fn stop(&self) {
        self.lock().is_stopped = true;
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// What waits, and what was lost.
    pub fn figures(&self) -> SpoolFigures {
        let waiting = self.lock();
        let in_memory = |entry: &&Entry| entry.memory.is_some();
        SpoolFigures {
            n_waiting: waiting.entries.len() as u64,
            n_in_memory: waiting.entries.iter().filter(in_memory).count() as u64,
            ..waiting.figures
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn spool(folder: Option<&std::path::Path>, max_bytes: u64) -> Spool {
        let options = SpoolOptions {
            folder: folder.map(|folder| File::open(folder).unwrap()),
            kind: "otlp",
            max_bytes,
            max_age: None,
        };
        Spool::open(options).unwrap()
    }

    fn drain(spool: &Spool) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        while let Some((number, request)) = spool.next() {
            all.push(request.unwrap().to_vec());
            assert!(spool.remove(number));
        }
        all
    }

    /// Check that requests come out in their order, also by the next process, that the oldest make room, and are
    /// counted, and that files of others and half ones are not sent.
    #[test]
    fn order_and_limit() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(
            folder.path().join("00000000000000000007.pyroscope"),
            "other",
        )
        .unwrap();
        fs::write(folder.path().join("00000000000000000008-0.part"), "half").unwrap();
        fs::write(folder.path().join("notes.otlp"), "mine").unwrap();
        let first = spool(Some(folder.path()), 30);
        for i in 0..5 {
            first.add(vec![i; 10], UNIX_EPOCH).unwrap();
        }
        let figures = SpoolFigures {
            n_waiting: 3,
            bytes: 30,
            n_dropped: 2,
            n_expired: 0,
            n_unwritten: 0,
            n_in_memory: 0,
            n_unsure: 0,
        };
        assert_eq!(first.figures(), figures);
        drop(first);
        let second = spool(Some(folder.path()), 20);
        assert_eq!(second.figures().n_dropped, 1);
        second.add(vec![9; 5], UNIX_EPOCH).unwrap();
        assert_eq!(drain(&second), [vec![4; 10], vec![9; 5]]);
        assert_eq!(second.figures().bytes, 0);
        second.add(vec![1; 21], UNIX_EPOCH).unwrap();
        assert_eq!(
            (second.figures().n_waiting, second.figures().n_dropped),
            (0, 3)
        );
        let mut left: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, ["00000000000000000007.pyroscope", "notes.otlp"]);
    }

    /// Check that one that is not taken holds up no other, and has its turn again; and that what is too old is not sent.
    #[test]
    fn turns_and_age() {
        let mut spool = spool(None, 100);
        for i in 0..3 {
            spool.add(vec![i], SystemTime::now()).unwrap();
        }
        let mut tried = Vec::new();
        for _ in 0..4 {
            tried.push(spool.next().unwrap().1.unwrap()[0]);
            spool.keep();
        }
        assert_eq!(tried, [0, 1, 2, 0]);
        spool.options.max_age = Some(Duration::from_secs(3600));
        let ago = |seconds| SystemTime::now() - Duration::from_secs(seconds);
        spool.add(vec![7], ago(3700)).unwrap();
        spool.add(vec![8], ago(3500)).unwrap();
        // The store's clock counts, and this one may be late.
        spool
            .add(vec![9], SystemTime::now() + Duration::from_secs(600))
            .unwrap();
        assert_eq!(drain(&spool), [[1], [2], [8], [9], [0]]);
        assert_eq!(
            (spool.figures().n_expired, spool.figures().n_dropped),
            (1, 0)
        );
    }

    /// Check that a request that was being sent when its process ended is not sent by the next one, which counts it; and that one
    /// that is known to wait is.
    #[test]
    fn ended_while_sending() {
        let folder = tempfile::tempdir().unwrap();
        let first = spool(Some(folder.path()), 100);
        first.add(b"perhaps".to_vec(), UNIX_EPOCH).unwrap();
        first.add(b"waits".to_vec(), UNIX_EPOCH).unwrap();
        assert!(first.next().unwrap().1.is_ok());
        first.keep();
        assert_eq!(&*first.next().unwrap().1.unwrap(), b"waits");
        first.keep();
        assert_eq!(&*first.next().unwrap().1.unwrap(), b"perhaps");
        drop(first);
        let second = spool(Some(folder.path()), 100);
        assert_eq!(second.figures().n_unsure, 1);
        assert_eq!(drain(&second), [b"waits"]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    /// Check that files are private, that one of them is not written through a link, and that the folder may be renamed.
    #[test]
    fn private() {
        let folder = tempfile::tempdir().unwrap();
        let [path, renamed, other] = ["spool", "renamed", "other"].map(|n| folder.path().join(n));
        fs::create_dir(&path).unwrap();
        fs::write(&other, "other").unwrap();
        let spool = spool(Some(&path), 100);
        symlink(&other, path.join("00000000000000000000-0.part")).unwrap();
        assert!(spool.add(b"first".to_vec(), UNIX_EPOCH).is_err());
        assert_eq!(fs::read(&other).unwrap(), b"other");
        fs::rename(&path, &renamed).unwrap();
        spool.add(b"second".to_vec(), UNIX_EPOCH).unwrap();
        let file = renamed.join("00000000000000000001-0.otlp");
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(drain(&spool), [&b"first"[..], b"second"]);
    }

    /// Check that a request whose file cannot be read holds up no other, and is counted; and that it waits where only
    /// descriptors are short.
    #[test]
    fn unreadable() {
        let folder = tempfile::tempdir().unwrap();
        let spool = spool(Some(folder.path()), 100);
        spool.add(b"first".to_vec(), UNIX_EPOCH).unwrap();
        spool.add(b"second".to_vec(), UNIX_EPOCH).unwrap();
        let file = folder.path().join("00000000000000000000-0.otlp");
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        assert_eq!(drain(&spool), [b"second"]);
        assert_eq!(spool.figures().n_dropped, 1);
        let error = |code| io::Error::from_raw_os_error(code);
        assert!(is_short_of_means(&error(libc::EMFILE)) && !is_short_of_means(&error(libc::EIO)));
    }

    /// Check that a folder that goes away, or none, leaves requests in memory, up to a limit, and that a file that goes
    /// away is counted.
    #[test]
    fn memory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spool");
        fs::create_dir(&path).unwrap();
        let written = spool(Some(&path), 64 << 20);
        written.add(b"gone".to_vec(), UNIX_EPOCH).unwrap();
        fs::remove_dir_all(&path).unwrap();
        assert!(written.add(b"kept".to_vec(), UNIX_EPOCH).is_err());
        assert_eq!(written.figures().n_in_memory, 1);
        assert_eq!(drain(&written), [b"kept"]);
        let figures = written.figures();
        assert_eq!((figures.n_dropped, figures.n_unwritten), (1, 1));
        for _ in 0..10 {
            assert!(written.add(vec![0; 1 << 20], UNIX_EPOCH).is_err());
        }
        assert_eq!(written.figures().n_waiting, 8);
        assert_eq!(written.figures().n_dropped, 3);
        let none = spool(None, 100);
        none.add(vec![1], UNIX_EPOCH).unwrap();
        assert_eq!(drain(&none), [[1]]);
    }
}
