//! What the safe calls and the plans add to bare EVP calls, which must be at most 2 %: both alternately,
//! the fastest tenth of the samples of each. Fails beyond that.

use std::process::ExitCode;
use std::time::Instant;

use msgr_crypto::run::Runner;
use msgr_crypto::shapes::{Shape, Side};
use msgr_crypto::strategy::{Plan, Strategy};
use msgr_crypto_ffi::{Context, Direction, Library, raw};

const KEY: [u8; 16] = [1; 16];
const NONCE: [u8; 12] = [2; 12];
const ROUNDS: usize = 301;
const SAMPLE_NS: u64 = 40_000;
const MOST: f64 = 0.02;

fn main() -> ExitCode {
    let library = Library::system().expect("libcrypto of OpenSSL");
    println!("{}", library.version);
    println!(
        "{:<28} {:>9} {:>9} {:>8}",
        "", "bare ns", "ours ns", "added"
    );
    let mut is_good = true;
    for size in [16, 64, 256, 1024, 4096, 16384] {
        let mut context = library.context(Direction::Decrypt, &KEY).expect("context");
        let mut other = library.context(Direction::Decrypt, &KEY).expect("context");
        let mut data = vec![0; size];
        let mut same = data.clone();
        is_good &= compare(
            &format!("update of {size}"),
            |n| {
                context.restart(&NONCE).expect("nonce");
                assert!(raw::updates(&mut context, &mut data, n));
            },
            |n| {
                other.restart(&NONCE).expect("nonce");
                for _ in 0..n {
                    other.update_in_place(&mut same).expect("update");
                }
            },
        );
    }
    for calls in ["16", "4096", "16384", "192,4096,16,0", "192,16384,16,0"] {
        let shape = Shape::new("", Side::Rx, calls).expect("notation");
        let parts = &shape.units[0];
        let mut bare = Bare::new(&library, parts);
        let plan = Plan::new(&shape, Strategy::ceph(Side::Rx));
        let mut runner = Runner::new(&library, &plan).expect("runner");
        let is_within = compare(
            &format!("message {calls}"),
            |n| bare.run(n),
            |n| runner.run(n).expect("right tags"),
        );
        // Ten nanoseconds are many for a message that is no frame: shown, but no failure.
        is_good &= is_within || calls == "16";
    }
    match is_good {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// A message in parts, by bare calls.
struct Bare<'lib> {
    context: Context<'lib>,
    parts: Vec<Aligned>,
    tags: [[u8; 16]; 2],
}

/// Begins at a cache line, as the parts of a plan do.
struct Aligned {
    bytes: Vec<u8>,
    begin: usize,
    len: usize,
}

impl<'lib> Bare<'lib> {
    fn new(library: &'lib Library, parts: &[usize]) -> Self {
        let mut seal = library.context(Direction::Encrypt, &KEY).expect("context");
        let mut data = vec![0; parts.iter().sum()];
        let mut tag = || {
            seal.restart(&NONCE).expect("nonce");
            seal.update_in_place(&mut data).expect("update");
            seal.finish().expect("final");
            seal.tag().expect("tag")
        };
        let (of_key_stream, of_zeros) = (tag(), tag());
        let aligned = |len: &usize| {
            let bytes = vec![0_u8; len + 8192];
            let begin = bytes.as_ptr().align_offset(4096);
            Aligned {
                bytes,
                begin,
                len: *len,
            }
        };
        Self {
            context: library.context(Direction::Decrypt, &KEY).expect("context"),
            parts: parts.iter().map(aligned).collect(),
            tags: [of_zeros, of_key_stream],
        }
    }

    /// An even number, so that the data is what it was.
    fn run(&mut self, n: u64) {
        let mut parts: Vec<&mut [u8]> = self
            .parts
            .iter_mut()
            .map(|part| &mut part.bytes[part.begin..][..part.len])
            .collect();
        let n = n.next_multiple_of(2);
        assert!(raw::messages(
            &mut self.context,
            &NONCE,
            &mut parts,
            &self.tags,
            n
        ));
    }
}

fn compare(name: &str, mut bare: impl FnMut(u64), mut ours: impl FnMut(u64)) -> bool {
    let begin = Instant::now();
    bare(100);
    let each = (begin.elapsed().as_nanos() as u64 / 100).max(1);
    let n = (SAMPLE_NS / each).max(2).next_multiple_of(2);
    let time = |work: &mut dyn FnMut(u64)| {
        let begin = Instant::now();
        work(n);
        begin.elapsed().as_nanos() as f64 / n as f64
    };
    let (mut of_bare, mut of_ours) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        // Whoever comes second finds the core as the first left it.
        if round % 2 == 0 {
            of_bare.push(time(&mut bare));
            of_ours.push(time(&mut ours));
        } else {
            of_ours.push(time(&mut ours));
            of_bare.push(time(&mut bare));
        }
    }
    let (bare, ours) = (fast(of_bare), fast(of_ours));
    let added = ours / bare - 1.0;
    println!(
        "{name:<28} {bare:>9.1} {ours:>9.1} {:>+7.1} %",
        100.0 * added
    );
    added <= MOST
}

/// A tenth of the samples is faster.
fn fast(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 10]
}
