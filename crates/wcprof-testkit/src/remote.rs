//! A cooperative target: prints READY, answers lines, ends when its standard input closes.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

/// A running fixture; killed when dropped.
#[derive(Debug)]
pub struct RemoteProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    /// Numbers of its READY line.
    pub keys: HashMap<String, u64>,
}

/// Copies a program that is to be started. Another process copies it: a child process that another test starts
/// meanwhile would inherit a descriptor that writes to the copy, which could not be executed until that child
/// has closed it ("text file busy").
pub fn copy_program(from: &Path, to: &Path) {
    let status = Command::new("cp").arg(from).arg(to).status();
    assert!(status.expect("cp starts").success(), "cp fails");
}

/// The counters of a fixture since its start, by its own clocks.
#[derive(Clone, Debug)]
pub struct Mark(HashMap<String, u64>);

impl RemoteProcess {
    /// Start a fixture and wait until it is ready.
    pub fn start(program: &Path) -> Self {
        Self::start_command(&mut Command::new(program))
    }

    /// Start the fixture by this command and wait until it is ready.
    pub fn start_command(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("failed to start {command:?}: {e}"));
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("stdout is a pipe"));
        let mut remote = Self {
            child,
            stdin,
            stdout,
            keys: HashMap::new(),
        };
        remote.keys = remote.answer("READY");
        remote
    }

    /// Pid of the process that was started: the fixture's own unless the command is a wrapper.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Its counters now.
    pub fn mark(&mut self) -> Mark {
        self.send_line("MARK");
        Mark(self.answer("MARK"))
    }

    /// Send a line; read the answer with [`Self::answer`].
    pub fn send_line(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("standard input is open");
        writeln!(stdin, "{line}").expect("target reads");
    }

    /// Read the line that begins with `word`.
    pub fn answer(&mut self, word: &str) -> HashMap<String, u64> {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("target writes");
        let rest = line
            .strip_prefix(word)
            .unwrap_or_else(|| panic!("expected {word} from the target, got {line:?}"));
        rest.split_whitespace()
            .filter_map(|pair| pair.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.parse().expect("value is a number")))
            .collect()
    }

    /// Close its standard input and wait for its end.
    pub fn close(&mut self) -> ExitStatus {
        self.stdin = None;
        self.child.wait().expect("target can be waited for")
    }
}

impl Drop for RemoteProcess {
    fn drop(&mut self) {
        self.stdin = None;
        // Both fail only when it has ended and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Mark {
    /// What was added to a counter since `earlier`.
    #[track_caller]
    pub fn since(&self, earlier: &Self, key: &str) -> u64 {
        self.get(key) - earlier.get(key)
    }

    /// The counters at a time between two of the marks (oldest first), `real` ns since 1970.
    #[track_caller]
    pub fn at(marks: &[Self], real: u64) -> Self {
        let next = marks.partition_point(|mark| mark.get("real") < real);
        assert!(next > 0 && next < marks.len(), "marks do not reach");
        marks[next - 1].towards(&marks[next], real)
    }

    /// The counters at a time between this mark and a later one, `real` ns since 1970, by linear
    /// interpolation.
    fn towards(&self, later: &Self, real: u64) -> Self {
        let whole = later.since(self, "real").max(1);
        let part = (real - self.get("real")) as f64 / whole as f64;
        let at = |(key, &value): (&String, &u64)| {
            let grown = (later.get(key) - value) as f64 * part;
            (key.clone(), value + grown as u64)
        };
        Self(self.0.iter().map(at).collect())
    }

    /// A counter.
    #[track_caller]
    pub fn get(&self, key: &str) -> u64 {
        *self
            .0
            .get(key)
            .unwrap_or_else(|| panic!("target does not count {key}"))
    }
}
