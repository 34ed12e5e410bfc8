//! Trace files.

use std::sync::OnceLock;

use wcprof_findings::{
    Detail, Hotspots, RuleSet, hotspots, lock_report, outliers, render_locks, render_text, to_do,
};
use wcprof_profile::model::Profile;
use wcprof_profile::{
    Categories, ProfileBuilder, Rules, Trees, View, cores, cpu_by_category, fleets,
};
use wcprof_report::{
    Answers, FirstScreen, HtmlOptions, HtmlPage, MAX_HTML_BYTES, Overview, TextOptions, TextTrees,
    cores_text, daemons_text, folded, functions, json, markdown, text, uwpmp, waits,
};
use wcprof_trace::TraceReader;
use wcprof_trace::model::Tables;

use crate::bytes::Bytes;

/// The file's header without its checksum: magic, version, no features (`docs/trace-format.md`).
const FILE_HEADER: &[u8; 32] = b"\x89wcprof\n\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
/// Bytes of a checksum.
const CRC_BYTES: usize = 4;

/// Position in a block's header of the payload's length.
const PAYLOAD_LEN_AT: usize = 16;
/// Position in a block's header of the payload's checksum.
const PAYLOAD_CRC_AT: usize = 20;
/// Position in a block's header of the header's own checksum, the last of its fields.
const HEADER_CRC_AT: usize = 40;

/// A trace file whose checksums are put right, so that damage gets past them.
pub(crate) fn trace(data: &[u8]) {
    read(&with_checksums(data), |_, _| {});
}

/// The same file, printed in every way.
pub(crate) fn trace_views(data: &[u8]) {
    read(&with_checksums(data), print);
}

fn with_checksums(data: &[u8]) -> Vec<u8> {
    let mut file = data.to_vec();
    if let Some((header, blocks)) = file.split_at_mut_checked(FILE_HEADER.len() + CRC_BYTES) {
        let (header, crc) = header.split_at_mut(FILE_HEADER.len());
        crc.copy_from_slice(&crc32fast::hash(header).to_le_bytes());
        put_checksums(blocks);
    }
    file
}

/// Puts the checksums of blocks right.
fn put_checksums(mut blocks: &mut [u8]) {
    while let Some((header, after)) = blocks.split_at_mut_checked(HEADER_CRC_AT + CRC_BYTES) {
        let Some(len) = header[PAYLOAD_LEN_AT..].first_chunk() else {
            break;
        };
        let len = u32::from_le_bytes(*len) as usize;
        let Some((payload, after)) = after.split_at_mut_checked(len) else {
            break;
        };
        let crc = crc32fast::hash(payload).to_le_bytes();
        header[PAYLOAD_CRC_AT..][..CRC_BYTES].copy_from_slice(&crc);
        let crc = crc32fast::hash(&header[..HEADER_CRC_AT]).to_le_bytes();
        header[HEADER_CRC_AT..].copy_from_slice(&crc);
        blocks = after;
    }
}

/// Contents of blocks, each behind its kind and its size (`u16`). A block whose kind has bit 7 set is damaged.
pub(crate) fn trace_blocks(data: &[u8]) {
    let mut file = [&FILE_HEADER[..], &[0; CRC_BYTES]].concat();
    let mut input = Bytes(data);
    let mut damaged = Vec::new();
    while !input.0.is_empty() {
        let kind = input.u8();
        let size = input.u16();
        let sections = input.take(size.into());
        let len = (sections.len() as u32).to_le_bytes();
        if kind & 0x80 != 0 {
            damaged.push(file.len() + PAYLOAD_CRC_AT);
        }
        file.extend(b"\x89wcblk\r\n");
        file.extend([kind & 0x7f, 0, 0, 0]);
        file.extend([len, len].concat());
        file.extend([0; 24]);
        file.extend(sections);
    }
    let mut file = with_checksums(&file);
    for at in damaged {
        file[at] ^= 1;
    }
    read(&file, |_, _| {});
}

