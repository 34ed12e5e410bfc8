//! libFuzzer's inputs to the target `runtime_names` of `wcprof-fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wcprof_fuzz::run("runtime_names", data));
