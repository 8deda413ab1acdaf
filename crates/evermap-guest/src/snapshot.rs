//! The last commit of an object, for reading.

use std::fmt;

use evermap_heap::Persist;

use crate::error::Result;
use crate::names::OpenName;
use crate::platform::Reader;
use crate::root::{RawRoot, View};

/// The last commit of an object at the time of opening. Others can still write the object. The
/// snapshot does not change; open it again for a newer commit.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// # evermap_guest::use_store(directory.path().join("store"));
/// use evermap_guest::{Heap, Snapshot};
///
/// let mut heap = Heap::open("runs")?;
/// *heap.root_or::<u64, _>(0)? += 1;
/// heap.commit()?;
/// heap.close()?;
///
/// let runs = Snapshot::open("runs")?;
/// assert_eq!(*runs.root::<u64>()?, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Snapshot {
    // Dropped before the name, so the object is unmapped before the name is free again.
    reader: Reader,
    name: OpenName,
}

const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<Snapshot>();
};

impl Snapshot {
    /// Opens the last commit of the object with this name.
    ///
    /// # Errors
    /// `InvalidName`, `NotFound`, `Denied`, `Damaged`, `MemoryLayout`, `OtherKind`, `Io`; `Busy` if
    /// this program already has the object open.
    pub fn open(name: &str) -> Result<Snapshot> {
        let name = OpenName::claim(name)?;
        Ok(Snapshot { reader: Reader::open(name.as_str())?, name })
    }

    /// Returns the object's name.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// Returns the root.
    ///
    /// # Errors
    /// `NoRoot`, `OtherType`, `Damaged`.
    pub fn root<T: Persist + Send + Sync>(&self) -> Result<&T> {
        let root = self.reader.root_as::<T>()?;
        // SAFETY: the type was compared, and the root lies in the object. The object stays mapped
        // while the snapshot is borrowed, and this program does not write to it.
        Ok(unsafe { root.as_ref() })
    }

    /// Returns the root record without checking its type.
    ///
    /// # Errors
    /// None at present.
    pub fn root_raw(&self) -> Result<RawRoot> {
        self.reader.root()
    }

    /// Closes the object. Dropping the snapshot does the same but ignores errors.
    ///
    /// # Errors
    /// The host's error.
    pub fn close(self) -> Result<()> {
        self.reader.close()
    }

    pub(crate) fn reader(&self) -> &Reader {
        &self.reader
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Snapshot").field("name", &self.name()).finish_non_exhaustive()
    }
}
