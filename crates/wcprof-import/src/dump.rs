//! Dumps of all threads' stacks: what gdb (`thread apply all bt`, with `full` too), gstack, pstack and eu-stack print.
//!
//! A file may hold several of them, as loops around these tools write: a thread that comes again is in another snapshot.

use wcprof_trace::model::Trace;
use wcprof_types::StackEnd;

use crate::error::Result;
use crate::options::Options;
use crate::pmp::unquoted;
use crate::snapshots::{DumpTrace, DumpedThread};

/// Columns from which on a line is a local variable of `bt full`.
const LOCALS: usize = 8;

/// What a line of a dump is.
#[derive(Clone, PartialEq, Eq, Debug)]
enum DumpLine<'a> {
    /// A process begins, of eu-stack.
    Process(i32),
    /// A thread's stack begins.
    Head(DumpedThread),
    /// A function, with its number from the leaf.
    Frame(usize, String),
    /// The stack has more frames than are printed.
    Truncated,
    /// Somebody typed the next command.
    Prompt,
    /// It continues the line before, or is a local variable.
    Detail,
    Other(&'a str),
}

/// Whether a line begins a stack or is a frame of one.
pub(crate) fn is_dump_line(line: &str) -> bool {
    matches!(parse(line), DumpLine::Head(_) | DumpLine::Frame(..))
}

/// Whether a line names a thread as gdb or eu-stack do.
pub(crate) fn is_head(line: &str) -> bool {
    matches!(parse(line), DumpLine::Head(_))
}

fn parse(line: &str) -> DumpLine<'_> {
    let line = unquoted(line);
    let line = line.strip_prefix('\u{feff}').unwrap_or(line);
    let text = line.trim();
    let is_tab = line.starts_with('\t');
    let indent = if is_tab {
        LOCALS
    } else {
        line.len() - line.trim_start().len()
    };
    if indent >= LOCALS {
        return DumpLine::Detail;
    }
    if let Some(command) = text.strip_prefix("(gdb)") {
        return match parse(command.trim_start()) {
            line @ (DumpLine::Head(_) | DumpLine::Frame(..)) => line,
            _ => DumpLine::Prompt,
        };
    }
    if let Some(head) = head(text) {
        return DumpLine::Head(head);
    }
    if let Some((n, function)) = frame(text) {
        return DumpLine::Frame(n, function);
    }
    if let Some(rest) = text.strip_prefix("PID ")
        && let Some((pid, what)) = rest.split_once(" - ")
        && matches!(what, "process" | "core")
        && let Ok(pid) = pid.parse()
    {
        return DumpLine::Process(pid);
    }
    let ends = [
        "Backtrace stopped",
        "(More stack frames follow",
        "eu-stack: ",
    ];
    match text {
        _ if ends.iter().any(|end| text.starts_with(end)) => DumpLine::Truncated,
        "No locals." | "No symbol table info available." | "" => DumpLine::Detail,
        _ if indent >= 4 => DumpLine::Detail,
        _ => DumpLine::Other(text),
    }
}

/// `Thread 9 (Thread 0x7f24972a46c0 (LWP 31252) "handler"):`, `Thread 9 (LWP 31252):`, `Thread 2 "x" (Thread 0x7f (LWP 4)):` or
/// `TID 31252:`.
fn head(text: &str) -> Option<DumpedThread> {
    let number = |text: &str| text.parse::<i32>().ok().filter(|n| *n > 0);
    if let Some(rest) = text.strip_prefix("TID ") {
        let rest = rest.strip_suffix(':')?;
        let (tid, comm) = rest.split_once(' ').unwrap_or((rest, ""));
        let comm = comm.trim_matches(['(', ')', '"', ' ']);
        return number(tid).map(|tid| DumpedThread {
            pid: 0,
            tid,
            comm: comm.to_owned(),
        });
    }
    let rest = text.strip_prefix("Thread ")?.strip_suffix(':')?;
    let (id, about) = rest.split_once(' ')?;
    // `1.2` where gdb has several processes.
    let id = id.rsplit_once('.').map_or(id, |(_, id)| id);
    let id = number(id)?;
    // The name may hold whatever the others do.
    let (before, comm, behind) = match (about.find('"'), about.rfind('"')) {
        (Some(begin), Some(end)) if begin < end => {
            (&about[..begin], &about[begin + 1..end], &about[end..])
        }
        _ => (about, "", ""),
    };
    let after = |word: &str| {
        let of = |text: &str| {
            let rest = &text[text.find(word)? + word.len()..];
            let end = rest.find(|c: char| !c.is_ascii_digit());
            number(&rest[..end.unwrap_or(rest.len())])
        };
        of(before).or_else(|| of(behind))
    };
    let is_head = about.contains(['(', '"']);
    let tid = after("LWP ").or_else(|| after("process "));
    is_head.then(|| DumpedThread {
        pid: 0,
        tid: tid.unwrap_or(id),
        comm: comm.to_owned(),
    })
}

