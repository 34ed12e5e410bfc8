//! libFuzzer's inputs to the target `mini_debug_info` of `wcprof-fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wcprof_fuzz::run("mini_debug_info", data));
