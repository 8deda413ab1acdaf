//! The error type of heaps and containers.
//!
//! `Display` ends with the remedy. The crates `evermap` and `evermap-guest` convert each variant
//! into their own error, and take an error of their own out of [`HeapError::Source`] again.

/// An error of a heap or of a container in it.
///
/// `?` converts it into `evermap::Error`, in functions that also use stores.
///
/// ```
/// use evermap::{HeapError, PVec, Scratch};
///
/// let mut object = Scratch::<PVec<u64>>::new([1, 2, 3])?;
/// let error = object.root_mut().reserve(usize::MAX).unwrap_err();
/// assert!(matches!(error, HeapError::CapacityOverflow { .. }));
///
/// fn convert(error: HeapError) -> evermap::Error {
///     error.into()
/// }
/// assert!(matches!(convert(error), evermap::Error::CapacityOverflow { .. }));
/// # Ok::<(), HeapError>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeapError {
    /// There is no free range of addresses of this size.
    #[error(
        "no {bytes} bytes of free addresses for {what}: {why}; remove objects you no longer need or make a second store"
    )]
    OutOfAddresses {
        /// The object that needs the addresses.
        what: String,
        /// Number of bytes.
        bytes: u64,
        /// Cause.
        why: String,
    },
    /// The size or alignment of an allocation is impossible.
    #[error("cannot allocate {bytes} bytes (aligned to {align}): {why}")]
    BadAllocation {
        /// Requested bytes.
        bytes: u64,
        /// Requested alignment.
        align: u64,
        /// The exceeded limit.
        why: &'static str,
    },
    /// The pointer given to `free` or `reallocate` is not an allocated block of the object.
    #[error(
        "{address:#x} is not an allocated block: {why}; free each block once, through the object it came from"
    )]
    InvalidFree {
        /// The pointer's value.
        address: u64,
        /// Cause.
        why: &'static str,
    },
    /// A collection would need more elements than its layout can count.
    #[error("{what} cannot grow further: its capacity overflows")]
    CapacityOverflow {
        /// The collection.
        what: &'static str,
    },
    /// A detached value cannot be built into another object.
    #[error(
        "a detached {what} belongs to another object; build it from references, which copies it"
    )]
    OtherObject {
        /// The type of the value.
        what: &'static str,
    },
    /// An index or a range is out of bounds.
    #[error("{what} has {len} elements, {index} was asked for; check the length first")]
    OutOfBounds {
        /// The collection.
        what: &'static str,
        /// The requested index.
        index: u64,
        /// Number of elements.
        len: u64,
    },
    /// A `Deserializer` failed (cargo feature `serde`).
    #[error("cannot read a `{what}`: {why}; nothing was changed")]
    Deserialize {
        /// The type to build.
        what: String,
        /// Message from serde.
        why: String,
    },
    /// The object cannot grow: the error of the store, or of the guest's host.
    #[error(transparent)]
    Source(Box<dyn std::error::Error + Send + Sync>),
}

/// `Result` with this crate's [`HeapError`].
pub type Result<T, E = HeapError> = std::result::Result<T, E>;
