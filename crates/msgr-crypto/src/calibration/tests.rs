//! Update costs at any phase and size, and files.

use super::costs::{DENSE, PERIOD, PERIOD_BEGIN};
use super::*;
use crate::host::Host;

/// A kernel with a period: 20 ns a call, 10 ns for each started 96 bytes, 1 ns for each block.
fn stitched(len: u64) -> f64 {
    20.0 + 10.0 * (len / 96) as f64 + (len % 96 / 16) as f64
}

pub(crate) fn costs() -> DirectionCosts {
    let dense = (16..=DENSE).step_by(16);
    let period = (PERIOD_BEGIN..=PERIOD_BEGIN + PERIOD).step_by(16);
    let large = [4096, 16384, 65536];
    let update = dense.chain(period).chain(large).map(|n| (n, stitched(n)));
    let by_bytes = |range: std::ops::RangeInclusive<u64>, per: f64| {
        Curve::new(range.map(|n| (n, n as f64 * per)).collect())
    };
    DirectionCosts {
        unit_ns: 100.0,
        nonce_ns: 40.0,
        rekey_ns: 200.0,
        context_ns: 500.0,
        update: Curve::new(update.collect()),
        tail: by_bytes(0..=15, 1.0),
        small: Curve::new(vec![(0, 5.0), (15, 30.0)]),
        fill: Curve::new(vec![(1, 8.0), (15, 22.0)]),
        head: by_bytes(1..=15, 2.0),
        shifted: Curve::new(vec![(0, 0.0), (1000, 10.0)]),
        out_of_place: Curve::new(vec![(0, 0.0), (1000, 3.0)]),
        first: Curve::new(vec![(0, 4.0)]),
    }
}

pub(crate) fn example() -> Calibration {
    Calibration {
        library: LibraryFacts {
            version: "OpenSSL 3.0.0".into(),
            path: Some("/lib/libcrypto.so.3".into()),
            kernel: "aesni-stitched".into(),
            cpu_features: vec!["aes".into()],
        },
        host: Host {
            cpu: "a CPU".into(),
            l2_bytes: 512 << 10,
        },
        made_unix: 1,
        cpu_seconds: 2.0,
        reference_ns: 3000.0,
        disturbed_share: 0.0,
        encrypt: costs(),
        decrypt: costs(),
        copy: Curve::new(vec![(0, 2.0), (65536, 2002.0)]),
    }
}

/// Check that the pattern of a kernel is followed between points that are far apart.
#[test]
fn pattern_between_points() {
    let costs = costs();
    for len in [
        16, 80, 96, 1024, 1040, 1600, 2304, 2320, 3008, 9600, 16592, 40000, 80000,
    ] {
        let len = len / 16 * 16;
        let error = costs.update_ns(0, len) / stitched(len) - 1.0;
        assert!(error.abs() < 0.005, "{len}: {error}");
    }
}

/// Check each way in which a call can lie between block borders.
#[test]
fn phases() {
    let costs = costs();
    let f = |len| stitched(len);
    for (phase, len, ns) in [
        (0, 0, 5.0),
        (0, 15, 30.0),
        (0, 256 + 13, f(256) + 13.0),
        (13, 3, 10.0),
        (13, 3 + 256, 6.0 + f(256) + 2.59),
        (13, 3 + 256 + 4, 6.0 + f(256) + 4.0 + 2.63),
        (5, 0, 5.0),
        (1, 2, 9.0_f64.min(5.0 + 25.0 * 2.0 / 15.0)),
    ] {
        let got = costs.update_ns(phase, len);
        assert!((got - ns).abs() < 1e-9, "{phase} {len}: {got}, not {ns}");
    }
}

/// Check that a calibration survives its file.
#[test]
fn round_trip() {
    let calibration = example();
    let text = calibration.to_json().unwrap();
    assert_eq!(Calibration::from_json(&text).unwrap(), calibration);
}

/// Check that unknown fields are ignored, and every file that is no sound calibration is refused with
/// the field and the reason.
#[test]
fn malformed_files() {
    let value: serde_json::Value = serde_json::from_str(&example().to_json().unwrap()).unwrap();
    let with = |pointer: &str, new: serde_json::Value| {
        let mut value = value.clone();
        *value.pointer_mut(pointer).unwrap() = new;
        Calibration::from_json(&value.to_string())
    };
    let mut more = value.clone();
    more["later"] = 1.into();
    assert!(Calibration::from_json(&more.to_string()).is_ok());
    for (pointer, new, part) in [
        ("/schema", "x".into(), "the schema is `x`"),
        ("/version", 4.into(), "version 4 is not known"),
        ("/version", 6.into(), "version 6 is not known"),
        (
            "/encrypt/unit_ns",
            (-1.0).into(),
            "`encrypt.unit_ns` is no time",
        ),
        (
            "/decrypt/update",
            serde_json::json!([]),
            "`decrypt.update` has no points",
        ),
        (
            "/decrypt/update",
            serde_json::json!([[1, 2.0]]),
            "fewer than two",
        ),
        (
            "/decrypt/update",
            serde_json::json!([[2, 2.0], [1, 1.0]]),
            "do not grow",
        ),
        (
            "/copy",
            serde_json::json!([[0, 1e300]]),
            "`copy` has a time",
        ),
        ("/copy", serde_json::json!([[-1, 1.0]]), "invalid value"),
        ("/host/l2_bytes", 0.into(), "is no size of a cache"),
        (
            "/host/cpu",
            "x".repeat(5000).into(),
            "`host.cpu` is too long",
        ),
        ("/host", serde_json::Value::Null, "not a calibration"),
    ] {
        let error = with(pointer, new).unwrap_err().to_string();
        assert!(error.contains(part), "{pointer}: {error}");
    }
    for text in ["", "[", "{}", "[[[[", "\u{0}"] {
        assert!(Calibration::from_json(text).is_err());
    }
}
