//! Memory below the stack pointers of timer samples, which a program reads.

use std::arch::asm;
use std::collections::BTreeMap;

use wcprof_types::RED_ZONE;

use super::*;

/// Check that a timer sample has the memory below its stack pointer: the thread writes a number of its own there.
#[test]
fn red_zones() {
    let Some(mut engine) = engine(BpfEngine::new, &[own_pid()]) else {
        return;
    };
    let mut sampler = filtered_timers(&engine, 10_000_000);
    let stop = Arc::new(AtomicBool::new(false));
    let threads = [3_u64, 5].map(|mark| {
        let stop = Arc::clone(&stop);
        thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                // SAFETY: writes to the red zone, which nothing else uses inside the block.
                unsafe {
                    asm!(
                        "mov [rsp - 8], {mark}",
                        "mov [rsp - 128], {mark}",
                        "mov r11, {user}",
                        "2:",
                        "dec {n}",
                        "jnz 2b",
                        "mov r11, 0",
                        mark = in(reg) mark << 56 | 0x1234,
                        user = in(reg) RED_ZONE_USER,
                        n = inout(reg) 1_000_000_u64 => _,
                        out("r11") _,
                    );
                }
            }
        })
    });
    let (mut marks, mut n_lost) = (BTreeMap::new(), 0);
    let own_tid = Tid(nix::unistd::gettid().as_raw());
    wait_for("samples of both", || {
        let (mut n_samples, mut n_missing) = (0, 0);
        sampler.drain(|sample| {
            n_samples += 1;
            // A thread of another test that ends has none.
            let Some(regs) = sample.regs else { return };
            // This thread compares with the same number, and may have it there, too.
            if sample.tid == own_tid || regs.scratch.get(11) != Some(RED_ZONE_USER) {
                return;
            }
            let zone = engine.red_zone(sample.cpu, sample.tid.0, &regs);
            let Some(zone) = zone else {
                n_missing += 1;
                return;
            };
            let word = |at: usize| u64::from_ne_bytes(*zone[at..].first_chunk().unwrap());
            assert_eq!(word(0), word(RED_ZONE - 8));
            *marks.entry((sample.tid, word(0))).or_insert(0) += 1;
            assert_eq!(engine.red_zone(sample.cpu, sample.tid.0 + 1, &regs), None);
            assert_eq!(engine.red_zone(u32::MAX, sample.tid.0, &regs), None);
        });
        // With more of them this thread was held up, and more came than are kept of a CPU.
        if n_samples <= 8 {
            n_lost += n_missing;
        }
        (marks.len() >= 2 && marks.values().all(|n| *n >= 20)).then_some(())
    });
    assert_eq!(marks.len(), 2, "each thread has its own: {marks:?}");
    assert!(n_lost <= marks.values().sum::<i32>(), "{n_lost}");
    stop.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|t| t.join().unwrap());
}

/// In `r11` while a thread of [`red_zones`] uses its red zone.
const RED_ZONE_USER: u64 = 0x5eed_0f0f_1234_4321;
