//! libFuzzer's inputs to the target `crypto_files` of `wcprof-fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wcprof_fuzz::run("crypto_files", data));
