//! The notation, the file format, and the built-in table.

use super::*;
use crate::FileError;

fn units(calls: &str) -> Result<Vec<Vec<usize>>, FileError> {
    Shape::new("x", Side::Rx, calls).map(|shape| shape.units)
}

/// Check that the notation is read, with blanks and repetitions, and written in its shortest form.
#[test]
fn notation() {
    assert_eq!(
        units("80,0|192 , 16").unwrap(),
        [vec![80, 0], vec![192, 16]]
    );
    let shape = Shape::new("x", Side::Tx, "32, 48 | 285,3,4096x3,4096,16").unwrap();
    assert_eq!(shape.notation(), "32,48 | 285,3,4096x4,16");
    assert_eq!((shape.n_calls(), shape.n_bytes()), (9, 16768));
}

/// Check that each malformed notation is refused with its own reason.
#[test]
fn malformed_notation() {
    for (calls, error) in [
        ("", "unit 1 has no calls"),
        ("16 | ", "unit 2 has no calls"),
        ("16,,16", "`` is no call"),
        ("16,-1", "`-1` is no call"),
        ("+16", "`+16` is no call"),
        ("4k", "`4k` is no call"),
        ("99999999999999999999", "`99999999999999999999` is no call"),
        ("16x0", "`16x0` makes no call"),
        ("1|1|1|1", "more than 3 units"),
        ("0x8193", "more than 8192 calls"),
        ("1,0x18446744073709551615", "more than 8192 calls"),
        ("18446744073709551615", "more than 67108864 bytes"),
        ("67108865", "more than 67108864 bytes"),
        ("0,0|0", "no call has any bytes"),
    ] {
        let found = units(calls).unwrap_err().to_string();
        assert!(found.starts_with(error), "{calls}: {found}");
    }
}

/// Check that every built-in frame is sound: the table is not empty, has both sides, says where its
/// sizes come from, and each unit of a sender is a whole number of blocks.
#[test]
fn builtin_table() {
    let shapes = builtin();
    assert!(shapes.len() >= 20);
    for shape in &shapes {
        assert!(!shape.source.is_empty(), "{}", shape.name);
        assert_eq!(shape.units.len(), 2, "{}", shape.name);
        for unit in &shape.units {
            assert_eq!(unit.iter().sum::<usize>() % 16, 0, "{}", shape.name);
        }
        assert_eq!(shape.units[0].iter().sum::<usize>(), 80, "{}", shape.name);
    }
    assert!(shapes.iter().any(|s| s.side == Side::Rx));
    assert!(shapes.iter().any(|s| s.side == Side::Tx));
}

/// Check that malformed files are refused with a message that says where and why.
#[test]
fn malformed_files() {
    let frame = |text: &str| format!("version = 1\n[[frame]]\n{text}\n");
    let good = "name = 'a'\nside = 'rx'\ncalls = '16'";
    assert_eq!(parse_shapes(&frame(good)).unwrap().len(), 1);
    for (text, part) in [
        (String::new(), "version"),
        ("version = 1".into(), "no [[frame]]"),
        ("version = 2".into(), "format 2 is not known"),
        (
            frame("name = 'a'\nside = 'up'\ncalls = '16'"),
            "line 4: unknown variant `up`",
        ),
        (frame("name = 'a'\nside = 'rx'"), "missing field `calls`"),
        (frame(&format!("{good}\nsize = 3")), "unknown field `size`"),
        (
            frame("name = ''\nside = 'rx'\ncalls = '16'"),
            "frame 1: the name",
        ),
        (
            frame("name = \"a\\u001b\"\nside = 'rx'\ncalls = '16'"),
            "control characters",
        ),
        (
            frame("name = 'a'\nside = 'rx'\ncalls = '16,?'"),
            "frame `a`: `?` is no call",
        ),
        (
            frame(&format!("{good}\nper_io = 0")),
            "per_io must be above 0",
        ),
        (
            frame(&format!("{good}\nper_io = nan")),
            "per_io must be above 0",
        ),
        (
            frame(&format!("{good}\n[[frame]]\n{good}")),
            "another RX frame has the name `a`",
        ),
        ("x".repeat(2 << 20), "more than"),
    ] {
        let error = parse_shapes(&text).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}
