//! libFuzzer's inputs to the target `trace_views` of `wcprof-fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wcprof_fuzz::run("trace_views", data));
