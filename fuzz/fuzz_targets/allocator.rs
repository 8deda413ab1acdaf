//! libFuzzer over `evermap::fuzzing::allocator`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| evermap::fuzzing::allocator(input));
