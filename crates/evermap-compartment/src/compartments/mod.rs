//! Compartments: which threads may touch which objects.
//!
//! Threads are in *classes*; objects are *assigned* to classes, with a right for each. A thread that
//! is in no class has no right to any assigned object. Rights are enforced by the processor, with
//! memory protection keys: objects with the same rights share a key, so a process has as many
//! different sets of rights as there are keys (15, less those of others), whatever the number of
//! classes and objects.
//!
//! There is one set of classes in a process, because each thread has one register. Classes and keys
//! stay until the process ends: rights that a thread has outlive whatever they were given for.
//!
//! ```
//! use evermap::Access;
//! use evermap_compartment::compartments::{self, Class};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # if !compartments::available() { return Ok(()) }
//! # let directory = tempfile::tempdir()?;
//! let store = evermap::Store::create_new(directory.path().join("store"))?;
//! store.create::<u64, _>("counter", 7)?;
//! let mut counter = store.write::<u64>("counter")?;
//!
//! let (clock, viewer) = (Class::define("clock")?, Class::define("viewer")?);
//! compartments::assign(&mut counter, &[(clock, Access::Write), (viewer, Access::Read)])?;
//! let inside = clock.enter();
//! *counter.root_mut() += 1;
//! {
//!     let _inside = viewer.enter(); // and `clock` again when it goes
//!     assert_eq!(*counter, 8);
//! }
//! drop(inside); // from here on even reading is a fault
//! counter.commit()?; // the library has the rights that it needs
//! # Ok(())
//! # }
//! ```
//!
//! They find bugs. They keep nobody out who wants in; `docs/compartments.md` has the ways around.

mod class;
mod faults;
mod inside;
mod object;
mod rows;

pub use class::Class;
pub use faults::{Fault, describe_fault, report_faults};
pub use inside::{Inside, shed_inherited_rights, spawn};
pub use object::{Assignable, assign};

/// Are there memory protection keys here? Asking costs two system calls, and keeps no key.
pub fn available() -> bool {
    cfg!(all(target_os = "linux", target_arch = "x86_64")) && rows::a_key_can_be_had()
}
