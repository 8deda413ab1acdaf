//! libFuzzer over `evermap::fuzzing::superblock`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| evermap::fuzzing::superblock(input));
