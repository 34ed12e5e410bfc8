//! The stack of `answer.c`, in Rust.
use std::hint::black_box;
use std::thread::sleep;
use std::time::Duration;

#[inline(never)]
fn leaf_spin() {
    for i in 0..20_000_000_u64 {
        black_box(i);
    }
    black_box(());
}

#[inline(never)]
fn leaf_wait() {
    sleep(Duration::from_millis(20));
    black_box(());
}

#[inline(always)]
fn middle_step(n: u64) {
    if n.is_multiple_of(2) {
        leaf_spin();
    } else {
        leaf_wait();
    }
    black_box(n);
}

#[inline(never)]
fn outer_step(n: u64) {
    middle_step(n);
    black_box(n);
}

fn main() {
    println!("ready");
    for n in 0.. {
        outer_step(n);
    }
}
