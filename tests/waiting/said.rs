//! wcprof while it runs: what it says on standard error, and signals to it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use wcprof_testkit::{PATIENCE, worker};

/// A wcprof that runs. It is killed when dropped.
pub(crate) struct Said {
    child: Child,
    lines: Receiver<String>,
}

impl Said {
    pub(crate) fn by(command: &mut Command) -> Self {
        let mut child = command
            .stderr(Stdio::piped())
            .spawn()
            .expect("wcprof starts");
        let stderr = BufReader::new(child.stderr.take().expect("stderr is a pipe"));
        let (sender, lines) = channel();
        thread::spawn(move || {
            // A test that is over reads no more.
            let lines = stderr.lines().map_while(Result::ok);
            lines.for_each(|line| drop(sender.send(line)));
        });
        Self { child, lines }
    }

    #[track_caller]
    pub(crate) fn next_line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("a line")
    }

    /// The next line that has `part`.
    #[track_caller]
    pub(crate) fn line(&self, part: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|e| panic!("no line with {part:?} from wcprof: {e}"));
            assert!(!line.contains("panicked"), "{line}");
            if line.contains(part) {
                return line;
            }
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).expect("wcprof runs");
    }

    /// The process that does the work.
    #[track_caller]
    pub(crate) fn worker(&self) -> i32 {
        worker(&self.child)
    }

    /// Ctrl-C: its exit code.
    pub(crate) fn end(self) -> Option<i32> {
        self.end_by(Signal::SIGINT)
    }

    /// Its exit code.
    pub(crate) fn end_by(mut self, signal: Signal) -> Option<i32> {
        self.signal(signal);
        self.child.wait().expect("wcprof can be waited for").code()
    }
}

impl Drop for Said {
    fn drop(&mut self) {
        // It does not end by itself when a test fails.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
