//! libFuzzer's inputs to the target `elf` of `wcprof-fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wcprof_fuzz::run("elf", data));
