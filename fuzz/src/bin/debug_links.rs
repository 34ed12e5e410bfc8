//! libFuzzer's inputs to the target `debug_links` of `wcprof-fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wcprof_fuzz::run("debug_links", data));
