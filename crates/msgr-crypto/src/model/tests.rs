//! Predictions by hand, and the report of 2022 as an example.

use super::*;
use crate::calibration::parse_speed_table;
use crate::calibration::tests::example;
use crate::shapes::{Shape, Side};
use crate::strategy::{Arrangement, Placement, Plan, Strategy};

const REPORT: &str = include_str!("../../data/report-2022.speed.txt");

fn shape(side: Side, calls: &str) -> Shape {
    Shape::new("x", side, calls).unwrap()
}

/// Check a frame against its sum by hand: two units, the calls, no copies.
#[test]
fn hot_sum() {
    let calibration = example();
    let plan = Plan::new(&shape(Side::Rx, "80,0 | 192,96"), Strategy::ceph(Side::Rx));
    let prediction = predict(&plan, &calibration);
    assert_eq!(prediction.units_ns, 200.0);
    // 80: 20 + 5; empty: 5; 192: 20 + 20; 96: 20 + 10; first of each unit: 4.
    assert_eq!(prediction.updates_ns, 25.0 + 5.0 + 40.0 + 30.0 + 2.0 * 4.0);
    assert_eq!(prediction.copies_ns, 0.0);
    assert_eq!(prediction.ns, 308.0);
}

/// Check that copies are counted by their sizes, and the one call by the sum of them.
#[test]
fn copies() {
    let calibration = example();
    let strategy = Strategy::new(Arrangement::Gathered, Placement::OutOfPlace);
    let plan = Plan::new(&shape(Side::Tx, "64,32"), strategy);
    let prediction = predict(&plan, &calibration);
    let copy = |bytes: f64| 2.0 + 2000.0 * bytes / 65536.0;
    assert!((prediction.copies_ns - copy(64.0) - copy(32.0)).abs() < 1e-9);
    assert_eq!(prediction.updates_ns, 34.0);
}

/// Check that of a frame larger than L2 only what copies nothing is predicted, and that is marked.
#[test]
fn larger_than_cache() {
    let calibration = example();
    let shapes = [
        shape(Side::Tx, "65536x2"),
        Shape::new("y", Side::Tx, "65536x8").unwrap(),
    ];
    let report = Report::new(&shapes, &calibration, None);
    let n = |frame: &FrameReport| (frame.fits_cache, frame.alternatives.len());
    let all: Vec<_> = report.frames.iter().map(n).collect();
    assert_eq!(all, [(true, 3), (false, 1)]);
    assert_eq!(report.frames[1].alternatives[0].strategy, "contiguous");
}

/// Check the users' report of 2022 with its own table: at 87 000 I/Os a second by three threads,
/// decrypting 16 KiB replies takes 12.5 % of each, and one call a unit would give 0.3 points back.
#[test]
fn report_of_2022() {
    let calibration = parse_speed_table(REPORT).unwrap();
    let shapes = [shape(Side::Rx, "80,0 | 192,16384,16,0")];
    let load = Load {
        threads: 3,
        iops: 87_000.0,
    };
    let report = Report::new(&shapes, &calibration, Some(load));
    let frame = &report.frames[0];
    let frame_load = frame.load.unwrap();
    assert_eq!(format!("{:.1}", frame_load.thread_percent), "12.5");
    assert_eq!(format!("{:.1}", frame_load.best_thread_percent), "12.2");
    assert_eq!(format!("{:.1}", frame_load.gain_points), "0.3");
    assert_eq!(format!("{:.1}", frame_load.bulk_thread_percent), "11.9");
    assert!(!report.verdict.batching_helps, "{:?}", report.verdict);
    // A gain of 0.3 points of a thread is the same share in I/Os.
    assert!((frame_load.iops_bound / 87_000.0 - 1.0) < 0.004);
    // The table has no copies: only strategies without copies can be predicted.
    assert_eq!(frame.alternatives.len(), 1);

    let many = |calls: &str| {
        let shapes = [shape(Side::Rx, calls)];
        let report = Report::new(&shapes, &calibration, Some(load));
        format!("{:.1}", report.frames[0].load.unwrap().thread_percent)
    };
    assert_eq!(many("80,0 | 192,4096x4,16,0"), "12.8");
    assert_eq!(many("80,0 | 192,1024x16,16,0"), "14.4");
    assert_eq!(many("80,0 | 192,256x64,16,0"), "20.7");
}

/// Check the verdict at its threshold, weighed by frames for each I/O, and the names of frames that
/// are helped.
#[test]
fn verdicts() {
    let calibration = example();
    let mut few = shape(Side::Rx, "80,0 | 192,16384,16,0");
    few.name = "few".into();
    let mut many = shape(Side::Tx, "32,48 | 64x256,16");
    many.name = "many".into();
    let report = |shapes: &[Shape]| Report::new(shapes, &calibration, None).verdict;
    let verdict = report(&[few.clone()]);
    assert!(
        !verdict.batching_helps && verdict.helped.is_empty(),
        "{verdict:?}"
    );
    many.per_io = 0.001;
    let verdict = report(&[few.clone(), many.clone()]);
    assert!(!verdict.batching_helps, "{verdict:?}");
    assert_eq!(verdict.helped, ["TX many"]);
    many.per_io = 1.0;
    assert!(report(&[few, many]).batching_helps);
}

/// Check that break-even is where the sums say: here a call costs 20 ns, a copy of 2 to 500 ns.
#[test]
fn break_even() {
    let mut calibration = example();
    let report = |calibration: &_| {
        let shapes = [shape(Side::Tx, "16")];
        Report::new(&shapes, calibration, None).sides[0].break_even_bytes
    };
    let with_copies = report(&calibration);
    assert!(
        (256..=1024).contains(&with_copies.unwrap()),
        "{with_copies:?}"
    );
    // Copies of a nanosecond a byte never pay.
    calibration.copy = crate::calibration::Curve::new(vec![(0, 30.0), (65536, 66_000.0)]);
    assert_eq!(report(&calibration), None);
}
