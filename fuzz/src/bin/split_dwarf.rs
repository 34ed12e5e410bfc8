//! libFuzzer's inputs to the target `split_dwarf` of `wcprof-fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wcprof_fuzz::run("split_dwarf", data));
