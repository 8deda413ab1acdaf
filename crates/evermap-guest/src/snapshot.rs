//! The last commit of an object, for reading.

use std::fmt;

use evermap::Persist;

use crate::error::Result;
use crate::names::OpenName;
use crate::platform::Reader;
use crate::root::{RawRoot, View};

/// The last commit of an object when it was opened, while others may write the object. It stays
/// what it is; open it again for a newer one.
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
    // Unmapped before the name is free again.
    reader: Reader,
    name: OpenName,
}

const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<Snapshot>();
};

impl Snapshot {
    /// Opens the last commit of the object of this name.
    ///
    /// # Errors
    /// `InvalidName`, `NotFound`, `Denied`, `Damaged`, `MemoryLayout`, `OtherKind`, `Io`; `Busy`
    /// when this program has the object open already.
    pub fn open(name: &str) -> Result<Snapshot> {
        let name = OpenName::claim(name)?;
        Ok(Snapshot { reader: Reader::open(name.as_str())?, name })
    }

    /// The object's name.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// The root.
    ///
    /// # Errors
    /// `NoRoot`, `OtherType`, `Damaged`.
    pub fn root<T: Persist + Send + Sync>(&self) -> Result<&T> {
        let root = self.reader.root_as::<T>()?;
        // SAFETY: the type was compared, and the place lies in the object, which stays mapped as
        // long as the snapshot is borrowed, and which nobody writes in this program.
        Ok(unsafe { root.as_ref() })
    }

    /// What the object says of its root, whatever that is.
    ///
    /// # Errors
    /// None at present.
    pub fn root_raw(&self) -> Result<RawRoot> {
        self.reader.root()
    }

    /// Ends the use of the object. Dropping the snapshot does the same, but has nobody to tell
    /// about errors.
    ///
    /// # Errors
    /// When the host refuses.
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
