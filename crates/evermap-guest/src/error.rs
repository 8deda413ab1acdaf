//! The error type of the crate: code, object and message.

#[cfg(not(target_family = "wasm"))]
mod store;

use std::fmt;

use evermap_heap::HeapError;

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error with its code, the object, and a message with cause and remedy.
///
/// ```
/// use evermap_guest::{Code, Snapshot};
///
/// let error = Snapshot::open("no/name").unwrap_err();
/// assert_eq!((error.code(), error.object()), (Code::InvalidName, "no/name"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    code: Code,
    object: String,
    message: String,
}

macro_rules! codes {
    ($($number:literal $name:ident: $text:literal;)*) => {
        /// The kind of an error. Numbers up to 16 are the host's codes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        #[repr(u32)]
        pub enum Code {
            $(#[doc = $text] $name = $number,)*
        }

        impl Code {
            /// Returns the code for a number from the host.
            #[cfg(any(test, target_family = "wasm"))]
            pub(crate) fn of_number(number: u32) -> Code {
                match number {
                    $($number => Code::$name,)*
                    _ => Code::Other,
                }
            }
        }
    };
}

codes! {
    1 InvalidArgument: "An argument of a call of the host is not valid.";
    2 InvalidName: "The name is not valid.";
    3 NotFound: "There is no such object, or no such block in it.";
    4 Denied: "The application has no right to do this.";
    5 Busy: "Another program is writing the object, or this program already has it open.";
    6 Quota: "The application's quota of addresses is used up.";
    7 OutOfAddresses: "There are no addresses left.";
    8 DiskFull: "The disk is full; nothing was lost.";
    9 Damaged: "The object is damaged.";
    10 NotMapped: "The object is no longer mapped.";
    11 MemoryLayout: "The module was linked without room for objects.";
    12 OtherKind: "The object is not a guest object, or is for another kind of guest.";
    13 ReadOnly: "The object is open as a snapshot.";
    14 Io: "Another I/O error of the host.";
    15 DurabilityUnknown: "The disk failed at the commit point: open the object again to see which commit it has.";
    16 Dead: "The host serves no more calls of this instance.";
    64 NoRoot: "The object has no root.";
    65 OtherType: "The root has another type than the requested one.";
    66 AlreadyExists: "A block with this name already exists.";
    67 BadAllocation: "The size or alignment of the allocation is impossible.";
    68 BadRoot: "The new root is not a block of the object.";
    127 Other: "Another error; see the message.";
}

impl Error {
    pub(crate) fn new(code: Code, object: &str, message: impl Into<String>) -> Error {
        Error { code, object: object.to_string(), message: message.into() }
    }

    /// Converts an error of a heap or a container, and adds the object's name. An error of the host
    /// or the store, which gives the heap its memory, is returned as it is.
    pub(crate) fn of_heap(error: &HeapError, object: &str) -> Error {
        let code = match error {
            HeapError::Source(source) => match Error::of_source(&**source, object) {
                Some(error) => return error,
                None => Code::Other,
            },
            HeapError::OutOfAddresses { .. } => Code::OutOfAddresses,
            HeapError::BadAllocation { .. } | HeapError::CapacityOverflow { .. } => {
                Code::BadAllocation
            }
            _ => Code::Other,
        };
        Error::new(code, object, error.to_string())
    }

    /// Returns the error of the host or the store for which a heap could not grow.
    fn of_source(source: &(dyn std::error::Error + 'static), object: &str) -> Option<Error> {
        #[cfg(not(target_family = "wasm"))]
        if let Some(error) = source.downcast_ref() {
            return Some(Error::of(error, object));
        }
        let _ = object;
        source.downcast_ref().cloned()
    }

    /// Returns the code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// Returns the name of the object; empty if it is not known.
    pub fn object(&self) -> &str {
        &self.object
    }

    /// Returns the cause and the remedy, from the host or from this library.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The host's message mostly names the object.
        let named = self.message.contains(&format!("`{}`", self.object));
        if !self.object.is_empty() && !named {
            write!(formatter, "object `{}`: ", self.object)?;
        }
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// For functions that both edit and commit an object: one error type for both.
impl From<HeapError> for Error {
    fn from(error: HeapError) -> Error {
        Error::of_heap(&error, "")
    }
}

/// For code that writes a block through [`Write`](std::io::Write).
impl From<Error> for std::io::Error {
    fn from(error: Error) -> std::io::Error {
        std::io::Error::other(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_code_has_a_variant_and_others_map_to_other() {
        let codes: Vec<Code> = (1..=16).map(Code::of_number).collect();
        assert!(codes.iter().zip(1..).all(|(code, number)| *code as u32 == number));
        assert_eq!(Code::of_number(17), Code::Other);
    }

    #[test]
    fn an_error_names_its_object_once() {
        let error = Error::new(Code::NotFound, "notes", "there is none");
        assert_eq!(error.to_string(), "object `notes`: there is none");
        assert_eq!(Error { object: String::new(), ..error }.to_string(), "there is none");
        let error = Error::new(Code::NotFound, "notes", "no object `notes`");
        assert_eq!(error.to_string(), "no object `notes`");
    }
}
