//! libFuzzer's inputs to the target `import_core` of `wcprof-fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wcprof_fuzz::run("import_core", data));
