//! Compares our uwpmp format with what uwpmp printed of `uwpmp/target.cc`, byte for byte
//! (`uwpmp/README.md` says how its output was made). These files are never blessed.

use crate::support;

use support::{MS, Maker, syscall};
use wcprof_profile::{Direction, View};
use wcprof_report::uwpmp;

/// How often each chain of the thread `deep` was seen: one run each.
struct Deep {
    deep: u64,
    own: u64,
}

/// What a run of 1000 samples saw, rendered by us.
fn ours(seen: &Deep, direction: Direction, width: Option<usize>) -> String {
    const STRING: &str = "std::__cxx11::basic_string<char, std::char_traits<char>, \
                          std::allocator<char> > const&, unsigned long)";
    let read = format!("store::Bluestore::read({STRING}");
    let long = format!(
        "store::Bluestore::a_read_whose_demangled_name_no_terminal_of_eighty_columns_can_show_\
         whole({STRING}"
    );
    let mut m = Maker::new();
    let deep = m.thread(21133, "deep");
    let op = m.thread(21134, "tp_osd_tp");
    let main = m.thread(21131, "uwp-target");
    for thread in &mut m.tables.threads {
        thread.n_ticks = 1000;
    }
    let mut add = |thread, chain: &[&str], n: u64| {
        let mut stack = chain.to_vec();
        stack.push("epoll_wait");
        m.blocked(thread, syscall("epoll_wait"), &stack, n * MS);
    };
    let mut chain = vec!["start_thread", "stacks(void*)"];
    chain.extend(["deep(int)"; 76]);
    add(deep, &chain, seen.deep);
    add(deep, &["start_thread", "stacks(void*)", "own()"], seen.own);
    for (chain, n) in [
        (&[read.as_str()][..], 500),
        (&[long.as_str()][..], 250),
        (&["aio()", "submit()"][..], 123),
        (&["wal()", "submit()"][..], 121),
        (&["rare()"][..], 5),
        (&["rarer()", "rare()"][..], 1),
    ] {
        let mut whole = vec!["start_thread", "op(void*)"];
        whole.extend(chain);
        add(op, &whole, n);
    }
    add(main, &["__libc_start_call_main", "main"], 1000);
    let view = View {
        direction,
        idle: true,
        min_percent: 1.0,
        ..View::default()
    };
    let mut out = Vec::new();
    uwpmp(&m.profile(), &view, width, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn same(ours: &str, theirs: &str) {
    for (n, (our, their)) in ours.lines().zip(theirs.lines()).enumerate() {
        assert_eq!(our, their, "line {}", n + 1);
    }
    assert!(ours == theirs, "one ends before the other");
}

/// Check the forward tree, not cut.
#[test]
fn forward() {
    let seen = Deep { deep: 997, own: 3 };
    same(
        &ours(&seen, Direction::RootFirst, None),
        include_str!("../uwpmp/forward.txt"),
    );
}

/// Check the inverted tree, not cut.
#[test]
fn inverted() {
    let seen = Deep { deep: 998, own: 2 };
    same(
        &ours(&seen, Direction::LeafFirst, None),
        include_str!("../uwpmp/inverted.txt"),
    );
}

/// Check a terminal of 80 columns: names that are cut, and prefixes wider than the terminal.
#[test]
fn terminal() {
    let seen = Deep { deep: 996, own: 4 };
    same(
        &ours(&seen, Direction::RootFirst, Some(80)),
        include_str!("../uwpmp/terminal.txt"),
    );
}
