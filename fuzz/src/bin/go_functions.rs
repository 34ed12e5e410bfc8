//! libFuzzer's inputs to the target `go_functions` of `wcprof-fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wcprof_fuzz::run("go_functions", data));
