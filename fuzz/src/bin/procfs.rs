//! libFuzzer's inputs to the target `procfs` of `wcprof-fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wcprof_fuzz::run("procfs", data));
