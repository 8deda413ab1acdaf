//! Loads data files into memory by the fastest suitable method.
//!
//! A file's bytes can be read, mapped, or written by the device into the program's own memory
//! (*takeover*). Each way is the fastest in some cases and slower by a large factor in others. This
//! crate implements all of them as [`Method`]s, with a policy based on measurements that picks one.
//!
//! ```
//! # let directory = tempfile::tempdir().unwrap();
//! # let path = directory.path().join("data");
//! # std::fs::write(&path, [1u8; 5000]).unwrap();
//! let mut image = evermap_load::Loader::open(&path).load()?;
//! assert_eq!(image.len(), 5000);
//! image[4999] += 1; // private: the file is not changed
//! println!("{}", image.why());
//! # Ok::<(), evermap_load::Error>(())
//! ```
//!
//! `docs/load.md` specifies the cost of each method, the policy and the guarantees.

mod advise;
#[cfg(feature = "files")]
mod bounded;
mod counters;
mod error;
mod facts;
mod history;
mod huge;
mod image;
mod job;
mod loader;
mod methods;
mod part;
mod plan;
mod recording;
#[cfg(feature = "files")]
mod recording_text;
mod region;
mod replay;
mod report;
#[cfg(feature = "files")]
mod rules;
mod set;
mod share;
mod source;
mod sys;
mod warm;
mod windows;

pub use advise::Advice;
pub use error::{Change, Error, Result};
pub use evermap_observe::Usage;
pub use huge::HugePages;
pub use image::{Image, Mapping, Progress};
pub use loader::Loader;
pub use plan::{Cache, Choice, Facts, ForkPolicy, Latency, Method, Order};
pub use recording::{Recording, Touch};
pub use replay::RecordingUse;
pub use report::{Report, Residency};
#[cfg(feature = "files")]
pub use rules::{Rule, Rules};
pub use set::ImageSet;
pub use sys::thread::is_loading_thread;
pub use warm::{MappedPart, warm};
