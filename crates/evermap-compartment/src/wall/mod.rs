//! The outer wall: confines a process to what it has open.
//!
//! [`Wall`] is for a program that opens and maps what it needs and then restricts itself. Loads and
//! stores work as before, and a short list of system calls remains. [`Enclosure`] is for an
//! unmodified program. The program starts behind the wall, can open the named paths, and is refused
//! a list of dangerous calls.
//!
//! Both use Landlock (files), seccomp (system calls) and `no_new_privs`. Neither can be undone, and
//! children inherit both.
//!
//! ```no_run
//! use evermap_compartment::wall::Wall;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = evermap::Store::open("store")?;
//! let mut counter = store.write::<u64>("counter")?;
//! counter.commit_twice()?;
//! # trait Twice { fn commit_twice(&mut self) -> evermap::Result<()>; }
//! # impl Twice for evermap::Session<u64> { fn commit_twice(&mut self) -> evermap::Result<()> { Ok(()) } }
//! Wall::new().allow_commits().close()?;
//! *counter.root_mut() += 1;
//! counter.commit()?; // open objects stay usable
//! assert!(std::fs::File::open("/etc/passwd").is_err()); // nothing else can be opened
//! # Ok(())
//! # }
//! ```

mod allowed;
mod calls;
mod denied;
mod enclosure;
mod files;
mod filter;
mod own;
mod privileges;
mod supervise;

pub use enclosure::Enclosure;
pub use files::{Enforcement, has_landlock};
pub use own::Wall;
pub use supervise::run;
