//! The root of an object: what everything else in it is reached from, and the checks before it is
//! believed to be of a type.

use std::ptr::NonNull;

use evermap::{Persist, type_description, type_id};

use crate::error::{Code, Error, Result};

/// What an object says of its root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawRoot {
    /// First byte of the root; null for none.
    pub address: *mut u8,
    /// Bytes that were said to belong to it.
    pub bytes: u64,
    /// The id of a Rust type, or what [`Heap::set_root_raw`](crate::Heap::set_root_raw) was given;
    /// zeros for none.
    pub tag: [u8; 16],
    /// Description that belongs to the tag, cut at 1024 bytes.
    pub description: String,
}

impl RawRoot {
    /// No root.
    pub(crate) fn none() -> RawRoot {
        let (tag, description) = ([0; 16], String::new());
        RawRoot { address: std::ptr::null_mut(), bytes: 0, tag, description }
    }

    /// A block that holds a `T`.
    pub(crate) fn typed<T: Persist>(root: NonNull<T>) -> RawRoot {
        RawRoot {
            address: root.as_ptr().cast(),
            bytes: size_of::<T>() as u64,
            tag: type_id::<T>().0,
            description: type_description::<T>().to_string(),
        }
    }
}

/// A mapped object, to look at.
pub(crate) trait View {
    /// Its name.
    fn name(&self) -> &str;

    /// # Errors
    /// `NotMapped`.
    fn root(&self) -> Result<RawRoot>;

    /// Do `length` bytes from an address lie in the object's data?
    fn contains(&self, address: usize, length: usize) -> bool;

    fn error(&self, code: Code, message: impl Into<String>) -> Error {
        Error::new(code, self.name(), message)
    }

    /// The place of `length` bytes, if they lie in the object and are aligned.
    fn place(&self, address: usize, length: usize, align: usize) -> Option<NonNull<u8>> {
        let sound = address.is_multiple_of(align) && self.contains(address, length.max(1));
        NonNull::new(std::ptr::with_exposed_provenance_mut(address)).filter(|_| sound)
    }

    /// The root, after its type was compared.
    ///
    /// # Errors
    /// `NoRoot`, `OtherType`; `Damaged` when it does not lie in the object.
    fn root_as<T: Persist>(&self) -> Result<NonNull<T>> {
        let root = self.root()?;
        if root.address.is_null() {
            let why = "it has no root yet; make one with `Heap::root_or`";
            return Err(self.error(Code::NoRoot, why));
        }
        if root.tag != type_id::<T>().0 {
            let (stored, asked) = (root.description, type_description::<T>());
            let why = format!("its root is `{stored}`, and the program asks for `{asked}`");
            return Err(self.error(Code::OtherType, why));
        }
        let place = self.place(root.address.addr(), size_of::<T>(), align_of::<T>());
        match place.filter(|_| root.bytes >= size_of::<T>() as u64) {
            Some(place) => Ok(place.cast()),
            None => {
                let why =
                    format!("its root {:p} is no place in it; restore a backup", root.address);
                Err(self.error(Code::Damaged, why))
            }
        }
    }
}
