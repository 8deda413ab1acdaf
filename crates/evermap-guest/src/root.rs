//! The root of an object, from which all its data are reached, and the checks before it is used as
//! a type.

use std::ptr::NonNull;

use evermap_heap::{Persist, type_description, type_id};

use crate::error::{Code, Error, Result};

/// The root record of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawRoot {
    /// Address of the root; null for none.
    pub address: *mut u8,
    /// Bytes of the root, as stored.
    pub bytes: u64,
    /// The id of a Rust type, or the tag passed to
    /// [`Heap::set_root_raw`](crate::Heap::set_root_raw); zeros for none.
    pub tag: [u8; 16],
    /// Description of the tag, truncated to 1024 bytes.
    pub description: String,
}

impl RawRoot {
    /// Returns the record of an object without a root.
    pub(crate) fn none() -> RawRoot {
        let (tag, description) = ([0; 16], String::new());
        RawRoot { address: std::ptr::null_mut(), bytes: 0, tag, description }
    }

    /// Returns the record for a root of type `T`.
    pub(crate) fn typed<T: Persist>(root: NonNull<T>) -> RawRoot {
        RawRoot {
            address: root.as_ptr().cast(),
            bytes: size_of::<T>() as u64,
            tag: type_id::<T>().0,
            description: type_description::<T>().to_string(),
        }
    }
}

/// Read access to a mapped object.
pub(crate) trait View {
    /// Returns its name.
    fn name(&self) -> &str;

    /// Returns its root record.
    ///
    /// # Errors
    /// `NotMapped`.
    fn root(&self) -> Result<RawRoot>;

    /// Returns true if `length` bytes at an address lie in the object's data.
    fn contains(&self, address: usize, length: usize) -> bool;

    fn error(&self, code: Code, message: impl Into<String>) -> Error {
        Error::new(code, self.name(), message)
    }

    /// Returns a pointer to `length` bytes if they lie in the object and are aligned.
    fn place(&self, address: usize, length: usize, align: usize) -> Option<NonNull<u8>> {
        let sound = address.is_multiple_of(align) && self.contains(address, length.max(1));
        NonNull::new(std::ptr::with_exposed_provenance_mut(address)).filter(|_| sound)
    }

    /// Returns the root after comparing its type.
    ///
    /// # Errors
    /// `NoRoot`, `OtherType`; `Damaged` if the root does not lie in the object.
    fn root_as<T: Persist>(&self) -> Result<NonNull<T>> {
        let root = self.root()?;
        if root.address.is_null() {
            let why = "it has no root yet; create one with `Heap::root_or`";
            return Err(self.error(Code::NoRoot, why));
        }
        if root.tag != type_id::<T>().0 {
            let (stored, asked) = (root.description, type_description::<T>());
            let why = format!("its root has type `{stored}`, but the program expects `{asked}`");
            return Err(self.error(Code::OtherType, why));
        }
        let place = self.place(root.address.addr(), size_of::<T>(), align_of::<T>());
        match place.filter(|_| root.bytes >= size_of::<T>() as u64) {
            Some(place) => Ok(place.cast()),
            None => {
                let why = format!(
                    "its root {:p} lies outside the object; restore a backup",
                    root.address
                );
                Err(self.error(Code::Damaged, why))
            }
        }
    }
}
