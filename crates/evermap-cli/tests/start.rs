//! Checks how the command is linked: at fixed addresses, unless it runs untrusted code.

#![allow(clippy::unwrap_used)]

use std::process::Command;

const EVERMAP: &str = env!("CARGO_BIN_EXE_evermap");

/// ELF type of a program at fixed addresses (`ET_EXEC`).
const FIXED: u16 = 2;
/// ELF type of a position-independent program or a library (`ET_DYN`).
const POSITION_INDEPENDENT: u16 = 3;

fn elf_type(program: &str) -> u16 {
    let bytes = std::fs::read(program).unwrap();
    assert_eq!(&bytes[..4], b"\x7fELF");
    u16::from_le_bytes([bytes[16], bytes[17]])
}

#[test]
#[cfg(all(target_os = "linux", target_env = "gnu", not(target_feature = "crt-static")))]
fn the_command_has_fixed_addresses_unless_it_runs_untrusted_code() {
    let is_pie =
        cfg!(feature = "sandbox") || option_env!("EVERMAP_PIE").is_some_and(|v| !v.is_empty());
    assert_eq!(elf_type(EVERMAP), if is_pie { POSITION_INDEPENDENT } else { FIXED });
}

/// A panic can only be caught if the unwinder is linked and works.
#[test]
fn the_linked_unwinder_catches_a_panic() {
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
