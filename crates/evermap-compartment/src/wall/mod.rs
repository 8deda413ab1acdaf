//! The outer wall: a process that can reach nothing but what it holds.
//!
//! Two faces. [`Wall`] is for a program that opens and maps what it needs and then closes itself in:
//! loads and stores go on as before, and of system calls it keeps a short list. [`Enclosure`] is for
//! a program that knows nothing of this: it is started inside, may open what is named, and is kept
//! from a list of dangerous calls.
//!
//! Both are Landlock (which files) and seccomp (which system calls), and `no_new_privs`. Neither can be
//! taken back, and children inherit both.
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
//! counter.commit()?; // what is open can be used
//! assert!(std::fs::File::open("/etc/passwd").is_err()); // and nothing else
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
pub use files::{Held, has_landlock};
pub use own::Wall;
pub use supervise::run;
