//! Notes which code takes part in laying out and painting: the versions of the crates, and the sources of this one. Other
//! code may paint other pixels, so pages that were kept by it are made anew.

use std::path::{Path, PathBuf};

/// What the pixels of a page depend on.
const SOURCES: [&str; 3] = ["src/engine", "src/page", "src/paint"];

fn main() {
    let directory = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let directory = Path::new(&directory);
    println!("cargo::rerun-if-changed=build.rs");
    let mut files = vec![directory.join("../../Cargo.lock")];
    for source in SOURCES {
        collect(&directory.join(source), &mut files);
    }
    files.sort();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for file in files {
        println!("cargo::rerun-if-changed={}", file.display());
        // FNV-1a: it only has to differ, and needs no crate.
        for byte in std::fs::read(&file).unwrap_or_default() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
    println!("cargo::rustc-env=EVERMAP_VIEW_CODE={hash:016x}");
}

/// Adds the files in a directory, and in those below it.
fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    println!("cargo::rerun-if-changed={}", directory.display());
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => collect(&path, files),
            false => files.push(path),
        }
    }
}
