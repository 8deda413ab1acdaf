//! Compartments: control which threads can access which objects.
//!
//! Threads are in *classes*, and objects are *assigned* to classes, with a right for each class. A
//! thread in no class has no right to any assigned object. The processor enforces the rights with
//! memory protection keys. Objects with the same rights share a key, so a process can have as many
//! different sets of rights as it has keys (15, less those used otherwise). The number of classes
//! and objects does not matter.
//!
//! A process has one set of classes, because each thread has one protection key register. Classes
//! and keys exist until the process ends, because a thread's rights can outlive the object that
//! they were given for.
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
//!     let _inside = viewer.enter(); // back to `clock` when dropped
//!     assert_eq!(*counter, 8);
//! }
//! drop(inside); // now even a read faults
//! counter.commit()?; // the library has its own rights
//! # Ok(())
//! # }
//! ```
//!
//! Compartments find bugs. They do not stop hostile code: `docs/compartments.md` lists the
//! bypasses.

mod class;
mod faults;
mod inside;
mod object;
mod rows;

pub use class::Class;
pub use faults::{Fault, describe_fault, report_faults};
pub use inside::{Inside, reset_rights, spawn};
pub use object::{Assignable, assign};

/// Returns true if this machine has memory protection keys. Costs two system calls and holds no
/// key.
pub fn available() -> bool {
    cfg!(all(target_os = "linux", target_arch = "x86_64")) && rows::key_is_available()
}
