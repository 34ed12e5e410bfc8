//! libFuzzer's inputs to the target `hotspot_rules` of `wcprof-fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wcprof_fuzz::run("hotspot_rules", data));