/// The number of a frame, and the name of its function.
fn frame(text: &str) -> Option<(usize, String)> {
    let (n, rest) = text.strip_prefix('#')?.split_once(' ')?;
    let n = n.parse().ok()?;
    let rest = rest.trim_start();
    let Some(digits) = rest.strip_prefix("0x") else {
        // An inlined function, or the innermost one at the begin of a line, or a mark such as `<signal handler called>`.
        let is_frame = rest.ends_with('>') || rest.contains(" (");
        return is_frame.then(|| (n, of_gdb(rest)));
    };
    let end = digits.find(|c: char| !c.is_ascii_hexdigit());
    let behind = end.map_or("", |end| &digits[end..]).trim_start();
    let name = match behind.strip_prefix("in ") {
        Some(call) => of_gdb(call.trim_start()),
        None => of_eu_stack(behind),
    };
    Some((n, name))
}

/// The function of gdb's `NAME (ARGUMENTS) at FILE:LINE`, or `from FILE`; one without a name has that of its file.
fn of_gdb(call: &str) -> String {
    let name = call[..name_len(call)].trim_end();
    match call.rsplit_once(" from ") {
        Some((_, path)) if name == "??" => format!("?? ({})", wcprof_types::file_name(path)),
        _ => name.to_owned(),
    }
}

/// The function of eu-stack's `[- 1] NAME [- FILE]`.
fn of_eu_stack(rest: &str) -> String {
    let rest = rest.strip_prefix("- 1").unwrap_or(rest).trim_start();
    let (name, path) = match rest.rsplit_once("- /") {
        Some((name, path)) => (name.trim_end(), path),
        None => (rest.trim_end(), ""),
    };
    match (name, path) {
        ("", "") => "??".to_owned(),
        ("", path) => format!("?? ({})", wcprof_types::file_name(path)),
        (name, _) => name.to_owned(),
    }
}

