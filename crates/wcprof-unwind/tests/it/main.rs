//! Unwinding of real and of hostile code.
#![forbid(unsafe_code)]

mod common;
mod debug_frame;
mod frame_pointers;
mod hostile;
mod jit;
mod real_code;
mod red_zone;
