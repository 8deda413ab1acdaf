//! Hashes the code that determines a page's pixels: the locked versions of all crates and the
//! sources of this crate's layout and painting modules. Different code may paint different pixels,
//! so pages stored by it are laid out again.

use std::path::{Path, PathBuf};

/// Directories whose code affects the pixels of a page.
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
        // FNV-1a: needs no crate, and a change only has to give another value.
        for byte in std::fs::read(&file).unwrap_or_default() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
    println!("cargo::rustc-env=EVERMAP_VIEW_CODE={hash:016x}");
}

/// Adds the files in `directory` and its subdirectories to `files`.
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
