//! libFuzzer over `evermap::fuzzing::log`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| evermap::fuzzing::log(input));
