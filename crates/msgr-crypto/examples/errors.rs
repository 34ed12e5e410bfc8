//! Scratch.
use msgr_crypto::{calibration::*, measure::*, run::*, shapes::*, verify::*};
use msgr_crypto_ffi::Library;
fn main() {
    let lib = Library::system().unwrap();
    let t = std::time::Instant::now();
    let c = calibrate(&lib, &CalibrationOptions::default()).unwrap();
    eprintln!(
        "cpu {:.2} dist {:.2} ref {:.0} wall {:.2} json {}",
        c.cpu_seconds,
        c.disturbed_share,
        c.reference_ns,
        t.elapsed().as_secs_f64(),
        c.to_json().unwrap().len()
    );
    eprintln!("{:?}\n{:?}", Fit::of(&c.encrypt), Fit::of(&c.decrypt));
    if std::env::args().nth(1).is_some() {
        eprintln!("{:#?}", c);
    }
    let s = builtin();
    let v = verify(
        &lib,
        &c,
        &s,
        &[Residency::Hot, Residency::L2Cold, Residency::MemoryCold],
        Effort {
            rounds: 9,
            sample_ns: 200e3,
        },
    )
    .unwrap();
    for r in [Residency::Hot, Residency::L2Cold, Residency::MemoryCold] {
        let e: Vec<f64> = v
            .iter()
            .filter(|x| x.residency == r && !x.is_disturbed)
            .map(|x| x.error().abs())
            .collect();
        let mut q = e.clone();
        q.sort_by(f64::total_cmp);
        eprintln!(
            "{} median {:.3} p90 {:.3} max {:.3} n>5% {}/{}",
            r.id(),
            q[q.len() / 2],
            q[q.len() * 9 / 10],
            q[q.len() - 1],
            q.iter().filter(|x| **x > 0.05).count(),
            q.len()
        );
    }
    for x in &v {
        println!(
            "{:12} {:2} {:28} {:24} {:10.0} {:10.0} {:+.1} {:?} x{:.2} {}",
            x.residency.id(),
            s[x.shape].side,
            s[x.shape].name,
            x.strategy.id(),
            x.measured_ns,
            x.prediction.ns(),
            100. * x.error(),
            (
                x.prediction.units_ns as i64,
                x.prediction.updates_ns as i64,
                x.prediction.copies_ns as i64,
                x.prediction.distance_ns as i64
            ),
            x.distance_factor,
            if x.is_disturbed { "D" } else { "" }
        );
    }
}
