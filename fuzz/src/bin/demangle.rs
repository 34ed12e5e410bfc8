//! libFuzzer's inputs to the target `demangle` of `wcprof-fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wcprof_fuzz::run("demangle", data));
