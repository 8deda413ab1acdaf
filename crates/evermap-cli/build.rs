//! Links the command so that it starts quickly. With the toolchain's defaults the dynamic linker
//! takes longer than copying a file of 4 KiB, or than a query of an open document.
//!
//! The command is linked at fixed addresses, and with GCC's unwinder as a static library. Where one
//! of them is not possible, the toolchain's default stays. `docs/cli.md` has the measurements, and
//! the way to turn this off.

use std::env;
use std::path::Path;
use std::process::Command;

/// Set to any value, builds a position-independent executable.
const PIE_VARIABLE: &str = "EVERMAP_PIE";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={PIE_VARIABLE}");
    let is = |name: &str, value: &str| env::var(name).as_deref() == Ok(value);
    if !is("CARGO_CFG_TARGET_OS", "linux") || !is("CARGO_CFG_TARGET_ENV", "gnu") {
        return;
    }
    let features = env::var("CARGO_CFG_TARGET_FEATURE").unwrap_or_default();
    if features.split(',').any(|feature| feature == "crt-static") {
        // A static executable has no dynamic linker.
        return;
    }
    // A sandbox runs untrusted code in this process: its addresses must not be predictable.
    let runs_untrusted_code = env::var_os("CARGO_FEATURE_SANDBOX").is_some();
    if !runs_untrusted_code && env::var_os(PIE_VARIABLE).is_none_or(|value| value.is_empty()) {
        // Saves 18,000 relocations at start, on a hundred pages that would be copied for them.
        println!("cargo::rustc-link-arg-bin=evermap=-no-pie");
    }
    if is_native() && has_static_unwinder() {
        // `libgcc_s` is then not looked for, mapped and relocated at start. Panics need the
        // unwinder.
        println!("cargo::rustc-link-lib=static:-bundle=gcc_eh");
    }
}

/// Returns true if host and target are equal. Only then are the linker's own libraries usable.
fn is_native() -> bool {
    env::var_os("HOST").is_some_and(|host| Some(host) == env::var_os("TARGET"))
}

/// Returns true if the linker finds the unwinder as a static library, which GCC provides.
fn has_static_unwinder() -> bool {
    let linker = env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into());
    let output = Command::new(linker).arg("-print-file-name=libgcc_eh.a").output();
    let Ok(output) = output else { return false };
    // The linker prints the bare name of a file that it does not find.
    let path = String::from_utf8_lossy(&output.stdout).trim().to_string();
    Path::new(&path).is_absolute() && Path::new(&path).is_file()
}
