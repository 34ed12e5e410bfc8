//! libFuzzer's inputs to the target `compressed_section` of `wcprof-fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wcprof_fuzz::run("compressed_section", data));
