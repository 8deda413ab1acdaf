//! The commit engine: the program runs at raw memory speed between commits, and the file holds only
//! commits.
//!
//! There are three copies of a page: the file's page, the overlay (committed lines that are not in
//! the file's page), and the private page that the program stores into. *Committed page = file's
//! page with the overlay's lines over it.* [`Engine`] compares private pages with it, appends the
//! changed lines to the redo [`Log`], and adds them to the [`Overlay`]. By default the append is
//! one durable write; other levels of [`Durability`] flush, or even write, later. An apply writes
//! the overlay to the object file. `docs/durability.md` describes all of it, crash by crash.
//!
//! Invariants: no line reaches the object file before its record is durable. `log_required` is
//! durable in the file before the first record is. A log is reset only after the object file was
//! flushed. The file's pages change only while no reader has an older commit mapped ([`locks`]).
//! The engine gets mapped spans from its caller and does not interpret the heap in them. It knows
//! page 0, which is sealed last, and the checksum tables.

mod apply;
mod chain;
pub(crate) mod checksums;
mod committed;
mod engine;
mod flusher;
mod folios;
pub(crate) mod locks;
mod log;
mod logging;
mod mapped_tables;
mod overlay;
mod pages;
mod progress;
mod ranges;
mod record;
mod recovery;
mod settings;
mod suspects;
mod target;
mod unreserved;
mod verify;

pub(crate) use engine::Engine;
pub(crate) use log::{Log, LogPosition};
pub(crate) use mapped_tables::{first_bad_mapped, judge_mapped, write_tables};
pub(crate) use overlay::Overlay;

#[cfg(test)]
pub(crate) use progress::sealed as seal_progress;
pub(crate) use record::for_each_run;
pub(crate) use recovery::{recover, release_log, set_log_required};
pub(crate) use settings::Deferral;
pub use settings::{Durability, ForeignPointers, InChildren, WhenLogFull, WriteOptions};
pub(crate) use suspects::{Suspect, Suspects};
pub(crate) use target::{Growth, LogPolicy, MappedFile, Span, Target, WriterKind};
pub(crate) use unreserved::Unreserved;
pub(crate) use verify::{BadPage, is_still_bad, verify_pages};
