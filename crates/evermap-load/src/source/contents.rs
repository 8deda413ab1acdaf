//! Files that do not say how long they are: they are read to know.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use evermap_observe::FileSystem;
use rustix::fs::Statx;

use crate::error::{Error, Result};

/// File systems whose files are text that the kernel writes for whoever reads it: proc, sysfs, debugfs, tracefs, securityfs, configfs,
/// both versions of control groups, selinuxfs.
const MADE_BY_THE_KERNEL: [i64; 9] = [
    0x9fa0,
    0x6265_6572,
    0x6462_6720,
    0x7472_6163,
    0x7363_6673,
    0x6265_6570,
    0x0027_e0eb,
    0x6367_7270,
    0xf97c_ff8c,
];
/// More than this a file without a length may not have: some have no end.
const UNSIZED_BYTES_MAX: u64 = 256 << 20;

/// Whether `statx` tells how long a file is. Files that the kernel makes when they are read are said to have no bytes, or a page.
pub(super) fn has_length(file_system: FileSystem, stat: &Statx) -> bool {
    let is_made = MADE_BY_THE_KERNEL.contains(&file_system.magic());
    match stat.stx_size {
        0 => false,
        bytes => !is_made || bytes > crate::sys::page_bytes() as u64,
    }
}

/// Reads to the end. None where there is nothing: an empty file as others.
pub(super) fn contents(mut file: &File, path: &Path) -> Result<Option<Vec<u8>>> {
    let mut contents = Vec::new();
    file.by_ref()
        .take(UNSIZED_BYTES_MAX + 1)
        .read_to_end(&mut contents)
        .map_err(|source| Error::Io { operation: "read", path: path.into(), source })?;
    if contents.len() as u64 > UNSIZED_BYTES_MAX {
        let what = "a file of no known length that has no end within 256 MiB";
        return Err(Error::NotAFile { path: path.into(), what });
    }
    Ok((!contents.is_empty()).then_some(contents))
}
