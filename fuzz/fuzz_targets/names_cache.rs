//! libFuzzer's inputs to the target `names_cache` of `wcprof-fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wcprof_fuzz::run("names_cache", data));
