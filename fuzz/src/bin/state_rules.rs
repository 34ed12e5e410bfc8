//! libFuzzer's inputs to the target `state_rules` of `wcprof-fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wcprof_fuzz::run("state_rules", data));
