//! libFuzzer's inputs to the target `task_records` of `wcprof-fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wcprof_fuzz::run("task_records", data));
