//! Every libFuzzer target: its binary's name is that of the property in `src/fuzz.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| headend::fuzz::run(env!("CARGO_BIN_NAME"), data));
