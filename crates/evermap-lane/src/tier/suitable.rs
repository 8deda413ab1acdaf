//! Which files can be placed, and why others cannot.

use serde::Serialize;

use super::openers::Opener;

/// Why a file cannot be placed, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "snake_case", tag = "kind")]
#[non_exhaustive]
pub enum Unsuitable {
    /// It is a directory.
    #[error("it is a directory: name its files, as with a pattern")]
    Directory,
    /// It is a device, a FIFO or a socket.
    #[error("it is no regular file")]
    Special,
    /// It has no contents.
    #[error("it is empty: nothing would be quicker")]
    Empty,
    /// It is on the tier's file system.
    #[error("it is on the tier already")]
    OnTier,
    /// Other names lead to it, which would not lead to the copy.
    #[error("{links} names lead to it, and only one would be switched: use mode `view`")]
    HardLinks {
        /// How many.
        links: u32,
    },
    /// Somebody has it open.
    #[error("it is open {}: end that first", .by.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    Open {
        /// Who, as far as this user may know.
        by: Vec<Opener>,
    },
    /// It must not be changed.
    #[error("it is marked as unchangeable: `chattr -i -a` takes that away, or use mode `view`")]
    Immutable,
    /// The kernel swaps to it.
    #[error("the kernel swaps to it")]
    Swap,
    /// Its contents would lie unencrypted on the tier.
    #[error("it is encrypted, and its copy would not be")]
    Encrypted,
    /// The kernel verifies its contents.
    #[error("its contents are sealed by fs-verity, and its copy's would not be: use mode `view`")]
    Sealed,
    /// It runs with its owner's rights.
    #[error("it is a program that runs with its owner's rights, which a copy would not")]
    SetId,
    /// This user may not do it.
    #[error("{what}")]
    NotPermitted {
        /// What is not permitted, and what would be needed.
        what: String,
    },
    /// Others may read it, and could not on the tier.
    #[error("others who may read it could not reach {}: make that directory searchable for them (`chmod o+x`), or use mode `view`", directory.display())]
    Unreachable {
        /// Which directory keeps them out.
        directory: std::path::PathBuf,
    },
    /// There is something at a name that is needed.
    #[error("there is something at {} already: move it away", name.display())]
    NameTaken {
        /// Which name.
        name: std::path::PathBuf,
    },
    /// Its name leaves no room for the name beside it.
    #[error("its name is too long to have one beside it: {max_bytes} bytes are the longest")]
    NameTooLong {
        /// The longest.
        max_bytes: usize,
    },
}