/// Bytes of a name before the blank and the parenthesis with which gdb begins its arguments; those of types and of template
/// arguments are part of it.
fn name_len(call: &str) -> usize {
    let bytes = call.as_bytes();
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(&byte) = bytes.get(at) {
        let rest = &bytes[at..];
        if rest.starts_with(b"operator") {
            at += b"operator".len();
            if bytes[at..].starts_with(b"()") {
                at += 2;
            }
            let signs = bytes[at..]
                .iter()
                .take_while(|b| b"<>=-!&|+*/%^~,".contains(b));
            at += signs.count();
            continue;
        }
        match byte {
            b' ' if depth == 0 && at > 0 && rest.starts_with(b" (") => return at,
            b'(' | b'<' | b'{' | b'[' => depth += 1,
            b'>' if at > 0 && bytes[at - 1] == b'-' => {}
            b')' | b'>' | b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    // Where signs do not pair, the last parenthesis is the best guess.
    call.rfind(" (").unwrap_or(call.len())
}

/// A stack that is being read.
#[derive(Default)]
struct OpenStack {
    thread: Option<DumpedThread>,
    leaf_first: Vec<String>,
    end: Option<StackEnd>,
}

pub(crate) fn import(text: &str, options: &Options) -> Result<Trace> {
    let mut snapshots = DumpTrace::new("a dump of stacks", options);
    let has_heads = text.lines().any(is_head);
    let (mut n_bad, mut n_headless, mut n_gaps) = (0, 0, 0);
    let mut pid = 0;
    let mut reading = OpenStack::default();
    let mut flush = |reading: &mut OpenStack| -> Result<()> {
        let leaf_first = std::mem::take(&mut reading.leaf_first);
        let end = reading.end.take().unwrap_or(StackEnd::Root);
        if leaf_first.is_empty() {
            return Ok(());
        }
        let alone = DumpedThread {
            tid: 1,
            ..DumpedThread::default()
        };
        let thread = match &reading.thread {
            Some(thread) => thread,
            // What was printed of the current thread beside the dump of all.
            None if has_heads => {
                n_headless += 1;
                return Ok(());
            }
            None => &alone,
        };
        snapshots.add(thread, leaf_first.iter().rev().map(String::as_str), end)
    };
    for line in text.lines() {
        match parse(line) {
            DumpLine::Process(of) => {
                flush(&mut reading)?;
                (pid, reading.thread) = (of, None);
            }
            DumpLine::Head(thread) => {
                flush(&mut reading)?;
                reading.thread = Some(DumpedThread { pid, ..thread });
            }
            DumpLine::Frame(n, function) => {
                if n == 0 {
                    flush(&mut reading)?;
                }
                n_gaps += u64::from(n != reading.leaf_first.len());
                if reading.leaf_first.len() <= crate::limits::MAX_FRAMES {
                    reading.leaf_first.push(function);
                }
            }
            DumpLine::Truncated => reading.end = Some(StackEnd::NoUnwindInfo),
            DumpLine::Prompt => {
                flush(&mut reading)?;
                reading.thread = None;
            }
            DumpLine::Detail => {}
            // The debugger's own words, before a stack, are none of the dump.
            DumpLine::Other(text) => {
                let is_own = text.starts_with(['[', '+']);
                n_bad += u64::from(!reading.leaf_first.is_empty() && !is_own);
            }
        }
    }
    flush(&mut reading)?;
    snapshots.builder.note_counts([
        (n_bad, "lines were not understood and are left out"),
        (
            n_headless,
            "stacks beside those of `thread apply all` are left out",
        ),
        (
            n_gaps,
            "frames do not follow the one before by their number",
        ),
    ]);
    snapshots.finish(" (no frame such as `#0  0x... in poll ()`)")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the heads that gdb writes with and without libthread_db, of one process and several, and eu-stack's.
    #[test]
    fn heads() {
        let of = |text: &str| head(text).map(|thread| (thread.tid, thread.comm));
        let thread = |tid, comm: &str| Some((tid, comm.to_owned()));
        let with = "Thread 9 (Thread 0x7f24972a46c0 (LWP 31252) \"handler\"):";
        assert_eq!(of(with), thread(31252, "handler"));
        assert_eq!(
            of("Thread 9 (Thread 0x7f24972a46c0 (LWP 31252)):"),
            thread(31252, "")
        );
        assert_eq!(
            of("Thread 2.1 (LWP 31252 \"a (LWP 7)\"):"),
            thread(31252, "a (LWP 7)")
        );
        assert_eq!(
            of("Thread 1 \"waits\" (Thread 0x7f24 (LWP 9)):"),
            thread(9, "waits")
        );
        assert_eq!(of("Thread 1 (process 17):"), thread(17, ""));
        assert_eq!(of("TID 31252:"), thread(31252, ""));
        assert_eq!(of("Thread 991 (tp_osd_tp) - 100 samples"), None);
        assert_eq!(of("Thread pool has 3 threads:"), None);
    }

    /// Check that arguments of types and templates are part of a name, and those of the call are not.
    #[test]
    fn names() {
        for (line, name) in [
            (
                "#0  0x00007f249ab82df2 in __libc_pause () at pause.c:29",
                "__libc_pause",
            ),
            ("#1  spin (by=by@entry=3) at waits.c:17", "spin"),
            ("#2  <signal handler called>", "<signal handler called>"),
            (
                "#3  0x00007f in ?? () from /lib/libz.so.1",
                "?? (libz.so.1)",
            ),
            ("#4  0x0000000000000000 in ?? ()", "??"),
            (
                "#5  0x1f in std::function<void (int)>::operator()(int) const (this=0x1, a=2) at f:1",
                "std::function<void (int)>::operator()(int) const",
            ),
            (
                "#6  (anonymous namespace)::run (x=\"a (b)\") at f:1",
                "(anonymous namespace)::run",
            ),
            (
                "#7  operator<< <char> (o=..., s=\"\") at f:1",
                "operator<< <char>",
            ),
            (
                "#8  0x2 in f(std::less<int>, void (*)(int)) [clone .cold] () from /x",
                "f(std::less<int>, void (*)(int)) [clone .cold]",
            ),
            (
                "#9  0x00007f249ab39ce3 - 1 __clone3 - /usr/lib/libc.so.6",
                "__clone3",
            ),
            ("#10 0x00007f249ab39ce3", "??"),
        ] {
            let Some((_, found)) = frame(line) else {
                panic!("{line} is no frame");
            };
            assert_eq!(found, name);
        }
        assert_eq!(frame("# comment"), None);
    }
}
