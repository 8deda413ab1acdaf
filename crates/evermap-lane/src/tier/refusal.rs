//! Reasons why a file cannot be placed, with remedies.

use std::path::PathBuf;

use serde::Serialize;

use super::openers::{Opener, opened_by};
use super::path_text;

/// Reason why a file cannot be placed, with the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "snake_case", tag = "kind")]
#[non_exhaustive]
pub enum Unsuitable {
    /// It is a directory.
    #[error("it is a directory: name its files, for example with a pattern")]
    Directory,
    /// It is a device, a FIFO or a socket.
    #[error("it is not a regular file")]
    Special,
    /// It has no contents.
    #[error("it is empty, so placing it has no effect")]
    Empty,
    /// It is on the tier's file system.
    #[error("it is on the tier already")]
    OnTier,
    /// It has several hard links; the others would not lead to the copy.
    #[error("it has {links} hard links, and only one would be switched: use mode `view`")]
    HardLinks {
        /// Number of hard links.
        links: u32,
    },
    /// Another process has the file open.
    #[error("it is open {}: end that process first", opened_by(by))]
    Open {
        /// Processes that have it open, as far as this user may see them.
        by: Vec<Opener>,
    },
    /// It is marked immutable or append-only.
    #[error("it is marked immutable or append-only: run `chattr -i -a` on it, or use mode `view`")]
    Immutable,
    /// The kernel uses it as swap space.
    #[error("the kernel uses it as swap space")]
    Swap,
    /// It is encrypted; its contents would be unencrypted on the tier.
    #[error("it is encrypted, and its copy would be unencrypted")]
    Encrypted,
    /// The kernel verifies its contents with fs-verity.
    #[error("it is protected by fs-verity, and its copy would not be: use mode `view`")]
    Sealed,
    /// It is a set-user-ID or set-group-ID program.
    #[error("it is a set-user-ID or set-group-ID program, and its copy would not be")]
    SetId,
    /// This user lacks a permission.
    #[error("{what}")]
    NotPermitted {
        /// Missing permission and remedy.
        what: String,
    },
    /// Other users may read the file, but could not reach it on the tier.
    #[error("other users that may read it cannot pass through {}: allow that with `chmod o+x`, or use mode `view`", directory.display())]
    Unreachable {
        /// Directory that other users cannot pass through.
        #[serde(with = "path_text")]
        directory: PathBuf,
    },
    /// A name that the switch needs is already in use.
    #[error("{} already exists: move it away", name.display())]
    NameTaken {
        /// The name.
        #[serde(with = "path_text")]
        name: PathBuf,
    },
    /// Its name is too long for the name of the kept original.
    #[error(
        "its name is too long: at most {max_bytes} bytes leave space for the name of the kept original"
    )]
    NameTooLong {
        /// Maximum length.
        max_bytes: usize,
    },
}
