//! Links the command so that it starts quickly: copying a file of 4 KiB, or asking a document that is open already, takes
//! less time than the dynamic linker takes with a program as the toolchain links it.
//!
//! Both are left as they are where they cannot be had. `docs/cli.md` has what they bring, and the way to do without.

use std::env;
use std::path::Path;
use std::process::Command;

/// Set by who wants a position-independent executable all the same.
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
        // Asked for to be linked statically: there is no dynamic linker, and the rest has been decided.
        return;
    }
    // Strangers' code runs beside the command there: where its own lies is nothing for it to know.
    let runs_strangers = env::var_os("CARGO_FEATURE_SANDBOX").is_some();
    if !runs_strangers && env::var_os(PIE_VARIABLE).is_none_or(|value| value.is_empty()) {
        // Nothing is relocated at the start: 18,000 addresses, on a hundred pages that would be copied for it.
        println!("cargo::rustc-link-arg-bin=evermap=-no-pie");
    }
    if is_native() && has_static_unwinder() {
        // Not looked for, mapped and relocated at the start; it is needed when something panics.
        println!("cargo::rustc-link-lib=static:-bundle=gcc_eh");
    }
}

/// Is the machine that builds it also that which it is for? The linker's own libraries are for the latter.
fn is_native() -> bool {
    env::var_os("HOST").is_some_and(|host| Some(host) == env::var_os("TARGET"))
}

/// Does the linker have the unwinder as a static library? GCC comes with it.
fn has_static_unwinder() -> bool {
    let linker = env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into());
    let asked = Command::new(linker).arg("-print-file-name=libgcc_eh.a").output();
    let Ok(answer) = asked else { return false };
    // What is not found is answered as it was asked for.
    let path = String::from_utf8_lossy(&answer.stdout).trim().to_string();
    Path::new(&path).is_absolute() && Path::new(&path).is_file()
}
