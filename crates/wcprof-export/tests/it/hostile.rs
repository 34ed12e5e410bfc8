//! Hostile texts in every place that a target or a file can put them, to every format that programs read.

use proptest::prelude::*;
use wcprof_profile::model::Detail;
use wcprof_profile::{Trees, View};
use wcprof_report::{Answers, folded, markdown};
use wcprof_types::BuildId;

use crate::exports::{Exports, ungrouped};
use crate::read::texts;
use crate::support::{MS, Maker};

/// Characters that drive a terminal, end a line or a field, or reorder what is around them.
const NASTY: &str = "[a=@;,\"'`|<#\\\\\u{0}-\u{1f}\u{7f}-\u{9f}\u{61c}\u{200e}\u{200f}\u{2028}-\u{202e}\u{2066}-\u{2069}]{1,12}";

/// A running thread; `texts` become all its names.
fn trace(texts: &[String]) -> Maker {
    let text = |at: usize| texts[at % texts.len()].clone();
    let mut maker = Maker::new();
    let tables = &mut maker.tables;
    tables.processes[0].comm = text(0);
    tables.processes[0].cgroup = text(1);
    tables.processes[0].cmdline = vec![text(2), "--id".into(), text(3)];
    tables.modules[0].path = format!("/{}", text(4));
    tables.modules[0].build_id = BuildId::new(&[1]);
    tables.header.engine = text(5);
    tables.header.host = text(6);
    tables.header.notes = vec![text(7)];
    tables.header.wcprof_version = text(8);
    let thread = maker.thread(100, &text(9));
    // `+` is inlined into, ` @ ` is at.
    let function = format!("{} @ {}:7+{}", text(10), text(11), text(12));
    maker.on_cpu(thread, &[&function, &text(13)], MS);
    maker
}

fn is_nasty(c: char) -> bool {
    c.is_control()
        || "\u{61c}\u{200e}\u{200f}".contains(c)
        || ('\u{2028}'..='\u{202e}').contains(&c)
        || ('\u{2066}'..='\u{2069}').contains(&c)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Check that no format passes a control or bidirectional character, and that each can be read.
    #[test]
    fn harmless(texts_of_target in prop::collection::vec(NASTY, 1..8)) {
        let maker = trace(&texts_of_target);
        let exports = Exports::of(&maker, None);
        let (view, title) = (ungrouped(), texts_of_target[0].as_str());
        let pprof = exports.pprof(&view).0;
        let [speedscope, firefox] = [
            exports.speedscope(&View::default(), title).unwrap(),
            exports.firefox(&view, title).unwrap(),
        ];
        let of_json = [texts(&speedscope), texts(&firefox)].concat();
        let strings = pprof.string_table.iter().map(String::as_str).chain(of_json);
        for text in strings {
            prop_assert!(!text.contains(is_nasty), "{text:?}");
        }
        let row = exports.csv(&view).remove(0);
        for cell in row.values() {
            prop_assert!(!cell.contains(is_nasty) && !cell.starts_with(['=', '+', '-', '@']), "{cell:?}");
        }
        for text in [markdown_of(&exports), folded_of(&maker)] {
            prop_assert!(!text.replace('\n', "").contains(is_nasty), "{text:?}");
        }
    }
}

fn folded_of(maker: &Maker) -> String {
    let profile = maker.profile_of(Detail::Lines);
    let mut out = Vec::new();
    folded(&profile, &Trees::new(&profile, &View::default()), &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert_eq!(text.lines().count(), 1);
    text
}

fn markdown_of(exports: &Exports) -> String {
    let mut out = Vec::new();
    markdown(&exports.profile, &Answers::default(), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}
