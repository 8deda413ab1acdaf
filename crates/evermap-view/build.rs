//! Notes which versions of the crates take part in laying out and painting: another one may paint other pixels, so pages
//! that were kept by it are made anew.

use std::path::Path;

fn main() {
    let manifest = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let lock = Path::new(&manifest).join("../../Cargo.lock");
    println!("cargo::rerun-if-changed={}", lock.display());
    println!("cargo::rerun-if-changed=build.rs");
    let bytes = std::fs::read(&lock).unwrap_or_default();
    // FNV-1a: it only has to differ, and needs no crate.
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    println!("cargo::rustc-env=EVERMAP_VIEW_LOCK={hash:016x}");
}
