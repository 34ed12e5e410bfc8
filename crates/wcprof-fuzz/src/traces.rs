//! Trace files.

use std::sync::OnceLock;

use wcprof_findings::{
    Hotspots, RuleSet, hotspots, lock_report, outliers, render_locks, render_text, to_do,
};
use wcprof_profile::model::Profile;
use wcprof_profile::{
    Categories, ProfileBuilder, Rules, Trees, View, cores, cpu_by_category, fleets,
};
use wcprof_report::{
    Answers, HtmlOptions, HtmlPage, MAX_HTML_BYTES, Overview, TextOptions, TextTrees, cores_text,
    daemons_text, folded, functions, json, markdown, text, uwpmp, waits,
};
use wcprof_trace::TraceReader;
use wcprof_trace::model::Tables;

use crate::bytes::Bytes;

/// Magic and version of format 1 (`docs/trace-format.md`), which is read and not written.
const FILE_HEADER_V1: &[u8; 12] = b"\x89wcprof\n\x01\0\0\0";
/// The same of format 2, without the checksum: no features.
const FILE_HEADER: &[u8; 32] = b"\x89wcprof\n\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

/// Where a block's header has its parts: the length of the payload, the checksum of that, and its own. Its length
/// is behind the last.
struct Parts {
    len: usize,
    payload_crc: usize,
    crc: usize,
}

const V1: Parts = Parts {
    len: 8,
    payload_crc: 12,
    crc: 16,
};
const V2: Parts = Parts {
    len: 16,
    payload_crc: 20,
    crc: 40,
};

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
    let is_v1 = file.starts_with(FILE_HEADER_V1);
    let (at, parts) = match is_v1 {
        true => (FILE_HEADER_V1.len(), V1),
        false => (FILE_HEADER.len() + 4, V2),
    };
    if let Some((header, rest)) = file.split_at_mut_checked(at) {
        if !is_v1 {
            let (header, crc) = header.split_at_mut(FILE_HEADER.len());
            crc.copy_from_slice(&crc32fast::hash(header).to_le_bytes());
        }
        put_checksums(rest, &parts);
    }
    file
}

/// Puts the checksums of blocks right.
fn put_checksums(mut rest: &mut [u8], parts: &Parts) {
    while let Some((header, after)) = rest.split_at_mut_checked(parts.crc + 4) {
        let Some(len) = header[parts.len..].first_chunk() else {
            break;
        };
        let len = u32::from_le_bytes(*len) as usize;
        let Some((payload, after)) = after.split_at_mut_checked(len) else {
            break;
        };
        let crc = crc32fast::hash(payload).to_le_bytes();
        header[parts.payload_crc..][..4].copy_from_slice(&crc);
        let crc = crc32fast::hash(&header[..parts.crc]).to_le_bytes();
        header[parts.crc..].copy_from_slice(&crc);
        rest = after;
    }
}

/// The content of blocks of format 1, each behind its size (`u16`), stored without compression.
pub(crate) fn trace_sections(data: &[u8]) {
    let mut file = FILE_HEADER_V1.to_vec();
    let mut input = Bytes(data);
    while !input.0.is_empty() {
        let size = input.u16();
        let sections = input.take(size.into());
        let len = (sections.len() as u32).to_le_bytes();
        let head = [&b"blk\0"[..], &len, &len, &[0; 8]].concat();
        file.extend(head);
        file.extend(sections);
    }
    read(&with_checksums(&file), |_, _| {});
}

/// The same of format 2; each block is behind its kind and its size. One whose kind has bit 7 set is damaged.
pub(crate) fn trace_blocks(data: &[u8]) {
    let mut file = [&FILE_HEADER[..], &[0; 4]].concat();
    let mut input = Bytes(data);
    let mut damaged = Vec::new();
    while !input.0.is_empty() {
        let kind = input.u8();
        let size = input.u16();
        let sections = input.take(size.into());
        let len = (sections.len() as u32).to_le_bytes();
        if kind & 0x80 != 0 {
            damaged.push(file.len() + V2.payload_crc);
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
        to_do: to_do(&profile, &found.findings),
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
    let locks = lock_report(&profile, hotspot_rules);
    let cores = cores(&profile, rules, categories, Some(1.0));
    for text in [
        screen.text(),
        cores_text(&cores),
        daemons_text(&fleets, &outliers(&profile, &fleets, hotspot_rules), None),
        render_locks(&locks, 10, 120),
        render_text(&profile, &found, 120),
    ] {
        out.extend(text.into_bytes());
    }
    let text = String::from_utf8(out);
    let is_printable = |c: char| c == '\n' || !c.is_control();
    assert!(text.is_ok_and(|text| text.chars().all(is_printable)));
    page(&profile, &found);
}

/// A page has the elements of its template, whatever names it shows, and a size.
fn page(profile: &Profile, hotspots: &Hotspots) {
    let options = HtmlOptions {
        title: "fuzz",
        hotspots: Some(hotspots),
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
