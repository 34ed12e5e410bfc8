//! libFuzzer's inputs to the target `import_text` of `wcprof-fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wcprof_fuzz::run("import_text", data));