/// Rules take longer to read than most traces.
fn rules() -> &'static (Rules, Categories, RuleSet) {
    static RULES: OnceLock<(Rules, Categories, RuleSet)> = OnceLock::new();
    RULES.get_or_init(|| {
        let rules = Rules::builtin().expect("built-in rules are well-formed");
        let categories = rules.categories().expect("built-in rules are well-formed");
        let hotspots = RuleSet::builtin().expect("built-in rules are well-formed");
        (rules, categories, hotspots)
    })
}

/// Reads it in both ways, and hands on what a profile is made of.
fn read(file: &[u8], and: impl FnOnce(ProfileBuilder, &Tables)) {
    let Ok(reader) = TraceReader::from_reader(file) else {
        return;
    };
    let whole = reader.read_all();
    let mut builder = ProfileBuilder::new();
    let again = TraceReader::from_reader(file).and_then(|reader| {
        let mut n_spans = 0;
        let (tables, ending) = reader.read(|tables, span| {
            n_spans += 1;
            assert!((span.thread.0 as usize) < tables.threads.len());
            builder.add_span(&span);
        })?;
        and(builder, &tables);
        Ok((n_spans, ending))
    });
    match (&whole, again) {
        (Ok((trace, ending)), Ok((n_spans, other))) => {
            assert_eq!(trace.spans.len(), n_spans);
            assert_eq!(*ending, other);
        }
        (Err(_), Err(_)) => {}
        (whole, again) => panic!("{:?}, {again:?}", whole.is_ok()),
    }
}

/// Nothing of the trace may reach a terminal as a control character.
pub(crate) fn print(builder: ProfileBuilder, tables: &Tables) {
    let (rules, categories, hotspot_rules) = rules();
    let profile = builder.finish(tables, None, rules);
    let view = View {
        idle: true,
        ..View::default()
    };
    let trees = Trees::new(&profile, &view);
    let texts = TextTrees::new(&profile, &view);
    let options = TextOptions::default();
    let fleets = fleets(&profile, categories, 2);
    let found = hotspots(&profile, hotspot_rules, &fleets);
    let answers = Answers {
        categories: cpu_by_category(&profile, categories),
        to_do: to_do(&profile, &found.findings, &found.counted),
        n_undecided: found.undecided.len(),
    };
    let screen = Overview {
        profile: &profile,
        answers: &answers,
        width: None,
        color: false,
    };
    let mut out = Vec::new();
    let written = folded(&profile, &trees, &mut out)
        .and_then(|()| text(&profile, &texts, &options, &mut out))
        .and_then(|()| functions(&profile, &view, &options, &mut out))
        .and_then(|()| waits(&profile, &view, &options, &mut out))
        .and_then(|()| uwpmp(&profile, &view, None, &mut out))
        .and_then(|()| json(&profile, &view, None, &mut out))
        .and_then(|()| markdown(&profile, &answers, &mut out));
    assert!(written.is_ok());
    let locks = lock_report(&profile, hotspot_rules, None);
    let cores = cores(&profile, rules, categories, Some(1.0));
    for text in [
        screen.text(),
        cores_text(&cores),
        daemons_text(&fleets, &outliers(&profile, &fleets, hotspot_rules), None),
        render_locks(&locks, 10, 120),
        render_text(&profile, &found, 120, Detail::Full),
    ] {
        out.extend(text.into_bytes());
    }
    let text = String::from_utf8(out);
    let is_printable = |c: char| c == '\n' || !c.is_control();
    assert!(text.is_ok_and(|text| text.chars().all(is_printable)));
    page(&profile, &found, &FirstScreen::new(&screen));
}

/// A page has the elements of its template, whatever names it shows, and a size.
fn page(profile: &Profile, hotspots: &Hotspots, first: &FirstScreen) {
    let options = HtmlOptions {
        title: "fuzz",
        hotspots: Some(hotspots),
        first: Some(first),
        ..HtmlOptions::default()
    };
    let view = View::default();
    let page = HtmlPage::new(profile, &view, options);
    let mut out = Vec::new();
    assert!(page.write(&mut out).is_ok());
    assert!(out.len() <= MAX_HTML_BYTES);
    let text = String::from_utf8(out).unwrap_or_default();
    assert_eq!(text.matches("<script").count(), 2);
    assert_eq!(text.matches("</script").count(), 2);
}
