//! Short sleepers against the kernel's own counts: a thread that leaves its CPU while a pass looks at it is not taken for
//! one that has not run.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use wcprof_host::clock::monotonic_ns;
use wcprof_host::procfs::{parse_schedstat, task_state};

use super::*;

/// Threads, and how often each runs for a moment and sleeps again, where the machine is not too slow: 20 000 sleeps.
const FEW: (usize, usize) = (200, 100);
const MANY: (usize, usize) = (10_000, 2);
const ENOUGH: Duration = Duration::from_secs(20);

/// Check that a thread which was woken after a pass and before the next one is not taken for unchanged by that, wherever it
/// is meanwhile; and that the last record of each thread that sleeps has the kernel's run time and count of runs.
pub(super) fn settled(make: Make) {
    short_sleepers(make, FEW);
}

/// Check the same of 10 000 threads, whose passes take much longer than their sleeps.
pub(super) fn many_settled(make: Make) {
    let memory = fs::read_to_string("/proc/meminfo").unwrap();
    let total_kib = memory.split_ascii_whitespace().nth(1);
    if total_kib.is_none_or(|kib| kib.parse::<u64>().unwrap() < 4 << 20) {
        return skip("needs 4 GiB of memory for 10 000 threads");
    }
    short_sleepers(make, MANY);
}

fn short_sleepers(make: Make, (n_threads, n_rounds): (usize, usize)) {
    let Some(mut engine) = engine(make, &[own_pid()]) else {
        return;
    };
    let (n_ran, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let woken: Vec<AtomicU64> = (0..n_threads).map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| {
        let (sender, tids) = mpsc::channel();
        let sleepers: Vec<_> = (0..n_threads)
            .map(|i| {
                let (sender, n_ran, is_over) = (sender.clone(), &n_ran, &is_over);
                let woken = &woken[i];
                let body = move || {
                    sender.send((nix::unistd::gettid().as_raw(), i)).unwrap();
                    while !is_over.load(Ordering::Relaxed) {
                        // Parking may end without a reason: that is one more sleep.
                        thread::park();
                        woken.store(monotonic_ns(), Ordering::Relaxed);
                        (0..1000 + 37 * (i % FEW.0)).for_each(|_| hint::spin_loop());
                        n_ran.fetch_add(1, Ordering::Relaxed);
                    }
                };
                let builder = thread::Builder::new().stack_size(64 << 10);
                builder.spawn_scoped(scope, body).unwrap()
            })
            .collect();
        // One of its own wakes them, while this one looks.
        let (wake, orders) = mpsc::channel::<()>();
        let threads: Vec<_> = sleepers.iter().map(|s| s.thread().clone()).collect();
        scope.spawn(move || {
            orders
                .iter()
                .for_each(|()| threads.iter().for_each(|t| t.unpark()));
        });
        let places: HashMap<i32, usize> = tids.iter().take(n_threads).collect();
        let tids: Vec<i32> = places.keys().copied().collect();
        // By thread: its last record, and when the pass that gave it was over.
        let mut last: Vec<Option<(TaskRecord, u64)>> = vec![None; n_threads];
        let (mut wrong, mut missed) = (Vec::new(), Vec::new());
        let mut look = |engine: &mut BpfEngine, last: &mut Vec<Option<(TaskRecord, u64)>>| {
            let woken: Vec<u64> = woken.iter().map(|w| w.load(Ordering::Relaxed)).collect();
            let (_, tasks, _) = changes(engine, false);
            let now = monotonic_ns();
            let listed = tasks.iter();
            let listed = listed.filter_map(|(task, _)| Some((*places.get(&task.tid)?, *task)));
            let listed: HashMap<usize, TaskRecord> = listed.collect();
            for (i, (seen, woken)) in last.iter_mut().zip(woken).enumerate() {
                match (listed.get(&i), &seen) {
                    (Some(task), _) => *seen = Some((*task, now)),
                    (None, Some((_, over))) if woken > *over => missed.push((i, woken, *over)),
                    _ => {}
                }
            }
        };
        let begin = Instant::now();
        for round in (1..=n_rounds).take_while(|_| begin.elapsed() < ENOUGH) {
            wake.send(()).unwrap();
            while n_ran.load(Ordering::Relaxed) < round * n_threads {
                look(&mut engine, &mut last);
            }
            wait_for("sleep", || {
                let sleeps = |tid: &i32| task_state(&format!("self/task/{tid}")) == Some('S');
                tids.iter().all(sleeps).then_some(())
            });
            look(&mut engine, &mut last);
            for tid in &tids {
                let path = format!("/proc/self/task/{tid}/schedstat");
                let truth = parse_schedstat(&fs::read_to_string(path).unwrap()).unwrap();
                let (task, _) = last[places[tid]].as_ref().unwrap();
                if (task.run_time, task.pcount) != (truth.run_ns, truth.n_runs) {
                    wrong.push((round, *tid, task.run_time, task.pcount, truth));
                }
            }
        }
        is_over.store(true, Ordering::Relaxed);
        wake.send(()).unwrap();
        assert!(
            missed.is_empty(),
            "{} taken for unchanged: {missed:?}",
            missed.len()
        );
        assert!(
            wrong.is_empty(),
            "{} wrong, such as {:?}",
            wrong.len(),
            wrong[0]
        );
    });
}
