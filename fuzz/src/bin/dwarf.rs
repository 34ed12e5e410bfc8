//! libFuzzer's inputs to the target `dwarf` of `wcprof-fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wcprof_fuzz::run("dwarf", data));
