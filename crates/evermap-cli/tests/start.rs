//! How the command is linked: nothing to relocate, unless strangers' code runs in it.

#![allow(clippy::unwrap_used)]

use std::process::Command;

const EVERMAP: &str = env!("CARGO_BIN_EXE_evermap");

/// In an ELF header: a program at fixed addresses.
const AT_FIXED_ADDRESSES: u16 = 2;
/// A program, or library, that is moved when it is loaded.
const MOVABLE: u16 = 3;

fn kind_of(program: &str) -> u16 {
    let bytes = std::fs::read(program).unwrap();
    assert_eq!(&bytes[..4], b"\x7fELF");
    u16::from_le_bytes([bytes[16], bytes[17]])
}

#[test]
#[cfg(all(target_os = "linux", target_env = "gnu", not(target_feature = "crt-static")))]
fn the_command_lies_at_fixed_addresses_only_where_no_strangers_code_runs_in_it() {
    let wanted =
        cfg!(feature = "sandbox") || option_env!("EVERMAP_PIE").is_some_and(|v| !v.is_empty());
    assert_eq!(kind_of(EVERMAP), if wanted { MOVABLE } else { AT_FIXED_ADDRESSES });
}

/// The unwinder is at work: what a test panics with is caught, and a command that panics would say where.
#[test]
fn a_panic_is_caught_by_the_unwinder_that_is_linked() {
    let caught = std::panic::catch_unwind(|| {
        let nothing: Option<u8> = std::hint::black_box(None);
        nothing.unwrap()
    });
    assert!(caught.is_err());
}

#[test]
fn the_command_starts() {
    let output = Command::new(EVERMAP).arg("--version").output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8(output.stdout).unwrap().starts_with("evermap "));
}
