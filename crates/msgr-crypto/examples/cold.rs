//! Scratch.
use msgr_crypto::calibration::*;
use msgr_crypto_ffi::Library;
fn main() {
    let lib = Library::system().unwrap();
    for _ in 0..4 {
        let c = calibrate(&lib, &CalibrationOptions::default()).unwrap();
        println!(
            "cpu {:.2} disturbed {:.2} ref {:.0} oop {:?}",
            c.cpu_seconds,
            c.disturbed_share,
            c.reference_ns,
            c.encrypt
                .out_of_place
                .points()
                .iter()
                .map(|p| (p.0, p.1 as i64))
                .collect::<Vec<_>>()
        );
        for (n, t) in [
            ("L2", c.l2_cold.as_ref().unwrap()),
            ("mem", c.memory_cold.as_ref().unwrap()),
        ] {
            for (k, q) in [
                ("inpl", &t.in_place),
                ("oop", &t.out_of_place),
                ("tocold", &t.to_cold),
                ("c2h", &t.copy_to_hot),
                ("copy", &t.copy),
            ] {
                println!(
                    "{n} {k:7} {:?}",
                    q.points()
                        .iter()
                        .map(|p| (p.0, p.1 as i64))
                        .collect::<Vec<_>>()
                );
            }
        }
    }
}
