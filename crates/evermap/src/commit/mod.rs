//! The commit engine: between commits the program runs at raw memory speed, and the file holds
//! only commits.
//!
//! There are three copies of a page: the file's, the overlay (lines that the log has and the file's
//! page lacks) and the private page that the program stores into. *Committed page = file's page with
//! the overlay's lines over it.* [`Engine`] compares private pages with that, appends what differs to
//! the redo [`Log`] with one durable write, and adds it to the [`Overlay`]; writing it to the object
//! file is put off to a checkpoint. `docs/durability.md` has the whole of it, crash by crash.
//!
//! Invariants: no line reaches the object file before the record that has it is durable;
//! `log_required` is durable in the file before the first record is; a log is reset only after the
//! object file was flushed; the file's pages change only while nobody reads an older commit
//! ([`locks`]). The engine takes the mapping's address as a parameter and knows nothing of what lies
//! there, except that page 0 of the file is sealed last.

mod apply;
mod chain;
pub(crate) mod checksums;
mod diff;
mod engine;
mod flusher;
mod folios;
#[cfg(target_arch = "x86_64")]
mod glance;
pub(crate) mod locks;
mod log;
mod overlay;
mod pages;
mod progress;
mod ranges;
mod record;
mod recovery;
mod settings;
mod suspects;
mod unreserved;
mod verify;

pub(crate) use engine::{Engine, Growth, LogPolicy, MappedFile, Span, Target, WriterKind};
pub(crate) use log::{Log, LogPosition};
pub(crate) use overlay::Overlay;
pub(crate) use pages::{first_bad_mapped, judge_mapped, write_tables};
#[cfg(test)]
pub(crate) use progress::sealed as seal_progress;
pub(crate) use record::for_each_run;
pub(crate) use recovery::{let_go_of_log, recover, set_log_required};
pub(crate) use settings::Deferral;
pub use settings::{Durability, ForeignPointers, InChildren, WhenLogFull, WriteOptions};
pub(crate) use suspects::{Suspect, Suspects};
pub(crate) use unreserved::Unreserved;
pub(crate) use verify::{BadPage, is_still_bad, verify_pages};
