//! libFuzzer's inputs to the target `messenger_frame` of `wcprof-fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wcprof_fuzz::run("messenger_frame", data));
