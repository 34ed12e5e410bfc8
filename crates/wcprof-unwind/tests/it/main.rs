//! Unwinding of real and of hostile code.
#![forbid(unsafe_code)]

mod common;
mod hostile;
mod jit;
mod real_code;
