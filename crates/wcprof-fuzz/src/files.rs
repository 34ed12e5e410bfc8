//! Files of users: rules, shapes, calibrations. And the frames of the messenger.

use std::path::Path;

use msgr_crypto::calibration::{Calibration, parse_speed_table};
use msgr_crypto::frame::{Frame, NonceSequence, Opener, Revision, Sealer, Segment};
use msgr_crypto::shapes::parse_shapes;
use wcprof_findings::RuleSet;
use wcprof_profile::Rules;

use crate::bytes::Bytes;

/// A file of rules for states and pools.
pub(crate) fn state_rules(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = Rules::with_user_files(&[("fuzz.toml", text)]).map_err(|e| e.to_string());
    }
}

/// A hotspot rule.
pub(crate) fn hotspot_rules(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        let mut rules = RuleSet::empty();
        match rules.add_text(Path::new("fuzz.toml"), text) {
            Ok(()) => assert_eq!(rules.rules().len(), 1),
            Err(error) => {
                let _ = error.to_string();
                assert!(rules.rules().is_empty());
            }
        }
    }
}

/// Which file (`u8`), and its text.
pub(crate) fn crypto_files(data: &[u8]) {
    let Some((which, text)) = data.split_first() else {
        return;
    };
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    match which % 3 {
        0 => {
            if let Ok(shapes) = parse_shapes(text) {
                assert!(shapes.len() <= text.len());
            }
        }
        1 => {
            if let Ok(calibration) = Calibration::from_json(text) {
                let _ = format!("{calibration:?}");
            }
        }
        _ => {
            let _ = parse_speed_table(text).map(|c| format!("{c:?}"));
        }
    }
}

/// A frame that is sealed, changed on the wire if the input says so, and opened: the same frame, or
/// an error.
pub(crate) fn messenger_frame(data: &[u8]) {
    let mut input = Bytes(data);
    let (flags, tag, at, change) = (input.u8(), input.u8(), input.u16(), input.u8());
    let revision = match flags & 1 {
        0 => Revision::V20,
        _ => Revision::V21,
    };
    let mut segments = Vec::new();
    for _ in 0..flags >> 1 & 7 {
        let (align, size) = (input.u16(), input.u16());
        segments.push(Segment {
            data: input.take(size.into()).to_vec(),
            align,
        });
    }
    let mut frame = Frame {
        tag,
        segments,
        flags: 0,
    };
    let nonces = || NonceSequence::new(revision, [7; 12]);
    let sealed = Sealer::new(revision, &[1; 16], nonces()).map(|mut s| s.seal(&frame));
    let Ok(Ok(sealed)) = sealed else { return };
    let mut wire = sealed.bytes;
    let place = usize::from(at) % wire.len().max(1);
    if let Some(byte) = wire.get_mut(place) {
        *byte ^= change;
    }
    wire.extend(input.0);
    let Ok(mut opener) = Opener::new(revision, &[1; 16], nonces()) else {
        return;
    };
    frame.drop_empty();
    match opener.open(&wire) {
        Ok((opened, used)) => {
            assert!(used <= wire.len());
            assert!(change == 0, "a changed frame was taken");
            assert_eq!(opened, frame);
        }
        Err(_) => assert!(change != 0, "an unchanged frame was refused"),
    }
}
