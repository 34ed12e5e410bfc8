//! libFuzzer's inputs to the target `perf_record` of `wcprof-fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wcprof_fuzz::run("perf_record", data));
