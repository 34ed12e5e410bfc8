//! AES-128-GCM of the messenger by size of a call and strategy. Ids read like the tables of
//! `docs/crypto.md`: what, how, bytes.
//!
//! `update` times `EVP_*Update` alone, as `openssl speed` did up to 3.0.15 and 3.4.0; `message` times
//! nonce, update, tag and final. The two must not be compared with each other.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use msgr_crypto::run::Runner;
use msgr_crypto::shapes::{Shape, Side, builtin};
use msgr_crypto::strategy::{Arrangement, Placement, Plan, Strategy};
use msgr_crypto_ffi::{Direction, Library};

const KEY: [u8; 16] = [1; 16];
const NONCE: [u8; 12] = [2; 12];
const SIZES: [usize; 10] = [16, 64, 256, 512, 1024, 2048, 4096, 16384, 65536, 1 << 20];
const MESSAGE: usize = 16384;

/// The library named by `MSGR_CRYPTO_LIB`, or the system's.
fn library() -> Library {
    let library = match std::env::var_os("MSGR_CRYPTO_LIB") {
        Some(path) => Library::open(path.as_ref()),
        None => Library::system(),
    };
    library.expect("libcrypto of OpenSSL")
}

fn shape(side: Side, calls: Vec<usize>) -> Shape {
    Shape {
        name: String::new(),
        side,
        units: vec![calls],
        per_io: 1.0,
        source: String::new(),
    }
}

fn runner<'lib>(library: &'lib Library, plan: &Plan) -> Runner<'lib> {
    Runner::new(library, plan).expect("AES-128-GCM")
}

fn updates(c: &mut Criterion) {
    let library = library();
    println!("{}, kernel {}", library.version, library.gcm_kernel().id());
    for direction in [Direction::Decrypt, Direction::Encrypt] {
        let mut group = c.benchmark_group(format!("update/{direction:?}").to_lowercase());
        for size in SIZES {
            let mut context = library.context(direction, &KEY).expect("context");
            let mut data = vec![0; size];
            group.throughput(Throughput::Bytes(size as u64));
            group.bench_function(BenchmarkId::from_parameter(size), |b| {
                // A message has at most 64 GiB.
                context.restart(&NONCE).expect("nonce");
                b.iter(|| context.update_in_place(black_box(&mut data)));
            });
        }
    }
}

fn messages(c: &mut Criterion) {
    let library = library();
    for side in [Side::Rx, Side::Tx] {
        let placement = Strategy::ceph(side).placement;
        let mut group = c.benchmark_group(format!("message/{side}"));
        for size in SIZES {
            let strategy = Strategy::new(Arrangement::PerBuffer, placement);
            let plan = Plan::new(&shape(side, vec![size]), strategy);
            bench(&mut group, &library, &plan, &size.to_string());
        }
    }
}

/// 16 KiB in fragments, by strategy; and in place as one buffer, by bytes in a call.
fn fragments(c: &mut Criterion) {
    let library = library();
    for side in [Side::Rx, Side::Tx] {
        let now = Strategy::ceph(side);
        let copying = match side {
            Side::Rx => Arrangement::Coalesced,
            Side::Tx => Arrangement::Gathered,
        };
        let mut group = c.benchmark_group(format!("16KiB in fragments/{side}"));
        for fragment in (6..=14).map(|power| 1 << power) {
            let shape = shape(side, vec![fragment; MESSAGE / fragment]);
            for strategy in [now, Strategy::new(copying, now.placement)] {
                let id = format!("{}/{fragment}", strategy.id());
                bench(&mut group, &library, &Plan::new(&shape, strategy), &id);
            }
        }
        group.finish();
        let mut group = c.benchmark_group(format!("1MiB in batches/{side}"));
        for batch in (4..=20).step_by(2).map(|power| 1 << power) {
            let strategy = Strategy::new(Arrangement::Contiguous, Placement::InPlace);
            let plan = Plan::new(&shape(side, vec![1 << 20]), strategy.with_batch(batch));
            bench(&mut group, &library, &plan, &batch.to_string());
        }
    }
}

fn frames(c: &mut Criterion) {
    let library = library();
    let mut group = c.benchmark_group("frame");
    for shape in builtin() {
        let strategies = [Strategy::ceph(shape.side)]
            .into_iter()
            .chain(Strategy::alternatives(shape.side));
        for strategy in strategies {
            let id = format!("{} {}/{}", shape.side, shape.name, strategy.id());
            bench(&mut group, &library, &Plan::new(&shape, strategy), &id);
        }
    }
}

fn bench(
    group: &mut criterion::BenchmarkGroup<'_, WallTime>,
    library: &Library,
    plan: &Plan,
    id: &str,
) {
    group.throughput(Throughput::Bytes(plan.n_bytes() as u64));
    // Nothing is allocated for a benchmark that is filtered out.
    group.bench_function(id, |b| {
        let mut runner = runner(library, plan);
        b.iter(|| runner.run(1).expect("right tags"));
    });
}

/// What is done before a message.
fn setup(c: &mut Criterion) {
    let library = library();
    let mut group = c.benchmark_group("setup");
    for direction in [Direction::Decrypt, Direction::Encrypt] {
        let name = format!("{direction:?}").to_lowercase();
        let mut context = library.context(direction, &KEY).expect("context");
        group.bench_function(format!("{name}/nonce"), |b| {
            b.iter(|| context.restart(black_box(&NONCE)));
        });
        group.bench_function(format!("{name}/key and nonce"), |b| {
            b.iter(|| context.rekey(black_box(&KEY), &NONCE));
        });
        group.bench_function(format!("{name}/new context with key"), |b| {
            b.iter(|| library.context(direction, black_box(&KEY)).map(drop));
        });
    }
}

/// The same frame by 1 to N threads at once, each with its own context and memory.
fn threads(c: &mut Criterion) {
    let library = library();
    let n_cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let shapes = builtin();
    let shape = shapes
        .iter()
        .find(|shape| shape.side == Side::Rx && shape.name == "16K read reply");
    let plan = Plan::new(shape.expect("built-in shape"), Strategy::ceph(Side::Rx));
    let mut group = c.benchmark_group("threads/RX 16K read reply");
    let mut n_threads = 1;
    while n_threads <= n_cpus {
        group.throughput(Throughput::Bytes((plan.n_bytes() * n_threads) as u64));
        group.bench_function(BenchmarkId::from_parameter(n_threads), |b| {
            b.iter_custom(|n| parallel(&library, &plan, n_threads, n));
        });
        n_threads *= 2;
    }
}

fn parallel(library: &Library, plan: &Plan, n_threads: usize, n: u64) -> Duration {
    let barrier = std::sync::Barrier::new(n_threads);
    std::thread::scope(|scope| {
        let work = || {
            let mut runner = runner(library, plan);
            barrier.wait();
            let begin = Instant::now();
            runner.run(n).expect("right tags");
            begin.elapsed()
        };
        let threads: Vec<_> = (0..n_threads).map(|_| scope.spawn(work)).collect();
        let times = threads.into_iter().map(|t| t.join().expect("no panic"));
        times.max().unwrap_or_default()
    })
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(300));
    targets = updates, messages, fragments, frames, setup, threads
}
criterion_main!(benches);
