//! Creates the sources outside the machine: a directory that becomes a file system.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

use super::{LONG_EVERY, TREE_EVERY};
use crate::random::Random;

/// Sizes of files: below and above a page, the size of one read or write, and a ring's buffer; most
/// are not multiples of a page. Their number is coprime to the number of copy variants.
const FILE_BYTES: [usize; 7] = [3_000, 4_096, 65_537, 300_000, (1 << 20) + 13, 500_000, 768 << 10];
/// Size of a file that is interrupted: data, a hole, data, and in every other one a hole at the
/// end.
const LONG_DATA_BYTES: u64 = 400 << 10;
const LONG_HOLE_BYTES: u64 = 256 << 10;
const LONG_MORE_BYTES: u64 = (500 << 10) + 7;

/// Creates the sources of `states` states in an empty directory.
pub fn make_sources(directory: &Path, states: u64) {
    for state in 1..=states {
        let bytes = FILE_BYTES[(state % FILE_BYTES.len() as u64) as usize];
        let file = directory.join(format!("file-{state}"));
        fs::write(&file, contents(state, 0, bytes)).unwrap();
        let mode = if state.is_multiple_of(2) { 0o640 } else { 0o755 };
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        if state.is_multiple_of(LONG_EVERY) {
            make_long(&directory.join(format!("long-{state}")), state);
        }
        if state.is_multiple_of(TREE_EVERY) {
            make_tree(&directory.join(format!("tree-{state}")), state);
        }
    }
}

/// Returns contents unique to a state and file, without a page of zeros. They begin with the
/// state's number.
fn contents(state: u64, file: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random::new(state << 20 | file << 8);
    let words = std::iter::once(state).chain(std::iter::repeat_with(move || random.next() | 1));
    words.take(bytes.div_ceil(8)).flat_map(u64::to_le_bytes).take(bytes).collect()
}

fn make_long(path: &Path, state: u64) {
    let file = File::create(path).unwrap();
    let data = contents(state, 1, LONG_DATA_BYTES as usize);
    file.write_all_at(&data, 0).unwrap();
    let more = contents(state, 2, LONG_MORE_BYTES as usize);
    let behind = LONG_DATA_BYTES + LONG_HOLE_BYTES;
    file.write_all_at(&more, behind).unwrap();
    if state.is_multiple_of(2 * LONG_EVERY) {
        file.set_len(behind + LONG_MORE_BYTES + LONG_HOLE_BYTES).unwrap();
    }
}

/// Creates small files in a few directories, a larger one, a hard link, a symbolic link, and an
/// empty directory.
fn make_tree(path: &Path, state: u64) {
    for inner in ["first/inner", "second", "empty"] {
        fs::create_dir_all(path.join(inner)).unwrap();
    }
    for (i, place) in ["", "first", "first/inner", "second"].into_iter().enumerate() {
        for j in 0..3 {
            let number = 10 + 3 * i + j;
            let bytes = 100 + 7_919 * number % 40_000;
            let name = path.join(place).join(format!("file-{number}"));
            fs::write(name, contents(state, number as u64, bytes)).unwrap();
        }
    }
    fs::write(path.join("second/large"), contents(state, 9, 300_000)).unwrap();
    fs::hard_link(path.join("first/file-13"), path.join("second/link")).unwrap();
    symlink("../first/file-14", path.join("second/symbolic")).unwrap();
    fs::set_permissions(path.join("first"), fs::Permissions::from_mode(0o750)).unwrap();
}
