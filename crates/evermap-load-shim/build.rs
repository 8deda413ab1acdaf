//! Links the unwinder of GCC into the shim, so that a program that starts with the shim does not
//! load `libgcc_s.so` as well: loading it took half of what the shim added to a program's start.
//!
//! The C library loads `libgcc_s.so` to unwind a thread that is cancelled in the shim, and the
//! shim's copy reads the context of that unwinder. On x86-64 GCC keeps the context readable for
//! copies of other versions (`EXTENDED_CONTEXT_BIT`). On other processors the shim keeps the shared
//! library.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=CC");
    // Without the static library the linker takes the shared one.
    if let Some(library) = static_unwinder()
        && let Some(folder) = library.parent()
    {
        println!("cargo::rustc-link-search=native={}", folder.display());
        // The Rust library, which calls the unwinder, comes later on the linker's command line.
        println!("cargo::rustc-link-lib=static:+whole-archive=gcc_eh");
    }
}

/// Returns the path of `libgcc_eh.a`, as the C compiler names it.
fn static_unwinder() -> Option<PathBuf> {
    const TARGET: &str = "x86_64-unknown-linux-gnu";
    if std::env::var("TARGET").ok()? != TARGET || std::env::var("HOST").ok()? != TARGET {
        return None;
    }
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let found = Command::new(compiler).arg("-print-file-name=libgcc_eh.a").output().ok()?;
    let path = PathBuf::from(String::from_utf8(found.stdout).ok()?.trim());
    // A compiler that has no such file gives the name back.
    (path.is_absolute() && path.exists()).then_some(path)
}
